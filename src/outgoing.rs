//! The messages that Dwell publishes: attempts, dead letters, rejected requests, verdicts, events of
//! jobs. Pure.

use dwell_connectors::{Capabilities, Header, Headers, Message, Value};

use crate::delayed_headers::{
    ATTEMPT, DEAD_REASON, DUE, ERROR, ERROR_DETAIL, ID, LAST_ERROR, ROUND,
};
use crate::job::{Action, Confirm, DeadReason, JobId};
use crate::store::jobs::batch::Answer;
use crate::store::jobs::claim::ClaimedJob;
use crate::view;

mod event;
mod rejected;

pub use event::EventSource;
pub use rejected::Rejected;

/// A number in a header: an integer where header values have types, else text.
fn number(broker: &Capabilities, value: i64) -> Value {
    if broker.typed_headers { Value::I64(value) } else { Value::Text(value.to_string()) }
}

/// Whether this message was rejected before: it has the code of a rejection.
#[must_use]
pub fn was_rejected(message: &Message) -> bool {
    message.headers.get(ERROR).is_some()
}

/// The error of a rejected request that became a dead job; `None` for any other job.
#[must_use]
pub fn refusal(headers: &Headers) -> Option<String> {
    Some(format!("{}: {}", headers.text(ERROR)?, headers.text(ERROR_DETAIL).unwrap_or_default()))
}

/// One attempt of a job, for a broker with these capabilities: body, key, properties and headers as
/// received, and the `delayed-*` headers.
#[must_use]
pub fn attempt(lease: &ClaimedJob, broker: &Capabilities) -> Message {
    let job = &lease.record.job;
    let mut headers = job.headers.clone();
    headers.push(ID, Value::Text(lease.id.as_str().to_owned()));
    headers.push(ATTEMPT, number(broker, i64::from(lease.state.attempt)));
    headers.push(DUE, number(broker, lease.state.due_ms));
    if job.round > 0 {
        headers.push(ROUND, number(broker, job.round.into()));
    }
    let mut properties = job.properties.clone();
    // A restart of the broker must not lose a delivered message. A message from the same kind of
    // broker keeps its producer's choice.
    if let Some(mode) = broker.delivery_mode.filter(|_| job.origin != broker.kind) {
        properties.get_or_insert_default().delivery_mode = Some(mode);
    }
    Message {
        body: job.body.clone(),
        has_body: job.has_body,
        key: job.key.clone(),
        headers,
        properties,
        ..Message::default()
    }
}

/// A dead letter: the last attempt, with the reason and the last error.
#[must_use]
pub fn dead_letter(lease: &ClaimedJob, broker: &Capabilities, reason: DeadReason) -> Message {
    let mut message = attempt(lease, broker);
    without_copies(&mut message, broker);
    without_ttl(&mut message, broker);
    message.headers.push(DEAD_REASON, Value::Text(reason.as_str().to_owned()));
    message.headers.push(LAST_ERROR, Value::Text(one_line(&lease.state.last_error)));
    message
}

/// The id by which brokers drop duplicates, at most 64 characters. The retries of one schedule have
/// the same id. It changes after a replace, reschedule or requeue, with each attempt if the
/// consumer confirms, and for the dead letter.
#[must_use]
pub fn dedupe_id(lease: &ClaimedJob) -> String {
    // A `Hasher` would initialise two kilobytes for these few bytes.
    let hash = blake3::hash(&[&lease.state.generation[..], lease.id.as_str().as_bytes()].concat())
        .to_hex();
    let schedule = &hash[..32];
    if lease.state.reason.is_some() {
        format!("{schedule}-dead")
    } else if lease.record.job.confirm == Confirm::Consumer {
        format!("{schedule}-{}", lease.state.attempt)
    } else {
        schedule.to_owned()
    }
}

/// The verdict on a request, as JSON.
#[must_use]
pub fn verdict(id: &JobId, action: Action, answer: Answer) -> Message {
    let json = serde_json::to_vec(&view::ActionResult::of(id.as_str(), action, answer))
        .expect("words and a number can be written as JSON");
    Message::new(json).with_header("content-type", "application/json")
}

/// Renames copy headers (`CC` becomes `delayed-cc`), so that a dead letter or a rejected request
/// reaches only its own destination.
fn without_copies(message: &mut Message, broker: &Capabilities) {
    for copies in broker.copy_headers {
        let note = format!("delayed-{}", copies.to_ascii_lowercase());
        if message.headers.iter().any(|header| header.name == *copies) {
            // Replaces the value of an earlier rejection.
            message.headers.retain(|header| header.name != note);
            let named = |header: Header| {
                if header.name == *copies {
                    Header { name: note.clone(), ..header }
                } else {
                    header
                }
            };
            message.headers = std::mem::take(&mut message.headers).into_iter().map(named).collect();
        }
    }
}

/// Removes the header that would end the message: a dead letter or a rejected request stays until
/// somebody reads it.
fn without_ttl(message: &mut Message, broker: &Capabilities) {
    if let Some(ttl) = broker.ttl_header {
        message.headers.retain(|header| !header.name.eq_ignore_ascii_case(ttl));
    }
}

/// Text for a header: on some brokers a header ends at a line break.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
