//! `dwell requeue ID`: schedules a dead job again. `dwell requeue --broker OLD --to NEW`: moves the
//! jobs of a broker to another.

use serde::Serialize;

use super::act;
use super::common::Common;
use super::exit::{Exit, Stop};
use super::table::clean;
use crate::job::{Action, JobId};
use crate::request::Moving;
use crate::store::Store;
use crate::store::admin::transfer::Transferred;

/// `dwell requeue`
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The job's id
    #[arg(value_parser = super::common::job_id, required_unless_present = "broker")]
    id: Option<JobId>,
    /// Move the jobs of this broker, which may be missing in the settings
    #[arg(long, value_name = "OLD", requires = "to", conflicts_with = "id")]
    broker: Option<String>,
    /// The broker to move them to
    #[arg(long, value_name = "NEW", requires = "broker")]
    to: Option<String>,
}

/// A job that was not moved.
#[derive(Debug, Serialize)]
struct Refused<'a> {
    id: &'a str,
    action: &'static str,
    verdict: &'static str,
    detail: &'a str,
}

/// The result of a move.
#[derive(Debug, Serialize)]
struct Moved<'a> {
    broker: &'a str,
    to: &'a str,
    scheduled: u64,
    dead: u64,
    reserved: u64,
    refused: u64,
    unreadable: u64,
}

pub(super) async fn run(common: &Common, args: Args) -> Result<Exit, Stop> {
    match (args.id, args.broker, args.to) {
        (Some(id), _, _) => act::act(common, Action::Requeue, act::Args { id }).await,
        (None, Some(from), Some(to)) => transfer(common, &from, &to).await,
        (None, _, _) => {
            Err(Stop::because(Exit::Usage, "requeue needs an id, or --broker and --to", ""))
        }
    }
}

/// Moves the jobs of a broker. Exits with 2 if any is not moved.
async fn transfer(common: &Common, from: &str, to: &str) -> Result<Exit, Stop> {
    let settings = common.settings()?;
    let names =
        |names: Vec<&str>| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let Some(moving) = Moving::to(&settings, to).filter(|_| from != to) else {
        let known = names(
            settings.brokers.keys().map(String::as_str).filter(|name| *name != from).collect(),
        );
        let what = format!("--to {to}: jobs of `{from}` can go to another broker of the settings");
        return Err(Stop::because(Exit::Usage, what, format!("name one of: {known}")));
    };
    let store = Store::attach(&settings.redis).await?;
    if !store.brokers().iter().any(|known| known == from) {
        let known = names(store.brokers().iter().map(String::as_str).collect());
        let what =
            format!("the namespace `{}` never had a broker `{from}`", settings.redis.namespace);
        return Err(Stop::because(Exit::NotFound, what, format!("it has: {known}")));
    }
    let mut closed = None;
    let classify = |id: &JobId, record: crate::store::record::Record| match moving.job(record.job) {
        Ok(job) => Some(job),
        Err(rejection) => {
            let detail = rejection.detail.as_str();
            let line = Refused {
                id: id.as_str(),
                action: "requeue",
                verdict: rejection.code.as_str(),
                detail,
            };
            let text =
                format!("{}: {}: not moved: {}", clean(line.id), line.verdict, clean(detail));
            if let Err(stop) = common.answer(&line, &text) {
                closed.get_or_insert(stop);
            }
            None
        }
    };
    let done = store.admin.transfer(from, to, classify).await?;
    // A lost wake-up costs one floor poll.
    let _ = store.wake_others(&done.wake_ups).await;
    if let Some(stop) = closed {
        return Err(stop);
    }
    let Transferred { scheduled, dead, reserved, refused, unreadable, wake_ups: _ } = done;
    let moved = Moved { broker: from, to, scheduled, dead, reserved, refused, unreadable };
    common.answer(&moved, &text(&moved))?;
    Ok(if reserved + refused + unreadable == 0 { Exit::Ok } else { Exit::NotFound })
}

fn text(moved: &Moved<'_>) -> String {
    let Moved { broker, to, scheduled, dead, reserved, refused, unreadable } = moved;
    let mut lines = vec![format!(
        "{} -> {}: {scheduled} scheduled and {dead} dead jobs moved",
        clean(broker),
        clean(to)
    )];
    let left = [
        (
            reserved,
            "reserved: an attempt is in flight, or they wait for their consumer; move them later",
        ),
        (refused, "refused: each is named above"),
        (unreadable, "unreadable: `dwell fsck` shows why"),
    ];
    lines.extend(
        left.iter()
            .filter(|(count, _)| **count > 0)
            .map(|(count, why)| format!("{count} stay, {why}")),
    );
    lines.join("\n")
}
