//! SIGTERM under load.

use std::time::{Duration, Instant};

use dwell::clock;
use dwell::servers::RedisOptions;

use super::load::{Job, When};
use super::rig::Rig;

const DRAIN: Duration = Duration::from_secs(10);
/// Jobs that are due at once when the word to stop comes.
const DUE: usize = 5000;

#[tokio::test]
async fn told_to_stop_under_load_it_drains_and_the_next_delivers_the_rest_as_first_attempts() {
    let rig = Rig::new("stop", RedisOptions::default(), "delivery.max_in_flight = 64\nshutdown.drain = \"10s\"").await;
    let mut first = rig.dwell().await;
    let due_ms = clock::wall_ms() + 4000;
    let jobs: Vec<Job> = (0..DUE).map(|n| Job { id: format!("due-{n}"), when: When::At(due_ms) }).collect();
    rig.producer().send(&jobs).await;
    let load = rig.load(60);
    rig.until_arrived(100).await;
    let arrived = rig.book.lock().distinct();
    rig.until_arrived(arrived.max(500)).await;
    let told = Instant::now();
    let status = first.stop().await.unwrap().unwrap();
    let took = told.elapsed();

    assert_eq!(status.code(), Some(0), "{status}");
    // A second is for requests to its HTTP that are being answered.
    assert!(took <= DRAIN + Duration::from_secs(1), "{took:?}");
    let counts = rig.store().await.counts(&[]).await.unwrap();
    assert_eq!(counts.reserved.iter().sum::<u64>(), 0, "every claim was settled or given back");
    assert!(counts.overdue > 0, "it stopped under load");

    let _second = rig.dwell().await;
    rig.until_arrived(DUE).await;
    load.finish().await;
    let left = rig.settled().await;
    assert_eq!(left.dead.iter().sum::<u64>(), 0);
    let book = rig.book.lock();
    assert_eq!(book.sound().len(), 0, "what was confirmed is not sent again");
    assert_eq!((book.attempts_burned(), book.uncertain()), (0, 0));
}
