//! One call of the admin API. A lost answer is not repeated.

use std::net::SocketAddr;
use std::time::Duration;

use dwell::clock;
use dwell_connectors::Message;
use http::Method;
use serde_json::{Value, json};

use super::draw::{Action, NOTE_HEADER, Plan};
use crate::chaos::history::{Job, UNREADABLE};
use crate::client::Link;

/// The timeout of an answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The result of a call.
pub(super) enum Answer {
    /// The verdict.
    Verdict(String),
    /// Not sent: nothing listens.
    Never(String),
    /// Unknown: the call may have been applied.
    Unknown(String),
}

pub(super) async fn ask(instance: SocketAddr, id: &str, plan: &Plan) -> Answer {
    let (method, word, body) = match (plan.action, plan.due_ms) {
        (Action::Cancel, _) => (Method::DELETE, "", Value::Null),
        (Action::Fire, _) => (Method::POST, "/fire", Value::Null),
        (Action::Finish, _) => (Method::POST, "/finish", seen(plan)),
        (Action::Fail, _) => (Method::POST, "/fail", seen(plan)),
        (Action::Reschedule, due_ms) => {
            (Method::PATCH, "", json!({ "until": due_ms.unwrap_or(0) }))
        }
    };
    asked(instance, method, &format!("/v1/jobs/{id}{word}"), &body, verdict).await
}

/// The message that a consumer's word is about.
fn seen(plan: &Plan) -> Value {
    plan.seen
        .map_or_else(|| json!({}), |seen| json!({ "due_ms": seen.due_ms, "attempt": seen.attempt }))
}

/// A new job.
pub(super) async fn schedule(
    instance: SocketAddr,
    id: &str,
    job: &Job,
    message: &Message,
) -> Answer {
    let note = message.headers.text(NOTE_HEADER).unwrap_or_default();
    let body = String::from_utf8_lossy(&message.body);
    let new = json!({ "id": id, "until": job.due_ms, "target": job.target, "broker": job.broker, "headers": { NOTE_HEADER: note }, "body": body });
    asked(instance, Method::POST, "/v1/jobs", &new, taken).await
}

/// Whether the job was taken, if the answer says so.
fn taken(status: u16, body: &str) -> Answer {
    match status {
        201 => Answer::Verdict("added".to_owned()),
        400 | 409 | 413 | 422 => Answer::Never(body.to_owned()),
        _ => Answer::Unknown(status.to_string()),
    }
}

async fn asked(
    instance: SocketAddr,
    method: Method,
    path: &str,
    body: &Value,
    read: fn(u16, &str) -> Answer,
) -> Answer {
    let mut link = Link::at(instance);
    match clock::timeout(TIMEOUT, link.connect()).await {
        Some(Ok(())) => {}
        Some(Err(error)) => return Answer::Never(error.to_string()),
        None => return Answer::Never("no connection in time".to_owned()),
    }
    let body = if body.is_null() { String::new() } else { body.to_string() };
    match clock::timeout(TIMEOUT, link.call(method, path, body)).await {
        Some(Ok((status, answer))) => read(status, &String::from_utf8_lossy(&answer)),
        Some(Err(error)) => Answer::Unknown(error.to_string()),
        None => Answer::Unknown("no answer in time".to_owned()),
    }
}

/// A body with a verdict, or with the error of an unreadable job, is an answer, whatever the
/// status; anything else is unknown.
fn verdict(status: u16, body: &str) -> Answer {
    let said: Value = serde_json::from_str(body).unwrap_or_default();
    match said["verdict"].as_str().or(said["code"].as_str().filter(|code| *code == UNREADABLE)) {
        Some(verdict) => Answer::Verdict(verdict.to_owned()),
        None => Answer::Unknown(format!("{status} {body}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_taken_where_an_answer_says_so_and_refused_likewise() {
        assert!(matches!(taken(201, "{}"), Answer::Verdict(_)));
        assert!(matches!(taken(400, "{}"), Answer::Never(_)));
        assert!(matches!(taken(503, "{}"), Answer::Unknown(_)));
    }

    #[test]
    fn only_an_answer_with_a_verdict_is_one() {
        let of = |status, body| match verdict(status, body) {
            Answer::Verdict(word) => Some(word),
            Answer::Never(_) | Answer::Unknown(_) => None,
        };
        assert_eq!(of(409, r#"{"id":"x","verdict":"fired"}"#).as_deref(), Some("fired"));
        assert_eq!(of(409, r#"{"code":"unreadable_job"}"#).as_deref(), Some(UNREADABLE));
        for other in ["", r#"{"verdict":"canc"#, r#"{"title":"x"}"#] {
            assert_eq!(of(503, other), None, "{other}");
        }
    }
}
