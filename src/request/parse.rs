//! Turns a message into a request: action, time, target, checked by the rules.

pub(super) mod age;
mod dead_job;
mod due;
mod new_job;

use dwell_connectors::{Destination, Message};

use self::age::check_age;
pub use self::dead_job::dead_job;
pub use self::due::due_within;
use self::due::{due, missing_delay};
use self::new_job::schedule;
use super::control::{self, Control};
use super::reject::{Code, Rejection};
use super::rules::RequestRules;
use super::{Act, NewJob, Request, dialect, envelope, etf1, headers, origin, own_events, target};
use crate::config::{Format, IdFrom};
use crate::delayed_headers::{ATTEMPT, DUE};
use crate::job::{Action, Due, JobId};
use crate::units::quote;

/// Reads a message as a request. `now_ms` is approximately Redis's time. It only decides which
/// timestamps lie in the future and which delays exceed `max_delay`.
pub fn parse(message: &Message, rules: &RequestRules, now_ms: i64) -> Result<Request, Rejection> {
    check_age(message, rules, now_ms)?;
    own_events::check(message)?;
    headers::check_whole(&message.unreadable)?;
    headers::check(&message.headers, rules.source)?;
    let mut control = control::read(&message.headers)?;
    if let Some(action) = etf1::deletion(&control, message, rules)? {
        control.action = Some(action);
    }
    let mut body = None;
    if rules.ingest.format == Format::Envelope
        && control.action.is_none_or(|action| action == Action::Schedule)
    {
        body = Some(envelope::fill(&mut control, message, rules)?);
    }
    if control.id.is_none() && rules.ingest.id_from == IdFrom::Key {
        control.id = Some(etf1::id(message, rules)?);
    }
    match control.action.unwrap_or(Action::Schedule) {
        Action::Schedule => {
            dialect::fill(&mut control, &message.headers, &rules.ingest)?;
            schedule(control, message, body, rules, now_ms)
                .map(|new_job| Request::NewJob(Box::new(new_job)))
        }
        action => act(action, control, message, rules, now_ms).map(Request::Act),
    }
}

/// Reads a request that arrives as fields, each named as a `delay-*` header without its prefix. The
/// message holds the rest: body, key, headers.
pub fn from_fields(
    fields: &[(&str, String)],
    message: &Message,
    rules: &RequestRules,
    now_ms: i64,
) -> Result<NewJob, Rejection> {
    if let Some(header) = message
        .headers
        .iter()
        .find(|header| control::strip_prefix_ignore_case(&header.name, "delay-").is_some())
    {
        let detail = format!(
            "header {} is a control header: use the field of the request",
            quote(&header.name)
        );
        return Err(Rejection::new(Code::BadHeader, detail));
    }
    let mut control = Control::default();
    for (name, value) in fields {
        control.take(name, &name.replace('-', "_"), value)?;
    }
    schedule(control, message, None, rules, now_ms)
}

/// An action that arrives as fields. `due`: the new time of a reschedule, by [`due_within`].
#[must_use]
pub fn act_on(action: Action, id: JobId, due: Option<Due>) -> Act {
    Act { due, ..Act::new(action, id) }
}

/// An action on a job that exists; the body is ignored.
fn act(
    action: Action,
    control: Control,
    message: &Message,
    rules: &RequestRules,
    now_ms: i64,
) -> Result<Act, Rejection> {
    let new_due = match action {
        Action::Reschedule => {
            Some(due(&control, message, rules, now_ms)?.ok_or_else(missing_delay)?)
        }
        _ => None,
    };
    let (seen_due, seen_attempt) = match action {
        Action::Finish | Action::Fail => (carried(message, DUE)?, carried(message, ATTEMPT)?),
        _ => (None, None),
    };
    let reply_to: Option<Destination> = target::reply_to(&control, rules)?;
    let id: JobId = control.id.ok_or_else(|| {
        Rejection::new(Code::BadAction, format!("{} needs a delay-id", action.as_str()))
    })?;
    Ok(Act {
        due: new_due,
        seen_due,
        seen_attempt,
        origin: origin::origin(message, rules),
        reply_to,
        ..Act::new(action, id)
    })
}

/// A header that a consumer copies from the message that it received.
fn carried<T: std::str::FromStr>(message: &Message, name: &str) -> Result<Option<T>, Rejection> {
    let Some(text) = control::once(&message.headers, name)? else { return Ok(None) };
    text.trim().parse().map(Some).map_err(|_| {
        Rejection::new(
            Code::BadHeader,
            format!(
                "{name}: {} is not a value that Dwell sets: send the header unchanged",
                quote(&text)
            ),
        )
    })
}
