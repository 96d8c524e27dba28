//! Dwell adds delayed delivery to the broker that a team already runs. The modules, in reading order:
//!
//! - [`config`]: the settings; [`units`]: durations, sizes and times as people write them.
//! - [`job`]: a job and the words for its states, verdicts and ends.
//! - [`request`]: a message becomes a request, or is refused with a code.
//! - [`ingest`]: reads requests and stores them, then acknowledges.
//! - [`apply`]: the one way of a request to the store, by whichever door it came.
//! - [`store`]: the only place that knows Redis.
//! - [`dispatch`]: claims what is due, publishes it, settles by the outcome; [`outgoing`]: what is published; [`publisher`]: the link it goes by;
//!   [`retry`]: what follows a failed attempt.
//! - [`rescue`]: takes over leases past their time; [`sweep`]: removes what has had its time, and keeps the gauges.
//! - [`fleet`]: the instances of a namespace.
//! - [`bridge`]: all agents together, from start to drain.
//! - [`clock`]: the one place that reads time; [`alarm`]: a timer that is not late; [`reconnect`]: the pause between two tries; [`shutdown`]: signals.
//! - [`telemetry`]: logs and metrics; [`http`]: probes, and the admin API.
//! - [`view`]: jobs, verdicts and counts as commands and HTTP show them.
//! - [`cli`]: the commands, a file each.
//! - `fuzz`: doors to parsers, for the package that feeds them anything.

pub mod alarm;
pub mod apply;
pub mod bridge;
pub mod cli;
pub mod config;
pub mod dispatch;
pub mod fleet;
#[cfg(feature = "fuzz")]
pub mod fuzz;
pub mod http;
pub mod ingest;
pub mod outgoing;
pub mod publisher;
pub mod reconnect;
pub mod request;
pub mod rescue;
pub mod shutdown;
pub mod sweep;
pub mod telemetry;
pub mod units;
pub mod view;

pub use dwell_engine::{clock, job, retry, store};
