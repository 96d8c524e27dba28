//! `format = "envelope"`: the request as JSON in the body. `delay-*` headers take precedence.

use bytes::Bytes;
use dwell_connectors::Message;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::control::{Control, queue_name};
use super::reject::{Code, Rejection};
use super::rules::RequestRules;
use super::until::Until;
use crate::config::DeliverTo;
use crate::job::{Action, JobId};
use crate::units::{parse_duration_ms, parse_time_ms, quote};

/// The keys. Values stay JSON, so that each wrong value gets its own code. An unknown key may be a
/// typing error and is rejected.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope {
    command: Option<Value>,
    topic: Option<Value>,
    id: Option<Value>,
    delay: Option<Value>,
    #[serde(rename = "delayTime")]
    delay_time: Option<Value>,
    /// The original scheduler ignores the case of this key.
    #[serde(
        rename = "TTR",
        alias = "ttr",
        alias = "Ttr",
        alias = "tTr",
        alias = "ttR",
        alias = "TTr",
        alias = "TtR",
        alias = "tTR"
    )]
    ttr: Option<Value>,
    /// Kept as text: parsed numbers would lose digits and parsed objects their order.
    #[serde(default, deserialize_with = "present")]
    body: Option<Box<RawValue>>,
}

/// An explicit `null` is a value, not an absent one.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

/// Sets the fields that no control header sets. Returns the body to publish, empty for `delete` and
/// `finish`.
pub(super) fn fill(
    control: &mut Control,
    message: &Message,
    rules: &RequestRules,
) -> Result<Bytes, Rejection> {
    let envelope: Envelope = serde_json::from_slice(&message.body).map_err(|error| {
        // The error's own text may quote the body.
        let what = match error.classify() {
            serde_json::error::Category::Data => {
                "is not an object with command, topic, id, delay or delayTime, TTR and body, each at most once"
            }
            _ => "is not JSON",
        };
        Rejection::new(Code::BadEnvelope, format!("the body {what} (line {}, column {})", error.line(), error.column()))
    })?;
    let action = match &envelope.command {
        Some(Value::String(command)) if command == "add" => Action::Add,
        Some(Value::String(command)) if command == "delete" => Action::Cancel,
        Some(Value::String(command)) if command == "finish" => Action::Finish,
        Some(other) => {
            return Err(Rejection::new(
                Code::BadAction,
                format!("command {} is not one of add, delete, finish", shown(other)),
            ));
        }
        None => {
            return Err(Rejection::new(
                Code::BadAction,
                "the envelope has no command: write add, delete or finish",
            ));
        }
    };
    let action = *control.action.get_or_insert(action);
    if control.id.is_none() {
        control.id = envelope.id.as_ref().map(id).transpose()?;
    }
    if action != Action::Add {
        return Ok(Bytes::new());
    }
    if !control.has_time() {
        control.delay_for = envelope
            .delay
            .as_ref()
            .map(|value| seconds(value, "delay", Code::BadDelay))
            .transpose()?;
        control.delay_until =
            envelope.delay_time.as_ref().map(epoch_ms).transpose()?.map(Until::At);
    }
    if control.ttr_ms.is_none() {
        control.ttr_ms =
            envelope.ttr.as_ref().map(|value| seconds(value, "TTR", Code::BadTtr)).transpose()?;
    }
    if control.target.is_none() && control.queue.is_none() {
        let topic = envelope.topic.as_ref().map(topic).transpose()?;
        match (topic, rules.ingest.deliver_to) {
            (topic, DeliverTo::Target) => control.target = topic,
            (Some(topic), DeliverTo::Queue) => control.queue = Some(queue(&topic)?),
            (None, DeliverTo::Queue) if rules.ingest.target.is_empty() => {
                return Err(Rejection::new(
                    Code::MissingTarget,
                    "the envelope has no topic: name the queue in it",
                ));
            }
            (None, DeliverTo::Queue) => {}
        }
    }
    let body = envelope.body.ok_or_else(|| {
        Rejection::new(
            Code::BadEnvelope,
            "the envelope has no body: write \"body\":\"\" for an empty one",
        )
    })?;
    published(&body)
}

/// A string as its UTF-8 bytes, any other value as compact JSON.
fn published(body: &RawValue) -> Result<Bytes, Rejection> {
    if body.get().starts_with('"') {
        let text: String = serde_json::from_str(body.get()).map_err(|_| {
            Rejection::new(Code::BadEnvelope, "the body in the envelope is not Unicode text")
        })?;
        return Ok(Bytes::from(text));
    }
    Ok(Bytes::from(compact(body.get())))
}

/// Valid JSON without the white space between its tokens; the tokens are unchanged.
pub(crate) fn compact(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    let (mut quoted, mut escaped) = (false, false);
    for c in json.chars() {
        if quoted || !matches!(c, ' ' | '\t' | '\r' | '\n') {
            text.push(c);
        }
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == '"' {
            quoted = !quoted;
        }
    }
    text
}

fn id(value: &Value) -> Result<JobId, Rejection> {
    let text = match value {
        Value::String(text) => text.clone(),
        // Larger numbers and fractions lose digits, so that two ids could become one.
        Value::Number(number) if number.is_i64() || number.is_u64() => number.to_string(),
        other => {
            return Err(Rejection::new(
                Code::BadId,
                format!("id {} is neither text nor an integer", shown(other)),
            ));
        }
    };
    JobId::new(text).map_err(|why| Rejection::new(Code::BadId, format!("id: {why}")))
}

fn topic(value: &Value) -> Result<String, Rejection> {
    match value {
        Value::String(text) => Ok(text.clone()),
        other => {
            Err(Rejection::new(Code::MissingTarget, format!("topic {} is not text", shown(other))))
        }
    }
}

fn queue(topic: &str) -> Result<String, Rejection> {
    queue_name(topic).map_err(|why| Rejection::new(Code::BadQueue, format!("topic: {why}")))
}

/// A number of seconds, or the same as text.
fn seconds(value: &Value, name: &str, code: Code) -> Result<u64, Rejection> {
    number(value)
        .ok_or_else(|| format!("{} is not a number of seconds", shown(value)))
        .and_then(|number| parse_duration_ms(&format!("{number}s")))
        .map_err(|why| Rejection::new(code, format!("{name}: {why}")))
}

fn epoch_ms(value: &Value) -> Result<i64, Rejection> {
    number(value)
        .ok_or_else(|| format!("{} is not a number of epoch milliseconds", shown(value)))
        .and_then(|number| parse_time_ms(&number))
        .map_err(|why| Rejection::new(Code::BadDelay, format!("delayTime: {why}")))
}

/// A JSON number, or text of digits, `.` and `-` alone, so that no unit is accepted.
fn number(value: &Value) -> Option<String> {
    let text = match value {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.trim().to_owned(),
        _ => return None,
    };
    (!text.is_empty() && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'.' | b'-')))
        .then_some(text)
}

/// Text without its quotes, any other value as JSON.
fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| quote(&value.to_string()), quote)
}
