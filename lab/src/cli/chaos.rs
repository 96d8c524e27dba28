//! `dwell-lab chaos`: campaigns of faults.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::ExitCode;
use std::time::Duration;

use crate::chaos::campaign::{self, Options, queue};
use crate::chaos::checker::check;
use crate::chaos::checker::verdict::Verdict;
use crate::chaos::fault::FaultKind;
use crate::chaos::history::History;
use crate::chaos::page::page;
use crate::chaos::plan::Pace;
use crate::chaos::report::Report;
use crate::chaos::system::SystemOptions;
use crate::words;
use clap::Subcommand;
use dwell::cli::{self, common::Common};
use dwell::config::{Durability, RedisMode};
use dwell::units::parse_duration_ms;
use dwell_testkit::servers::BrokerKind;

/// `dwell-lab chaos`
#[derive(Debug, Subcommand)]
pub(super) enum What {
    /// Inject faults into real servers under load, then print the verdict
    Run(Run),
    /// The same for a queue, whose consumers are killed too: `dwell-lab queue chaos`
    Queue(queue::Options),
    /// Check the history of a run again
    Check {
        /// `history-….jsonl`
        history: PathBuf,
        /// Also write the report to this file
        #[arg(long)]
        report: Option<PathBuf>,
    },
    /// Merge several reports into one, as JSON on stdout
    Merge {
        /// `report-….json`
        reports: Vec<PathBuf>,
    },
    /// Write a report into the page on reliability
    Page {
        /// `report.json`
        report: PathBuf,
        /// The page
        #[arg(long, default_value = "docs/reference/measured/reliability.md")]
        into: PathBuf,
    },
}

#[derive(Debug, clap::Args)]
pub(super) struct Run {
    /// The broker
    #[arg(long, default_value = "nats")]
    broker: BrokerKind,
    /// `redis.mode`: single, cluster or sentinel
    #[arg(long, default_value = "single", value_parser = words::parse::<RedisMode>)]
    redis: RedisMode,
    /// How long faults are injected
    #[arg(long, default_value = "60s", value_parser = duration)]
    duration: Duration,
    /// The seed of plan and load; without it, a random one
    #[arg(long)]
    seed: Option<u64>,
    /// The number of `dwell run`
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=16))]
    instances: u16,
    /// Jobs a second
    #[arg(long, default_value_t = 100)]
    rate: u32,
    /// `redis.durability`: memory, fsync, replica or fsync+replica
    #[arg(long, default_value = "replica", value_parser = words::parse::<Durability>)]
    durability: Durability,
    /// Short faults that follow each other fast; kinds that take ten seconds and more in one round
    /// of six
    #[arg(long)]
    dense: bool,
    /// Half of the jobs go to URLs, whose host fails too
    #[arg(long)]
    http: bool,
    /// Only these kinds of faults, separated by commas
    #[arg(long, value_delimiter = ',')]
    only: Vec<FaultKind>,
    /// The program of the instances
    #[arg(long)]
    program: Option<PathBuf>,
    /// The folder for the history and the report
    #[arg(long, default_value = "target/chaos")]
    out: PathBuf,
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration_ms(text).map(Duration::from_millis)
}

/// Exit code 0: no promise broke. 1: one did. 2: there was no campaign. Of a queue's campaign those
/// of `dwell-lab queue chaos`.
pub(super) async fn run(common: &Common, what: What) -> ExitCode {
    let done = match what {
        What::Run(args) => campaign(args).await,
        What::Queue(options) => {
            return cli::finish(super::queue::chaos(common, &options).await);
        }
        What::Check { history, report } => again(&history, report.as_deref()),
        What::Merge { reports } => merge(&reports),
        What::Page { report, into } => write_page(&report, &into),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

async fn campaign(args: Run) -> Result<bool, Failure> {
    let seed = args.seed.unwrap_or_else(|| u64::from(rand::random::<u32>()));
    let repeat = repeat(&args, seed);
    let usual = SystemOptions::default();
    let system = SystemOptions {
        broker: args.broker,
        redis: args.redis,
        instances: usize::from(args.instances),
        durability: args.durability,
        http: args.http,
        program: args.program.unwrap_or(usual.program.clone()),
        ..usual
    };
    let options = Options {
        system,
        seed,
        duration: args.duration,
        least: 0,
        rate: args.rate,
        pace: if args.dense { Pace::Dense } else { Pace::Even },
        only: args.only,
        out: args.out.clone(),
        repeat: repeat.clone(),
        say: |line| eprintln!("{line}"),
    };
    let file = args.out.join(format!("report-{}.json", options.name()));
    campaign::remove_earlier(&file).map_err(|error| error.to_string())?;
    let repeatable = |error: &dyn Display| format!("{error}\nto repeat: dwell-lab chaos {repeat}");
    let running: Pin<Box<dyn Future<Output = _>>> = Box::pin(campaign::run(options));
    let outcome = running.await.map_err(|error| repeatable(&error))?;
    injected(&outcome.verdict).map_err(|error| repeatable(&error))?;
    std::fs::write(&file, serde_json::to_string_pretty(&outcome.report)?)?;
    println!("{}", outcome.report);
    if !outcome.verdict.is_sound() {
        println!("{}", outcome.verdict);
        let commit = &outcome.report.runs[0].commit;
        println!(
            "history: {}\nseed {seed}, commit {commit}; to repeat: dwell-lab chaos {repeat}",
            outcome.history.display()
        );
    }
    Ok(outcome.verdict.is_sound())
}

/// A run without faults proves nothing. A killed consumer is a fault too.
fn injected(verdict: &Verdict) -> Result<(), Failure> {
    let killed = verdict.queue.map_or(0, |queue| queue.consumers.killed());
    if verdict.is_sound() && verdict.impacts.is_empty() && killed == 0 {
        return Err(
            "no fault was injected, so nothing was tested: run the campaign for longer".into()
        );
    }
    Ok(())
}

/// The arguments that repeat a run.
fn repeat(args: &Run, seed: u64) -> String {
    let Run { broker, redis, duration, instances, rate, durability, dense, http, only, .. } = args;
    let (broker, durability) = (broker.as_str(), words::word(durability));
    let only: Vec<String> = only.iter().map(ToString::to_string).collect();
    let mut words = format!(
        "run --broker {broker} --duration {}ms --seed {seed} --instances {instances} --rate {rate} --durability {durability}",
        duration.as_millis()
    );
    for (is_set, flag) in [
        (*redis != RedisMode::Single, format!(" --redis {}", words::word(redis))),
        (*dense, " --dense".to_owned()),
        (*http, " --http".to_owned()),
        (!only.is_empty(), format!(" --only {}", only.join(","))),
    ] {
        if is_set {
            words += &flag;
        }
    }
    words
}

fn again(file: &Path, into: Option<&Path>) -> Result<bool, Failure> {
    let history = History::read(file)?;
    let verdict = check(&history);
    of_file(file, injected(&verdict))?;
    let mut report = Report::of(&history, &verdict);
    report.runs.iter_mut().for_each(|run| run.checked_again = true);
    println!("{report}\n{verdict}");
    if let Some(into) = into {
        of_file(into, std::fs::write(into, serde_json::to_string_pretty(&report)?))?;
    }
    Ok(verdict.is_sound())
}

/// Names the file in the error.
fn of_file<T, E: Display>(file: &Path, result: Result<T, E>) -> Result<T, Failure> {
    result.map_err(|error| format!("{}: {error}", file.display()).into())
}

fn read(file: &Path) -> Result<Report, Failure> {
    let text = of_file(file, std::fs::read_to_string(file))?;
    of_file(file, serde_json::from_str(&text))
}

fn merge(files: &[PathBuf]) -> Result<bool, Failure> {
    if files.is_empty() {
        return Err("name the reports: `dwell-lab chaos merge report-….json …`".into());
    }
    let mut report = Report::default();
    for file in files {
        let other = read(file)?;
        if let Some(run) = report.repeated(&other) {
            let (broker, seed, commit) = (&run.broker, run.seed, &run.commit);
            let known = format!("{broker}, seed {seed} at {commit} is already in the report");
            return of_file(file, Err(known));
        }
        report = report.and(other);
    }
    println!("{}", serde_json::to_string_pretty(&report)?);
    eprintln!("{report}");
    Ok(report.is_sound())
}

fn write_page(file: &Path, into: &Path) -> Result<bool, Failure> {
    let report = read(file)?;
    if report.runs.is_empty() {
        return of_file(file, Err("the report has no run"));
    }
    if let Some(run) = report.runs.iter().find(|run| !run.can_be_repeated()) {
        let (broker, seed, commit) = (&run.broker, run.seed, &run.commit);
        return Err(format!("{broker}, seed {seed}: its tree cannot be restored (commit `{commit}`); run it on a commit").into());
    }
    let old = std::fs::read_to_string(into).unwrap_or_default();
    of_file(into, std::fs::write(into, page(&old, &report)))?;
    Ok(report.is_sound())
}
