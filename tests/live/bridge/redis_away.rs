//! Redis killed, and Redis frozen, under load.

use std::collections::HashSet;
use std::time::Duration;

use dwell_testkit::servers::{AppendFsync, RedisOptions};

use super::rig::{ACK_WAIT, Rig, TARGET, published, scraped};
use crate::support::{jetstream, wait_within};

const PAUSED: &str = r#"dwell_ingest_paused{reason="redis"}"#;

#[tokio::test]
async fn with_fsync_a_killed_redis_loses_nothing_and_repeats_nothing() {
    let options = RedisOptions { appendonly: Some(AppendFsync::Always), ..RedisOptions::default() };
    let mut rig = Rig::new("fsync", options, "redis.durability = \"fsync\"").await;
    let dwell = rig.dwell().await;
    let load = rig.load(60);
    rig.until_arrived(500).await;
    // In the middle of deliveries: then Redis goes, then it goes on.
    rig.freeze_in_flight(&dwell, 10, &HashSet::new()).await;
    rig.redis.kill().unwrap();
    dwell.thaw().unwrap();
    wait_within(Duration::from_secs(30), "the ingest waits", async || (scraped(&dwell, PAUSED).await == 1).then_some(())).await;
    rig.redis.restart().await.unwrap();
    let arrived = rig.book.lock().distinct();
    rig.until_arrived(arrived + 1000).await;
    load.finish().await;
    let left = rig.settled().await;

    assert_eq!(left.dead.iter().sum::<u64>(), 0);
    let book = rig.book.lock();
    assert_eq!(book.sound().len(), 0, "what Redis answered it kept, what it did not answer was asked again");
    assert_eq!((book.attempts_burned(), book.uncertain()), (0, 0));
}

#[tokio::test]
async fn while_redis_is_frozen_requests_are_held_and_nothing_is_lost_or_repeated() {
    let rig = Rig::new("frozen", RedisOptions::default(), "ingest.main.hold = \"10m\"").await;
    let dwell = rig.dwell().await;
    let load = rig.load(60);
    rig.until_arrived(500).await;
    rig.redis.freeze().unwrap();
    wait_within(Duration::from_secs(30), "the ingest waits", async || (scraped(&dwell, PAUSED).await == 1).then_some(())).await;
    // The outage is longer than JetStream's patience with who gives no sign of life, and than calls to Redis wait.
    jetstream::until_patience_ends(rig.nats.port(), "ORDERS", TARGET, ACK_WAIT).await;
    let timeouts = r#"dwell_redis_errors_total{class="timeout"}"#;
    wait_within(Duration::from_secs(30), "calls have timed out", async || (scraped(&dwell, timeouts).await > 0).then_some(())).await;
    let consumer = jetstream::consumer(rig.nats.port(), "REQUESTS", "dwell").await;
    assert!(consumer["num_ack_pending"].as_u64().unwrap() > 0, "it holds what it read: {consumer}");
    assert_eq!(consumer["num_redelivered"], 0, "{consumer}");
    rig.redis.thaw().unwrap();
    let arrived = rig.book.lock().distinct();
    rig.until_arrived(arrived + 1000).await;
    load.finish().await;
    let left = rig.settled().await;

    assert_eq!(left.dead.iter().sum::<u64>(), 0);
    assert_eq!(rig.redelivered().await, 0, "held means neither given back nor forgotten");
    assert_eq!(published(&dwell, "unknown").await, 0);
    let book = rig.book.lock();
    assert_eq!((book.sound().len(), book.attempts_burned(), book.uncertain()), (0, 0, 0));
}
