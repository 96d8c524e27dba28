//! An unreachable target broker beside a reachable one: the reachable one is served on time, and
//! jobs for the other wait without burning an attempt.
//!
//! `DWELL_AWAY_SECONDS=600` makes it the outage of ten minutes; the figures are printed
//! (`--nocapture`).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use dwell::clock;
use dwell::config::{self, Overrides};
use dwell::store::Store;
use dwell_connectors::{Acks, BrokerConfig, Destination, Message, Role};
use dwell_testkit::environment::traffic::{Consumer, Producer};
use dwell_testkit::servers::{BrokerKind, BrokerServer, DwellServer, RedisOptions, RedisServer};
use futures_util::future::try_join3;
use parking_lot::Mutex;
use tokio::time::{MissedTickBehavior, interval};

use super::environment::SETTLE;
use crate::support::wait_within;

/// The target, on both brokers.
const TARGET: &str = "orders";
/// Jobs for each broker in each tenth of a second.
const PER_TICK: usize = 10;
/// From the request to the due time.
const DELAY_MS: i64 = 1000;

/// Returns the length of the outage.
fn outage() -> Duration {
    let seconds = std::env::var("DWELL_AWAY_SECONDS").ok().map_or(4, |text| text.parse().unwrap());
    Duration::from_secs(seconds)
}

/// Of one job: when it was due (epoch ms), and each arrival: when (epoch µs), with which attempt.
#[derive(Debug, Default)]
struct Timeline {
    due_ms: i64,
    arrivals: Vec<(i64, u32)>,
}

type Timelines = Arc<Mutex<HashMap<String, Timeline>>>;

#[tokio::test]
async fn a_dead_target_slows_no_other_and_burns_no_attempt() {
    let servers = try_join3(
        RedisServer::start(RedisOptions::default()),
        BrokerServer::start(BrokerKind::Nats),
        BrokerServer::start(BrokerKind::Amqp),
    );
    let (redis, served, mut away) = servers.await.unwrap();
    let text = format!(
        "[redis]\nurls = [\"{}\"]\n[brokers.served]\n{}allow = [\"{TARGET}\"]\n[brokers.away]\n{}allow = [\"/{TARGET}\"]\n\
         [ingest.main]\nbroker = \"served\"\ndeclare = true\n[delivery]\npublish_timeout = \"5s\"\n",
        redis.url(),
        served.settings(),
        away.settings()
    );
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &text).unwrap();
    let settings = config::load_from(Some(file.path()), &[], &Overrides::default()).unwrap();
    let broker = |name: &str| settings.brokers[name].connector.clone();
    for name in ["served", "away"] {
        broker(name).declare(&Destination::new(TARGET), Role::Letters).await.unwrap();
    }
    let mut dwell = DwellServer::start(env!("CARGO_BIN_EXE_dwell").into(), &text).await.unwrap();
    let store = Store::attach(&settings.redis).await.unwrap();

    let timelines = Timelines::default();
    let _served = read(&broker("served"), &timelines).await;
    let reading = read(&broker("away"), &timelines).await;
    let mut producer = Producer::open(&broker("served")).await.unwrap();
    send(&mut producer, &timelines, "well", outage()).await;
    until_empty(&store, "all of the time when both were well arrived").await;

    drop(reading);
    away.kill().unwrap();
    until_gone(&dwell).await;
    send(&mut producer, &timelines, "away", outage()).await;
    let waiting = format!(
        "all that is left is for the broker that is away: {} jobs",
        outage().as_millis() as usize / 100 * PER_TICK
    );
    let left = outage().as_millis() as u64 / 100 * PER_TICK as u64;
    wait_within(SETTLE, &waiting, async || (alive(&store).await? == left).then_some(())).await;
    away.restart().await.unwrap();
    let back_us = clock::wall_us();
    let _reading = read(&broker("away"), &timelines).await;
    until_empty(&store, "what waited for the broker that was away is out").await;

    let book_now = || timelines.lock();
    wait_within(SETTLE, "all is read", async || {
        book_now().values().all(|timeline| !timeline.arrivals.is_empty()).then_some(())
    })
    .await;
    for (id, timeline) in timelines.lock().iter() {
        assert!(
            matches!(timeline.arrivals[..], [(_, 1)]),
            "{id}: once, at the first attempt: {timeline:?}"
        );
        assert!(timeline.arrivals[0].0 >= timeline.due_ms * 1000, "{id} is early: {timeline:?}");
    }
    let [before, during] =
        ["well", "away"].map(|phase| lateness_us(&timelines, &format!("served-{phase}-")));
    let ratio = |part: fn(&[i64]) -> i64| part(&during) as f64 / part(&before) as f64;
    println!(
        "away for {} s; lateness of the other broker's jobs: p50 {} µs before, {} µs meanwhile ({:.2} x); p99 {} µs before, {} µs meanwhile ({:.2} x)",
        outage().as_secs(),
        p50(&before),
        p50(&during),
        ratio(p50),
        p99(&before),
        p99(&during),
        ratio(p99)
    );
    let first = timelines
        .lock()
        .iter()
        .filter(|(id, _)| id.starts_with("away-away-"))
        .map(|(_, timeline)| timeline.arrivals[0].0)
        .min();
    println!(
        "{left} jobs waited; from its return to the first of them {} ms",
        (first.unwrap() - back_us) / 1000
    );
    dwell.stop().await.unwrap();
}

/// Sends jobs to both brokers at a steady rate for so long.
async fn send(producer: &mut Producer, timelines: &Timelines, phase: &str, during: Duration) {
    let mut ticks = interval(Duration::from_millis(100));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for tick in 0..during.as_millis() as usize / 100 {
        ticks.tick().await;
        let due_ms = clock::wall_ms() + DELAY_MS;
        let mut messages = Vec::new();
        for n in 0..PER_TICK {
            for to in ["served", "away"] {
                let id = format!("{to}-{phase}-{}", tick * PER_TICK + n);
                let message = Message::new("a body")
                    .with_header("delay-id", id.clone())
                    .with_header("delay-target", TARGET);
                messages.push(
                    message
                        .with_header("delay-broker", to)
                        .with_header("delay-until", due_ms.to_string()),
                );
                timelines.lock().insert(id, Timeline { due_ms, arrivals: Vec::new() });
            }
        }
        producer.send(&Destination::new("delay.in"), messages).await.unwrap();
    }
    producer.flush().await.unwrap();
}

/// Enters what arrives.
async fn read(broker: &BrokerConfig, timelines: &Timelines) -> Consumer {
    let timelines = timelines.clone();
    let enter = move |at_us: i64, messages: Vec<Message>| {
        let mut timelines = timelines.lock();
        for message in messages {
            let text = |name| message.headers.get(name).unwrap().written().unwrap().into_owned();
            let timeline = timelines.get_mut(&text("delayed-id")).unwrap();
            // A message that the broker itself delivers again, because it ended before it had the
            // reader's ack, is no second publication.
            if !message.redelivered || timeline.arrivals.is_empty() {
                timeline.arrivals.push((at_us, text("delayed-attempt").parse().unwrap()));
            }
        }
    };
    Consumer::open(broker, TARGET, Acks::Explicit, enter).await.unwrap()
}

/// Returns the number of jobs that wait or are out.
async fn alive(store: &Store) -> Option<u64> {
    let counts = store.reader.counts(&[]).await.ok()?;
    assert_eq!(counts.dead.iter().sum::<u64>(), 0);
    Some(counts.scheduled.iter().chain(&counts.reserved).sum())
}

async fn until_empty(store: &Store, what: &str) {
    wait_within(SETTLE, what, async || (alive(store).await? == 0).then_some(())).await;
}

/// Waits until the instance has seen that the broker is away.
async fn until_gone(dwell: &DwellServer) {
    let series = r#"dwell_broker_connected{broker="away"}"#;
    wait_within(SETTLE, "it is seen to be away", async || {
        (super::environment::scraped(dwell, series).await == 0).then_some(())
    })
    .await;
}

fn lateness_us(timelines: &Timelines, begins: &str) -> Vec<i64> {
    let timelines = timelines.lock();
    let jobs = timelines.iter().filter(|(id, _)| id.starts_with(begins));
    let mut late: Vec<i64> =
        jobs.map(|(_, timeline)| timeline.arrivals[0].0 - timeline.due_ms * 1000).collect();
    late.sort_unstable();
    late
}

fn p50(sorted: &[i64]) -> i64 {
    sorted[sorted.len() / 2]
}

fn p99(sorted: &[i64]) -> i64 {
    sorted[sorted.len() * 99 / 100]
}
