//! NATS killed and started again on its data, under load.

use std::collections::HashSet;

use dwell_testkit::servers::RedisOptions;

use super::environment::{Environment, published, scraped};
use super::load::{Job, When};
use crate::support::wait_until;

const RETRY: &str = r#"delivery.retry = ["200ms", "400ms", "1s", "1s", "1s", "1s", "1s", "1s"]"#;
/// The fewest jobs in flight that each end of NATS hits.
const MIN_IN_FLIGHT: usize = 10;

#[tokio::test]
async fn a_killed_nats_burns_only_attempts_whose_outcome_is_unknown_and_loses_nothing() {
    let mut env = Environment::new("nats-away", RedisOptions::default(), RETRY).await;
    let dwell = env.dwell().await;
    let load = env.load(60);
    env.until_arrived(500).await;
    // NATS confirms the jobs that it took, and the confirms are lost with it, or not: Dwell looks
    // only after.
    env.freeze_in_flight(&dwell, MIN_IN_FLIGHT, &HashSet::new()).await;
    env.nats.kill().unwrap();
    dwell.thaw().unwrap();
    env.nats.restart().await.unwrap();

    let arrived = env.ledger.lock().distinct();
    env.until_arrived(arrived + 500).await;
    // Jobs that NATS never looked at are published without a confirm.
    env.nats.freeze().unwrap();
    env.until_in_flight(MIN_IN_FLIGHT).await;
    env.nats.kill().unwrap();
    env.nats.restart().await.unwrap();

    let arrived = env.ledger.lock().distinct();
    env.until_arrived(arrived + 500).await;
    load.finish().await;
    let left = env.settled().await;
    assert_eq!(left.dead.iter().sum::<u64>(), 0);

    let (confirmed, unknown) =
        (published(&dwell, "confirmed").await, published(&dwell, "unknown").await);
    let ledger = env.ledger.lock();
    let copies = ledger.sound();
    println!(
        "{} jobs and {} that the producer is not sure of, {confirmed} confirmed, {unknown} unknown, {} copies",
        ledger.count(),
        ledger.uncertain(),
        copies.len()
    );
    assert!(unknown >= MIN_IN_FLIGHT as u64);
    assert_eq!(confirmed, ledger.distinct() as u64, "each was confirmed once");
    assert_eq!(
        ledger.attempts_burned(),
        unknown,
        "an attempt is burned where its outcome is unknown, and nowhere else"
    );
    assert!(copies.values().sum::<usize>() as u64 <= unknown);
}

#[tokio::test]
async fn requests_whose_acknowledgements_are_lost_come_again_and_change_nothing() {
    const JOBS: usize = 300;
    let mut env = Environment::new("acks-lost", RedisOptions::default(), RETRY).await;
    let dwell = env.dwell().await;
    // Dwell reads them, and can store them only when NATS hears nothing any more.
    env.redis.freeze().unwrap();
    let jobs: Vec<Job> =
        (0..JOBS).map(|n| Job { id: format!("job-{n}"), when: When::In(0) }).collect();
    env.producer().send(&jobs).await;
    env.until_held(JOBS as u64).await;
    env.nats.freeze().unwrap();
    env.redis.thaw().unwrap();
    let store = env.store().await;
    wait_until("all are stored", async || {
        let counts = store.reader.counts(&[]).await.ok()?;
        (counts.scheduled.iter().chain(&counts.reserved).sum::<u64>() == JOBS as u64).then_some(())
    })
    .await;
    env.nats.kill().unwrap();
    env.nats.restart().await.unwrap();
    env.until_arrived(JOBS).await;
    // Until JetStream has its acknowledgements: most jobs are over when their requests come again.
    let left = env.settled().await;

    assert_eq!(left.dead.iter().sum::<u64>(), 0);
    // Dwell is asked, not NATS: a killed NATS may not have written down that it delivered them. The
    // store answers a request that comes again as it did at first.
    let read = scraped(&dwell, "dwell_ingest_total{ingest=\"main\",result=\"scheduled\"}").await;
    assert!(read >= 2 * JOBS as u64, "only {read} requests, where {JOBS} came twice");
    assert_eq!(published(&dwell, "confirmed").await, JOBS as u64);
    let ledger = env.ledger.lock();
    assert_eq!((ledger.sound().len(), ledger.count(), ledger.total()), (0, JOBS, JOBS));
}
