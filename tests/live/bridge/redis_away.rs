//! Redis killed, and Redis frozen, under load.

use std::collections::HashSet;
use std::time::Duration;

use dwell_testkit::servers::{AppendFsync, RedisOptions};

use super::environment::{ACK_WAIT, Environment, TARGET, published, scraped};
use crate::support::{jetstream, wait_within};

const PAUSED: &str = r#"dwell_ingest_paused{reason="redis"}"#;

#[tokio::test]
async fn with_fsync_a_killed_redis_loses_nothing_and_repeats_nothing() {
    let options = RedisOptions { appendonly: Some(AppendFsync::Always), ..RedisOptions::default() };
    let mut env = Environment::new("fsync", options, "redis.durability = \"fsync\"").await;
    let dwell = env.dwell().await;
    let load = env.load(60);
    env.until_arrived(500).await;
    // In the middle of deliveries: then Redis goes, then it goes on.
    env.freeze_in_flight(&dwell, 10, &HashSet::new()).await;
    env.redis.kill().unwrap();
    dwell.thaw().unwrap();
    wait_within(Duration::from_secs(30), "the ingest waits", async || {
        (scraped(&dwell, PAUSED).await == 1).then_some(())
    })
    .await;
    env.redis.restart().await.unwrap();
    let arrived = env.ledger.lock().distinct();
    env.until_arrived(arrived + 1000).await;
    load.finish().await;
    let left = env.settled().await;

    assert_eq!(left.dead.iter().sum::<u64>(), 0);
    let ledger = env.ledger.lock();
    assert_eq!(
        ledger.sound().len(),
        0,
        "what Redis answered it kept, what it did not answer was asked again"
    );
    assert_eq!((ledger.attempts_burned(), ledger.uncertain()), (0, 0));
}

#[tokio::test]
async fn while_redis_is_frozen_requests_are_held_and_nothing_is_lost_or_repeated() {
    let env =
        Environment::new("frozen", RedisOptions::default(), "ingest.main.hold = \"10m\"").await;
    let dwell = env.dwell().await;
    let load = env.load(60);
    env.until_arrived(500).await;
    env.redis.freeze().unwrap();
    wait_within(Duration::from_secs(30), "the ingest waits", async || {
        (scraped(&dwell, PAUSED).await == 1).then_some(())
    })
    .await;
    // The outage is longer than JetStream's patience with a consumer that gives no sign of life,
    // and than calls to Redis wait.
    jetstream::until_patience_ends(env.nats.port(), "ORDERS", TARGET, ACK_WAIT).await;
    let timeouts = r#"dwell_redis_errors_total{class="timeout"}"#;
    wait_within(Duration::from_secs(30), "calls have timed out", async || {
        (scraped(&dwell, timeouts).await > 0).then_some(())
    })
    .await;
    let consumer = jetstream::consumer(env.nats.port(), "REQUESTS", "dwell").await;
    assert!(consumer["num_ack_pending"].as_u64().unwrap() > 0, "it holds what it read: {consumer}");
    assert_eq!(consumer["num_redelivered"], 0, "{consumer}");
    env.redis.thaw().unwrap();
    let arrived = env.ledger.lock().distinct();
    env.until_arrived(arrived + 1000).await;
    load.finish().await;
    let left = env.settled().await;

    assert_eq!(left.dead.iter().sum::<u64>(), 0);
    assert_eq!(env.redelivered().await, 0, "held means neither given back nor forgotten");
    assert_eq!(published(&dwell, "unknown").await, 0);
    let ledger = env.ledger.lock();
    assert_eq!((ledger.sound().len(), ledger.attempts_burned(), ledger.uncertain()), (0, 0, 0));
}
