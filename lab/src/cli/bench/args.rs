//! The flags of `dwell-lab bench`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;

use crate::bench::lateness;
use crate::bench::round::BODY_MIN;
use dwell_testkit::environment::distance::Distance;
use dwell_testkit::servers::BrokerKind;

/// `dwell-lab bench`
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// The measurement
    #[command(subcommand)]
    pub what: What,
    /// The broker: a private server of it is started
    #[arg(long, global = true, default_value = "nats")]
    pub broker: BrokerKind,
    /// A Redis to use, or several nodes of a Cluster separated by commas. The measurements leave
    /// their data in separate namespaces. Without it, a private Redis with an append-only file
    #[arg(long, global = true, value_name = "URL")]
    pub redis: Option<String>,
    /// Bytes of each body
    #[arg(long, global = true, default_value_t = 200, value_parser = body)]
    pub body: usize,
    /// The time of one way between Dwell and its servers, `BROKER,REDIS`, such as 5ms,500us, by
    /// proxies. Compare with 0ms,0ms: proxies without a delay
    #[arg(long, global = true, value_parser = far)]
    pub far: Option<Distance>,
    /// How many `dwell run` share the work; several for `scale`, such as 1,2,4
    #[arg(long, global = true, value_delimiter = ',', default_value = "1", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub instances: Vec<u16>,
    /// Buckets of the namespace; several for `scale`, such as 16,4,64
    #[arg(long, global = true, value_delimiter = ',', default_value = "16", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub buckets: Vec<u16>,
    /// How many runs, each on new servers; the result is the median and the range
    #[arg(long, global = true, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub runs: u16,
}

/// The measurements.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum What {
    /// The rate of jobs that are all due at one instant, compared with a bare relay and the scripts
    /// alone
    Drain(Compared),
    /// The lateness of jobs at a steady rate, while others wait
    Lateness {
        /// Jobs due a second, `half` of the drain rate, or `half-stored`: the same, but without
        /// incoming requests; several, such as 200,2000,half
        #[arg(long, value_delimiter = ',', default_value = "1000")]
        rate: Vec<lateness::Rate>,
        /// Jobs that wait meanwhile for a later time; several, such as 10000,1000000
        #[arg(long, value_delimiter = ',', default_value = "100000")]
        pending: Vec<u64>,
        /// The duration, seconds
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
        secs: u64,
    },
    /// The lateness of jobs at a steady rate while overdue jobs drain, as after an outage
    Backlog {
        /// Overdue jobs
        #[arg(long, default_value_t = 1_000_000)]
        overdue: u64,
        /// Jobs due a second meanwhile
        #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
        rate: u64,
        /// The duration, seconds
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
        secs: u64,
    },
    /// The rate of requests from the broker to the store, compared with the source and the script
    /// alone
    Schedule(Compared),
    /// The memory of a waiting job in Redis, and of Dwell under a load of large bodies
    Memory {
        /// Jobs that wait
        #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
        pending: u64,
        /// Large bodies, all due at one instant; 0: none
        #[arg(long, default_value_t = 500)]
        load_jobs: u64,
        /// Bytes of each large body. NATS accepts 1 MiB with the headers
        #[arg(long, default_value_t = 1_000_000, value_parser = body)]
        load_body: usize,
    },
    /// The drain rate over `--instances` and over `--buckets`
    Scale {
        /// How many jobs
        #[command(flatten)]
        jobs: Jobs,
        /// Jobs that wait meanwhile for a later time
        #[arg(long, default_value_t = 0)]
        pending: u64,
    },
    /// The rate of the connectors without Dwell between them
    Relay {
        /// How many jobs
        #[command(flatten)]
        jobs: Jobs,
    },
    /// The time from exec to ready, and the resources of an idle process, while jobs wait
    Start {
        /// The number of starts
        #[arg(long, default_value_t = 10)]
        times: usize,
        /// Jobs that wait; several, such as 0,1000000
        #[arg(long, value_delimiter = ',', default_value = "0")]
        pending: Vec<u64>,
        /// The time of idleness, seconds
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
        secs: u64,
    },
    /// Make pages from the results of `-o json`: DIR/performance.md with its plots, and one
    /// self-contained HTML file
    Report {
        /// Lines of JSON; several files are read as one
        #[arg(required = true)]
        lines: Vec<PathBuf>,
        /// Results of peers that were measured in turns, from scripts/beside.py
        #[arg(long, value_name = "FILE")]
        peers: Option<PathBuf>,
        /// The folder for performance.md and images/
        #[arg(long, value_name = "DIR")]
        docs: Option<PathBuf>,
        /// The HTML file
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
    },
}

/// Jobs, beside others that wait.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Compared {
    /// How many jobs
    #[command(flatten)]
    pub jobs: Jobs,
    /// Jobs that wait meanwhile for a later time
    #[arg(long, default_value_t = 0)]
    pub pending: u64,
    /// Without the comparison with the parts alone: relay, source, scripts and SET
    #[arg(long)]
    pub alone: bool,
}

/// How many jobs.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Jobs {
    /// How many jobs
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub jobs: u64,
}

fn far(text: &str) -> Result<Distance, String> {
    let one = |text: &str| {
        let (number, unit) =
            text.split_at(text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len()));
        match (number.parse(), unit) {
            (Ok(number), "ms") => Some(Duration::from_millis(number)),
            (Ok(number), "us") => Some(Duration::from_micros(number)),
            _ => None,
        }
    };
    let both = text
        .split_once(',')
        .and_then(|(broker, redis)| Some(Distance { broker: one(broker)?, redis: one(redis)? }));
    both.ok_or_else(|| "write two times in ms or us, such as 5ms,500us".to_owned())
}

fn body(text: &str) -> Result<usize, String> {
    let bytes = text.parse().map_err(|_| "write a number of bytes".to_owned())?;
    if bytes < BODY_MIN {
        Err(format!("a body names its job: at least {BODY_MIN} bytes"))
    } else {
        Ok(bytes)
    }
}
