//! `dwell bench`: load on real servers, and what came of it.

use clap::Subcommand;
use serde::Serialize;

use super::common::{Common, Form};
use super::exit::{Exit, Stop};
use crate::bench::ledger::BODY_MIN;
use crate::bench::{Options, drain, lateness, start};
use crate::servers::BrokerKind;
use crate::shutdown::Signals;
use crate::stage::Failure;

/// `dwell bench`
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// What is measured
    #[command(subcommand)]
    pub what: What,
    /// The broker: a private server of it is started
    #[arg(long, global = true, default_value = "nats")]
    pub broker: BrokerKind,
    /// A Redis to use, which keeps what is left in a namespace of its own; without it a private one
    #[arg(long, global = true, value_name = "URL")]
    pub redis: Option<String>,
    /// How many `dwell run` share the work
    #[arg(long, global = true, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub instances: u16,
    /// Bytes of each body
    #[arg(long, global = true, default_value_t = 200, value_parser = body)]
    pub body: usize,
}

/// What is measured.
#[derive(Debug, Clone, Subcommand)]
pub enum What {
    /// How fast jobs leave that are all due at one instant
    Drain {
        /// How many jobs
        #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
        jobs: u64,
        /// Beside a bare relay through the same connectors
        #[arg(long)]
        vs_relay: bool,
    },
    /// How late jobs are at a steady rate
    Lateness {
        /// Jobs due a second
        #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
        rate: u64,
        /// Jobs that are waiting for later meanwhile
        #[arg(long, default_value_t = 100_000)]
        pending: u64,
        /// For how long, in seconds
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
        secs: u64,
    },
    /// How long from exec to ready, and what an idle process uses
    Start {
        /// How many starts
        #[arg(long, default_value_t = 10)]
        times: usize,
    },
}

fn body(text: &str) -> Result<usize, String> {
    let bytes = text.parse().map_err(|_| "write a number of bytes".to_owned())?;
    if bytes < BODY_MIN { Err(format!("a body names its job: at least {BODY_MIN} bytes")) } else { Ok(bytes) }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        let exit = match failure {
            Failure::Io(error) => return error.into(),
            Failure::Course(_) | Failure::Settings(_) => Exit::Failed,
            Failure::Server(_) | Failure::Connector(_) | Failure::Store(_) | Failure::Start(_) => Exit::Unavailable,
        };
        Stop::because(exit, failure.to_string(), failure.mend())
    }
}

/// Measures, prints what came of it, and fails where a job was lost, doubled, early or damaged.
///
/// # Errors
/// The same, or the servers failed, or it was interrupted.
pub async fn run(common: &Common, args: &Args) -> Result<Exit, Stop> {
    super::demo::start_log()?;
    let mut signals = Signals::new()?;
    let say: fn(&str) = if common.output == Form::Text { |text| eprintln!("{text}") } else { |_| {} };
    let options = Options { broker: args.broker, redis: args.redis.clone(), instances: usize::from(args.instances), body: args.body, say };
    tokio::select! {
        exit = measure(common, &options, &args.what) => exit,
        // What was started ends with the future.
        signal = signals.next() => Err(Stop::because(Exit::Failed, format!("{signal}: stopped"), "")),
    }
}

async fn measure(common: &Common, options: &Options, what: &What) -> Result<Exit, Stop> {
    match *what {
        What::Drain { jobs, vs_relay } => {
            let report = Box::pin(drain::run(options, jobs, vs_relay)).await?;
            let wrong = report.wrong();
            answer(common, &report, wrong)
        }
        What::Lateness { rate, pending, secs } => {
            let report = Box::pin(lateness::run(options, rate, pending, secs)).await?;
            let wrong = report.wrong();
            answer(common, &report, wrong)
        }
        What::Start { times } => answer(common, &Box::pin(start::run(options, times)).await?, None),
    }
}

fn answer(common: &Common, report: &(impl Serialize + ToString), wrong: Option<String>) -> Result<Exit, Stop> {
    common.answer(report, &report.to_string())?;
    match wrong {
        None => Ok(Exit::Ok),
        Some(wrong) => Err(Stop::because(Exit::Failed, wrong, "")),
    }
}
