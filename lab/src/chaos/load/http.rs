//! One call of the admin API. A lost answer is not repeated.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use dwell::clock;
use dwell_connectors::Message;
use http::Method;
use serde_json::{Value, json};

use super::draw::{Action, NOTE_HEADER, Plan};
use super::with_result;
use crate::chaos::history::{Debounce, Job, Op, Phase, Reply, UNREADABLE};
use crate::chaos::recorder::Recorder;
use crate::client::Link;

/// The timeout of an answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A call.
pub(super) struct Call {
    method: Method,
    path: String,
    /// JSON, or empty.
    body: String,
    /// The reply to a control request, without its verdict; `None`: only the status counts.
    reply: Option<Reply>,
}

impl Call {
    /// A new job.
    pub(super) fn schedule(id: &str, job: &Job, message: &Message) -> Call {
        let note = message.headers.text(NOTE_HEADER).unwrap_or_default();
        let text = String::from_utf8_lossy(&message.body);
        let mut body = json!({
            "id": id, "target": job.target, "broker": job.broker,
            "headers": { NOTE_HEADER: note }, "body": text,
        });
        if let Some(Debounce { delay_ms, max_wait_ms }) = job.debounce {
            (body["for"], body["max_wait"]) = (delay_ms.into(), max_wait_ms.into());
            body["on_conflict"] = "debounce".into();
        } else {
            body["until"] = job.due_ms.into();
        }
        let path = "/v1/jobs".to_owned();
        Call { method: Method::POST, path, body: body.to_string(), reply: None }
    }

    /// A control request.
    pub(super) fn control(id: &str, plan: &Plan) -> Call {
        // The message that a consumer's word is about.
        let seen = || {
            plan.seen.map_or_else(String::new, |seen| {
                json!({ "due_ms": seen.due_ms, "attempt": seen.attempt }).to_string()
            })
        };
        let (method, word, body) = match plan.action {
            Action::Cancel => (Method::DELETE, "", String::new()),
            Action::Fire => (Method::POST, "/fire", String::new()),
            Action::Finish => (Method::POST, "/finish", seen()),
            Action::Fail => (Method::POST, "/fail", seen()),
            // Of schedules. The answer is the schedule, and no verdict.
            Action::Pause | Action::Resume => {
                let path = format!("/v1/schedules/{id}/{}", plan.action.as_str());
                return Call { method: Method::POST, path, body: String::new(), reply: None };
            }
            Action::Reschedule => {
                (Method::PATCH, "", json!({ "until": plan.due_ms.unwrap_or(0) }).to_string())
            }
        };
        let reply = Reply {
            id: id.to_owned(),
            action: plan.action.as_str().to_owned(),
            res: String::new(),
            number: plan.seen.map(|seen| seen.number),
        };
        Call { method, path: format!("/v1/jobs/{id}{word}"), body, reply: Some(reply) }
    }

    /// Makes the call, and records its begin and its result.
    pub(super) async fn make(self, at: SocketAddr, proc: String, op: Op, recorder: Arc<Recorder>) {
        recorder.record(&proc, Phase::Invoke, op.clone());
        let read = if self.reply.is_none() { taken } else { verdict };
        let mut link = Link::at(at);
        let (phase, res) = match clock::timeout(TIMEOUT, link.connect()).await {
            // Not sent: nothing listens.
            Some(Err(error)) => (Phase::Fail, error.to_string()),
            None => (Phase::Fail, "no connection in time".to_owned()),
            Some(Ok(())) => {
                let call = link.call(self.method, &self.path, self.body);
                match clock::timeout(TIMEOUT, call).await {
                    Some(Ok((status, answer))) => read(status, &String::from_utf8_lossy(&answer)),
                    Some(Err(error)) => (Phase::Info, error.to_string()),
                    None => (Phase::Info, "no answer in time".to_owned()),
                }
            }
        };
        let op = match self.reply {
            Some(reply) if phase == Phase::Ok => Op::Reply(Reply { res, ..reply }),
            _ => with_result(op, res),
        };
        recorder.record(&proc, phase, op);
    }
}

/// Whether the request was carried out, if the answer says so.
fn taken(status: u16, body: &str) -> (Phase, String) {
    match status {
        200 | 201 => (Phase::Ok, status.to_string()),
        400 | 404 | 409 | 413 | 422 => (Phase::Fail, body.to_owned()),
        _ => (Phase::Info, status.to_string()),
    }
}

/// A body with a verdict, or with the error of an unreadable job, is an answer, whatever the
/// status; anything else is unknown.
fn verdict(status: u16, body: &str) -> (Phase, String) {
    let said: Value = serde_json::from_str(body).unwrap_or_default();
    match said["verdict"].as_str().or(said["code"].as_str().filter(|code| *code == UNREADABLE)) {
        Some(verdict) => (Phase::Ok, verdict.to_owned()),
        None => (Phase::Info, format!("{status} {body}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_taken_where_an_answer_says_so_and_refused_likewise() {
        for (status, phase) in
            [(200, Phase::Ok), (201, Phase::Ok), (400, Phase::Fail), (503, Phase::Info)]
        {
            assert_eq!(taken(status, "{}").0, phase);
        }
    }

    #[test]
    fn only_an_answer_with_a_verdict_is_one() {
        let of = |status, body| {
            let (phase, word) = verdict(status, body);
            (phase == Phase::Ok).then_some(word)
        };
        assert_eq!(of(409, r#"{"id":"x","verdict":"fired"}"#).as_deref(), Some("fired"));
        assert_eq!(of(409, r#"{"code":"unreadable_job"}"#).as_deref(), Some(UNREADABLE));
        for other in ["", r#"{"verdict":"canc"#, r#"{"title":"x"}"#] {
            assert_eq!(of(503, other), None, "{other}");
        }
    }
}
