//! `dwell cancel|reschedule|fire|finish|fail|requeue ID`: an action on one job, directly on Redis,
//! and its verdict.

use std::sync::Arc;

use super::common::{Common, Form, job_id};
use super::exit::{Exit, Stop};
use super::lease;
use super::table::{clean, local};
use crate::apply::{BoundedRetry, RequestBatch, RetryPolicy};
use crate::config::{QueueRules, Settings};
use crate::job::{Action, JobId, Verdict};
use crate::request::{Act, Code, Rejection, Request, act_on, due_stated};
use crate::store::Store;
use crate::store::error::{Class, StoreError};
use crate::store::jobs::batch::Answer;
use crate::units::{parse_duration_ms, parse_time_ms};
use crate::view;

/// `dwell cancel`, `fire`, `requeue`
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The job's id
    #[arg(value_parser = job_id)]
    pub id: JobId,
}

/// `dwell finish`, `fail`
#[derive(Debug, Clone, clap::Args)]
pub struct ConsumerArgs {
    /// The job's id
    #[arg(value_parser = job_id)]
    pub id: JobId,
    /// Only if the schedule is due at this time: the delayed-due of the message
    #[arg(long, value_name = "TIME", value_parser = parse_time_ms)]
    pub due: Option<i64>,
    /// Only if this is the current attempt: the delayed-attempt of the message
    #[arg(long, value_name = "NUMBER")]
    pub attempt: Option<u32>,
    /// The lease of a job that was fetched from a queue, as `dwell pop` prints it
    #[arg(long, allow_hyphen_values = true, conflicts_with_all = ["due", "attempt"])]
    pub lease: Option<String>,
}

/// `dwell fail`
#[derive(Debug, Clone, clap::Args)]
pub struct Fail {
    #[command(flatten)]
    consumer: ConsumerArgs,
    /// With a lease: the wait before the next attempt, instead of that of the retry array
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration_ms, requires = "lease")]
    wait_ms: Option<u64>,
    /// With a lease: why, which becomes the last error of the job
    #[arg(long, value_name = "TEXT", requires = "lease")]
    error: Option<String>,
}

/// `dwell reschedule`
#[derive(Debug, Clone, clap::Args)]
#[command(group(clap::ArgGroup::new("when").required(true).args(["delay_ms", "until"])))]
pub struct Reschedule {
    /// The job's id
    #[arg(value_parser = job_id)]
    pub id: JobId,
    /// The delay from now: 5000 (ms), 90s, 1h30m or PT15M
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration_ms)]
    pub delay_ms: Option<u64>,
    /// The new due time: 2026-01-31T12:00:00Z or epoch milliseconds; with --zone without an offset
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// The time zone of --until, by its IANA name: Europe/Berlin
    #[arg(long, value_name = "ZONE", requires = "until")]
    pub zone: Option<String>,
}

/// A new due time: a duration (ms), or a time with its zone.
struct NewTime {
    delay_ms: Option<u64>,
    until: Option<String>,
    zone: Option<String>,
}

/// Gives a job another due time.
pub(super) async fn reschedule(common: &Common, args: Reschedule) -> Result<Exit, Stop> {
    let when = NewTime { delay_ms: args.delay_ms, until: args.until, zone: args.zone };
    run(common, Action::Reschedule, args.id, Some(when), (None, None)).await
}

/// Cancels, fires or requeues a job.
pub(super) async fn act(common: &Common, action: Action, args: Args) -> Result<Exit, Stop> {
    run(common, action, args.id, None, (None, None)).await
}

/// Applies the `finish` of a job's consumer.
pub(super) async fn finish(common: &Common, args: ConsumerArgs) -> Result<Exit, Stop> {
    match &args.lease {
        Some(lease) => lease::finish(common, args.id, lease).await,
        None => run(common, Action::Finish, args.id, None, (args.due, args.attempt)).await,
    }
}

/// Applies the `fail` of a job's consumer.
pub(super) async fn fail(common: &Common, args: Fail) -> Result<Exit, Stop> {
    let Fail { consumer, wait_ms, error } = args;
    match &consumer.lease {
        Some(lease) => lease::fail(common, consumer.id, lease, wait_ms, error).await,
        None => {
            run(common, Action::Fail, consumer.id, None, (consumer.due, consumer.attempt)).await
        }
    }
}

/// Acts on a job or a recurring schedule and prints the verdict. Exits with 2 if it is not the
/// verdict asked for. `seen`: the due time and the attempt that the consumer received.
async fn run(
    common: &Common,
    action: Action,
    id: JobId,
    when: Option<NewTime>,
    seen: (Option<i64>, Option<u32>),
) -> Result<Exit, Stop> {
    let settings = common.settings()?;
    let store = Store::attach(&settings.redis).await?;
    let due = match when {
        None => None,
        Some(NewTime { delay_ms, until, zone }) => {
            let now_ms = store.read_clock().await? / 1000;
            let max_ms = settings.limits.max_delay.ms();
            due_stated(delay_ms, until.as_deref(), zone.as_deref(), max_ms, now_ms).map_err(
                |rejection| {
                    let hint = match rejection.code {
                        Code::DelayTooLong => {
                            "choose another time, or change limits.max_delay here and where dwell runs"
                        }
                        _ => "nothing changed",
                    };
                    Stop::because(Exit::Usage, rejection.to_string(), hint)
                },
            )?
        }
    };
    let schedule = match (action, common.output) {
        // A schedule of a full queue is not fired.
        (Action::Fire, _) => store.schedules.find(&id).await?,
        // For people: the words on a schedule are others. No action waits for them.
        (_, Form::Text) => store.schedules.find(&id).await.unwrap_or_else(|error| {
            let (id, error) = (clean(id.as_str()), clean(&error.to_string()));
            eprintln!("whether {id} is a recurring schedule is not known: {error}");
            None
        }),
        _ => None,
    };
    if action == Action::Fire
        && let Some(queue) = schedule.as_ref().and_then(|schedule| schedule.job.queue())
    {
        refuse_if_full(&store, &settings, queue).await?;
    }
    let request = Request::Act(Act {
        seen_due: seen.0,
        seen_attempt: seen.1,
        ..act_on(action, id.clone(), due)
    });
    let answer = apply(&store, &settings.delivery.retry, request).await;
    let answer = answer.map_err(|error| match error.class {
        Class::QueueFull => Stop::because(
            Exit::Failed,
            Rejection::full_queue_of(&id).to_string(),
            "nothing changed",
        ),
        _ => error.into(),
    })?;
    let result = view::ActionResult::of(id.as_str(), action, answer);
    let meaning = match schedule {
        Some(_) => meaning_of_schedule(action, result.verdict),
        None => meaning(action, result.verdict),
    };
    common.answer(&result, &text(&result, meaning))?;
    Ok(if result.status() < 300 { Exit::Ok } else { Exit::NotFound })
}

/// From now on this store fires no schedule of the queue if the queue has `max_jobs` jobs.
async fn refuse_if_full(store: &Store, settings: &Settings, queue: &str) -> Result<(), StoreError> {
    let Some(most) = settings.queues.get(queue).and_then(QueueRules::max_jobs) else {
        return Ok(());
    };
    let counted = store.reader.active_counts(|name| name == queue).await?;
    let jobs = counted
        .queues
        .get(queue)
        .map_or(0, |counts| counts.scheduled + counts.ready + counts.reserved);
    store.schedules.know_full_queues(Arc::new(move |_: &str| jobs >= most));
    Ok(())
}

/// Applies a request without a sidecar, and wakes those that run.
pub(super) async fn apply(
    store: &Store,
    default_retry_ms: &[u64],
    request: Request,
) -> Result<Answer, StoreError> {
    let mut requests = [request];
    let (mut batch, mut retry) = (RequestBatch::new(&mut requests), BoundedRetry::default());
    loop {
        let wake_ups = batch.send(store, default_retry_ms).await;
        // A lost wake-up costs one floor poll; the verdict holds.
        let _ = store.wake_others(&wake_ups).await;
        match batch.failed() {
            Some(error) if retry.wait(error).await => {}
            _ => break,
        }
    }
    batch.answers().swap_remove(0)
}

fn text(result: &view::ActionResult, meaning: &str) -> String {
    // Only an active job has a next due time.
    let goes_on = result.action != Action::Cancel
        && !matches!(result.verdict, Verdict::Finished | Verdict::Fired);
    let due = result
        .due_ms
        .filter(|_| goes_on)
        .map_or(String::new(), |ms| format!(", due {}", local(ms)));
    format!("{}: {}{due}: {meaning}", clean(&result.id), result.verdict.as_str())
}

/// Explains a verdict on a recurring schedule.
fn meaning_of_schedule(action: Action, verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Cancelled => "the schedule is ended; occurrences that retry go on",
        Verdict::InFlight => "the schedule is ended, but its newest occurrence goes on",
        Verdict::Firing => "an occurrence is made now; the next time stays",
        Verdict::Waiting => {
            "nothing changed: a recurring schedule is only cancelled, fired, paused or resumed"
        }
        other => meaning(action, other),
    }
}

/// Explains a verdict.
fn meaning(action: Action, verdict: Verdict) -> &'static str {
    match (verdict, action) {
        (Verdict::Cancelled, _) => "the job was never published, and will not be",
        (Verdict::CancelledAfterAttempt, _) => {
            "there will be no further attempt; an earlier one with an unknown outcome may still arrive"
        }
        (Verdict::InFlight, Action::Cancel) => {
            "cancelled, but the attempt in flight may still arrive"
        }
        (Verdict::InFlight, _) => {
            "nothing changed: an attempt is in flight, or waits for its `finish`"
        }
        (Verdict::Rescheduled, _) => "the job has its new due time",
        (Verdict::Firing, _) => "the job is published now",
        (Verdict::Finished, _) => "the job is done",
        (Verdict::Failed, _) => "the attempt counts as failed",
        (Verdict::Requeued, _) => "the job is scheduled again, and its attempts count from 1",
        (Verdict::Fired, _) => "too late: the job was already confirmed or finished",
        (Verdict::Dead, _) => "the job is dead: requeue it",
        (Verdict::Waiting, Action::Requeue) => "nothing changed: the job is not dead",
        (Verdict::Waiting, _) => "nothing changed: no attempt is in flight",
        (Verdict::Stale, _) => "nothing changed: the job has another schedule or attempt",
        (Verdict::NotFound, _) => {
            "there is no such job; this does not prove that it was never published"
        }
        (
            Verdict::Added
            | Verdict::Replaced
            | Verdict::Duplicate
            | Verdict::Kept
            | Verdict::Conflict,
            _,
        ) => "",
    }
}
