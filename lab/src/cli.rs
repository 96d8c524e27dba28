//! The command line of the laboratory: a file a command.

mod bench;
mod chaos;
mod demo;
mod http;
mod queue;
mod schedules;
mod smoothing;

use std::fmt::Debug;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use dwell::cli::{
    self,
    common::{Common, Form},
    exit::{Exit, Stop},
};
use dwell::shutdown::Signals;
use dwell::telemetry::log;
use serde::Serialize;

use crate::schedules::Options as ScheduleOptions;
use crate::schedules::worker::Work;
use crate::smoothing::Options as SmoothingOptions;

/// Shows Dwell at work, measures it, and tests it under faults
#[derive(Debug, Parser)]
#[command(
    name = "dwell-lab",
    version,
    arg_required_else_help = true,
    disable_help_subcommand = true
)]
struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the sidecar at work, on private servers
    Demo(demo::Args),
    /// Measure, on private servers
    Bench(bench::Args),
    /// Inject faults into Dwell, Redis and the broker under load, and check that no promise is
    /// broken
    #[command(subcommand)]
    Chaos(chaos::What),
    /// Fetch jobs from queues under faults, or measure it
    #[command(subcommand)]
    Queue(queue::What),
    /// Measure jobs for HTTP targets
    #[command(subcommand)]
    Http(http::What),
    /// Kill instances while recurring schedules fire, check that each time is made once or counted
    /// as missed, and measure
    Schedules(ScheduleOptions),
    /// Measure and check limits, bursts of requests that debounce, or the events of jobs
    Smoothing(SmoothingOptions),
    /// Work on what the schedules of the command before make, in a process of its own
    #[command(hide = true)]
    ScheduleWorker(Work),
}

/// Runs the program, from its command line to its exit code.
pub async fn main() -> ExitCode {
    cli::prepare();
    let Cli { common, command } = match cli::parse() {
        Ok(cli) => cli,
        Err(exit) => return exit,
    };
    cli::finish(match command {
        Command::Demo(args) => Box::pin(demo::run(&common, &args)).await,
        Command::Bench(args) => Box::pin(bench::run(&common, &args)).await,
        Command::Http(what) => Box::pin(http::run(&common, what)).await,
        Command::Queue(what) => Box::pin(queue::run(&common, &what)).await,
        Command::Schedules(options) => Box::pin(schedules::run(&common, &options)).await,
        Command::Smoothing(options) => Box::pin(smoothing::run(&common, &options)).await,
        Command::ScheduleWorker(options) => Box::pin(schedules::work(&options)).await,
        Command::Chaos(what) => return Box::pin(chaos::run(&common, what)).await,
    })
}

/// Runs a command until its end or a signal. Its private servers and their folders end with it. The
/// log starts only if `DWELL_LOG` is set: log lines would disturb the output.
async fn until_signal(command: impl Future<Output = Result<Exit, Stop>>) -> Result<Exit, Stop> {
    if std::env::var_os("DWELL_LOG").is_some() {
        log::start().map_err(|error| Stop::because(Exit::Usage, error.to_string(), ""))?;
    }
    let mut signals = Signals::new()?;
    tokio::select! {
        exit = command => exit,
        signal = signals.next() => Err(Stop::because(Exit::Failed, format!("{signal}: stopped"), "")),
    }
}

/// Prints progress for people.
fn progress(common: &Common) -> fn(&str) {
    if common.output == Form::Text { |text| eprintln!("{text}") } else { |_| {} }
}

/// Prints the figures of a measurement.
fn figures(common: &Common, figures: &(impl Serialize + Debug)) -> Result<Exit, Stop> {
    common.answer(figures, &format!("{figures:#?}"))?;
    Ok(Exit::Ok)
}

/// The exit after a check that found so many broken promises.
fn judged(wrongs: u64, hint: &str) -> Result<Exit, Stop> {
    match wrongs {
        0 => Ok(Exit::Ok),
        _ => Err(Stop::because(Exit::Failed, "a promise was broken", hint)),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
