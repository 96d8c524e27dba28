//! Schedules of etf1/kafka-message-scheduler: the message's key is the schedule's id, a header
//! holds the key to deliver, and a message without a body deletes. `dialect` reads the time and the
//! target.

use bytes::Bytes;
use dwell_connectors::{Headers, Message, Value};

use super::control::{Control, Key, single};
use super::parse::age::own_time;
use super::reject::{Code, Rejection};
use super::rules::RequestRules;
use crate::config::IdFrom;
use crate::job::{Action, JobId};

pub(super) const EPOCH_HEADER: &str = "scheduler-epoch";
pub(super) const TARGET_HEADER: &str = "scheduler-target-topic";
pub(super) const TARGET_KEY_HEADER: &str = "scheduler-target-key";
/// Headers that the scheduler sets on a delivered message.
const DELIVERY_HEADERS: [&str; 3] = ["scheduler-timestamp", "scheduler-key", "scheduler-topic"];

/// The action of a message without a body: it deletes the schedule of its key, whatever other
/// headers it has, because the scheduler's tombstones repeat the schedule's headers. With a
/// `delay-*` header the message is delivered without a body.
pub(super) fn deletion(
    control: &Control,
    message: &Message,
    rules: &RequestRules,
) -> Result<Option<Action>, Rejection> {
    let asks = control.has_time() || control.action.is_some_and(|action| action != Action::Add);
    if message.has_body || asks {
        return Ok(None);
    }
    if rules.ingest.id_from == IdFrom::Key && control.action.is_none() {
        return Ok(Some(Action::Cancel));
    }
    if has_headers(&message.headers) {
        let why = if rules.ingest.id_from == IdFrom::Key {
            "delay-action is schedule: leave it out, or send delay-for".to_owned()
        } else {
            format!("ingest.{}.id_from is empty: set it to key", rules.name)
        };
        return Err(Rejection::new(
            Code::BadAction,
            format!("a message without a body deletes the schedule of its key, and {why}"),
        ));
    }
    Ok(None)
}

/// The message's key as the job id.
pub(super) fn id(message: &Message, rules: &RequestRules) -> Result<JobId, Rejection> {
    let refuse = |why: &str| {
        let name = &rules.name;
        Rejection::new(
            Code::BadId,
            format!("ingest.{name}.id_from is key, and {why}: send such a key, or a delay-id"),
        )
    };
    let key = message.key.as_deref().ok_or_else(|| refuse("the message has none"))?;
    let text = std::str::from_utf8(key).map_err(|_| refuse("the key is not UTF-8"))?;
    if text.trim().is_empty() {
        return Err(refuse("the key is blank"));
    }
    JobId::new(text).map_err(|why| refuse(&why))
}

/// The key of the delivered message, where the message has headers of this scheduler.
pub(super) fn target_key(headers: &Headers) -> Result<Option<Key>, Rejection> {
    if !has_headers(headers) {
        return Ok(None);
    }
    let key = match single(headers, TARGET_KEY_HEADER)? {
        None | Some(Value::Null) => None,
        Some(Value::Bytes(bytes)) => Some(bytes.clone()),
        Some(value) => {
            let text = value.written().ok_or_else(|| {
                Rejection::new(
                    Code::BadHeader,
                    format!(
                        "{TARGET_KEY_HEADER} is neither text, an integer nor bytes: send it as text"
                    ),
                )
            })?;
            Some(Bytes::copy_from_slice(text.as_bytes()))
        }
    };
    Ok(Some(Key::Named(key)))
}

/// Sets the headers that the scheduler sets on a delivered message.
pub(super) fn stamp(passed: &mut Headers, id: &JobId, message: &Message, rules: &RequestRules) {
    if rules.ingest.id_from != IdFrom::Key || !has_headers(&message.headers) {
        return;
    }
    // A message that was delivered before and is scheduled again has old ones.
    passed.retain(|header| {
        !DELIVERY_HEADERS.iter().any(|name| header.name.eq_ignore_ascii_case(name))
    });
    let [timestamp, key, topic] = DELIVERY_HEADERS;
    if let Some(ms) = own_time(message) {
        passed.push(timestamp, Value::Text((ms / 1_000).to_string()));
    }
    passed.push(key, Value::Text(id.as_str().to_owned()));
    passed.push(topic, Value::Text(message.destination.address.clone()));
}

fn has_headers(headers: &Headers) -> bool {
    [EPOCH_HEADER, TARGET_HEADER, TARGET_KEY_HEADER]
        .into_iter()
        .any(|name| headers.get(name).is_some_and(|value| !matches!(value, Value::Null)))
}
