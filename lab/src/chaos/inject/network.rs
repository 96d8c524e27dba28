//! Faults of a link.

use std::time::Duration;

use dwell::clock;
use dwell_testkit::servers::BrokerKind;
use rand::RngExt;
use rand::rngs::StdRng;

use super::{Done, Injection, Outcome, within};
use crate::chaos::history::Only;
use crate::chaos::proxy::{Direction, Flow, Proxy};
use crate::chaos::system::{Error, System};

/// The delay each way.
const SLOW_DELAY: Duration = Duration::from_millis(100);
/// The throughput of each connection, bytes a second.
const THIN_BYTES_PER_SECOND: u32 = 20_000;

/// The longest time until the other instances serve the returned requests and the abandoned claims:
/// a Kafka session and a lease.
const TAKE_OVER_TIME: Duration = Duration::from_secs(13);
/// The further time that the instance is cut off, so that unserved jobs of others show.
const EXTRA_HOLD: Duration = Duration::from_secs(15);

/// The longest time until the instances read a request, and the interval between two checks.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

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
    Ok(format!("{open} connections").into())
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

pub(super) async fn stall(link: &Proxy, hold: Duration) -> Outcome {
    flows(link, Some(Flow::Stall), Flow::Stall, hold).await
}

pub(super) async fn slow(link: &Proxy, hold: Duration) -> Outcome {
    flows(link, Some(Flow::Delay(SLOW_DELAY)), Flow::Delay(SLOW_DELAY), hold).await
}

pub(super) async fn slow_or_thin(link: &Proxy, rng: &mut StdRng, hold: Duration) -> Outcome {
    if rng.random() {
        return slow(link, hold).await;
    }
    let thin = Flow::Throttle(THIN_BYTES_PER_SECOND);
    flows(link, Some(thin), thin, hold).await
}

pub(super) async fn drop_answers(link: &Proxy, hold: Duration) -> Outcome {
    flows(link, None, Flow::Drop, hold).await
}

/// An instance that reads requests: on Kafka, where a partition has one reader, the one whose count
/// of requests rises; else any.
async fn reader(system: &System, rng: &mut StdRng) -> Result<usize, Error> {
    let any = rng.random_range(0..system.instances.len());
    if system.options().broker != BrokerKind::Kafka {
        return Ok(any);
    }
    let mut before: Vec<u64> = Vec::new();
    let found = async {
        loop {
            let mut now = Vec::new();
            for instance in &system.instances {
                now.push(read_by(&instance.server.lock().await.metrics().await?));
            }
            if let Some(reader) = before.iter().zip(&now).position(|(before, now)| now > before) {
                return Ok(reader);
            }
            before = now;
            clock::sleep(CHECK_INTERVAL).await;
        }
    };
    within(READ_TIMEOUT, "no instance read a request", found).await
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
    let held = system
        .settings()
        .ingest
        .values()
        .map(|ingest| ingest.hold.ms())
        .max()
        .map_or(Duration::ZERO, Duration::from_millis);
    let served_us =
        clock::wall_us() + i64::try_from((held + TAKE_OVER_TIME).as_micros()).unwrap_or(i64::MAX);
    let hold = hold.max(held + TAKE_OVER_TIME + EXTRA_HOLD);
    let (how, done) = if rng.random() {
        ("reset", cut(link, hold).await?)
    } else {
        ("silent", stall(link, hold).await?)
    };
    let detail = format!("dwell-{number}, {how}: {}", done.detail);
    Ok(Done::healed_beside(detail, served_us, Only::Nobody))
}

pub(super) async fn half_open(link: &Proxy, hold: Duration) -> Outcome {
    let open = link.open();
    let _stranded = link.strand();
    clock::sleep(hold).await;
    Ok(format!("{open} connections").into())
}

async fn flows(link: &Proxy, up: Option<Flow>, down: Flow, hold: Duration) -> Outcome {
    let _broken = Broken(link);
    if let Some(up) = up {
        link.set(Direction::Up, up);
    }
    link.set(Direction::Down, down);
    clock::sleep(hold).await;
    Ok(format!("{} connections, {down:?}", link.open()).into())
}
