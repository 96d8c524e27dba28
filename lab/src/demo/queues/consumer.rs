//! A consumer of the demo: fetches the jobs of one queue and ends their leases.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dwell::clock;
use dwell_testkit::environment::Result;
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedSender;

use crate::demo::api::Api;
use crate::demo::event::{End, Fetched, HandOut, Seen};

/// The longest hold of a pop until a job is there.
const POP_WAIT: &str = "20s";
/// Why an attempt fails, as its consumer says.
const ERROR: &str = "the printer has no paper";

/// The treatment of jobs by a consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// Finishes each.
    Finish,
    /// Fails the attempts below this one.
    FailBelow(u32),
    /// Says nothing of a first attempt, and finishes that lease when it is over.
    SilentAtFirst,
}

/// Fetches and treats jobs until it is dropped, or fails.
pub(super) async fn run(
    api: Api,
    queue: &'static str,
    manner: Manner,
    seen: UnboundedSender<Seen>,
) {
    if let Err(failure) = consume(&api, queue, manner, &seen).await {
        // The receiver is gone once the demo has ended.
        let _ = seen.send(Err(failure));
    }
}

async fn consume(
    api: &Api,
    queue: &str,
    manner: Manner,
    seen: &UnboundedSender<Seen>,
) -> Result<()> {
    let mut silent: Option<Fetched> = None;
    loop {
        let path = format!("/v1/queues/{queue}/pop");
        let answer = api.post(&path, &json!({ "max": 10, "wait": POP_WAIT })).await?;
        let at_us = clock::wall_us();
        let jobs = answer.json["jobs"].as_array().ok_or_else(|| answer.unexpected(&path))?;
        for job in jobs {
            let job = fetched(job).ok_or_else(|| answer.unexpected(&path))?;
            if manner == Manner::SilentAtFirst && job.attempt == 1 {
                silent = Some(job.clone());
                let _ = seen.send(HandOut::seen(job, at_us, End::Silent));
                continue;
            }
            if let Some(job) = silent.take() {
                let verdict = say(api, "finish", &job, None).await?.0;
                let _ = seen.send(HandOut::seen(job, at_us, End::Late { verdict }));
            }
            let end = treat(api, manner, &job).await?;
            let _ = seen.send(HandOut::seen(job, at_us, end));
        }
    }
}

async fn treat(api: &Api, manner: Manner, job: &Fetched) -> Result<End> {
    let word = if matches!(manner, Manner::FailBelow(attempt) if job.attempt < attempt) {
        "fail"
    } else {
        "finish"
    };
    let (verdict, due_ms) = say(api, word, job, (word == "fail").then_some(ERROR)).await?;
    Ok(match (word, verdict.as_str()) {
        ("finish", "finished") => End::Finished,
        ("fail", "failed") => End::Failed { error: ERROR, due_ms: due_ms.unwrap_or(0) },
        ("fail", "dead") => End::Dead { error: ERROR },
        _ => End::Odd { word, verdict },
    })
}

/// A word on a lease: the verdict, and when the job is due again.
async fn say(
    api: &Api,
    word: &str,
    job: &Fetched,
    error: Option<&str>,
) -> Result<(String, Option<i64>)> {
    let mut lease = json!({ "id": job.id, "lease": job.lease });
    if let Some(error) = error {
        lease["error"] = error.into();
    }
    let answer = api.post("/v1/leases", &json!({ word: [lease] })).await?;
    let result = &answer.json["results"][0];
    let verdict = result["verdict"].as_str().ok_or_else(|| answer.unexpected("POST /v1/leases"))?;
    Ok((verdict.to_owned(), result["due_ms"].as_i64()))
}

fn fetched(job: &Value) -> Option<Fetched> {
    let text = |name: &str| job[name].as_str().map(str::to_owned);
    let body = match text("body") {
        Some(body) => body.into_bytes(),
        None => STANDARD.decode(text("body_base64")?).ok()?,
    };
    Some(Fetched {
        id: text("id")?,
        queue: text("queue")?,
        lease: text("lease")?,
        attempt: u32::try_from(job["attempt"].as_u64()?).ok()?,
        due_ms: job["due_ms"].as_i64()?,
        deadline_ms: job["deadline_ms"].as_i64()?,
        body,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_fetched_job_is_read_with_its_bytes() {
        let mut job = json!({ "id": "a", "queue": "q", "lease": "l", "attempt": 2, "due_ms": 5, "deadline_ms": 9, "headers": {}, "body": "x" });
        assert_eq!(fetched(&job).unwrap().body, b"x");
        job.as_object_mut().unwrap().remove("body");
        assert!(fetched(&job).is_none(), "a job without a body");
        job["body_base64"] = "AP8=".into();
        let read = fetched(&job).unwrap();
        assert_eq!((read.body, read.attempt, read.deadline_ms), (vec![0, 255], 2, 9));
    }
}
