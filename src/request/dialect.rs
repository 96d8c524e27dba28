//! The headers of other schedulers, so that a migration needs no change in producers. `delay-*`
//! headers take precedence.

use std::borrow::Cow;

use dwell_connectors::{Headers, Message, Value};
use dwell_schedule::Expression;

use super::control::{Control, once_as, single, strip_prefix_ignore_case};
use super::etf1::{self, EPOCH_HEADER, TARGET_KEY_HEADER};
use super::expire;
use super::recurring::Stated;
use super::reject::{Code, Rejection};
use super::rules::RequestRules;
use super::until::Until;
use crate::config::MissingDelay;
use crate::delayed_headers::{ATTEMPT, DUE};
use crate::job::JobId;
use crate::units::{parse_time_ms, quote};

/// Artemis, Tanzu RabbitMQ, and the quorum queues of RabbitMQ 4.4: such a queue parks a message
/// with this integer, so a target must not get it.
const DELIVERY_TIME: &str = "x-opt-delivery-time";
const DELIVERY_DELAY: &str = "x-opt-delivery-delay";

/// A single time, or a recurring schedule.
const SCHEDULE: &str = "nats-schedule";
const SCHEDULE_OPTION_PREFIX: &str = "nats-schedule-";
const SCHEDULE_TTL: &str = "nats-schedule-ttl";
const SCHEDULE_TIME_ZONE: &str = "nats-schedule-time-zone";
/// The options that are read; the server sets `next` on delivered messages.
const SCHEDULE_OPTIONS: [&str; 4] = ["target", "next", "ttl", "time-zone"];

const TIME_HEADERS: [&str; 6] =
    ["x-delay", EPOCH_HEADER, "x-timebridge-when", SCHEDULE, DELIVERY_TIME, DELIVERY_DELAY];
const TARGET_HEADERS: [&str; 3] =
    [etf1::TARGET_HEADER, "x-timebridge-where", "nats-schedule-target"];

/// Sets the fields that no `delay-*` header sets.
pub(super) fn fill(
    control: &mut Control,
    message: &Message,
    rules: &RequestRules,
) -> Result<(), Rejection> {
    let (headers, ingest) = (&message.headers, &rules.ingest);
    let mut recurs = false;
    if !control.has_time() {
        let from = time(control, headers, ingest.missing_delay == MissingDelay::Immediate)?;
        recurs = control.recurring.schedule.is_some();
        if let Some(name) = ingest.due_header.as_deref() {
            due_header(control, headers, name, from)?;
        }
    }
    if control.expire.is_none()
        && let Some(name) = ingest.expire_header.as_deref()
        && let Some(value) = foreign_time(headers, name)?
    {
        expire_header(control, headers, name, value.trim())?;
    }
    options(control, headers, recurs)?;
    if recurs && control.id.is_none() {
        control.id = Some(schedule_id(message, rules)?);
    }
    if control.target.is_none() && control.queue.is_none() {
        control.target = target(headers)?;
    }
    if let Some(key) = etf1::target_key(headers)? {
        control.key = key;
    }
    Ok(())
}

/// Whether a header belongs to another scheduler's format. Headers of these formats are not passed
/// on.
pub(super) fn owns(name: &str) -> bool {
    TIME_HEADERS.iter().chain(&TARGET_HEADERS).any(|own| name.eq_ignore_ascii_case(own))
        || name.eq_ignore_ascii_case(TARGET_KEY_HEADER)
        || strip_prefix_ignore_case(name, SCHEDULE_OPTION_PREFIX).is_some()
}

/// Reads the time of a dialect. Returns the header that gave one.
fn time(
    control: &mut Control,
    headers: &Headers,
    immediate: bool,
) -> Result<Option<&'static str>, Rejection> {
    let mut from: Option<&'static str> = None;
    for name in TIME_HEADERS {
        let read = match name {
            "x-delay" | DELIVERY_DELAY => number,
            DELIVERY_TIME => number_or_time,
            _ => Value::written,
        };
        let Some(value) = unless_void(headers, name, read)? else { continue };
        if let Some(other) = from.replace(name) {
            return Err(Rejection::new(
                Code::AmbiguousDelay,
                format!("{other} and {name} both give a delay: send one"),
            ));
        }
        let value = value.trim();
        let refuse = |why: String| Rejection::new(Code::BadDelay, format!("{name}: {why}"));
        match name {
            "x-delay" | DELIVERY_DELAY => {
                control.delay_for = Some(x_delay(value, immediate).map_err(refuse)?)
            }
            EPOCH_HEADER => {
                control.delay_until = Some(Until::At(epoch_seconds(value).map_err(refuse)?))
            }
            "x-timebridge-when" | DELIVERY_TIME => {
                control.delay_until = Some(Until::At(parse_time_ms(value).map_err(refuse)?))
            }
            _ => match single_time(value) {
                Some(time) => {
                    control.delay_until = Some(Until::At(parse_time_ms(time).map_err(refuse)?))
                }
                None => {
                    let expression = Expression::parse_nats(value).map_err(|why| {
                        Rejection::new(Code::BadSchedule, format!("{name}: {why}"))
                    })?;
                    control.recurring.schedule = Some(Stated::foreign(value, expression));
                }
            },
        }
    }
    Ok(from)
}

/// Reads the due time from the header that the ingest's `due_header` names. `from`: the header of a
/// dialect that gave a delay.
fn due_header(
    control: &mut Control,
    headers: &Headers,
    name: &str,
    from: Option<&str>,
) -> Result<(), Rejection> {
    let Some(value) = foreign_time(headers, name)? else { return Ok(()) };
    let due = Until::parse(value.trim());
    // A message that came back from its target still has the time that Dwell delivered it for: such
    // a time is no new delay. A later one is. The zone of a local time does not come back.
    if headers.get(ATTEMPT).is_some() {
        let served = headers.get(DUE).and_then(|value| value.written()?.trim().parse::<i64>().ok());
        let is_served = match &due {
            Ok(Until::At(due_ms)) => served.is_none_or(|served| *due_ms <= served),
            Ok(Until::Local(_)) => control.zone.is_none(),
            Err(_) => false,
        };
        if is_served {
            return Ok(());
        }
    }
    if let Some(other) = from {
        return Err(Rejection::new(
            Code::AmbiguousDelay,
            format!("{other} and {name} both give a delay: send one"),
        ));
    }
    let due = due.and_then(|due| match due {
        Until::Local(_) if control.zone.is_none() => due.ms(None).map(Until::At),
        due => Ok(due),
    });
    let due = due.map_err(|why| Rejection::new(Code::BadDelay, format!("{name}: {why}")))?;
    control.delay_until = Some(due);
    Ok(())
}

/// Reads the expiry from the header that the ingest's `expire_header` names.
fn expire_header(
    control: &mut Control,
    headers: &Headers,
    name: &str,
    value: &str,
) -> Result<(), Rejection> {
    let bad = |why: String| Rejection::new(Code::BadHeader, format!("{name}: {why}"));
    let at = Until::parse(value).map_err(bad)?;
    if matches!(at, Until::Local(_)) && control.zone.is_none() {
        // The zone of a local time does not come back with a message from its target.
        if headers.get(ATTEMPT).is_some() {
            return Ok(());
        }
        at.ms(None).map_err(bad)?;
    }
    control.expire = Some(expire::Stated::At(at));
    Ok(())
}

/// The time in a header of the producers' own; absent, null and empty are none.
fn foreign_time<'a>(headers: &'a Headers, name: &str) -> Result<Option<Cow<'a, str>>, Rejection> {
    if single(headers, name)?.is_none_or(|value| matches!(value, Value::Null)) {
        return Ok(None);
    }
    Ok(once_as(headers, name, number_or_time)?.filter(|value| !value.trim().is_empty()))
}

fn target(headers: &Headers) -> Result<Option<String>, Rejection> {
    let mut found: Option<(&str, String)> = None;
    for name in TARGET_HEADERS {
        let Some(value) = unless_void(headers, name, Value::written)? else { continue };
        match &found {
            Some((other, target)) if *target != value => {
                return Err(Rejection::new(
                    Code::BadHeader,
                    format!("{other} and {name} name two targets: send one"),
                ));
            }
            _ => found = Some((name, value.into_owned())),
        }
    }
    Ok(found.map(|(_, target)| target))
}

/// As [`once_as`]; a void header, which some clients send for a field without a value, is absent.
fn unless_void<'a>(
    headers: &'a Headers,
    name: &str,
    read: fn(&Value) -> Option<Cow<'_, str>>,
) -> Result<Option<Cow<'a, str>>, Rejection> {
    if matches!(single(headers, name)?, Some(Value::Null)) {
        return Ok(None);
    }
    once_as(headers, name, read)
}

/// Text, an integer or a float: clients in languages with a single number type send floats.
fn number(value: &Value) -> Option<Cow<'_, str>> {
    if matches!(value, Value::F32(_) | Value::F64(_)) { value.plain() } else { value.written() }
}

/// As [`number`], or a timestamp of AMQP, which has seconds.
fn number_or_time(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::Timestamp(seconds) => Some(Cow::Owned(seconds.saturating_mul(1_000).to_string())),
        other => number(other),
    }
}

/// RabbitMQ's plugin and LavinMQ: a number of milliseconds; a fraction is cut off.
fn x_delay(value: &str, immediate: bool) -> Result<u64, String> {
    let wrong = || format!("{} is not a number of milliseconds", quote(value));
    let (whole, fraction) = value.split_once('.').unwrap_or((value, "0"));
    if fraction.is_empty() || !fraction.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(wrong());
    }
    let ms: i64 = whole.parse().map_err(|_| wrong())?;
    match u64::try_from(ms) {
        Ok(ms) => Ok(ms),
        Err(_) if immediate => Ok(0),
        Err(_) => Err(format!(
            "{ms} is negative: write 0 for now, or set missing_delay to immediate on the ingest"
        )),
    }
}

fn epoch_seconds(value: &str) -> Result<i64, String> {
    let seconds: i64 = value
        .parse()
        .map_err(|_| format!("{} is not an integer of epoch seconds", quote(value)))?;
    if seconds < 0 {
        return Err(format!("{seconds} is negative: write epoch seconds"));
    }
    Ok(seconds.saturating_mul(1_000))
}

/// The time behind `@at`, if the schedule is a single time.
fn single_time(value: &str) -> Option<&str> {
    let rest = value.strip_prefix("@at")?;
    (rest.is_empty() || rest.starts_with(char::is_whitespace)).then(|| rest.trim_start())
}

/// Reads the other options of such a schedule, also beside `delay-*` headers, and rejects those that
/// Dwell would ignore. `recurs`: the schedule of this dialect is the request's, and recurs.
fn options(control: &mut Control, headers: &Headers, recurs: bool) -> Result<(), Rejection> {
    let refuse = |name: &str, why: &str| {
        Rejection::new(Code::BadHeader, format!("{}: {why}: leave it out", quote(name)))
    };
    let unknown = headers.iter().find(|header| {
        let rest = strip_prefix_ignore_case(&header.name, SCHEDULE_OPTION_PREFIX);
        rest.is_some_and(|rest| {
            !SCHEDULE_OPTIONS.iter().any(|name| rest.eq_ignore_ascii_case(name))
        })
    });
    if let Some(header) = unknown {
        return Err(refuse(&header.name, "this option is not supported"));
    }
    if let Some(zone) = unless_void(headers, SCHEDULE_TIME_ZONE, Value::written)? {
        if !recurs {
            return Err(refuse(SCHEDULE_TIME_ZONE, "only a recurring schedule has a time zone"));
        }
        control.zone.get_or_insert_with(|| zone.trim().to_owned());
    }
    if let Some(ttl) = unless_void(headers, SCHEDULE_TTL, Value::written)? {
        let ttl = ttl.trim();
        if !is_ttl(ttl) {
            let detail = format!(
                "{SCHEDULE_TTL}: {} is not a time to live: write seconds, 1h30m or never",
                quote(ttl)
            );
            return Err(Rejection::new(Code::BadHeader, detail));
        }
        control.ttl = Some(ttl.to_owned());
    }
    Ok(())
}

/// A time to live as the server of this dialect reads it: whole seconds, a duration of Go of at
/// least a second, or `never`.
fn is_ttl(text: &str) -> bool {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number {
        return text.parse::<u32>().is_ok_and(|seconds| seconds > 0);
    }
    // An interval has the same form and the same lower bound.
    text == "never" || Expression::parse_nats(&format!("@every {text}")).is_ok()
}

/// The id of a recurring schedule of this dialect, which has none of its own: the key, or the address
/// that the message came with. All schedules on the ingest's own address would replace each other.
fn schedule_id(message: &Message, rules: &RequestRules) -> Result<JobId, Rejection> {
    let refuse = |why: &str| {
        let detail = format!("the schedule has no delay-id, and {why}: send a delay-id");
        Rejection::new(Code::BadId, detail)
    };
    let text = match message.key.as_deref() {
        Some(key) => std::str::from_utf8(key).map_err(|_| refuse("its key is not UTF-8"))?,
        None => {
            let address = message.destination.address.as_str();
            if rules.ingest.reads().any(|own| own == address) {
                let why = if rules.source.is_some_and(|source| source.keys) {
                    "the message has no key"
                } else {
                    "it came to the ingest's own address, as others do"
                };
                return Err(refuse(why));
            }
            address
        }
    };
    JobId::new(text).map_err(|why| refuse(&why))
}
