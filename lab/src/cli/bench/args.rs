//! The flags of `dwell-lab bench`.

use std::path::PathBuf;

use clap::Subcommand;

use crate::bench::round::BODY_MIN;
use crate::bench::{Aof, lateness};
use dwell_testkit::servers::BrokerKind;

/// `dwell-lab bench`
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// What is measured
    #[command(subcommand)]
    pub what: What,
    /// The broker: a private server of it is started
    #[arg(long, global = true, default_value = "nats")]
    pub broker: BrokerKind,
    /// A Redis to use, or several nodes of a Cluster with commas between them, which keeps what is
    /// left in namespaces of their own; without it a private one
    #[arg(long, global = true, value_name = "URL")]
    pub redis: Option<String>,
    /// The append-only file of the private Redis
    #[arg(long, global = true, default_value = "everysec")]
    pub aof: Aof,
    /// Bytes of each body
    #[arg(long, global = true, default_value_t = 200, value_parser = body)]
    pub body: usize,
    /// How many `dwell run` share the work; several for `scale`, as 1,2,4
    #[arg(long, global = true, value_delimiter = ',', default_value = "1", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub instances: Vec<u16>,
    /// Buckets of the namespace; several for `scale`, as 16,4,64
    #[arg(long, global = true, value_delimiter = ',', default_value = "16", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub buckets: Vec<u16>,
    /// How often it is measured, each time on new servers: the median and the range are shown
    #[arg(long, global = true, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub runs: u16,
}

/// What is measured.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum What {
    /// How fast jobs leave that are all due at one instant, beside what a bare relay and the
    /// scripts alone allow
    Drain {
        /// How many jobs
        #[command(flatten)]
        jobs: Jobs,
        /// Jobs that wait for later meanwhile
        #[arg(long, default_value_t = 0)]
        pending: u64,
        /// Without relay, scripts and SET beside it
        #[arg(long)]
        alone: bool,
    },
    /// How late jobs are at a steady rate, while others wait
    Lateness {
        /// Jobs due a second, `half` of the drain rate, or `half-stored`: the same, but nothing
        /// comes in meanwhile; several, as 200,2000,half
        #[arg(long, value_delimiter = ',', default_value = "1000")]
        rate: Vec<lateness::Rate>,
        /// Jobs that wait for later meanwhile; several, as 10000,1000000
        #[arg(long, value_delimiter = ',', default_value = "100000")]
        pending: Vec<u64>,
        /// For how long, in seconds
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
        secs: u64,
    },
    /// How fast requests come in, from the broker to the store, beside what the source and the
    /// script alone allow
    Schedule {
        /// How many jobs
        #[command(flatten)]
        jobs: Jobs,
        /// Jobs that wait already
        #[arg(long, default_value_t = 0)]
        pending: u64,
        /// Without source and script beside it
        #[arg(long)]
        alone: bool,
    },
    /// What a waiting job costs Redis, and how much memory Dwell takes under a load of large bodies
    Memory {
        /// Jobs that wait
        #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
        pending: u64,
        /// Large bodies, all due at one instant; 0: none
        #[arg(long, default_value_t = 500)]
        load_jobs: u64,
        /// Bytes of each of them. NATS takes 1 MiB with the headers
        #[arg(long, default_value_t = 1_000_000, value_parser = body)]
        load_body: usize,
    },
    /// How the drain rate goes with `--instances` and with `--buckets`
    Scale {
        /// How many jobs
        #[command(flatten)]
        jobs: Jobs,
        /// Jobs that wait for later meanwhile
        #[arg(long, default_value_t = 0)]
        pending: u64,
    },
    /// What the connectors do without Dwell between them
    Relay {
        /// How many jobs
        #[command(flatten)]
        jobs: Jobs,
    },
    /// How long from exec to ready, and what an idle process uses, while jobs wait
    Start {
        /// How many starts
        #[arg(long, default_value_t = 10)]
        times: usize,
        /// Jobs that wait; several, as 0,1000000
        #[arg(long, value_delimiter = ',', default_value = "0")]
        pending: Vec<u64>,
        /// For how long it is idle, in seconds
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
        secs: u64,
    },
    /// Make pages of what was measured with `-o json`: DIR/performance.md with its pictures, and
    /// one self-contained HTML file
    Report {
        /// Lines of JSON; several files are read as one
        #[arg(required = true)]
        lines: Vec<PathBuf>,
        /// Figures of peers that were measured in turns, as scripts/beside.py writes them
        #[arg(long, value_name = "FILE")]
        peers: Option<PathBuf>,
        /// Where performance.md and images/ go
        #[arg(long, value_name = "DIR")]
        docs: Option<PathBuf>,
        /// Where the HTML goes
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
    },
}

/// How many jobs.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Jobs {
    /// How many jobs
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub jobs: u64,
}

fn body(text: &str) -> Result<usize, String> {
    let bytes = text.parse().map_err(|_| "write a number of bytes".to_owned())?;
    if bytes < BODY_MIN { Err(format!("a body names its job: at least {BODY_MIN} bytes")) } else { Ok(bytes) }
}
