//! The sweep goes on where one bucket is damaged, and makes a namespace again that Redis lost.

use std::sync::Arc;

use dwell::config::Settings;
use dwell::servers::RedisOptions;
use dwell::store::{Store, Unobserved};
use dwell::sweep::Sweep;
use redis::AsyncCommands;

use super::rig::Rig;

async fn joined(settings: &Settings) -> Arc<Store> {
    Arc::new(Store::open(&settings.redis, &["main".to_owned()], Arc::new(Unobserved)).await.unwrap())
}

#[tokio::test]
async fn a_namespace_that_redis_lost_is_made_again() {
    let rig = Rig::idle(RedisOptions::default(), &[]).await;
    let store = joined(&rig.settings).await;
    let mut link = crate::support::redis_link(rig.redis.url()).await;
    let _: () = redis::cmd("FLUSHALL").query_async(&mut link).await.unwrap();
    Sweep::new(store.clone(), &rig.settings.delivery, rig.metrics.clone(), alone()).run_once().await.unwrap();
    assert_eq!(rig.store().await.keys().buckets(), store.keys().buckets());
}

#[tokio::test]
async fn a_damaged_bucket_keeps_no_other_from_being_swept() {
    let rig = Rig::idle(RedisOptions::default(), &[("redis.buckets", "2")]).await;
    let store = joined(&rig.settings).await;
    let mut link = crate::support::redis_link(rig.redis.url()).await;
    let _: () = link.set(store.keys().dead(0), "damage").await.unwrap();
    let _: () = link.zadd(store.keys().dead(1), "long dead", 1000).await.unwrap();
    let swept = Sweep::new(store.clone(), &rig.settings.delivery, rig.metrics.clone(), alone()).run_once().await;
    assert!(swept.unwrap_err().message.contains("WRONGTYPE"));
    let left: u64 = link.zcard(store.keys().dead(1)).await.unwrap();
    assert_eq!(left, 0);
}

fn alone() -> tokio::sync::watch::Receiver<dwell::fleet::Fleet> {
    tokio::sync::watch::channel(dwell::fleet::Fleet::alone("me")).1
}
