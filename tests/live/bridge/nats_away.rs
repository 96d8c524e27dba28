//! NATS killed and started again on its data, under load.

use std::collections::HashSet;

use dwell_testkit::servers::RedisOptions;

use super::load::{Job, When};
use super::rig::{Rig, published};
use crate::support::wait_until;

const RETRY: &str = r#"delivery.retry = ["200ms", "400ms", "1s", "1s", "1s", "1s", "1s", "1s"]"#;
/// What each end of NATS hits at least.
const LEAST: usize = 10;

#[tokio::test]
async fn a_killed_nats_burns_only_attempts_whose_outcome_is_unknown_and_loses_nothing() {
    let mut rig = Rig::new("nats-away", RedisOptions::default(), RETRY).await;
    let dwell = rig.dwell().await;
    let load = rig.load(60);
    rig.until_arrived(500).await;
    // What NATS took is confirmed, and the confirms are lost with it, or not: Dwell looks only after.
    rig.freeze_in_flight(&dwell, LEAST, &HashSet::new()).await;
    rig.nats.kill().unwrap();
    dwell.thaw().unwrap();
    rig.nats.restart().await.unwrap();

    let arrived = rig.book.lock().distinct();
    rig.until_arrived(arrived + 500).await;
    // What NATS never looked at is published without a confirm.
    rig.nats.freeze().unwrap();
    rig.until_in_flight(LEAST).await;
    rig.nats.kill().unwrap();
    rig.nats.restart().await.unwrap();

    let arrived = rig.book.lock().distinct();
    rig.until_arrived(arrived + 500).await;
    load.finish().await;
    let left = rig.settled().await;
    assert_eq!(left.dead.iter().sum::<u64>(), 0);

    let (confirmed, unknown) = (published(&dwell, "confirmed").await, published(&dwell, "unknown").await);
    let book = rig.book.lock();
    let copies = book.sound();
    println!(
        "{} jobs and {} that the producer is not sure of, {confirmed} confirmed, {unknown} unknown, {} copies",
        book.count(),
        book.uncertain(),
        copies.len()
    );
    assert!(unknown >= LEAST as u64);
    assert_eq!(confirmed, book.distinct() as u64, "each was confirmed once");
    assert_eq!(book.attempts_burned(), unknown, "an attempt is burned where its outcome is unknown, and nowhere else");
    assert!(copies.values().sum::<usize>() as u64 <= unknown);
}

#[tokio::test]
async fn requests_whose_acknowledgements_are_lost_come_again_and_change_nothing() {
    const JOBS: usize = 300;
    let mut rig = Rig::new("acks-lost", RedisOptions::default(), RETRY).await;
    let dwell = rig.dwell().await;
    // Dwell reads them, and can store them only when NATS hears nothing any more.
    rig.redis.freeze().unwrap();
    let jobs: Vec<Job> = (0..JOBS).map(|n| Job { id: format!("job-{n}"), when: When::In(0) }).collect();
    rig.producer().send(&jobs).await;
    rig.until_held(JOBS as u64).await;
    rig.nats.freeze().unwrap();
    rig.redis.thaw().unwrap();
    let store = rig.store().await;
    wait_until("all are stored", async || {
        let counts = store.counts(&[]).await.ok()?;
        (counts.scheduled.iter().chain(&counts.reserved).sum::<u64>() == JOBS as u64).then_some(())
    })
    .await;
    rig.nats.kill().unwrap();
    rig.nats.restart().await.unwrap();
    rig.until_arrived(JOBS).await;
    // Until JetStream has its acknowledgements: most jobs are over when their requests come again.
    let left = rig.settled().await;

    assert_eq!(left.dead.iter().sum::<u64>(), 0);
    assert!(rig.redelivered().await > 0, "the acknowledgements were lost");
    assert_eq!(published(&dwell, "confirmed").await, JOBS as u64);
    let book = rig.book.lock();
    assert_eq!((book.sound().len(), book.count(), book.total()), (0, JOBS, JOBS));
}
