//! Two instances on one namespace.

use dwell::servers::RedisOptions;

use super::load::mixed;
use super::rig::{Rig, published, scraped};

const JOBS: usize = 8000;

#[tokio::test]
async fn two_instances_share_the_load_and_publish_no_job_twice() {
    // Many buckets, so that chance gives each instance its part of them.
    let rig = Rig::new("fleet", RedisOptions::default(), "redis.buckets = 64").await;
    let (one, two) = tokio::join!(rig.dwell(), rig.dwell());
    let mut producer = rig.producer();
    for chunk in 0..16 {
        producer.send(&mixed(chunk * JOBS / 16..(chunk + 1) * JOBS / 16)).await;
    }
    let left = rig.settled().await;
    assert_eq!(left.dead.iter().sum::<u64>(), 0);

    let parts = [published(&one, "confirmed").await, published(&two, "confirmed").await];
    assert_eq!(parts.iter().sum::<u64>(), JOBS as u64, "JetStream's own deduplication could hide a repeat, this count does not: {parts:?}");
    assert!(parts.iter().all(|part| *part >= JOBS as u64 / 10), "both deliver: {parts:?}");
    for dwell in [&one, &two] {
        for series in [
            "dwell_leases_lost_total",
            r#"dwell_possible_duplicates_total{cause="unknown_outcome"}"#,
            r#"dwell_possible_duplicates_total{cause="lease_lost"}"#,
            r#"dwell_possible_duplicates_total{cause="rescued"}"#,
        ] {
            assert_eq!(scraped(dwell, series).await, 0, "{series}");
        }
    }
    let book = rig.book.lock();
    assert_eq!((book.sound().len(), book.total(), book.attempts_burned(), book.uncertain()), (0, JOBS, 0, 0));
}
