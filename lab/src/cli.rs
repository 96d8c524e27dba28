//! The command line of the laboratory: a file a command.

mod bench;
mod chaos;
mod demo;
mod http;
mod queue;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use dwell::cli::{self, common::Common};

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
    Chaos(chaos::Args),
    /// Fetch jobs from queues under faults, or measure it
    Queue(queue::Args),
    /// Measure jobs for HTTP targets
    Http(http::Args),
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
        Command::Http(args) => Box::pin(http::run(&common, &args)).await,
        Command::Queue(args) => Box::pin(queue::run(&common, &args)).await,
        Command::Chaos(args) => return Box::pin(chaos::run(args)).await,
    })
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
