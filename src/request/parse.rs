//! Turns a message into a request: action, time, target, checked by the rules.

pub(super) mod age;
mod dead_job;
mod debounce;
mod due;
mod new_job;
mod new_schedule;
mod template;

use dwell_connectors::{Destination, Message};
use dwell_schedule::Zone;

use self::age::check_age;
pub use self::dead_job::dead_job;
use self::due::{due, missing_delay};
pub use self::due::{due_stated, due_within};
use self::new_job::schedule;
use self::new_schedule::recurring;
use super::control::{self, Control};
use super::reject::{Code, Rejection};
use super::rules::RequestRules;
use super::until::Until;
use super::{Act, NewJob, Request, dialect, envelope, etf1, headers, origin, own_events, target};
use crate::config::{Format, IdFrom};
use crate::delayed_headers::{ATTEMPT, DUE};
use crate::job::{Action, Due, JobId};
use crate::request::NewSchedule;
use crate::schedule::Timing;
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
        && control.action.is_none_or(|action| action == Action::Add)
    {
        body = Some(envelope::fill(&mut control, message, rules)?);
    }
    if control.id.is_none() && rules.ingest.id_from == IdFrom::Key {
        control.id = Some(etf1::id(message, rules)?);
    }
    match control.action.unwrap_or(Action::Add) {
        Action::Add => {
            dialect::fill(&mut control, message, rules)?;
            if control.recurring.schedule.is_some() {
                recurring(control, message, body, rules, now_ms)
                    .map(|new| Request::NewSchedule(Box::new(new)))
            } else {
                schedule(control, message, body, rules, now_ms)
                    .map(|new_job| Request::NewJob(Box::new(new_job)))
            }
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
    schedule(of_fields(fields, message)?, message, None, rules, now_ms)
}

/// As [`from_fields`], of a recurring schedule: its fields are `schedule`, `time-zone`, `start`,
/// `end`, `count`, `catch-up`, `overlap`, `spread`, and those of a job but for its time.
pub fn schedule_from_fields(
    fields: &[(&str, String)],
    message: &Message,
    rules: &RequestRules,
    now_ms: i64,
) -> Result<NewSchedule, Rejection> {
    recurring(of_fields(fields, message)?, message, None, rules, now_ms)
}

/// When a recurring schedule of these fields fires, as [`schedule_from_fields`] reads them.
/// `now_ms`: the schedule must have a time from then on.
pub fn timing_from_fields(fields: &[(&str, String)], now_ms: i64) -> Result<Timing, Rejection> {
    let Control { recurring, zone, spread_ms, .. } = of_fields(fields, &Message::default())?;
    recurring.timing(zone.as_deref(), spread_ms, now_ms)
}

/// A moment in the forms of `delay-until`, epoch ms; without an offset it is one of the zone of this
/// name, beside which a moment may have an offset. `field`: the name of the moment in the request.
pub fn moment_ms(field: &str, text: &str, zone: Option<&str>) -> Result<i64, Rejection> {
    let bad = |why: String| Rejection::new(Code::BadDelay, format!("{field}: {why}"));
    let zone = zone.map(Zone::parse).transpose().map_err(|why| bad(why.to_string()))?;
    Until::parse(text).and_then(|moment| moment.ms(zone.as_ref())).map_err(bad)
}

/// The fields of a request, each named as a `delay-*` header without its prefix.
fn of_fields(fields: &[(&str, String)], message: &Message) -> Result<Control, Rejection> {
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
    Ok(control)
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
    check_fields(action, &control)?;
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

/// Refuses the fields that only a schedule has.
fn check_fields(action: Action, control: &Control) -> Result<(), Rejection> {
    let others = [
        ("spread", control.spread_ms.is_some()),
        ("max-wait", control.max_wait_ms.is_some()),
        ("expire", control.expire.is_some()),
        ("time-zone", control.zone.is_some() && action != Action::Reschedule),
    ];
    let other = others.into_iter().find(|(_, is_set)| *is_set).map(|(name, _)| name);
    control.recurring.first_set().or(other).map_or(Ok(()), |name| {
        let detail = format!("delay-{name} is not for {}: leave it out", action.as_str());
        Err(Rejection::new(Code::BadHeader, detail))
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
