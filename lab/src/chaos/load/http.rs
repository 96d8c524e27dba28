//! One call of the admin API. A lost answer is not repeated.

use std::net::SocketAddr;
use std::time::Duration;

use dwell::clock;
use dwell_connectors::Message;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::draw::{Action, NOTE_HEADER, Plan};
use crate::chaos::history::{Job, UNREADABLE};

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
    let (line, body) = match (plan.action, plan.due_ms) {
        (Action::Cancel, _) => (format!("DELETE /v1/jobs/{id}"), String::new()),
        (Action::Fire, _) => (format!("POST /v1/jobs/{id}/fire"), String::new()),
        (Action::Finish | Action::Fail, _) => {
            let seen =
                plan.seen.map(|seen| json!({ "due_ms": seen.due_ms, "attempt": seen.attempt }));
            (
                format!("POST /v1/jobs/{id}/{}", plan.action.as_str()),
                seen.unwrap_or_else(|| json!({})).to_string(),
            )
        }
        (Action::Reschedule, due_ms) => {
            (format!("PATCH /v1/jobs/{id}"), json!({ "until": due_ms.unwrap_or(0) }).to_string())
        }
    };
    asked(instance, &line, &body, verdict).await
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
    asked(instance, "POST /v1/jobs", &new.to_string(), taken).await
}

/// Whether the job was taken, if the answer says so.
fn taken(answer: &str) -> Answer {
    let line = answer.lines().next().unwrap_or("nothing");
    let whole = answer.contains("\r\n\r\n");
    match line.split(' ').nth(1) {
        Some("201") if whole => Answer::Verdict("added".to_owned()),
        Some("400" | "409" | "413" | "422") if whole => Answer::Never(answer.to_owned()),
        _ => Answer::Unknown(line.to_owned()),
    }
}

async fn asked(instance: SocketAddr, line: &str, body: &str, read: fn(&str) -> Answer) -> Answer {
    let connecting = clock::timeout(TIMEOUT, TcpStream::connect(instance));
    let link = match connecting.await {
        Some(Ok(link)) => link,
        Some(Err(error)) => return Answer::Never(error.to_string()),
        None => return Answer::Never("no connection in time".to_owned()),
    };
    match clock::timeout(TIMEOUT, call(link, line, body)).await {
        Some(Ok(answer)) => read(&answer),
        Some(Err(error)) => Answer::Unknown(error.to_string()),
        None => Answer::Unknown("no answer in time".to_owned()),
    }
}

async fn call(mut link: TcpStream, line: &str, body: &str) -> std::io::Result<String> {
    let head = "host: localhost\r\ncontent-type: application/json\r\nconnection: close";
    let request =
        format!("{line} HTTP/1.1\r\n{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    link.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    link.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// A body with a verdict, or with the error of an unreadable job, is an answer, whatever the
/// status; anything else is unknown.
fn verdict(answer: &str) -> Answer {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
    let said = serde_json::from_str::<serde_json::Value>(body).ok();
    let word = |name: &str| said.as_ref().and_then(|said| said[name].as_str());
    match word("verdict").or(word("code").filter(|code| *code == UNREADABLE)) {
        Some(verdict) => Answer::Verdict(verdict.to_owned()),
        None => Answer::Unknown(format!("{} {body}", head.lines().next().unwrap_or("nothing"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_taken_where_a_whole_answer_says_so_and_refused_likewise() {
        assert!(matches!(taken("HTTP/1.1 201 Created\r\n\r\n{}"), Answer::Verdict(_)));
        assert!(matches!(taken("HTTP/1.1 400 Bad Request\r\n\r\n{}"), Answer::Never(_)));
        for other in ["", "HTTP/1.1 201 Cr", "HTTP/1.1 503 Service Unavailable\r\n\r\n{}"] {
            assert!(matches!(taken(other), Answer::Unknown(_)), "{other}");
        }
    }

    #[test]
    fn only_a_whole_answer_with_a_verdict_is_one() {
        let of = |answer: &str| match verdict(answer) {
            Answer::Verdict(word) => Some(word),
            Answer::Never(_) | Answer::Unknown(_) => None,
        };
        assert_eq!(
            of("HTTP/1.1 409 Conflict\r\na: b\r\n\r\n{\"id\":\"x\",\"verdict\":\"fired\"}")
                .as_deref(),
            Some("fired")
        );
        assert_eq!(
            of("HTTP/1.1 409 Conflict\r\n\r\n{\"code\":\"unreadable_job\"}").as_deref(),
            Some(UNREADABLE)
        );
        for other in [
            "",
            "HTTP/1.1 200 OK\r\n\r\n{\"verdict\":\"canc",
            "HTTP/1.1 503 Service Unavailable\r\n\r\n{\"title\":\"x\"}",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
