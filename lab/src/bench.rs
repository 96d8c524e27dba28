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
//!   upper bound; `cost`: CPU time; `number`: numbers for people.

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
use dwell_testkit::servers::BrokerKind;

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

/// The options of all measurements.
#[derive(Debug, Clone)]
pub struct Options {
    /// The broker.
    pub broker: BrokerKind,
    /// The URL of a Redis to use; `None`: a private one with an append-only file.
    pub redis: Option<String>,
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

/// Bytes in MiB.
pub(crate) fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Jobs a second.
pub(crate) fn per_second(jobs: u64, us: i64) -> f64 {
    if us <= 0 { 0.0 } else { jobs as f64 * 1e6 / us as f64 }
}

fn ms(us: i64) -> f64 {
    us as f64 / 1e3
}
