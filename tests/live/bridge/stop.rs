//! SIGTERM under load.

use std::time::{Duration, Instant};

use dwell::clock;
use dwell_testkit::servers::{DwellServer, RedisOptions};

use super::environment::{Environment, scraped};
use super::load::{Job, When};
use crate::support::wait_until;

const DRAIN: Duration = Duration::from_secs(10);
/// Jobs that are due at once when the word to stop comes.
const DUE: usize = 15_000;

/// An instance in the middle of very many jobs that are due.
async fn busy(test: &str, settings: &str) -> (Environment, DwellServer) {
    let env = Environment::new(
        test,
        RedisOptions::default(),
        &format!("{settings}\nshutdown.drain = \"10s\""),
    )
    .await;
    let dwell = env.dwell().await;
    let due_ms = clock::wall_ms() + 10_000;
    let jobs: Vec<Job> =
        (0..DUE).map(|n| Job { id: format!("due-{n}"), when: When::At(due_ms) }).collect();
    env.producer().send(&jobs).await;
    (env, dwell)
}

/// Tells it to stop, and does this once it drains.
async fn told_to_stop(dwell: &mut DwellServer, meanwhile: impl FnOnce()) {
    let log = dwell.dir().join("log");
    let draining = async {
        wait_until("it drains", async || {
            std::fs::read_to_string(&log).unwrap().contains("draining").then_some(())
        })
        .await;
        meanwhile();
    };
    let told = Instant::now();
    let (status, ()) = tokio::join!(dwell.stop(), draining);
    let (status, took) = (status.unwrap().unwrap(), told.elapsed());
    assert_eq!(status.code(), Some(0), "{status}");
    // A second is for requests to its HTTP that are being answered, the rest for a busy machine.
    assert!(took <= DRAIN + Duration::from_secs(5), "{took:?}");
}

/// Nothing is out, much is left; the next instance delivers it, as if nothing had been.
async fn the_next_delivers_the_rest(env: &Environment) {
    let counts = env.store().await.reader.counts(&[]).await.unwrap();
    assert_eq!(counts.reserved.iter().sum::<u64>(), 0, "every claim was settled or given back");
    assert!(counts.overdue > 0, "it stopped under load");
    let _next = env.dwell().await;
    let left = env.settled().await;
    assert_eq!(left.dead.iter().sum::<u64>(), 0);
    let ledger = env.ledger.lock();
    assert_eq!(ledger.sound().len(), 0, "what was confirmed is not sent again");
    assert_eq!((ledger.attempts_burned(), ledger.uncertain()), (0, 0));
    assert!(ledger.count() >= DUE);
}

#[tokio::test]
async fn told_to_stop_under_load_it_drains_and_the_next_delivers_the_rest_as_first_attempts() {
    let (env, mut dwell) = busy("stop", "delivery.max_in_flight = 64").await;
    let load = env.load(60);
    env.until_arrived(500).await;
    told_to_stop(&mut dwell, || ()).await;
    // Requests that come while nobody reads.
    load.finish().await;
    the_next_delivers_the_rest(&env).await;
}

#[tokio::test]
async fn told_to_stop_it_waits_for_confirms_that_are_out() {
    let (env, mut dwell) = busy("stop-confirms", "delivery.max_in_flight = 64").await;
    env.until_arrived(500).await;
    env.nats.freeze().unwrap();
    env.until_in_flight(64).await;
    told_to_stop(&mut dwell, || env.nats.thaw().unwrap()).await;
    the_next_delivers_the_rest(&env).await;
}

#[tokio::test]
async fn told_to_stop_it_gives_back_what_a_claim_takes_meanwhile() {
    let (env, mut dwell) = busy("stop-claims", "").await;
    env.until_arrived(500).await;
    // Claims are out, and answered when it stops.
    env.redis.freeze().unwrap();
    told_to_stop(&mut dwell, || env.redis.thaw().unwrap()).await;
    the_next_delivers_the_rest(&env).await;
}

#[tokio::test]
async fn told_to_stop_it_gives_back_what_a_claim_took_whose_answer_was_lost() {
    let (env, mut dwell) = busy("stop-lost-claims", "").await;
    env.until_arrived(500).await;
    env.redis.freeze().unwrap();
    // Claims are out, and given up as lost.
    let timeouts = r#"dwell_redis_errors_total{class="timeout"}"#;
    wait_until("claims are lost", async || (scraped(&dwell, timeouts).await >= 4).then_some(()))
        .await;
    told_to_stop(&mut dwell, || env.redis.thaw().unwrap()).await;
    the_next_delivers_the_rest(&env).await;
}
