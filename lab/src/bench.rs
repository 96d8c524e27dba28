//! The load generator: real servers, `dwell run` as child processes, and a check of every job. Each
//! run of a measurement has its own servers. Values that are compared come from one run on the same
//! servers.
//!
//! - [`drain`]: many jobs due at one instant, beside a bare relay and the scripts alone; [`relay`]:
//!   that relay.
//! - [`lateness`]: a steady rate of jobs while many wait; [`backlog`]: while overdue jobs drain;
//!   [`ingest`]: requests from broker to
//!   store; [`scale`]: [`drain`] over instances and buckets.
//! - [`memory`]: what a waiting job costs Redis, and a full load Dwell; [`start`]: from exec to
//!   ready, and what an idle process uses.
//! - [`round`]: the jobs that were sent and that arrived; [`percentiles`]: latencies; [`machine`]:
//!   the machine.
//! - [`metric`]: the meaning of each value; [`report`]: several runs, as JSON and as a table;
//!   [`pages`] and [`plot`]: for readers.
//! - `fixture`: servers, instances, producer and consumer; `fill`: jobs that wait; `baseline`: the
//!   upper bound; `cost`: CPU and memory; `number`: numbers for people.

pub mod backlog;
mod baseline;
mod cost;
pub mod drain;
mod fill;
mod fixture;
pub mod ingest;
pub mod lateness;
pub mod machine;
pub mod memory;
pub mod metric;
mod number;
pub mod pages;
pub mod percentiles;
pub mod plot;
pub mod relay;
pub mod report;
pub mod round;
pub mod scale;
pub mod start;

use std::time::Duration;

use dwell_testkit::environment::distance::Distance;
use dwell_testkit::servers::{AppendFsync, BrokerKind};
use report::Setup;

/// The destination of requests.
const REQUEST_DESTINATION: &str = "delay.in";
/// The target of the jobs.
const JOB_TARGET: &str = "bench.out";
/// The interval between two checks of a condition. Arrivals have times of their own.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// After this time without an arrival, no more arrivals are expected.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(60);
/// The wait for duplicates after the last arrival.
const DUPLICATE_WAIT: Duration = Duration::from_millis(500);

/// When the append-only file of the private Redis is synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Aof {
    /// No append-only file
    No,
    /// Sync each second
    Everysec,
    /// Sync before the answer to a write
    Always,
}

impl From<Aof> for Option<AppendFsync> {
    fn from(aof: Aof) -> Self {
        match aof {
            Aof::No => None,
            Aof::Everysec => Some(AppendFsync::EverySec),
            Aof::Always => Some(AppendFsync::Always),
        }
    }
}

/// The options of all measurements.
#[derive(Debug, Clone)]
pub struct Options {
    /// The broker.
    pub broker: BrokerKind,
    /// The URL of a Redis to use; `None`: a private one.
    pub redis: Option<String>,
    /// The append-only file of the private one.
    pub aof: Aof,
    /// The number of `dwell run`.
    pub instances: usize,
    /// Buckets of the namespace.
    pub buckets: u16,
    /// Bytes of each body.
    pub body: usize,
    /// Jobs that only wait.
    pub pending: u64,
    /// The distance of Dwell from its servers; `None`: next to them.
    pub distance: Option<Distance>,
    /// Prints progress, not to stdout, which is for the result.
    pub say: fn(&str),
}

impl Options {
    /// The options in the form of a report.
    pub fn setup(&self) -> Setup {
        let redis = match (&self.redis, self.aof) {
            (Some(_), _) => "given",
            (None, Aof::No) => "private, no append-only file",
            (None, Aof::Everysec) => "private, appendfsync everysec",
            (None, Aof::Always) => "private, appendfsync always",
        };
        Setup {
            broker: self.broker.as_str().to_owned(),
            redis: redis.to_owned(),
            instances: self.instances,
            buckets: self.buckets,
            body: self.body,
            pending: self.pending,
            ..Setup::default()
        }
    }
}

/// Jobs a second.
pub(crate) fn per_second(jobs: u64, us: i64) -> f64 {
    if us <= 0 { 0.0 } else { jobs as f64 * 1e6 / us as f64 }
}

fn ms(us: i64) -> f64 {
    us as f64 / 1e3
}
