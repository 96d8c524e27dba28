//! `dwell-lab queue`: queues under faults, and their figures.

use clap::Subcommand;

use crate::queue::{bench, campaign};
use dwell::cli::common::{Common, Form};
use dwell::cli::exit::{Exit, Stop};
use dwell::shutdown::Signals;

/// `dwell-lab queue`
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Clone, Subcommand)]
enum What {
    /// Kill consumers, instances and Redis while jobs are fetched, and check every hand-out
    Chaos {
        /// How many jobs
        #[arg(long, default_value_t = 200_000)]
        jobs: u64,
        /// How many consumers
        #[arg(long, default_value_t = 50)]
        consumers: usize,
        /// How many instances
        #[arg(long, default_value_t = 2)]
        instances: usize,
        /// Kill consumers only
        #[arg(long)]
        consumers_only: bool,
        /// The seed; by default a new one
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Measure fetching over HTTP on a private Redis
    Bench {
        /// Jobs to fetch and finish as fast as possible
        #[arg(long, default_value_t = 200_000)]
        jobs: u64,
        /// Jobs of one pop
        #[arg(long, default_value_t = 100)]
        batch: usize,
        /// Consumers that fetch at a time
        #[arg(long, default_value_t = 4)]
        consumers: usize,
        /// Consumers that wait for the jobs of a steady rate
        #[arg(long, default_value_t = 200)]
        waiting: usize,
        /// Jobs due a second, for the lateness
        #[arg(long, default_value_t = 1000)]
        rate: u64,
        /// How long the rate lasts, s
        #[arg(long, default_value_t = 10)]
        secs: u64,
        /// Consumers that wait for nothing
        #[arg(long, default_value_t = 10_000)]
        idle: usize,
        /// Bytes of each body
        #[arg(long, default_value_t = 200)]
        body: usize,
    },
}

/// Runs a campaign or measures.
///
/// # Errors
/// A promise was broken, the servers failed, or a signal arrived.
pub(super) async fn run(common: &Common, args: &Args) -> Result<Exit, Stop> {
    super::demo::start_log()?;
    let say: fn(&str) = if common.output == Form::Text { |text| eprintln!("{text}") } else { |_| {} };
    let mut signals = Signals::new()?;
    tokio::select! {
        exit = Box::pin(one(common, &args.what, say)) => exit,
        // The child processes end with the future.
        signal = signals.next() => Err(Stop::because(Exit::Failed, format!("{signal}: stopped"), "")),
    }
}

async fn one(common: &Common, what: &What, say: fn(&str)) -> Result<Exit, Stop> {
    match *what {
        What::Chaos { jobs, consumers, instances, consumers_only, seed } => {
            let seed = seed.unwrap_or_else(rand::random);
            let summary = campaign::run(campaign::Options { jobs, consumers, instances, faults: !consumers_only, seed, say }).await?;
            common.answer(&summary, &format!("{summary:#?}"))?;
            if summary.wrong.is_empty() { Ok(Exit::Ok) } else { Err(Stop::because(Exit::Failed, "a promise was broken", "")) }
        }
        What::Bench { jobs, batch, consumers, waiting, rate, secs, idle, body } => {
            let options = bench::Options { jobs, batch, consumers, waiting, rate, secs, idle, body, say };
            let figures = bench::run(options).await?;
            common.answer(&figures, &format!("{figures:#?}"))?;
            Ok(Exit::Ok)
        }
    }
}
