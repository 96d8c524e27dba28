//! The load generator: real servers, `dwell run` as child processes, a ledger over every job.
//!
//! - [`drain`]: many jobs due at one instant; [`relay`]: what the same connectors do without Dwell between them.
//! - [`lateness`]: a steady rate of jobs while many wait; [`start`]: from exec to ready, and the memory of an idle process.
//! - [`ledger`]: what was sent and what came of it; [`spread`]: percentiles; [`usage`]: CPU and memory.

pub mod drain;
pub mod lateness;
pub mod ledger;
pub mod relay;
pub mod spread;
pub mod start;
pub mod usage;

use std::sync::Arc;
use std::time::Duration;

use dwell_connectors::{Destination, Message, Role};
use parking_lot::Mutex;
use serde::Serialize;

use crate::clock;
use crate::servers::{AppendFsync, BrokerKind, DwellServer, RedisOptions};
use crate::stage::traffic::{Consumer, Producer};
use crate::stage::{Failure, Stage, Store as StoreOf};
use crate::store::Store;
use ledger::Ledger;
use usage::Usage;

/// Where producers send.
const IN: &str = "delay.in";
/// Where jobs go.
const OUT: &str = "bench.out";
/// How often a condition is looked at. Arrivals carry their own time.
const LOOK: Duration = Duration::from_millis(20);
/// Nothing arrived for so long: nothing will.
const PATIENCE: Duration = Duration::from_secs(60);
/// After the last arrival duplicates are waited for.
const LINGER: Duration = Duration::from_millis(500);

/// What all measurements share.
#[derive(Debug, Clone)]
pub struct Options {
    /// The broker.
    pub broker: BrokerKind,
    /// The URL of a Redis to use; `None`: a private one, with an append-only file that is synced each second.
    pub redis: Option<String>,
    /// How many `dwell run`.
    pub instances: usize,
    /// Bytes of each body.
    pub body: usize,
    /// Where progress is said: not on stdout, which is for the answer.
    pub say: fn(&str),
}

/// The parties of a measurement.
struct Bench {
    stage: Stage,
    dwells: Vec<DwellServer>,
    /// To count what waits; not the store of the instances.
    store: Store,
    producer: Producer,
    consumer: Consumer,
    ledger: Arc<Mutex<Ledger>>,
    body: usize,
    rounds: u64,
    say: fn(&str),
}

/// CPU seconds of every party.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Cpu {
    /// All instances together.
    pub dwell_s: Option<f64>,
    /// The private Redis.
    pub redis_s: Option<f64>,
    /// The broker.
    pub broker_s: Option<f64>,
    /// The load generator: producer and consumer.
    pub generator_s: Option<f64>,
}

/// Memory of all instances together, bytes.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Memory {
    /// Resident at the end.
    pub rss: u64,
    /// The most that it was.
    pub peak_rss: u64,
}

/// What every party has used so far.
struct Meter([Option<Usage>; 4]);

impl Bench {
    async fn set_up(options: &Options) -> Result<Bench, Failure> {
        let stage = set_up(options).await?;
        stage.declare(&[OUT], Role::Letters).await?;
        let mut dwells = Vec::new();
        for _ in 0..options.instances.max(1) {
            dwells.push(stage.dwell().await?);
        }
        (options.say)(&format!("{}; {} x dwell run", stage.describe(), dwells.len()));
        let store = Store::attach(&stage.settings().redis).await?;
        let ledger = Arc::new(Mutex::new(Ledger::new(0, options.body)));
        let seen = ledger.clone();
        let consumer = Consumer::open(stage.broker(), OUT, move |at_us, messages| {
            let mut ledger = seen.lock();
            messages.iter().for_each(|message| ledger.arrived(&message.body, at_us));
        });
        let (consumer, producer) = (consumer.await?, Producer::open(stage.broker()).await?);
        Ok(Bench { stage, dwells, store, producer, consumer, ledger, body: options.body, rounds: 0, say: options.say })
    }

    /// Begins a new round: what arrives of the one before does not count any more.
    fn new_round(&mut self) {
        self.rounds += 1;
        *self.ledger.lock() = Ledger::new(self.rounds, self.body);
    }

    /// Enters jobs that are due at one time, and sends them.
    async fn send(&mut self, to: &str, jobs: u64, due_ms: i64) -> Result<(), Failure> {
        let ledger = self.ledger.clone();
        let messages = (0..jobs).map(move |_| request(ledger.lock().enter(due_ms), due_ms));
        self.producer.send(&Destination::new(to), messages).await?;
        self.producer.flush().await
    }

    /// Waits until so many jobs arrived, or none for too long.
    async fn arrived(&mut self, jobs: u64) -> Result<(), Failure> {
        let (mut count, mut since) = (0, clock::now());
        loop {
            let now = self.ledger.lock().count();
            if now >= jobs {
                break;
            }
            if now > count {
                (count, since) = (now, clock::now());
            } else if clock::now().duration_since(since) > PATIENCE {
                (self.say)(&format!("{now} of {jobs} arrived, and then none for {} s", PATIENCE.as_secs()));
                break;
            }
            self.consumer.check().await?;
            clock::sleep(LOOK).await;
        }
        clock::sleep(LINGER).await;
        Ok(())
    }

    /// Waits until the store holds so many jobs, or until `deadline_ms` by Redis's clock. True: it does, and there is time left.
    async fn waiting(&mut self, jobs: u64, deadline_ms: i64) -> Result<bool, Failure> {
        loop {
            let counts = self.store.counts(&[]).await?;
            if counts.now_ms >= deadline_ms {
                return Ok(false);
            }
            if counts.scheduled.iter().sum::<u64>() >= jobs {
                return Ok(true);
            }
            clock::sleep(LOOK).await;
        }
    }

    fn meter(&self) -> Meter {
        Meter([
            Usage::of(self.dwells.iter().filter_map(DwellServer::pid)),
            self.stage.redis_pid().and_then(|pid| Usage::of([pid])),
            self.stage.broker_pid().and_then(|pid| Usage::of([pid])),
            Usage::of([std::process::id()]),
        ])
    }

    fn memory(&self) -> Option<Memory> {
        Usage::of(self.dwells.iter().filter_map(DwellServer::pid)).map(|usage| Memory { rss: usage.rss, peak_rss: usage.peak_rss })
    }

    async fn tear_down(mut self) -> Result<(), Failure> {
        for dwell in &mut self.dwells {
            dwell.stop().await?;
        }
        drop(self.consumer);
        self.stage.tear_down().await
    }
}

impl Meter {
    /// The CPU time from `before` to this.
    fn since(&self, before: &Meter) -> Cpu {
        let party = |place: usize| Some((self.0[place]? - before.0[place]?).cpu_s());
        Cpu { dwell_s: party(0), redis_s: party(1), broker_s: party(2), generator_s: party(3) }
    }
}

impl std::fmt::Display for Cpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = |part: Option<f64>| part.map_or_else(|| "?".to_owned(), |s| format!("{s:.2} s"));
        let Cpu { dwell_s, redis_s, broker_s, generator_s } = *self;
        let (dwell, redis) = (seconds(dwell_s), seconds(redis_s));
        write!(f, "dwell {dwell}, redis {redis}, broker {}, load generator {}", seconds(broker_s), seconds(generator_s))
    }
}

impl std::fmt::Display for Memory {
    #[allow(clippy::cast_precision_loss, reason = "for people")]
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        write!(f, "{:.1} MiB, at most {:.1} MiB", mib(self.rss), mib(self.peak_rss))
    }
}

async fn set_up(options: &Options) -> Result<Stage, Failure> {
    let store = match &options.redis {
        Some(url) => StoreOf::At(url.clone()),
        None => StoreOf::Private(RedisOptions { appendonly: Some(AppendFsync::EverySec), ..RedisOptions::default() }),
    };
    Stage::set_up(options.broker, store, &[OUT]).await
}

/// What a report says of the Redis.
fn redis_words(options: &Options) -> &'static str {
    if options.redis.is_some() { "given" } else { "private, appendonly everysec" }
}

/// A request as producers send it. Ids are left to Dwell.
fn request(body: bytes::Bytes, due_ms: i64) -> Message {
    Message::new(body).with_header("delay-until", due_ms.to_string()).with_header("delay-target", OUT)
}

#[allow(clippy::cast_precision_loss, reason = "jobs and µs of one run")]
fn per_second(jobs: u64, us: i64) -> f64 {
    if us <= 0 { 0.0 } else { jobs as f64 * 1e6 / us as f64 }
}

#[allow(clippy::cast_precision_loss, reason = "µs of one run")]
fn seconds(us: i64) -> f64 {
    us as f64 / 1e6
}
