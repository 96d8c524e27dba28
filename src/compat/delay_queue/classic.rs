//! `/`: the older form, a single URL with a command in the body.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::job::{Form, Pushed, topics};
use super::{Call, DelayQueue, Failed};
use crate::compat::access::allow;
use crate::compat::service::Service;
use crate::config::Scope;
use crate::consumers::PoppedJobs;
use crate::http::server::trace::of_consumers;
use crate::store::error::StoreError;
use crate::units::quote;

/// The answer to a command.
#[derive(Debug, Serialize)]
struct Answer<'a> {
    success: bool,
    error: &'a str,
    id: &'a str,
    /// The body of a job that is handed out.
    value: &'a str,
}

impl<'a> Answer<'a> {
    fn done(id: &'a str, value: &'a str) -> Self {
        Answer { success: true, error: "", id, value }
    }
}

/// Carries out a command.
pub(super) async fn call(State(state): State<DelayQueue>, call: Result<Call, Failed>) -> Response {
    let answer = match call {
        Ok(call) => carry_out(&state, &call).await,
        Err(failed) => Err(failed),
    };
    answer.unwrap_or_else(refused)
}

fn refused(Failed { status, text }: Failed) -> Response {
    (status, Json(Answer { success: false, error: &text, id: "", value: "" })).into_response()
}

async fn carry_out(state: &DelayQueue, call: &Call) -> Result<Response, Failed> {
    let Call { caller, fields, .. } = call;
    let id = fields.text("id")?;
    match fields.text("command")?.as_str() {
        "add" => {
            let pushed = Pushed::read(fields, Form::Classic)?;
            allow(caller, Scope::Schedule, &pushed.topic)?;
            state.push(caller, pushed).await?;
        }
        "pop" => return state.pop(call, topics(&fields.text("topic")?)?, handed).await,
        "finish" | "delete" => {
            state.end(caller, &id).await?;
            return Ok(of_consumers(Json(Answer::done(&id, ""))));
        }
        other => {
            return Err(Failed::new(format!(
                "command {} is not one of add, pop, finish, delete",
                quote(other)
            )));
        }
    }
    Ok(Json(Answer::done(&id, "")).into_response())
}

/// The answer that hands out a job, if there is one.
fn handed(service: &Service, popped: Result<PoppedJobs, StoreError>) -> Response {
    let popped = match popped {
        Ok(popped) => popped,
        Err(error) => return refused(error.into()),
    };
    let Some(job) = popped.first() else { return of_consumers(Json(Answer::done("", ""))) };
    let (id, body) =
        (job.id.as_str().to_owned(), String::from_utf8_lossy(&job.record.job.body).into_owned());
    of_consumers(service.hand_out(&Answer::done(&id, &body), popped))
}
