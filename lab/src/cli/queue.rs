//! `dwell-lab queue`: queues under faults, and their figures.

use clap::Subcommand;

use crate::chaos::fault::FaultKind;
use crate::queue::{bench, campaign};
use dwell::cli::common::{Common, Form};
use dwell::cli::exit::{Exit, Stop};
use dwell::config::{Durability, RedisMode};
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
        /// Jobs scheduled a second, due within two seconds; 0: as many as possible
        #[arg(long, default_value_t = 1000)]
        rate: u64,
        /// Other queues with a job each, every second one cancelled
        #[arg(long, default_value_t = 10_000)]
        names: u64,
        /// How many consumers
        #[arg(long, default_value_t = 50)]
        consumers: usize,
        /// The share of the consumers that is killed, from 0 to 1: each of them lives for a random
        /// time of at most 4 s, is killed whatever it is doing (while it waits, between a pop and
        /// its finish, while its finish is under way), and another one takes its place. The lease
        /// of a pop is 2 s
        #[arg(long, default_value_t = 0.33, value_parser = share)]
        killed: f64,
        /// How many instances; the first one is never killed
        #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=16))]
        instances: u16,
        /// `redis.mode`: single (with a replica at durability replica), cluster or sentinel
        #[arg(long, default_value = "single", value_parser = super::chaos::redis)]
        redis: RedisMode,
        /// `redis.durability`: memory, fsync, replica or fsync+replica
        #[arg(long, default_value = "replica", value_parser = super::chaos::durability)]
        durability: Durability,
        /// Kill consumers only
        #[arg(long, conflicts_with = "only")]
        consumers_only: bool,
        /// Only these kinds of faults, separated by commas; by default those that kill instances
        /// and Redis, replace its master or move slots, as far as they apply
        #[arg(long, value_delimiter = ',')]
        only: Vec<FaultKind>,
        /// The seed; by default a new one
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Measure fetching over HTTP on a private Redis
    Bench(bench::Options),
}

fn share(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| "write a number from 0 to 1".to_owned())
}

/// Runs a campaign or measures.
///
/// # Errors
/// A promise was broken, the servers failed, or a signal arrived.
pub(super) async fn run(common: &Common, args: &Args) -> Result<Exit, Stop> {
    super::demo::start_log()?;
    let say: fn(&str) =
        if common.output == Form::Text { |text| eprintln!("{text}") } else { |_| {} };
    let mut signals = Signals::new()?;
    tokio::select! {
        exit = Box::pin(one(common, &args.what, say)) => exit,
        // The child processes end with the future.
        signal = signals.next() => Err(Stop::because(Exit::Failed, format!("{signal}: stopped"), "")),
    }
}

async fn one(common: &Common, what: &What, say: fn(&str)) -> Result<Exit, Stop> {
    match *what {
        What::Chaos {
            jobs,
            rate,
            names,
            consumers,
            killed,
            instances,
            redis,
            durability,
            consumers_only,
            ref only,
            seed,
        } => {
            let seed = seed.unwrap_or_else(rand::random);
            let (instances, faults, only) = (usize::from(instances), !consumers_only, only.clone());
            let options = campaign::Options {
                jobs,
                rate,
                names,
                consumers,
                killed,
                instances,
                redis,
                durability,
                faults,
                only,
                seed,
                say,
            };
            let summary = Box::pin(campaign::run(options)).await?;
            common.answer(&summary, &format!("{summary:#?}"))?;
            if summary.wrongs == 0 {
                Ok(Exit::Ok)
            } else {
                Err(Stop::because(Exit::Failed, "a promise was broken", ""))
            }
        }
        What::Bench(options) => {
            let figures = bench::run(options, say).await?;
            common.answer(&figures, &format!("{figures:#?}"))?;
            Ok(Exit::Ok)
        }
    }
}
