//! The command line: a file a command, and their shared parts.

pub mod act;
pub mod check;
pub mod common;
pub mod completions;
pub mod exit;
pub mod fsck;
pub mod lease;
pub mod ls;
pub mod pop;
pub mod queues;
pub mod requeue;
pub mod run;
pub mod schema;
pub mod send;
pub mod show;
pub mod stats;
mod table;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use common::Common;
use exit::{Exit, Stop};

use crate::job::Action;

/// Delayed delivery for the Kafka, RabbitMQ or NATS JetStream that you already run
#[derive(Debug, Parser)]
#[command(name = "dwell", version, arg_required_else_help = true, disable_help_subcommand = true)]
pub struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the sidecar
    Run(run::Args),
    /// Check settings and servers; print one line per check, with a hint
    Check(check::Args),
    /// Send a request through the broker, as a producer does
    Send(send::Args),
    /// List jobs by due time, directly from Redis
    Ls(ls::Args),
    /// Show one job, directly from Redis
    Show(show::Args),
    /// Count the jobs, directly from Redis
    Stats(stats::Args),
    /// Find damage in the namespace, and repair it
    Fsck(fsck::Args),
    /// Cancel a job
    Cancel(act::Args),
    /// Give a job a new due time
    Reschedule(act::Reschedule),
    /// Publish a job now
    Fire(act::Args),
    /// Finish a job for its consumer; with its lease, as the consumer of a queue
    Finish(act::ConsumerArgs),
    /// Fail an attempt for its consumer; with its lease, as the consumer of a queue
    Fail(act::Fail),
    /// Fetch jobs of a queue, each with its lease
    Pop(pop::Args),
    /// Give a fetched job back to its queue; no attempt is burned
    Release(lease::Release),
    /// Prolong the lease of a fetched job
    Touch(lease::Touch),
    /// Count the jobs of each queue, directly from Redis
    Queues(queues::Args),
    /// Schedule a dead job again, with attempts from 1; or move the jobs of a broker to another
    Requeue(requeue::Args),
    /// Print the JSON Schema of the settings
    Schema(schema::Args),
    /// Print completions for a shell
    Completions(completions::Args),
}

/// Runs the program, from its command line to its exit code.
pub async fn main() -> ExitCode {
    prepare();
    match Cli::read() {
        Ok(cli) => cli.run().await,
        Err(exit) => exit,
    }
}

/// Installs the process-wide cryptography provider, which TLS connections to Redis and NATS need.
/// Keeps an installed one.
pub fn prepare() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Reads the command line of this process.
///
/// # Errors
/// The exit code, after the help, the version or the mistake in the command line is printed.
pub fn parse<C: Parser>() -> Result<C, ExitCode> {
    C::try_parse().map_err(|error| {
        // If stderr is closed, the message is lost.
        let _ = error.print();
        if error.use_stderr() { Exit::Usage.into() } else { Exit::Ok.into() }
    })
}

/// The exit code of a command. Prints on stderr why a command stopped early.
pub fn finish(done: Result<Exit, Stop>) -> ExitCode {
    done.unwrap_or_else(|stop| {
        if stop.exit() != Exit::Ok {
            eprintln!("{stop}");
        }
        stop.exit()
    })
    .into()
}

impl Cli {
    /// Reads the command line of this process.
    ///
    /// # Errors
    /// See [`parse`].
    pub fn read() -> Result<Self, ExitCode> {
        parse()
    }

    /// Runs the command to its end.
    pub async fn run(self) -> ExitCode {
        finish(self.command.run(&self.common).await)
    }
}

impl Command {
    async fn run(self, common: &Common) -> Result<Exit, Stop> {
        match self {
            // Boxed: the future of all agents is large.
            Command::Run(args) => Box::pin(run::run(common, &args)).await,
            Command::Check(args) => Box::pin(check::run(common, &args)).await,
            Command::Send(args) => Box::pin(send::run(common, &args)).await,
            Command::Ls(args) => Box::pin(ls::run(common, &args)).await,
            Command::Show(args) => Box::pin(show::run(common, &args)).await,
            Command::Stats(args) => Box::pin(stats::run(common, &args)).await,
            Command::Fsck(args) => Box::pin(fsck::run(common, &args)).await,
            Command::Cancel(args) => Box::pin(act::act(common, Action::Cancel, args)).await,
            Command::Reschedule(args) => Box::pin(act::reschedule(common, args)).await,
            Command::Fire(args) => Box::pin(act::act(common, Action::Fire, args)).await,
            Command::Finish(args) => Box::pin(act::finish(common, args)).await,
            Command::Fail(args) => Box::pin(act::fail(common, args)).await,
            Command::Pop(args) => Box::pin(pop::run(common, args)).await,
            Command::Release(args) => Box::pin(lease::release(common, args)).await,
            Command::Touch(args) => Box::pin(lease::touch(common, args)).await,
            Command::Queues(args) => Box::pin(queues::run(common, &args)).await,
            Command::Requeue(args) => Box::pin(requeue::run(common, args)).await,
            Command::Schema(_) => schema::run(common),
            Command::Completions(args) => completions::run(&args),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_all_commands_share_may_stand_before_or_behind() {
        for line in ["dwell -c f.toml -o json schema", "dwell schema -c f.toml -o json", "dwell schema --config=f.toml --output=json"] {
            let cli = Cli::try_parse_from(line.split(' ')).unwrap();
            assert_eq!(cli.common.output, common::Form::Json);
            assert_eq!(cli.common.config.unwrap().to_str(), Some("f.toml"));
        }
    }

    #[test]
    fn a_flag_sets_a_setting() {
        let cli = Cli::try_parse_from(["dwell", "check", "--set", "delivery.ttr=10s", "--set", "redis.urls=redis://a?b=c"]).unwrap();
        assert_eq!(cli.common.set[1], ("redis.urls".to_owned(), "redis://a?b=c".to_owned()));
        assert!(Cli::try_parse_from(["dwell", "check", "--set", "delivery.ttr"]).is_err());
    }
}
