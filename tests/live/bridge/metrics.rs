//! The metrics and the ledger tell the same story.

use dwell::clock;
use dwell_connectors::{Message, Outcome};
use dwell_testkit::servers::RedisOptions;

use super::environment::{Environment, published, scraped};
use super::load::mixed;
use crate::support::wait_until;

const JOBS: usize = 3000;
const AGAIN: usize = 40;
const BAD: usize = 30;
const CANCELLED: usize = 20;
const LATER: usize = 10;
const DEAD: usize = 5;

async fn ingested(dwell: &dwell_testkit::servers::DwellServer, result: &str) -> u64 {
    scraped(dwell, &format!("dwell_ingest_total{{ingest=\"main\",result=\"{result}\"}}")).await
}

/// A job for this target that the ledger does not know.
fn other(id: &str, delay: &str, target: &str) -> Message {
    Message::new(id.to_owned())
        .with_header("delay-id", id)
        .with_header("delay-for", delay)
        .with_header("delay-target", target)
}

#[tokio::test]
async fn after_a_run_without_faults_the_metrics_say_what_the_ledger_says() {
    let env = Environment::new("metrics", RedisOptions::default(), "").await;
    let dwell = env.dwell().await;
    let mut producer = env.producer();
    producer.send(&mixed(0..JOBS)).await;

    // Twice in a row, within one reader: the second changes nothing.
    let far = clock::wall_ms() + 3_600_000;
    let same = |n: usize| {
        Message::new("same")
            .with_header("delay-id", format!("later-{n}"))
            .with_header("delay-until", far.to_string())
    };
    let same = |n: usize| same(n).with_header("delay-target", "orders.new");
    let mut messages: Vec<Message> = (0..LATER).map(same).collect();
    messages.extend((0..AGAIN).map(|n| same(n % LATER)));
    messages.extend((0..BAD).map(|n| other(&format!("bad-{n}"), "soon", "orders.new")));
    messages.extend((0..CANCELLED).map(|n| other(&format!("cancelled-{n}"), "1h", "orders.new")));
    let cancel = |n: usize| {
        Message::new("")
            .with_header("delay-action", "cancel")
            .with_header("delay-id", format!("cancelled-{n}"))
    };
    messages.extend((0..CANCELLED).map(cancel));
    // No stream takes that subject.
    messages.extend((0..DEAD).map(|n| {
        other(&format!("dead-{n}"), "0", "orders.nobody").with_header("delay-retry", "none")
    }));
    let outcomes = producer.publish(messages).await;
    assert!(outcomes.iter().all(|outcome| *outcome == Some(Outcome::Confirmed)), "{outcomes:?}");
    env.until_arrived(JOBS).await;
    let jobs = |state: &str| format!("dwell_jobs{{state=\"{state}\"}}");
    // The gauges are taken every few seconds.
    wait_until("the gauges show what is left", async || {
        let left = [
            scraped(&dwell, &jobs("scheduled")).await,
            scraped(&dwell, &jobs("reserved")).await,
            scraped(&dwell, &jobs("dead")).await,
        ];
        (left == [LATER as u64, 0, DEAD as u64]).then_some(())
    })
    .await;

    let results = [
        ingested(&dwell, "scheduled"),
        ingested(&dwell, "duplicate"),
        ingested(&dwell, "rejected"),
        ingested(&dwell, "action"),
    ];
    let results = futures_util::future::join_all(results).await;
    assert_eq!(
        results,
        [JOBS + LATER + CANCELLED + DEAD, AGAIN, BAD, CANCELLED].map(|count| count as u64)
    );
    for (outcome, count) in
        [("confirmed", JOBS), ("unroutable", DEAD), ("refused", 0), ("invalid", 0), ("unknown", 0)]
    {
        assert_eq!(published(&dwell, outcome).await, count as u64, "{outcome}");
    }
    for (series, count) in [
        ("dwell_lateness_seconds_count", JOBS),
        ("dwell_confirm_seconds_count", JOBS),
        (r#"dwell_dead_total{reason="retries_exhausted"}"#, DEAD),
        (r#"dwell_cancelled_total{verdict="cancelled"}"#, CANCELLED),
        ("dwell_leases_lost_total", 0),
        (r#"dwell_possible_duplicates_total{cause="unknown_outcome"}"#, 0),
        (r#"dwell_broker_connected{broker="main"}"#, 1),
    ] {
        assert_eq!(scraped(&dwell, series).await, count as u64, "{series}");
    }
    let store = env.store().await.reader.counts(&[]).await.unwrap();
    assert_eq!(
        (store.scheduled.iter().sum::<u64>(), store.dead.iter().sum::<u64>()),
        (LATER as u64, DEAD as u64)
    );
    let ledger = env.ledger.lock();
    assert_eq!(
        (ledger.sound().len(), ledger.count(), ledger.total(), ledger.attempts_burned()),
        (0, JOBS, JOBS, 0)
    );
}
