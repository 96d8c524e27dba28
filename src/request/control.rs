//! The fields of a request, whatever its form, and how `delay-*` headers set them.

use std::borrow::Cow;

use bytes::Bytes;
use dwell_connectors::{Headers, Value};

use super::reject::{Code, Rejection};
use crate::job::{Action, Confirm, Conflict, JobId, Late};
use crate::units::{parse_duration_ms, parse_durations_ms, parse_time_ms, quote};

/// The fields of a request; `None` where the request leaves one out.
#[derive(Debug, Default)]
pub(super) struct Control {
    pub(super) action: Option<Action>,
    pub(super) id: Option<JobId>,
    /// At most one of `delay_for` and `delay_until`; a request with both is ambiguous.
    pub(super) delay_for: Option<u64>,
    pub(super) delay_until: Option<i64>,
    pub(super) target: Option<String>,
    pub(super) exchange: Option<String>,
    pub(super) broker: Option<String>,
    /// The key of the delivered message; no `delay-*` header sets it.
    pub(super) key: Key,
    pub(super) ttr_ms: Option<u64>,
    pub(super) confirm: Option<Confirm>,
    pub(super) retry_ms: Option<Vec<u64>>,
    pub(super) late: Option<Late>,
    pub(super) max_late_ms: Option<u64>,
    pub(super) conflict: Option<Conflict>,
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

    /// Sets the field of one `delay-*` header. `name`: without the prefix, in lower case. `shown`:
    /// the name for error messages.
    pub(super) fn take(&mut self, name: &str, shown: &str, value: &str) -> Result<(), Rejection> {
        let trimmed = value.trim();
        let refuse = |code| move |why: String| Rejection::new(code, format!("{shown}: {why}"));
        match name {
            "for" => self.delay_for = Some(parse_duration_ms(value).map_err(refuse(Code::BadDelay))?),
            "until" => self.delay_until = Some(parse_time_ms(value).map_err(refuse(Code::BadDelay))?),
            "target" => self.target = Some(value.to_owned()),
            "exchange" => self.exchange = Some(value.to_owned()),
            "broker" => self.broker = Some(trimmed.to_owned()),
            "id" => self.id = Some(JobId::new(value).map_err(refuse(Code::BadId))?),
            "ttr" => self.ttr_ms = Some(parse_duration_ms(value).map_err(refuse(Code::BadTtr))?),
            "retry" => self.retry_ms = Some(parse_durations_ms(value).map_err(refuse(Code::BadRetry))?),
            "max-late" => self.max_late_ms = Some(parse_duration_ms(value).map_err(refuse(Code::BadHeader))?),
            "confirm" => self.confirm = Some(word(trimmed, &CONFIRM).map_err(refuse(Code::BadHeader))?),
            "late" => self.late = Some(word(trimmed, &LATE).map_err(refuse(Code::BadHeader))?),
            "on-conflict" => self.conflict = Some(word(trimmed, &CONFLICT).map_err(refuse(Code::BadHeader))?),
            "action" => self.action = Some(word(trimmed, &ACTION).map_err(refuse(Code::BadAction))?),
            _ => self.reply_to = Some(value.to_owned()),
        }
        Ok(())
    }
}

/// The control headers without their prefix, and the rejection code of a value that is not text.
const NAMES: [(&str, Code); 14] = [
    ("for", Code::BadDelay),
    ("until", Code::BadDelay),
    ("target", Code::BadHeader),
    ("exchange", Code::BadHeader),
    ("broker", Code::UnknownBroker),
    ("id", Code::BadId),
    ("ttr", Code::BadTtr),
    ("confirm", Code::BadHeader),
    ("retry", Code::BadRetry),
    ("late", Code::BadHeader),
    ("max-late", Code::BadHeader),
    ("on-conflict", Code::BadHeader),
    ("action", Code::BadAction),
    ("reply-to", Code::BadHeader),
];

const CONFIRM: [(&str, Confirm); 2] = [("broker", Confirm::Broker), ("consumer", Confirm::Consumer)];
const LATE: [(&str, Late); 3] = [("fire", Late::Fire), ("drop", Late::Drop), ("dead", Late::Dead)];
const CONFLICT: [(&str, Conflict); 3] = [("replace", Conflict::Replace), ("keep", Conflict::Keep), ("reject", Conflict::Reject)];
const ACTION: [(&str, Action); 6] = [
    ("schedule", Action::Schedule),
    ("cancel", Action::Cancel),
    ("reschedule", Action::Reschedule),
    ("fire", Action::Fire),
    ("finish", Action::Finish),
    ("fail", Action::Fail),
];

/// Reads the `delay-*` headers.
pub(super) fn read(headers: &Headers) -> Result<Control, Rejection> {
    let mut control = Control::default();
    let mut seen = [false; NAMES.len()];
    for header in headers.iter() {
        let Some(rest) = strip_prefix_ignore_case(&header.name, "delay-") else { continue };
        let Some(index) = NAMES.iter().position(|(name, _)| rest.eq_ignore_ascii_case(name)) else {
            let known: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
            return Err(Rejection::new(
                Code::BadHeader,
                format!("{} is not a control header; those are delay- with {}", quote(&header.name), known.join(", ")),
            ));
        };
        let (name, code) = NAMES[index];
        if std::mem::replace(&mut seen[index], true) {
            return Err(Rejection::new(Code::BadHeader, format!("delay-{name} is repeated: send it once")));
        }
        let value = header
            .value
            .written()
            .ok_or_else(|| Rejection::new(code, format!("delay-{name} is neither text nor an integer: send it as text")))?;
        control.take(name, &format!("delay-{name}"), &value)?;
    }
    Ok(control)
}

/// The value of this header, if any. A repeated header is rejected.
pub(super) fn single<'a>(headers: &'a Headers, name: &str) -> Result<Option<&'a Value>, Rejection> {
    let mut values = headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name)).map(|header| &header.value);
    let first = values.next();
    if values.next().is_some() {
        return Err(Rejection::new(Code::BadHeader, format!("{name} is repeated: send it once")));
    }
    Ok(first)
}

/// The value of this header as text, if any. A repeated header, or a value that is neither text nor
/// an integer, is rejected.
pub(super) fn once<'a>(headers: &'a Headers, name: &str) -> Result<Option<Cow<'a, str>>, Rejection> {
    once_as(headers, name, Value::written)
}

/// Like [`once`], with another way to read the value; a value that reads as `None` is rejected.
pub(super) fn once_as<'a>(
    headers: &'a Headers,
    name: &str,
    read: fn(&Value) -> Option<Cow<'_, str>>,
) -> Result<Option<Cow<'a, str>>, Rejection> {
    let Some(value) = single(headers, name)? else { return Ok(None) };
    let text =
        read(value).ok_or_else(|| Rejection::new(Code::BadHeader, format!("{name} is neither text nor an integer: send it as text")))?;
    Ok(Some(text))
}

/// The value of one of these words, or an error that lists the words.
fn word<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T, String> {
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
