//! What smooths the load, measured and checked on real servers: limits of targets, hosts and
//! queues, bursts of requests that become one delivery, and events of jobs, which may cost nothing.
//!
//! - [`limit`], [`debounce`], [`events`]: a scenario each; `receipts`: what arrives.
//!
//! Each has its rules in the [`checker`](crate::checker).

pub mod debounce;
pub mod events;
pub mod limit;
mod receipts;

use dwell_testkit::environment::Result;
use dwell_testkit::servers::BrokerKind;
use serde::Serialize;

use self::limit::Limited;
use crate::checker::Wrongs;
use crate::checker::pace::Rate;
use crate::schedules::span_ms;

/// The options.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// What is measured.
    #[command(flatten)]
    pub what: What,
    /// The broker: a private server of it is started
    #[arg(long, default_value = "nats")]
    pub broker: BrokerKind,
    /// How many jobs; by default 5000 of a limit, 100000 with events
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub jobs: Option<u32>,
    /// The rate of the limit, with its default burst
    #[arg(long, default_value = "500/s")]
    pub rate: Rate,
    /// One of the two instances is killed in the middle
    #[arg(long, conflicts_with_all = ["debounce", "events"])]
    pub kill: bool,
    /// How many requests of one id
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(i64).range(1..=10_000_000))]
    pub requests: i64,
    /// The time over which the requests come
    #[arg(long, default_value = "10s", value_parser = span_ms)]
    pub over: i64,
    /// The delay of each request
    #[arg(long, default_value = "500ms", value_parser = span_ms)]
    pub wait: i64,
    /// The longest wait from the first request of a burst
    #[arg(long, default_value = "3s", value_parser = span_ms)]
    pub max_wait: i64,
    /// Dwell is stopped while the requests come, and starts after them: one delivery
    #[arg(long, conflicts_with_all = ["limit", "events"])]
    pub backlog: bool,
}

/// What is measured: one of these.
#[derive(Debug, Clone, Copy, clap::Args)]
#[group(id = "scenario", required = true, multiple = false)]
pub struct What {
    /// Jobs that are due at one instant and have a limit, from two instances
    #[arg(long)]
    pub limit: Option<Limited>,
    /// Requests of one id that debounce
    #[arg(long)]
    pub debounce: bool,
    /// The events of jobs of mixed ends, compared with what became of the jobs
    #[arg(long)]
    pub events: bool,
}

/// The result of a scenario.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum Summary {
    /// Of a limit.
    Limit(Box<limit::Summary>),
    /// Of requests that debounce.
    Debounce(debounce::Summary),
    /// Of events.
    Events(events::Summary),
}

impl Summary {
    /// The promises that were broken.
    pub fn wrongs(&self) -> &Wrongs {
        match self {
            Summary::Limit(summary) => &summary.wrongs,
            Summary::Debounce(summary) => &summary.wrongs,
            Summary::Events(summary) => &summary.wrongs,
        }
    }
}

/// Runs a scenario; `say` prints progress.
///
/// # Errors
/// The servers failed.
pub async fn run(options: &Options, say: fn(&str)) -> Result<Summary> {
    Ok(match options.what.limit {
        Some(limited) => {
            Summary::Limit(Box::new(Box::pin(limit::run(options, limited, say)).await?))
        }
        None if options.what.debounce => {
            Summary::Debounce(Box::pin(debounce::run(options, say)).await?)
        }
        None => Summary::Events(Box::pin(events::run(options, say)).await?),
    })
}
