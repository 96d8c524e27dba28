//! Faults of a link.

use std::time::Duration;

use dwell::clock;
use dwell_testkit::servers::BrokerKind;
use rand::RngExt;
use rand::rngs::StdRng;

use super::{Done, Injection, Outcome};
use crate::chaos::history::Only;
use crate::chaos::proxy::{Direction, Flow, Proxy};
use crate::chaos::system::{Error, System};
use crate::chaos::wait::until;

/// The delay each way.
pub(super) const SLOW_DELAY: Duration = Duration::from_millis(100);
/// The throughput of each connection, bytes a second.
pub(super) const THIN_BYTES_PER_SECOND: u32 = 20_000;

/// The longest time until the other instances serve the returned requests and the abandoned claims:
/// a Kafka session and a lease.
const TAKE_OVER_TIME: Duration = Duration::from_secs(13);
/// The further time that the instance is cut off, so that unserved jobs of others show.
const EXTRA_HOLD: Duration = Duration::from_secs(15);

/// The longest time until the instances read a request.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Heals the link on drop.
pub(super) struct Broken<'a>(&'a Proxy);

impl Drop for Broken<'_> {
    fn drop(&mut self) {
        self.0.heal();
    }
}

pub(super) async fn cut(link: &Proxy, hold: Duration) -> Outcome {
    let _broken = Broken(link);
    let open = link.open();
    link.cut();
    clock::sleep(hold).await;
    Ok(Done::new(format!("{open} connections")))
}

/// Resets every connection, and new ones too, until dropped.
pub(super) fn refused(link: &Proxy) -> Broken<'_> {
    link.cut();
    Broken(link)
}

/// Transfers nothing from Dwell to the server until dropped.
pub(super) fn silenced(link: &Proxy) -> Broken<'_> {
    link.set(Direction::Up, Flow::Stall);
    Broken(link)
}

/// Treats the bytes to the server and from it so.
pub(super) async fn flows(link: &Proxy, [up, down]: [Flow; 2], hold: Duration) -> Outcome {
    let _broken = Broken(link);
    link.set(Direction::Up, up);
    link.set(Direction::Down, down);
    clock::sleep(hold).await;
    Ok(Done::new(format!("{} connections, {down:?}", link.open())))
}

pub(super) async fn half_open(link: &Proxy, hold: Duration) -> Outcome {
    let open = link.open();
    let _stranded = link.strand();
    clock::sleep(hold).await;
    Ok(Done::new(format!("{open} connections")))
}

/// An instance that reads requests: on Kafka, where a partition has one reader, the one whose count
/// of requests rises; else any.
async fn reader(system: &System, rng: &mut StdRng) -> Result<usize, Error> {
    let any = rng.random_range(0..system.instances.len());
    if system.options().broker != BrokerKind::Kafka {
        return Ok(any);
    }
    let mut before: Vec<u64> = Vec::new();
    let mut found = None;
    until(READ_TIMEOUT, "no instance read a request", async || {
        let mut now = Vec::new();
        for instance in &system.instances {
            now.push(read_by(&instance.server.lock().await.metrics().await?));
        }
        found = before.iter().zip(&now).position(|(before, now)| now > before);
        before = now;
        Ok(found.is_some())
    })
    .await?;
    Ok(found.unwrap_or(any))
}

/// The number of requests that an instance has stored.
fn read_by(metrics: &str) -> u64 {
    let lines = metrics.lines().filter(|line| line.starts_with("dwell_ingest_total{"));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

/// Cuts one instance off from Redis for longer than `hold`; the others keep their links.
pub(super) async fn instance_cut_off(Injection { system, rng, hold }: Injection<'_>) -> Outcome {
    let number = reader(system, rng).await?;
    let link = &system.instances[number].redis;
    // The longest `hold` of the ingests.
    let held_ms = system.settings().ingest.values().map(|ingest| ingest.hold.ms()).max();
    let served_after = Duration::from_millis(held_ms.unwrap_or(0)) + TAKE_OVER_TIME;
    let served_us = clock::wall_us() + i64::try_from(served_after.as_micros()).unwrap_or(i64::MAX);
    let hold = hold.max(served_after + EXTRA_HOLD);
    let (how, done) = if rng.random() {
        ("reset", cut(link, hold).await?)
    } else {
        ("silent", flows(link, [Flow::Stall; 2], hold).await?)
    };
    let detail = format!("dwell-{number}, {how}: {}", done.detail);
    Ok(Done::healed_beside(detail, served_us, Only::Nobody))
}
