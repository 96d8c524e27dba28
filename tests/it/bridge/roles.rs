//! Instances that only read requests beside instances that only deliver.

use dwell::runtime::Roles;
use dwell_testkit::servers::RedisOptions;
use futures_util::StreamExt;

use super::environment::{Environment, request};
use crate::support::DEADLINE;

#[tokio::test]
async fn an_instance_that_delivers_nothing_wakes_those_that_do() {
    let mut env = Environment::idle(RedisOptions::default(), &[]).await;
    env.run(Roles { ingest: true, dispatch: false }).await;
    let channel = env.store().await.keys().wake();
    let mut wakes = redis::Client::open(env.redis.url()).unwrap().get_async_pubsub().await.unwrap();
    wakes.subscribe(&channel).await.unwrap();
    env.send(request("x", "1h"));
    let woken = tokio::time::timeout(DEADLINE, wakes.on_message().next())
        .await
        .expect("a wake-up for the new head")
        .unwrap();
    let text: String = woken.get_payload().unwrap();
    assert!(text.ends_with(" main"), "{text}");
}
