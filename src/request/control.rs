//! The fields of a request, whatever its form, and how `delay-*` headers set them.

use std::borrow::Cow;

use bytes::Bytes;
use dwell_connectors::{Headers, Value};

use super::expire;
use super::recurring::{self, Recurring, Stated};
use super::reject::{Code, Rejection};
use super::until::Until;
use crate::job::{Action, Confirm, Conflict, JobId, Late, is_queue_name};
use crate::schedule::Overlap;
use crate::units::{parse_duration_ms, parse_durations_ms, quote, quote_address};

/// The fields of a request; `None` where the request leaves one out.
#[derive(Debug, Default)]
pub(super) struct Control {
    pub(super) action: Option<Action>,
    pub(super) id: Option<JobId>,
    /// At most one of `delay_for` and `delay_until`; a request with both is ambiguous.
    pub(super) delay_for: Option<u64>,
    pub(super) delay_until: Option<Until>,
    /// The time zone as the request spells it: of a time without an offset, or of the schedule.
    pub(super) zone: Option<String>,
    /// The fields of a recurring schedule.
    pub(super) recurring: Recurring,
    pub(super) spread_ms: Option<u64>,
    pub(super) expire: Option<expire::Stated>,
    pub(super) target: Option<String>,
    pub(super) exchange: Option<String>,
    pub(super) broker: Option<String>,
    pub(super) queue: Option<String>,
    /// The key of the delivered message; no `delay-*` header sets it.
    pub(super) key: Key,
    /// How long the delivered message may stay, where its broker takes such a header, in the
    /// broker's own spelling; no `delay-*` header sets it.
    pub(super) ttl: Option<String>,
    pub(super) ttr_ms: Option<u64>,
    pub(super) confirm: Option<Confirm>,
    pub(super) retry_ms: Option<Vec<u64>>,
    pub(super) late: Option<Late>,
    pub(super) max_late_ms: Option<u64>,
    /// Of a request that debounces, without its longest wait.
    pub(super) conflict: Option<Conflict>,
    pub(super) max_wait_ms: Option<u64>,
    pub(super) reply_to: Option<String>,
}

/// The key of the delivered message.
#[derive(Debug, Default, PartialEq)]
pub(super) enum Key {
    /// The key of the request message.
    #[default]
    Own,
    /// This key, or none.
    Named(Option<Bytes>),
}

impl Control {
    /// Whether the request has a delay, in either form.
    pub(super) fn has_delay(&self) -> bool {
        self.delay_for.is_some() || self.delay_until.is_some()
    }

    /// Whether the request says when: by a delay, or by a recurring schedule.
    pub(super) fn has_time(&self) -> bool {
        self.has_delay() || self.recurring.schedule.is_some()
    }

    /// Sets the field of one control header. `name`: without the prefix, in lower case. `shown`:
    /// the name for error messages.
    pub(super) fn take(&mut self, name: &str, shown: &str, value: &str) -> Result<(), Rejection> {
        let header = HEADERS.iter().find(|header| header.name == name);
        header
            .ok_or_else(|| Rejection::new(Code::BadHeader, format!("{shown} is unknown")))?
            .set(self, shown, value)
    }
}

/// A control header.
struct ControlHeader {
    /// Without the prefix, in lower case.
    name: &'static str,
    /// The code of a value that cannot be read.
    code: Code,
    /// Sets the field of this header to the value, or says why the value cannot be read.
    read: fn(&mut Control, &str) -> Result<(), String>,
}

impl ControlHeader {
    const fn new(
        name: &'static str,
        code: Code,
        read: fn(&mut Control, &str) -> Result<(), String>,
    ) -> Self {
        ControlHeader { name, code, read }
    }

    fn set(&self, control: &mut Control, shown: &str, value: &str) -> Result<(), Rejection> {
        (self.read)(control, value)
            .map_err(|why| Rejection::new(self.code, format!("{shown}: {why}")))
    }
}

/// The control headers. A header that is not in this table is rejected.
const HEADERS: [ControlHeader; 25] = [
    ControlHeader::new("for", Code::BadDelay, |control, value| {
        put(&mut control.delay_for, parse_duration_ms(value))
    }),
    ControlHeader::new("until", Code::BadDelay, |control, value| {
        put(&mut control.delay_until, Until::parse(value))
    }),
    ControlHeader::new("target", Code::BadHeader, |control, value| {
        put(&mut control.target, Ok(value.to_owned()))
    }),
    ControlHeader::new("exchange", Code::BadHeader, |control, value| {
        put(&mut control.exchange, Ok(value.to_owned()))
    }),
    ControlHeader::new("broker", Code::UnknownBroker, |control, value| {
        put(&mut control.broker, Ok(value.trim().to_owned()))
    }),
    ControlHeader::new("queue", Code::BadQueue, |control, value| {
        put(&mut control.queue, queue_name(value))
    }),
    ControlHeader::new("id", Code::BadId, |control, value| put(&mut control.id, JobId::new(value))),
    ControlHeader::new("ttr", Code::BadTtr, |control, value| {
        put(&mut control.ttr_ms, parse_duration_ms(value))
    }),
    ControlHeader::new("confirm", Code::BadHeader, |control, value| {
        put(&mut control.confirm, word(value, &CONFIRM_VALUES))
    }),
    ControlHeader::new("retry", Code::BadRetry, |control, value| {
        put(&mut control.retry_ms, parse_durations_ms(value))
    }),
    ControlHeader::new("late", Code::BadHeader, |control, value| {
        put(&mut control.late, word(value, &LATE_VALUES))
    }),
    ControlHeader::new("max-late", Code::BadHeader, |control, value| {
        put(&mut control.max_late_ms, parse_duration_ms(value))
    }),
    ControlHeader::new("on-conflict", Code::BadHeader, |control, value| {
        put(&mut control.conflict, word(value, &CONFLICT_VALUES))
    }),
    ControlHeader::new("action", Code::BadAction, |control, value| {
        put(&mut control.action, word(value, &ACTION_VALUES))
    }),
    ControlHeader::new("reply-to", Code::BadHeader, |control, value| {
        put(&mut control.reply_to, Ok(value.to_owned()))
    }),
    ControlHeader::new("schedule", Code::BadSchedule, |control, value| {
        put(&mut control.recurring.schedule, Stated::parse(value))
    }),
    // What the zone is for decides over its code.
    ControlHeader::new("time-zone", Code::BadHeader, |control, value| {
        put(&mut control.zone, Ok(value.trim().to_owned()))
    }),
    ControlHeader::new("start", Code::BadSchedule, |control, value| {
        put(&mut control.recurring.start, Until::parse(value))
    }),
    ControlHeader::new("end", Code::BadSchedule, |control, value| {
        put(&mut control.recurring.end, Until::parse(value))
    }),
    ControlHeader::new("count", Code::BadSchedule, |control, value| {
        put(&mut control.recurring.count, recurring::count(value))
    }),
    ControlHeader::new("catch-up", Code::BadSchedule, |control, value| {
        put(&mut control.recurring.catch_up, recurring::catch_up(value))
    }),
    ControlHeader::new("overlap", Code::BadSchedule, |control, value| {
        put(&mut control.recurring.overlap, word(value, &OVERLAP_VALUES))
    }),
    ControlHeader::new("spread", Code::BadHeader, |control, value| {
        put(&mut control.spread_ms, parse_duration_ms(value))
    }),
    ControlHeader::new("max-wait", Code::BadHeader, |control, value| {
        put(&mut control.max_wait_ms, parse_duration_ms(value))
    }),
    ControlHeader::new("expire", Code::BadHeader, |control, value| {
        put(&mut control.expire, expire::Stated::parse(value))
    }),
];

fn put<T>(field: &mut Option<T>, value: Result<T, String>) -> Result<(), String> {
    *field = Some(value?);
    Ok(())
}

const CONFIRM_VALUES: [(&str, Confirm); 2] =
    [("broker", Confirm::Broker), ("consumer", Confirm::Consumer)];
const LATE_VALUES: [(&str, Late); 3] =
    [("fire", Late::Fire), ("drop", Late::Drop), ("dead", Late::Dead)];
const CONFLICT_VALUES: [(&str, Conflict); 4] = [
    ("replace", Conflict::Replace),
    ("keep", Conflict::Keep),
    ("reject", Conflict::Reject),
    ("debounce", Conflict::Debounce { max_wait_ms: 0 }),
];
const OVERLAP_VALUES: [(&str, Overlap); 2] = [("allow", Overlap::Allow), ("skip", Overlap::Skip)];
const ACTION_VALUES: [(&str, Action); 6] = [
    ("schedule", Action::Add),
    ("cancel", Action::Cancel),
    ("reschedule", Action::Reschedule),
    ("fire", Action::Fire),
    ("finish", Action::Finish),
    ("fail", Action::Fail),
];

/// Reads the `delay-*` headers.
pub(super) fn read(headers: &Headers) -> Result<Control, Rejection> {
    let mut control = Control::default();
    let mut seen = [false; HEADERS.len()];
    for header in headers.iter() {
        let Some(rest) = strip_prefix_ignore_case(&header.name, "delay-") else { continue };
        let Some(index) = HEADERS.iter().position(|known| rest.eq_ignore_ascii_case(known.name))
        else {
            let known: Vec<&str> = HEADERS.iter().map(|known| known.name).collect();
            return Err(Rejection::new(
                Code::BadHeader,
                format!(
                    "{} is not a control header; those are delay- with {}",
                    quote(&header.name),
                    known.join(", ")
                ),
            ));
        };
        let known = &HEADERS[index];
        let shown = format!("delay-{}", known.name);
        if std::mem::replace(&mut seen[index], true) {
            return Err(Rejection::new(
                Code::BadHeader,
                format!("{shown} is repeated: send it once"),
            ));
        }
        let value = header.value.written().ok_or_else(|| {
            Rejection::new(
                known.code,
                format!("{shown} is neither text nor an integer: send it as text"),
            )
        })?;
        known.set(&mut control, &shown, &value)?;
    }
    Ok(control)
}

/// The value of this header, if any. A repeated header is rejected.
pub(super) fn single<'a>(headers: &'a Headers, name: &str) -> Result<Option<&'a Value>, Rejection> {
    let mut values = headers
        .iter()
        .filter(|header| header.name.eq_ignore_ascii_case(name))
        .map(|header| &header.value);
    let first = values.next();
    if values.next().is_some() {
        return Err(Rejection::new(Code::BadHeader, format!("{name} is repeated: send it once")));
    }
    Ok(first)
}

/// The value of this header as text, if any. A repeated header, or a value that is neither text nor
/// an integer, is rejected.
pub(super) fn once<'a>(
    headers: &'a Headers,
    name: &str,
) -> Result<Option<Cow<'a, str>>, Rejection> {
    once_as(headers, name, Value::written)
}

/// Like [`once`], with another way to read the value; a value that reads as `None` is rejected.
pub(super) fn once_as<'a>(
    headers: &'a Headers,
    name: &str,
    read: fn(&Value) -> Option<Cow<'_, str>>,
) -> Result<Option<Cow<'a, str>>, Rejection> {
    let Some(value) = single(headers, name)? else { return Ok(None) };
    let text = read(value).ok_or_else(|| {
        Rejection::new(
            Code::BadHeader,
            format!("{name} is neither text nor an integer: send it as text"),
        )
    })?;
    Ok(Some(text))
}

/// The name of a queue in a request, or why it is none.
pub(super) fn queue_name(text: &str) -> Result<String, String> {
    let text = text.trim();
    if is_queue_name(text) {
        return Ok(text.to_owned());
    }
    Err(format!(
        "{} is not the name of a queue: write 1 to 255 of A-Z a-z 0-9 . _ -",
        quote_address(text)
    ))
}

/// The value of one of these words, or an error that lists the words.
fn word<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T, String> {
    let text = text.trim();
    words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value).ok_or_else(|| {
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        format!("{} is not one of {}", quote(text), known.join(", "))
    })
}

/// The rest of the name after the prefix, ignoring ASCII case.
pub(super) fn strip_prefix_ignore_case<'a>(name: &'a str, prefix: &str) -> Option<&'a str> {
    let (head, rest) = name.split_at_checked(prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::HEADERS;

    #[test]
    fn every_control_header_is_in_the_docs_the_vectors_and_the_lists_of_the_generators() {
        for (place, text, quote) in [
            ("headers.md", include_str!("../../docs/reference/headers.md"), '`'),
            ("known_headers.rs", include_str!("tests/known_headers.rs"), '"'),
            ("requests.json", include_str!("../../clients/vectors/requests.json"), '"'),
        ] {
            for header in &HEADERS {
                let name = format!("{quote}delay-{}{quote}", header.name);
                assert!(text.contains(&name), "{place} lacks {name}");
            }
        }
    }
}
