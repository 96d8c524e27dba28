//! SIGTERM under load.

use std::time::{Duration, Instant};

use dwell::clock;
use dwell_testkit::servers::{DwellServer, RedisOptions};

use super::load::{Job, When};
use super::rig::{Rig, scraped};
use crate::support::wait_until;

const DRAIN: Duration = Duration::from_secs(10);
/// Jobs that are due at once when the word to stop comes.
const DUE: usize = 5000;

/// An instance in the middle of very many jobs that are due.
async fn busy(test: &str, settings: &str) -> (Rig, DwellServer) {
    let rig = Rig::new(test, RedisOptions::default(), &format!("{settings}\nshutdown.drain = \"10s\"")).await;
    let dwell = rig.dwell().await;
    let due_ms = clock::wall_ms() + 4000;
    let jobs: Vec<Job> = (0..DUE).map(|n| Job { id: format!("due-{n}"), when: When::At(due_ms) }).collect();
    rig.producer().send(&jobs).await;
    (rig, dwell)
}

/// Tells it to stop, and does this once it drains.
async fn told_to_stop(dwell: &mut DwellServer, meanwhile: impl FnOnce()) {
    let log = dwell.dir().join("log");
    let draining = async {
        wait_until("it drains", async || std::fs::read_to_string(&log).unwrap().contains("draining").then_some(())).await;
        meanwhile();
    };
    let told = Instant::now();
    let (status, ()) = tokio::join!(dwell.stop(), draining);
    let (status, took) = (status.unwrap().unwrap(), told.elapsed());
    assert_eq!(status.code(), Some(0), "{status}");
    // A second is for requests to its HTTP that are being answered.
    assert!(took <= DRAIN + Duration::from_secs(1), "{took:?}");
}

/// Nothing is out, much is left; the next instance delivers it, as if nothing had been.
async fn the_next_delivers_the_rest(rig: &Rig) {
    let counts = rig.store().await.counts(&[]).await.unwrap();
    assert_eq!(counts.reserved.iter().sum::<u64>(), 0, "every claim was settled or given back");
    assert!(counts.overdue > 0, "it stopped under load");
    let _next = rig.dwell().await;
    let left = rig.settled().await;
    assert_eq!(left.dead.iter().sum::<u64>(), 0);
    let book = rig.book.lock();
    assert_eq!(book.sound().len(), 0, "what was confirmed is not sent again");
    assert_eq!((book.attempts_burned(), book.uncertain()), (0, 0));
    assert!(book.count() >= DUE);
}

#[tokio::test]
async fn told_to_stop_under_load_it_drains_and_the_next_delivers_the_rest_as_first_attempts() {
    let (rig, mut dwell) = busy("stop", "delivery.max_in_flight = 64").await;
    let load = rig.load(60);
    rig.until_arrived(500).await;
    told_to_stop(&mut dwell, || ()).await;
    // Requests that come while nobody reads.
    load.finish().await;
    the_next_delivers_the_rest(&rig).await;
}

#[tokio::test]
async fn told_to_stop_it_waits_for_confirms_that_are_out() {
    let (rig, mut dwell) = busy("stop-confirms", "delivery.max_in_flight = 64").await;
    rig.until_arrived(500).await;
    rig.nats.freeze().unwrap();
    rig.until_in_flight(64).await;
    told_to_stop(&mut dwell, || rig.nats.thaw().unwrap()).await;
    the_next_delivers_the_rest(&rig).await;
}

#[tokio::test]
async fn told_to_stop_it_gives_back_what_a_claim_takes_meanwhile() {
    let (rig, mut dwell) = busy("stop-claims", "").await;
    rig.until_arrived(500).await;
    // Claims are out, and answered when it stops.
    rig.redis.freeze().unwrap();
    told_to_stop(&mut dwell, || rig.redis.thaw().unwrap()).await;
    the_next_delivers_the_rest(&rig).await;
}

#[tokio::test]
async fn told_to_stop_it_gives_back_what_a_claim_took_whose_answer_was_lost() {
    let (rig, mut dwell) = busy("stop-lost-claims", "").await;
    rig.until_arrived(500).await;
    rig.redis.freeze().unwrap();
    // Claims are out, and given up as lost.
    let timeouts = r#"dwell_redis_errors_total{class="timeout"}"#;
    wait_until("claims are lost", async || (scraped(&dwell, timeouts).await >= 4).then_some(())).await;
    told_to_stop(&mut dwell, || rig.redis.thaw().unwrap()).await;
    the_next_delivers_the_rest(&rig).await;
}
