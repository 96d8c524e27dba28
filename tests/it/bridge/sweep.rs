//! The sweep goes on where one bucket is damaged, makes a namespace again that Redis lost, follows
//! what the namespace keeps, and counts.

use std::sync::Arc;
use std::time::Duration;

use dwell::config::values::Millis;
use dwell::config::{Delivery, Settings};
use dwell::fleet::Fleet;
use dwell::http::Listener;
use dwell::http::server::probes;
use dwell::maintenance::gauges::JobGauges;
use dwell::maintenance::retention_options;
use dwell::readiness::Readiness;
use dwell::store::{Store, Unobserved};
use dwell_store::maintenance::heartbeat::heartbeat;
use dwell_store::maintenance::retention::Retention;
use dwell_testkit::servers::RedisOptions;
use redis::AsyncCommands;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use super::environment::Environment;

async fn joined(settings: &Settings) -> Arc<Store> {
    Arc::new(
        Store::open(&settings.redis, &["main".to_owned()], Arc::new(Unobserved)).await.unwrap(),
    )
}

#[tokio::test]
async fn a_namespace_that_redis_lost_is_made_again() {
    let env = Environment::idle(RedisOptions::default(), &[]).await;
    let store = joined(&env.settings).await;
    let mut link = crate::support::redis_link(env.redis.url()).await;
    let _: () = redis::cmd("FLUSHALL").query_async(&mut link).await.unwrap();
    retention(&store, &env.settings.delivery).run_once().await.unwrap();
    assert_eq!(env.store().await.keys().buckets(), store.keys().buckets());
}

#[tokio::test]
async fn a_damaged_bucket_keeps_no_other_from_being_swept() {
    let env = Environment::idle(RedisOptions::default(), &[("redis.buckets", "2")]).await;
    let store = joined(&env.settings).await;
    let mut link = crate::support::redis_link(env.redis.url()).await;
    let _: () = link.set(store.keys().dead(0), "damage").await.unwrap();
    let _: () = link.zadd(store.keys().dead(1), "long dead", 1000).await.unwrap();
    let swept = retention(&store, &env.settings.delivery).run_once().await;
    assert!(swept.unwrap_err().message.contains("WRONGTYPE"));
    let left: u64 = link.zcard(store.keys().dead(1)).await.unwrap();
    assert_eq!(left, 0);
}

#[tokio::test]
async fn what_the_namespace_keeps_rules_whatever_an_instance_is_set_to() {
    let env = Environment::idle(RedisOptions::default(), &[]).await;
    let store = joined(&env.settings).await;
    let mut link = crate::support::redis_link(env.redis.url()).await;
    // Of a version that kept none.
    let meta = format!("{}:meta", env.settings.redis.namespace);
    let _: () = link.hdel(&meta, &["dead_retention", "dedupe_window"]).await.unwrap();
    let sweep = |settings: &Settings| retention(&store, &settings.delivery);
    let first = sweep(&env.settings);
    first.run_once().await.unwrap();
    let kept: (u64, u64) = link.hmget(&meta, &["dead_retention", "dedupe_window"]).await.unwrap();
    assert_eq!(kept, (14 * 86_400_000, 120_000));

    let day_ago = store.read_clock().await.unwrap() / 1000 - 86_400_000;
    let _: () = link.zadd(store.keys().dead(0), "dead for a day", day_ago).await.unwrap();
    let dead = async || link.clone().zcard::<_, u64>(store.keys().dead(0)).await.unwrap();
    let mut other = env.settings.clone();
    other.delivery.dead_retention = Millis::of(3_600_000);
    sweep(&other).run_once().await.unwrap();
    assert_eq!(dead().await, 1, "the instance with the shortest retention decided for all");
    // Adopted, it counts for those that run.
    dwell::store::meta::adopt(&other.redis, (&other.delivery).into()).await.unwrap();
    first.run_once().await.unwrap();
    assert_eq!(dead().await, 0);
}

#[tokio::test]
async fn the_gauges_that_are_read_are_young_in_a_large_fleet_too() {
    let env = Environment::idle(RedisOptions::default(), &[]).await;
    let store = joined(&env.settings).await;
    let (sender, fleet) = tokio::sync::watch::channel(Fleet::alone("me"));
    let stop = CancellationToken::new();
    for n in 0..100 {
        store.beat(&format!("other-{n}")).await.unwrap();
    }
    tokio::spawn(heartbeat(store.clone(), sender, stop.clone()));
    let mut seen = fleet.clone();
    seen.wait_for(|fleet| fleet.shared(Duration::from_secs(1)) > Duration::from_secs(100))
        .await
        .unwrap();
    tokio::spawn(JobGauges::new(store.clone(), env.metrics.clone(), fleet).run(stop.clone()));
    let listener = Listener::bind("probes.listen", "127.0.0.1:0").await.unwrap();
    let address = listener.address();
    tokio::spawn(listener.serve(
        probes::router(Readiness::new([]), env.metrics.clone(), Default::default()),
        stop.clone(),
    ));
    let jobs = async || {
        let mut link = tokio::net::TcpStream::connect(address).await.unwrap();
        link.write_all(b"GET /metrics HTTP/1.1\r\nhost: dwell\r\nconnection: close\r\n\r\n")
            .await
            .unwrap();
        let mut answer = String::new();
        link.read_to_string(&mut answer).await.unwrap();
        crate::support::metric(&answer, r#"dwell_jobs{state="scheduled"}"#)
    };
    let mut link = crate::support::redis_link(env.redis.url()).await;
    for count in 1..=2 {
        let begun = std::time::Instant::now();
        let _: () = link
            .zadd(store.keys().due(0, "main"), format!("job-{count}"), 4_000_000_000_000_i64)
            .await
            .unwrap();
        crate::support::wait_until("the job is counted", async || {
            (jobs().await >= f64::from(count)).then_some(())
        })
        .await;
        // The first may have come with the first count of all; the second comes after a whole
        // pause, which is 15 s where nobody reads the gauges.
        assert!(
            begun.elapsed() < Duration::from_secs(13),
            "{count}: counted after {:?}",
            begun.elapsed()
        );
    }
    stop.cancel();
}

fn retention(store: &Arc<Store>, delivery: &Delivery) -> Retention {
    let fleet = tokio::sync::watch::channel(Fleet::alone("me")).1;
    Retention::new(store.clone(), retention_options(delivery), fleet)
}
