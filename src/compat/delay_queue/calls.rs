//! `/push`, `/pop`, `/finish`, `/delete` and `/get`

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::job::{Form, Pushed, topics};
use super::{Answer, Call, DelayQueue, Failed, panicked};
use crate::compat::access::allow;
use crate::compat::service::{PopCall, Refusal, Service};
use crate::config::Scope;
use crate::consumers::PoppedJobs;
use crate::http::api::caller::Caller;
use crate::http::server::trace::of_consumers;
use crate::request::OwnQueues;
use crate::store::error::StoreError;

/// The longest wait of a pop for a job: that of delay-queue, whose clients wait 200 s.
const POP_WAIT: Duration = Duration::from_secs(178);

/// Answers a pop in one of the forms.
pub(super) type PopAnswer = fn(&Service, Result<PoppedJobs, StoreError>) -> Response;

/// A job that is handed out.
#[derive(Serialize)]
struct Handed<'a> {
    id: &'a str,
    body: &'a str,
}

/// A job that is looked at.
#[derive(Serialize)]
struct JobView<'a> {
    topic: &'a str,
    id: &'a str,
    /// When the job is due, epoch s.
    delay: i64,
    /// s
    ttr: u32,
    body: &'a str,
}

/// Stores a job.
pub(super) async fn push(State(state): State<DelayQueue>, call: Call) -> Result<Response, Failed> {
    let pushed = Pushed::read(&call.fields, Form::Push)?;
    allow(&call.caller, Scope::Schedule, &pushed.topic)?;
    state.push(&call.caller, pushed).await?;
    Ok(done())
}

/// Hands out one ready job of the first topic that has one. Waits until there is one.
pub(super) async fn pop(State(state): State<DelayQueue>, call: Call) -> Result<Response, Failed> {
    state.pop(&call, topics(&call.fields.text("topic")?)?, handed).await
}

/// Ends a job in any state. An unknown job is no error.
pub(super) async fn delete(
    State(state): State<DelayQueue>,
    call: Call,
) -> Result<Response, Failed> {
    state.end(&call.caller, &call.fields.text("id")?).await?;
    Ok(of_consumers(done()))
}

/// Shows a job in any state.
pub(super) async fn get(State(state): State<DelayQueue>, call: Call) -> Result<Response, Failed> {
    let Some(found) = state.find(&call.fields.text("id")?).await? else {
        return Ok(of_consumers(done()));
    };
    let (job, due_ms) =
        (found.job(), found.state_record.as_ref().map_or(found.score_ms, |state| state.due_ms));
    let topic = job.queue().unwrap_or_default();
    allow(&call.caller, Scope::Read, topic)?;
    let body = String::from_utf8_lossy(&job.body);
    let shown = JobView {
        topic,
        id: found.id.as_str(),
        delay: due_ms.div_euclid(1000),
        ttr: job.ttr_ms / 1000,
        body: &body,
    };
    Ok(of_consumers(Json(Answer::done(Some(shown)))))
}

/// The answer that hands out a job, if there is one.
fn handed(service: &Service, popped: Result<PoppedJobs, StoreError>) -> Response {
    let popped = match popped {
        Ok(popped) => popped,
        Err(error) => return Failed::from(error).into_response(),
    };
    let Some(job) = popped.first() else { return of_consumers(done()) };
    let (id, body) =
        (job.id.as_str().to_owned(), String::from_utf8_lossy(&job.record.job.body).into_owned());
    of_consumers(service.hand_out(&Answer::done(Some(Handed { id: &id, body: &body })), popped))
}

fn done() -> Response {
    Json(Answer::<()>::done(None)).into_response()
}

impl DelayQueue {
    /// Answers with a job of these topics by `answer`.
    pub(super) async fn pop(
        &self,
        call: &Call,
        topics: Vec<String>,
        answer: PopAnswer,
    ) -> Result<Response, Failed> {
        for topic in &topics {
            allow(&call.caller, Scope::Consume, topic)?;
            if self.service.queue(topic).is_none() {
                return Err(Failed::new(Refusal::Undeclared.text(topic)));
            }
        }
        let share = call.share.clone();
        let asked = PopCall { queues: topics, max: 1, wait: POP_WAIT, ttr_ms: None, share };
        Ok(self.service.pop(asked, answer, panicked).await)
    }

    pub(super) async fn end(&self, caller: &Caller, id: &str) -> Result<(), Failed> {
        let Some(found) = self.find(id).await? else { return Ok(()) };
        allow(caller, Scope::Consume, found.job().queue().unwrap_or_default())?;
        // The job of this id may be another one by now.
        Ok(self.service.end(&found, &caller.own_queues().unwrap_or_else(OwnQueues::any)).await?)
    }
}
