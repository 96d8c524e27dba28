//! The headers of other schedulers, read so that a migration needs no producer change. What `delay-*` says wins.

use bytes::Bytes;
use dwell_connectors::Headers;

use super::control::{Control, once, strip_prefix_ignore_case};
use super::reject::{Code, Rejection};
use crate::units::{parse_time_ms, quote};

const TIMES: [&str; 4] = ["x-delay", "scheduler-epoch", "x-timebridge-when", "nats-schedule"];
const TARGETS: [&str; 3] = ["scheduler-target-topic", "x-timebridge-where", "nats-schedule-target"];
const KEY: &str = "scheduler-target-key";

/// Fills in what the control headers leave open. `immediate`: the ingest says `missing_delay = "immediate"`.
pub(super) fn fill(control: &mut Control, headers: &Headers, immediate: bool) -> Result<(), Rejection> {
    if !control.has_delay() {
        time(control, headers, immediate)?;
    }
    if control.target.is_none() {
        control.target = target(headers)?;
    }
    if control.key.is_none() {
        control.key = once(headers, KEY)?.map(|key| Bytes::copy_from_slice(key.as_bytes()));
    }
    Ok(())
}

/// Whether a header belongs to a dialect: it is not passed on.
pub(super) fn owns(name: &str) -> bool {
    TIMES.iter().chain(&TARGETS).any(|own| name.eq_ignore_ascii_case(own))
        || name.eq_ignore_ascii_case(KEY)
        || strip_prefix_ignore_case(name, "nats-schedule-").is_some()
}

fn time(control: &mut Control, headers: &Headers, immediate: bool) -> Result<(), Rejection> {
    let mut from: Option<&str> = None;
    for name in TIMES {
        let Some(value) = once(headers, name)? else { continue };
        if let Some(other) = from.replace(name) {
            return Err(Rejection::new(Code::AmbiguousDelay, format!("{other} and {name} both say when: send one")));
        }
        let value = value.trim();
        let refuse = |why: String| Rejection::new(Code::BadDelay, format!("{name}: {why}"));
        match name {
            "x-delay" => control.delay_for = Some(x_delay(value, immediate).map_err(refuse)?),
            "scheduler-epoch" => control.delay_until = Some(epoch_seconds(value).map_err(refuse)?),
            "x-timebridge-when" => control.delay_until = Some(parse_time_ms(value).map_err(refuse)?),
            _ => control.delay_until = Some(at(value).map_err(refuse)?),
        }
    }
    Ok(())
}

fn target(headers: &Headers) -> Result<Option<String>, Rejection> {
    let mut found: Option<(&str, String)> = None;
    for name in TARGETS {
        let Some(value) = once(headers, name)? else { continue };
        match &found {
            Some((other, target)) if *target != value => {
                return Err(Rejection::new(Code::BadHeader, format!("{other} and {name} name two targets: send one")));
            }
            _ => found = Some((name, value.into_owned())),
        }
    }
    Ok(found.map(|(_, target)| target))
}

/// RabbitMQ's plugin and LavinMQ: an integer of ms.
fn x_delay(value: &str, immediate: bool) -> Result<u64, String> {
    let ms: i64 = value.parse().map_err(|_| format!("{} is not an integer of milliseconds", quote(value)))?;
    match u64::try_from(ms) {
        Ok(ms) => Ok(ms),
        Err(_) if immediate => Ok(0),
        Err(_) => Err(format!("{ms} is negative: write 0 for now, or set missing_delay to immediate on the ingest")),
    }
}

fn epoch_seconds(value: &str) -> Result<i64, String> {
    let seconds: i64 = value.parse().map_err(|_| format!("{} is not an integer of epoch seconds", quote(value)))?;
    if seconds < 0 {
        return Err(format!("{seconds} is negative: write epoch seconds"));
    }
    Ok(seconds.saturating_mul(1_000))
}

/// NATS's schedules: only the form of one moment.
fn at(value: &str) -> Result<i64, String> {
    let time = value
        .strip_prefix("@at ")
        .ok_or_else(|| format!("{} is not `@at` and an RFC 3339 time: repeating schedules are not read", quote(value)))?;
    parse_time_ms(time)
}
