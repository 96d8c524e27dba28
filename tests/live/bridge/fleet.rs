//! Several instances on one namespace: they share the load, and one hears of its jobs whatever the
//! others serve.

use std::time::Duration;

use dwell::clock;
use dwell::job::Target;
use dwell_connectors::Destination;
use dwell_testkit::servers::{DwellServer, RedisOptions};

use super::environment::{Environment, SETTLE, TARGET, published, scraped};
use super::load::mixed;
use crate::store::fixture::{MAIN, PAST, open, request};
use crate::support::{redis_link, wait_until, wait_within};

const JOBS: usize = 8000;
/// Entries of instances that do nothing but live.
const IDLE_INSTANCES: usize = 200;
/// Far less than the 50 s between two polls of one among 201.
const SOON_TIMEOUT: Duration = Duration::from_secs(20);

/// Has 200 others live beside this instance, each entered so, and waits until it knows of them.
async fn crowd(env: &Environment, dwell: &DwellServer, entry: impl Fn(usize) -> String) {
    let mut link = redis_link(env.redis.url()).await;
    let mut enter = redis::cmd("ZADD");
    enter.arg(format!("{}:instances", env.settings.redis.namespace));
    for n in 0..IDLE_INSTANCES {
        enter.arg(clock::wall_ms() + 3_600_000).arg(entry(n));
    }
    enter.query_async::<()>(&mut link).await.unwrap();
    let log = dwell.dir().join("log");
    wait_within(SETTLE, "it knows of the others", async || {
        std::fs::read_to_string(&log)
            .unwrap()
            .contains(&format!("\"instances\":{},", IDLE_INSTANCES + 1))
            .then_some(())
    })
    .await;
}

/// A job that is due, of which no instance is told.
async fn untold(env: &Environment, id: &str) {
    let mut due = request(id, 1, PAST);
    due.job.target = Target::Broker { broker: MAIN.to_owned(), to: Destination::new(TARGET) };
    open(&env.settings.redis, &[MAIN]).await.jobs.schedule(&[due]).await.unwrap();
}

async fn arrives_soon(env: &Environment, id: &str) {
    wait_within(SOON_TIMEOUT, &format!("{id} arrives"), async || {
        (env.ledger.lock().arrivals_of(id) == 1).then_some(())
    })
    .await;
}

#[tokio::test]
async fn instances_that_serve_other_brokers_do_not_slow_the_one_that_serves_this() {
    let env = Environment::new("crowd", RedisOptions::default(), "").await;
    let dwell = env.dwell().await;
    crowd(&env, &dwell, |n| format!("other-{n} elsewhere,far-off")).await;
    for n in 0..4 {
        untold(&env, &format!("untold-{n}")).await;
    }
    for n in 0..4 {
        arrives_soon(&env, &format!("untold-{n}")).await;
    }
}

#[tokio::test]
async fn a_listener_that_was_cut_reads_every_bucket_when_it_hears_again() {
    let env = Environment::new("deaf", RedisOptions::default(), "").await;
    let dwell = env.dwell().await;
    // Of an older version, which tells no brokers: each serves all of them.
    crowd(&env, &dwell, |n| format!("other-{n}")).await;
    let mut link = redis_link(env.redis.url()).await;
    for n in 0..4 {
        untold(&env, &format!("untold-{n}")).await;
        // The one that was cut before may not listen again yet: the job came by what it read as it
        // began to.
        wait_until("a listener is cut", async || {
            let cut: u64 = redis::cmd("CLIENT")
                .arg("KILL")
                .arg("TYPE")
                .arg("pubsub")
                .query_async(&mut link)
                .await
                .unwrap();
            (cut == 1).then_some(())
        })
        .await;
        arrives_soon(&env, &format!("untold-{n}")).await;
    }
}

#[tokio::test]
async fn two_instances_share_the_load_and_publish_no_job_twice() {
    // Many buckets, so that chance gives each instance its part of them.
    let env = Environment::new("fleet", RedisOptions::default(), "redis.buckets = 64").await;
    let (one, two) = tokio::join!(env.dwell(), env.dwell());
    let mut producer = env.producer();
    for chunk in 0..16 {
        producer.send(&mixed(chunk * JOBS / 16..(chunk + 1) * JOBS / 16)).await;
    }
    let left = env.settled().await;
    assert_eq!(left.dead.iter().sum::<u64>(), 0);

    let parts = [published(&one, "confirmed").await, published(&two, "confirmed").await];
    assert_eq!(
        parts.iter().sum::<u64>(),
        JOBS as u64,
        "JetStream's own deduplication could hide a repeat, this count does not: {parts:?}"
    );
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
    let ledger = env.ledger.lock();
    assert_eq!(
        (ledger.sound().len(), ledger.total(), ledger.attempts_burned(), ledger.uncertain()),
        (0, JOBS, 0, 0)
    );
}
