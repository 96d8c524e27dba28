//! Stores a recurring schedule by the rules of the settings.

use dwell_connectors::Message;

use super::text::shown;
use super::{Args, given, refused};
use crate::cli::act::apply;
use crate::cli::common::Common;
use crate::cli::exit::{Exit, Stop};
use crate::cli::send::body;
use crate::cli::table::clean;
use crate::config::Settings;
use crate::job::{JobId, Verdict};
use crate::request::NewSchedule;
use crate::request::{Code, Rejection, Request, RequestRules, schedule_from_fields};
use crate::store::Store;
use crate::store::error::ErrorKind;
use crate::view;

/// Stores the schedule and prints what stands, with its next times after `from_ms`, epoch ms. Exits
/// with 2 for a conflict.
pub(super) async fn run(
    common: &Common,
    args: &Args,
    id: &JobId,
    from_ms: Option<i64>,
    store: &Store,
    settings: &Settings,
) -> Result<Exit, Stop> {
    let (fields, message) = request(args, id, settings.limits.max_body.bytes())?;
    let now_ms = store.read_clock().await? / 1000;
    let rules = RequestRules::direct(settings);
    let new = schedule_from_fields(&fields, &message, &rules, now_ms);
    let new = new.map_err(|rejection| refused(&rejection))?;
    let new = NewSchedule { is_paused: args.job.paused, ..new };
    let retry_ms = &settings.delivery.retry;
    let answer = apply(store, retry_ms, Request::NewSchedule(Box::new(new.clone()))).await;
    let answer = answer.map_err(|error| match error.kind() {
        ErrorKind::Rejected => refused(&Rejection::new(Code::BadSchedule, error.message)),
        _ => error.into(),
    })?;
    let found = store.schedules.find(id).await?;
    if answer.verdict == Verdict::Conflict {
        let rejection = match found {
            Some(_) => Rejection::conflict(id),
            None => Rejection::clash(id, "job"),
        };
        return Err(Stop::because(Exit::NotFound, rejection.to_string(), "nothing changed"));
    }
    // The schedule may be over already.
    let found = found.unwrap_or_else(|| new.begun(now_ms, answer.due_ms));
    let next = found.upcoming_after(now_ms, from_ms.unwrap_or(now_ms), args.next);
    let schedule = view::Schedule::of(&found, next, retry_ms);
    let text = format!("{}: {}", clean(&schedule.id), answer.verdict.as_str());
    common.answer(&schedule, &format!("{text}\n{}", shown(&schedule, now_ms)))?;
    Ok(Exit::Ok)
}

/// Fields of a request, each named as a `delay-*` header without its prefix.
type Fields = Vec<(&'static str, String)>;

/// The fields of the request, and a message of the rest.
fn request(args: &Args, id: &JobId, max_body: u64) -> Result<(Fields, Message), Stop> {
    let job = args.job.clone();
    let mut fields = args.times();
    fields.extend(given([
        ("id", Some(id.as_str().to_owned())),
        ("target", job.target),
        ("queue", job.queue),
        ("broker", job.broker),
        ("exchange", job.exchange),
        ("catch-up", job.catch_up),
        ("overlap", job.overlap),
        ("spread", job.spread),
        ("expire", job.expire),
        ("retry", job.retry),
        ("ttr", job.ttr),
        ("confirm", job.confirm),
        ("late", job.late),
        ("max-late", job.max_late),
        ("on-conflict", job.on_conflict),
    ]));
    let message = Message::new(body(job.body.as_deref().unwrap_or_default(), max_body)?);
    let with_headers =
        job.headers.iter().fold(message, |message, (name, value)| message.with_header(name, value));
    Ok((fields, with_headers))
}
