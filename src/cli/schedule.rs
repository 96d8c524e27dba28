//! `dwell schedule ID`: stores, shows, pauses or resumes a recurring schedule, directly on Redis;
//! without an id, previews one.

mod put;
mod text;

use super::common::{Common, job_id};
use super::exit::{Exit, Stop};
use super::send::header;
use crate::clock;
use crate::job::JobId;
use crate::request::{Rejection, moment_ms, timing_from_fields};
use crate::schedule::MAX_REASON_BYTES;
use crate::store::Store;
use crate::units::quote;
use crate::view;
use text::{lines, shown};

/// The most next times that are shown.
const MAX_NEXT: usize = 1000;

/// `dwell schedule`
#[derive(Debug, Clone, clap::Args)]
#[command(group(clap::ArgGroup::new("times").args(["cron", "every"])))]
pub struct Args {
    /// The schedule's id; without one, the next times of --cron or --every are printed
    #[arg(value_parser = job_id, required_unless_present_any = ["cron", "every"])]
    pub id: Option<JobId>,
    /// Store the schedule with this expression: five or six cron fields, or @hourly, @daily, @weekly
    #[arg(long, value_name = "EXPR")]
    pub cron: Option<String>,
    /// Store the schedule with this interval: 90s, 1h30m or PT15M
    #[arg(long, value_name = "DURATION")]
    pub every: Option<String>,
    /// The time zone of --cron, by its IANA name; by default UTC
    #[arg(long, requires = "times")]
    pub zone: Option<String>,
    /// The first moment, included: 2026-01-31T12:00:00Z or epoch milliseconds; with --zone without
    /// an offset
    #[arg(long, value_name = "TIME", requires = "times")]
    pub start: Option<String>,
    /// The last moment, included
    #[arg(long, value_name = "TIME", requires = "times")]
    pub end: Option<String>,
    /// The most occurrences
    #[arg(long, value_name = "NUMBER", requires = "times")]
    pub count: Option<String>,
    /// How many next times to print
    #[arg(long, default_value_t = 5, value_name = "NUMBER", value_parser = next_count)]
    pub next: usize,
    /// Only next times later than this; by default now
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    pub from: Option<String>,
    /// Pause the schedule
    #[arg(long, requires = "id", conflicts_with_all = ["times", "resume"])]
    pub pause: bool,
    /// Why the schedule is paused: at most 1000 bytes
    #[arg(long, value_name = "TEXT", value_parser = reason, requires = "pause", conflicts_with_all = ["times", "resume"])]
    pub reason: Option<String>,
    /// Resume the schedule
    #[arg(long, requires = "id", conflicts_with = "times")]
    pub resume: bool,
    #[command(flatten)]
    job: JobArgs,
}

/// What is stored besides the times.
#[derive(Debug, Clone, clap::Args)]
struct JobArgs {
    /// The target of the jobs: Kafka topic, NATS subject or AMQP routing key
    #[arg(long, requires = "id", requires = "times")]
    target: Option<String>,
    /// The queue of the jobs, instead of a target
    #[arg(long, requires = "id", requires = "times", conflicts_with = "target")]
    queue: Option<String>,
    /// The broker of the target; required if the settings have several and not one ingest
    #[arg(long, value_name = "NAME", requires = "id", requires = "times")]
    broker: Option<String>,
    /// The AMQP exchange
    #[arg(long, requires = "id", requires = "times")]
    exchange: Option<String>,
    /// What becomes of missed occurrences: one (the latest), none or all (the latest 100)
    #[arg(long, value_name = "WORD", requires = "id", requires = "times")]
    catch_up: Option<String>,
    /// What becomes of an occurrence while the one before is alive: allow or skip
    #[arg(long, value_name = "WORD", requires = "id", requires = "times")]
    overlap: Option<String>,
    /// Move the due times by less than this, by a hash of the id
    #[arg(long, value_name = "DURATION", requires = "id", requires = "times")]
    spread: Option<String>,
    /// A job is dead if it is not delivered within this from its due time
    #[arg(long, value_name = "DURATION", requires = "id", requires = "times")]
    expire: Option<String>,
    /// The waits between attempts: 2m,10m,1h; none: a single attempt
    #[arg(long, value_name = "DURATIONS", requires = "id", requires = "times")]
    retry: Option<String>,
    /// The time to run of one attempt
    #[arg(long, value_name = "DURATION", requires = "id", requires = "times")]
    ttr: Option<String>,
    /// Who confirms an attempt: broker or consumer
    #[arg(long, value_name = "WORD", requires = "id", requires = "times")]
    confirm: Option<String>,
    /// What becomes of a job that is too late at its first attempt: fire, drop or dead
    #[arg(long, value_name = "WORD", requires = "id", requires = "times")]
    late: Option<String>,
    /// How long a job may be overdue at its first attempt
    #[arg(long, value_name = "DURATION", requires = "id", requires = "times")]
    max_late: Option<String>,
    /// What happens if the id exists: replace, keep or reject
    #[arg(long, value_name = "WORD", requires = "id", requires = "times")]
    on_conflict: Option<String>,
    /// A header of the jobs; may be repeated
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = header, requires = "id", requires = "times")]
    headers: Vec<(String, String)>,
    /// Begin paused, if the schedule is new
    #[arg(long, requires = "id", requires = "times")]
    paused: bool,
    /// The body of the jobs; `-` reads it from stdin
    #[arg(requires = "times")]
    body: Option<String>,
}

fn next_count(text: &str) -> Result<usize, String> {
    let next = text.parse::<usize>().ok().filter(|next| *next <= MAX_NEXT);
    next.ok_or_else(|| format!("{} is not a number from 0 to {MAX_NEXT}", quote(text)))
}

fn reason(text: &str) -> Result<String, String> {
    match text.len() {
        ..=MAX_REASON_BYTES => Ok(text.to_owned()),
        bytes => Err(format!("{bytes} bytes are too many: write at most {MAX_REASON_BYTES}")),
    }
}

/// Stores the schedule where there are times, else shows or changes it.
pub(super) async fn run(common: &Common, args: &Args) -> Result<Exit, Stop> {
    // Before anything is stored.
    let from_ms = args.moment()?;
    let Some(id) = &args.id else { return preview(common, args, from_ms) };
    let settings = common.settings()?;
    let store = Store::attach(&settings.redis).await?;
    if args.expression().is_some() {
        return put::run(common, args, id, from_ms, &store, &settings).await;
    }
    let found = if args.pause {
        let reason = args.reason.as_deref().filter(|reason| !reason.is_empty());
        store.schedules.pause(id, reason, None).await?
    } else if args.resume {
        store.schedules.resume(id, None).await?
    } else {
        store.schedules.find(id).await?
    };
    let found = found.ok_or_else(|| {
        let message = format!("there is no recurring schedule {}", quote(id.as_str()));
        let hint = "cancelled ones, and those without a further time, are not kept";
        Stop::because(Exit::NotFound, message, hint)
    })?;
    let now_ms = store.read_clock().await? / 1000;
    let next = found.upcoming_after(now_ms, from_ms.unwrap_or(now_ms), args.next);
    let schedule = view::Schedule::of(&found, next, &settings.delivery.retry);
    common.answer(&schedule, &shown(&schedule, now_ms))?;
    Ok(Exit::Ok)
}

/// Prints the next times of a schedule that is not stored, by the clock of this host.
fn preview(common: &Common, args: &Args, from_ms: Option<i64>) -> Result<Exit, Stop> {
    let now_ms = clock::wall_ms();
    let timing = timing_from_fields(&args.times(), now_ms).map_err(|why| refused(&why))?;
    let times = view::Times::of(&timing, now_ms, from_ms.unwrap_or(now_ms), args.next);
    common.answer(&times, &lines(&times.next, now_ms))?;
    Ok(Exit::Ok)
}

/// A request that breaks a rule.
fn refused(rejection: &Rejection) -> Stop {
    Stop::because(Exit::Usage, rejection.to_string(), "nothing was stored")
}

impl Args {
    /// The expression to store or to preview.
    fn expression(&self) -> Option<String> {
        let every = || self.every.as_ref().map(|interval| format!("@every {interval}"));
        self.cron.clone().or_else(every)
    }

    /// The fields of the times, each named as a `delay-*` header without its prefix.
    fn times(&self) -> Vec<(&'static str, String)> {
        given([
            ("schedule", self.expression()),
            ("time-zone", self.zone.clone()),
            ("start", self.start.clone()),
            ("end", self.end.clone()),
            ("count", self.count.clone()),
        ])
    }

    /// The moment after which next times are printed.
    fn moment(&self) -> Result<Option<i64>, Stop> {
        let moment = |text: &String| moment_ms("from", text, self.zone.as_deref());
        self.from.as_ref().map(moment).transpose().map_err(|why| refused(&why))
    }
}

/// The fields that have a value.
fn given<const N: usize>(
    fields: [(&'static str, Option<String>); N],
) -> Vec<(&'static str, String)> {
    fields.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}
