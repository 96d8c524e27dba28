//! `dwell cancel|reschedule|fire|finish|fail|requeue ID`: an action on one job, straight on Redis, and its verdict.

use std::time::Duration;

use super::common::Common;
use super::exit::{Exit, Stop};
use super::table::{clean, local};
use crate::clock;
use crate::config::Settings;
use crate::job::{Action, Due, JobId, Verdict};
use crate::reconnect::Backoff;
use crate::request::{Act, Origin};
use crate::store::Store;
use crate::store::error::{Class, StoreError};
use crate::store::inbound::{Answer, Head};
use crate::units::{parse_duration_ms, parse_time_ms, show_duration_ms};
use crate::view;

/// How often an action is sent whose answer did not come.
const TRIES: usize = 4;

/// `dwell cancel`, `fire`, `finish`, `fail`, `requeue`
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The job's id
    #[arg(value_parser = job_id)]
    pub id: JobId,
}

/// `dwell reschedule`
#[derive(Debug, Clone, clap::Args)]
#[command(group(clap::ArgGroup::new("when").required(true).args(["delay_ms", "until_ms"])))]
pub struct Reschedule {
    /// The job's id
    #[arg(value_parser = job_id)]
    pub id: JobId,
    /// How long from now: 5000 (ms), 90s, 1h30m or PT15M
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration_ms)]
    pub delay_ms: Option<u64>,
    /// When: 2026-01-31T12:00:00Z or epoch milliseconds
    #[arg(long = "until", value_name = "TIME", value_parser = parse_time_ms)]
    pub until_ms: Option<i64>,
}

/// A job's id on a command line.
pub(super) fn job_id(text: &str) -> Result<JobId, String> {
    JobId::new(text)
}

/// Gives a job another time.
pub(super) async fn reschedule(common: &Common, args: Reschedule) -> Result<Exit, Stop> {
    let due = match (args.delay_ms, args.until_ms) {
        (Some(ms), _) => Due::In(ms),
        (None, at_ms) => Due::At(at_ms.unwrap_or(0).max(0)),
    };
    run(common, Action::Reschedule, args.id, Some(due)).await
}

/// Acts on a job and prints the verdict. Exits with 2 where it is another than the one asked for.
pub(super) async fn run(common: &Common, action: Action, id: JobId, due: Option<Due>) -> Result<Exit, Stop> {
    let settings = common.settings()?;
    let store = Store::attach(&settings.redis).await?;
    if let Some(due) = due {
        refuse_too_long(&store, &settings, due).await?;
    }
    let origin = Origin { fingerprint: rand::random(), check: false };
    let act = Act { action, id, due, seen_due: None, seen_attempt: None, origin, reply_to: None };
    let answer = persist(&store, act.clone(), &settings.delivery.retry_ms).await?;
    if let (Action::Reschedule | Action::Fire | Action::Requeue | Action::Fail, Some(due_ms)) = (action, answer.due_ms) {
        let bucket = store.keys().bucket_of(act.id.as_str());
        let heads: Vec<Head> = store.brokers().iter().map(|broker| Head { bucket, broker: broker.clone(), due_ms }).collect();
        // A wake-up that is lost costs a floor poll; the verdict stands.
        let _ = store.wake_others(&heads).await;
    }
    let verdict = view::Verdict::of(act.id.as_str(), action, answer);
    common.answer(&verdict, &text(&verdict))?;
    Ok(if verdict.status() < 300 { Exit::Ok } else { Exit::NotFound })
}

/// Sends it again where the answer did not come: the store answers the same, and changes nothing twice.
async fn persist(store: &Store, mut act: Act, default_retry_ms: &[u64]) -> Result<Answer, StoreError> {
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
    let mut tries = 1;
    loop {
        match store.act(&act, default_retry_ms).await {
            Err(error) if tries < TRIES && matches!(error.class, Class::Io | Class::Timeout | Class::Readonly) => {
                act.origin.check = true;
                tries += 1;
                clock::sleep(backoff.pause()).await;
            }
            result => return result,
        }
    }
}

async fn refuse_too_long(store: &Store, settings: &Settings, due: Due) -> Result<(), Stop> {
    let most_ms = settings.limits.max_delay_ms;
    let is_too_long = match due {
        Due::In(ms) | Due::Earlier { in_ms: ms, .. } => ms > most_ms,
        Due::At(at_ms) => i128::from(at_ms) - i128::from(store.read_clock().await? / 1000) > i128::from(most_ms),
    };
    if !is_too_long {
        return Ok(());
    }
    let message = format!("delay_too_long: beyond limits.max_delay, {}", show_duration_ms(most_ms));
    Err(Stop::because(Exit::Usage, message, "choose an earlier time, or raise limits.max_delay here and where dwell runs"))
}

fn text(verdict: &view::Verdict) -> String {
    // Of a job that is over, its time was due: only a job that goes on has one.
    let goes_on = verdict.action != Action::Cancel && !matches!(verdict.verdict, Verdict::Finished | Verdict::Fired);
    let due = verdict.due_ms.filter(|_| goes_on).map_or(String::new(), |ms| format!(", due {}", local(ms)));
    format!("{}: {}{due}: {}", clean(&verdict.id), verdict.verdict.as_str(), meaning(verdict.action, verdict.verdict))
}

/// What a verdict means to who asked (contract §6).
fn meaning(action: Action, verdict: Verdict) -> &'static str {
    match (verdict, action) {
        (Verdict::Cancelled, _) => "it will not be published, and never was",
        (Verdict::CancelledAfterAttempt, _) => "no new attempt begins; one whose outcome is unknown may still land",
        (Verdict::InFlight, Action::Cancel) => "cancelled, but the attempt that is out may still land",
        (Verdict::InFlight, _) => "nothing changed: an attempt is out, or waits for its `finish`",
        (Verdict::Rescheduled, _) => "it has its new time",
        (Verdict::Firing, _) => "it is published now",
        (Verdict::Finished, _) => "it is done",
        (Verdict::Failed, _) => "the attempt counts as failed",
        (Verdict::Requeued, _) => "it is scheduled again, its attempts from 1",
        (Verdict::Fired, _) => "too late: it was published and confirmed, or finished",
        (Verdict::Dead, _) => "it is dead: requeue it",
        (Verdict::Waiting, Action::Requeue) => "nothing changed: it is not dead",
        (Verdict::Waiting, _) => "nothing changed: no attempt is out",
        (Verdict::Stale, _) => "nothing changed: that was another schedule or attempt",
        (Verdict::NotFound, _) => "there is no such job; that is no proof that it was never published",
        (Verdict::Added | Verdict::Replaced | Verdict::Duplicate | Verdict::Kept | Verdict::Conflict, _) => "",
    }
}
