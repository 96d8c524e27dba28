//! `dwell bench`: load on real servers, and what came of it.

use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;

use super::common::{Common, Form};
use super::exit::{Exit, Stop};
use crate::bench::figure::Run;
use crate::bench::ledger::BODY_MIN;
use crate::bench::machine::Machine;
use crate::bench::report::{Report, Setup};
use crate::bench::{Aof, Options, drain, ingest, lateness, memory, pages, relay, scale, start};
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
    /// A Redis to use, which keeps what is left in namespaces of their own; without it a private one
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
pub enum What {
    /// How fast jobs leave that are all due at one instant, beside what a bare relay and the scripts alone allow
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
        /// Jobs due a second, or `half` of the drain rate; several, as 200,2000,half
        #[arg(long, value_delimiter = ',', default_value = "1000")]
        rate: Vec<lateness::Rate>,
        /// Jobs that wait for later meanwhile; several, as 10000,1000000
        #[arg(long, value_delimiter = ',', default_value = "100000")]
        pending: Vec<u64>,
        /// For how long, in seconds
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
        secs: u64,
    },
    /// How fast requests come in, from the broker to the store, beside what the source and the script alone allow
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
    /// Make pages of what was measured with `-o json`: DIR/performance.md with its pictures, and one self-contained HTML file
    Report {
        /// Lines of JSON; several files are read as one
        #[arg(required = true)]
        lines: Vec<PathBuf>,
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
pub struct Jobs {
    /// How many jobs
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub jobs: u64,
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
    if let What::Report { lines, docs, html } = &args.what {
        return Ok(pages::write(lines, docs.as_deref(), html.as_deref()).map(|()| Exit::Ok)?);
    }
    let mut signals = Signals::new()?;
    tokio::select! {
        exit = Box::pin(measure(common, args)) => exit,
        // What was started ends with the future.
        signal = signals.next() => Err(Stop::because(Exit::Failed, format!("{signal}: stopped"), "")),
    }
}

/// Every point of what is measured, run by run, so that a machine that slows down slows all of them; then a report of each.
async fn measure(common: &Common, args: &Args) -> Result<Exit, Stop> {
    let say: fn(&str) = if common.output == Form::Text { |text| eprintln!("{text}") } else { |_| {} };
    let mut reports = reports(args);
    for _ in 0..args.runs {
        let runs = match &args.what {
            What::Scale { jobs, pending } => {
                let options = Options { pending: *pending, ..options(args, say) };
                Box::pin(scale::run(&options, &points(args), jobs.jobs)).await?
            }
            what => {
                let mut runs = Vec::new();
                for (options, rate) in settings(args, say) {
                    runs.push(Box::pin(one(&options, what, rate)).await?);
                }
                runs
            }
        };
        for (report, (run, machine)) in reports.iter_mut().zip(runs) {
            report.add(&run);
            report.machine = machine;
        }
    }
    for report in &reports {
        common.answer(report, &report.to_string())?;
    }
    let wrong: Vec<String> = reports.iter().filter_map(Report::wrong).collect();
    if wrong.is_empty() { Ok(Exit::Ok) } else { Err(Stop::because(Exit::Failed, wrong.join("; "), "")) }
}

/// One run at one point.
async fn one(options: &Options, what: &What, rate: Option<lateness::Rate>) -> Result<(Run, Machine), Failure> {
    match what {
        What::Drain { jobs, alone, .. } => Box::pin(drain::run(options, jobs.jobs, !alone)).await,
        What::Lateness { secs, .. } => Box::pin(lateness::run(options, rate.unwrap_or(lateness::Rate::Half), *secs)).await,
        What::Schedule { jobs, alone, .. } => Box::pin(ingest::run(options, jobs.jobs, !alone)).await,
        What::Memory { load_jobs, load_body, .. } => {
            Box::pin(memory::run(options, memory::Load { jobs: *load_jobs, body: *load_body })).await
        }
        What::Relay { jobs } => Box::pin(relay::run(options, jobs.jobs)).await,
        What::Start { times, secs, .. } => Box::pin(start::run(options, *times, Duration::from_secs(*secs))).await,
        What::Scale { .. } | What::Report { .. } => Err(Failure::Course("it has no single point".to_owned())),
    }
}

fn options(args: &Args, say: fn(&str)) -> Options {
    Options {
        broker: args.broker,
        redis: args.redis.clone(),
        aof: args.aof,
        instances: args.instances.first().copied().map_or(1, usize::from),
        buckets: args.buckets.first().copied().unwrap_or(16),
        body: args.body,
        pending: 0,
        say,
    }
}

fn points(args: &Args) -> Vec<scale::Point> {
    scale::points(&args.instances.iter().copied().map(usize::from).collect::<Vec<_>>(), &args.buckets)
}

/// What is measured one after the other, but for `scale`.
fn settings(args: &Args, say: fn(&str)) -> Vec<(Options, Option<lateness::Rate>)> {
    let of = |pending: u64| Options { pending, ..options(args, say) };
    match &args.what {
        What::Drain { pending, .. } | What::Schedule { pending, .. } | What::Memory { pending, .. } => vec![(of(*pending), None)],
        What::Lateness { rate, pending, .. } => {
            pending.iter().flat_map(|&pending| rate.iter().map(move |&rate| (of(pending), Some(rate)))).collect()
        }
        What::Start { pending, .. } => pending.iter().map(|&pending| (of(pending), None)).collect(),
        What::Relay { .. } | What::Scale { .. } | What::Report { .. } => vec![(of(0), None)],
    }
}

/// A report without a run for each point.
fn reports(args: &Args) -> Vec<Report> {
    let (bench, jobs, secs) = match &args.what {
        What::Drain { jobs, .. } => ("drain", Some(jobs.jobs), None),
        What::Lateness { secs, .. } => ("lateness", None, Some(*secs)),
        What::Schedule { jobs, .. } => ("schedule", Some(jobs.jobs), None),
        What::Memory { .. } => ("memory", None, None),
        What::Scale { jobs, .. } => ("scale", Some(jobs.jobs), None),
        What::Relay { jobs } => ("relay", Some(jobs.jobs), None),
        What::Start { secs, .. } => ("start", None, Some(*secs)),
        What::Report { .. } => return Vec::new(),
    };
    // The path of the program, and where a Redis is, are nobody's concern.
    let words = std::env::args().skip(1).map(|word| if word.contains("://") { "URL".to_owned() } else { word });
    let command = std::iter::once("dwell".to_owned()).chain(words).collect::<Vec<_>>().join(" ");
    let load = if let What::Memory { load_jobs, load_body, .. } = &args.what { Some((*load_jobs, *load_body)) } else { None };
    let report = |setup: Setup| Report::new(bench, Setup { jobs, secs, load, ..setup }, command.clone());
    if let What::Scale { pending, .. } = &args.what {
        let of = |point: scale::Point| Setup {
            pending: *pending,
            instances: point.instances,
            buckets: point.buckets,
            ..options(args, |_| {}).setup()
        };
        return points(args).into_iter().map(|point| report(of(point))).collect();
    }
    let settings = settings(args, |_| {});
    settings.into_iter().map(|(options, rate)| report(Setup { rate: rate.map(|rate| rate.to_string()), ..options.setup() })).collect()
}
