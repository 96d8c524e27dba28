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
pub mod ready;
pub mod requeue;
pub mod run;
pub mod schedule;
pub mod schedules;
pub mod schema;
pub mod send;
pub mod show;
pub mod stats;
mod table;
pub mod upgrade;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use common::Common;
use exit::{Exit, Stop};

use crate::config::{Mask, Runtime};
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
    /// Ask a running instance whether it is ready: exit code 0 or 1
    Ready(ready::Args),
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
    /// Bring an older namespace to the schema that this version writes
    Upgrade(upgrade::Args),
    /// Cancel a job, or end a recurring schedule
    Cancel(act::Args),
    /// Give a job a new due time
    Reschedule(act::Reschedule),
    /// Publish a job now, or make an occurrence of a recurring schedule now
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
    /// Store, show, pause or preview a recurring schedule, directly on Redis
    Schedule(Box<schedule::Args>),
    /// List recurring schedules by id, directly from Redis
    Schedules(schedules::Args),
    /// Print the JSON Schema of the settings
    Schema(schema::Args),
    /// Print completions for a shell
    Completions(completions::Args),
}

/// Runs the program, from its command line to its exit code.
#[must_use]
pub fn main() -> ExitCode {
    prepare();
    match Cli::read() {
        Ok(cli) => cli.run(),
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
        let (shown, text) = (mask(), error.render().to_string());
        let masked = shown.over(&text);
        if masked == text {
            // If stderr is closed, the message is lost.
            let _ = error.print();
        } else {
            eprint!("{masked}");
        }
        if error.use_stderr() { Exit::Usage.into() } else { Exit::Ok.into() }
    })
}

/// Hides what may be a secret in the arguments of this process, which messages quote.
fn mask() -> Mask {
    let arguments: Vec<String> =
        std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect();
    let texts = || arguments.iter().map(String::as_str);
    // Of a setting without `=`, nobody knows where its name ends.
    let after =
        texts().zip(texts().skip(1)).filter(|(flag, _)| *flag == "--set").map(|(_, text)| text);
    let nameless = after
        .chain(texts().filter_map(|text| text.strip_prefix("--set=")))
        .filter(|text| !text.contains('='));
    Mask::of(texts()).and_all_of(nameless)
}

/// The exit code of a command. Prints on stderr why a command stopped early.
pub fn finish(done: Result<Exit, Stop>) -> ExitCode {
    done.unwrap_or_else(|stop| {
        if stop.exit() != Exit::Ok {
            eprintln!("{}", mask().over(&stop.to_string()));
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
    #[must_use]
    pub fn run(self) -> ExitCode {
        let logs = matches!(self.command, Command::Run(_));
        let done = self.command.run(&self.common);
        if logs { run::finish(done) } else { finish(done) }
    }
}

/// The threads of a command.
fn runtime(settings: &Runtime) -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(settings.threads())
        .enable_all()
        .build()
}

fn block_on(command: impl Future<Output = Result<Exit, Stop>>) -> Result<Exit, Stop> {
    // Boxed: the future of a command can be large.
    runtime(&Runtime::default())?.block_on(Box::pin(command))
}

impl Command {
    fn run(self, common: &Common) -> Result<Exit, Stop> {
        match self {
            Command::Run(args) => run::start(common, &args),
            Command::Ready(args) => block_on(ready::run(common, &args)),
            Command::Check(args) => block_on(check::run(common, &args)),
            Command::Send(args) => block_on(send::run(common, &args)),
            Command::Ls(args) => block_on(ls::run(common, &args)),
            Command::Show(args) => block_on(show::run(common, &args)),
            Command::Stats(args) => block_on(stats::run(common, &args)),
            Command::Fsck(args) => block_on(fsck::run(common, &args)),
            Command::Upgrade(args) => block_on(upgrade::run(common, &args)),
            Command::Cancel(args) => block_on(act::act(common, Action::Cancel, args)),
            Command::Reschedule(args) => block_on(act::reschedule(common, args)),
            Command::Fire(args) => block_on(act::act(common, Action::Fire, args)),
            Command::Finish(args) => block_on(act::finish(common, args)),
            Command::Fail(args) => block_on(act::fail(common, args)),
            Command::Pop(args) => block_on(pop::run(common, args)),
            Command::Release(args) => block_on(lease::release(common, args)),
            Command::Touch(args) => block_on(lease::touch(common, args)),
            Command::Queues(args) => block_on(queues::run(common, &args)),
            Command::Requeue(args) => block_on(requeue::run(common, args)),
            Command::Schedule(args) => block_on(schedule::run(common, &args)),
            Command::Schedules(args) => block_on(schedules::run(common, &args)),
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
        for line in [
            "dwell -c f.toml -o json schema",
            "dwell schema -c f.toml -o json",
            "dwell schema --config=f.toml --output=json",
        ] {
            let cli = Cli::try_parse_from(line.split(' ')).unwrap();
            assert_eq!(cli.common.output, common::Form::Json);
            assert_eq!(cli.common.config.unwrap().to_str(), Some("f.toml"));
        }
    }

    #[test]
    fn a_schedule_is_stored_with_times_and_an_id() {
        let reads = |line: &str| Cli::try_parse_from(line.split(' ')).is_ok();
        for line in [
            "dwell schedule x",
            "dwell schedule x --next 0 --from 2026-01-31T12:00:00Z",
            "dwell schedule x --pause --reason late",
            "dwell schedule x --resume",
            "dwell schedule x --every 1h --queue emails --header a=b --paused body",
            "dwell schedule --cron @daily --zone Europe/Berlin --next 10",
            "dwell schedules --q x --paused --limit 5",
        ] {
            assert!(reads(line), "{line}");
        }
        for line in [
            "dwell schedule",
            "dwell schedule x body",
            "dwell schedule x --target orders.close",
            "dwell schedule x --zone UTC",
            "dwell schedule x --cron @daily --every 1h",
            "dwell schedule x --cron @daily --pause",
            "dwell schedule x --pause --resume",
            "dwell schedule x --reason late",
            "dwell schedule x --resume --reason late",
            "dwell schedule x --next 1001",
            "dwell schedule --cron @daily --queue emails",
            "dwell schedule --pause",
        ] {
            assert!(!reads(line), "{line}");
        }
    }

    #[test]
    fn a_flag_sets_a_setting() {
        let cli = Cli::try_parse_from([
            "dwell",
            "check",
            "--set",
            "delivery.ttr=10s",
            "--set",
            "redis.urls=redis://a?b=c",
        ])
        .unwrap();
        assert_eq!(cli.common.set[1], ("redis.urls".to_owned(), "redis://a?b=c".to_owned()));
        assert!(Cli::try_parse_from(["dwell", "check", "--set", "delivery.ttr"]).is_err());
    }
}
