//! The command line of the laboratory: a file a command.

mod bench;
mod chaos;
mod demo;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use dwell::cli::common::Common;
use dwell::cli::exit::{Exit, Stop};

/// Shows Dwell at work, measures it, and breaks it on purpose
#[derive(Debug, Parser)]
#[command(name = "dwell-lab", version, arg_required_else_help = true, disable_help_subcommand = true)]
struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the sidecar at work, on servers of its own
    Demo(demo::Args),
    /// Measure, on servers of its own
    Bench(bench::Args),
    /// Break Dwell, Redis and the broker under load, and check that no promise broke
    Chaos(chaos::Args),
}

/// What the program does, from its command line to its exit code.
pub async fn main() -> ExitCode {
    // Redis and NATS take the process's provider of cryptography: it must be there before their first TLS connection. One that is there stays.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let Cli { common, command } = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Nothing is left to tell anybody when stderr is closed too.
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage.into() } else { Exit::Ok.into() };
        }
    };
    let done = match command {
        Command::Demo(args) => Box::pin(demo::run(&common, &args)).await,
        Command::Bench(args) => Box::pin(bench::run(&common, &args)).await,
        Command::Chaos(args) => return Box::pin(chaos::run(args)).await,
    };
    done.unwrap_or_else(told).into()
}

/// Says on stderr why a command stopped early.
fn told(stop: Stop) -> Exit {
    if stop.exit() != Exit::Ok {
        eprintln!("{stop}");
    }
    stop.exit()
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
