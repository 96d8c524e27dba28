//! `GET …/peek`, `GET …/job/:job_id`, `GET …/size` and `DELETE /api/:namespace/:queue`

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::Lmstfy;
use super::answer::{Error, View};
use super::call::{Call, Counted, Named};
use crate::config::Scope;
use crate::store::reader::lookup::JobState;

/// The ready job that has waited the longest. It stays.
pub(super) async fn peek(State(lmstfy): State<Lmstfy>, call: Call) -> Result<Response, Error> {
    let named = call.allow(Scope::Read)?;
    let queue = lmstfy.declared(named)?;
    let found =
        lmstfy.service.head(&queue).await?.ok_or_else(|| Error::not_found("the queue is empty"))?;
    Ok(Json(View::of(&named.namespace, &found, lmstfy.service.now_ms())).into_response())
}

/// A job in any state.
pub(super) async fn job(State(lmstfy): State<Lmstfy>, call: Call) -> Result<Response, Error> {
    let named = call.allow(Scope::Read)?;
    let queue = lmstfy.declared(named)?;
    let found = lmstfy
        .service
        .find(Some(&queue), &call.job)
        .await?
        .ok_or_else(|| Error::not_found("job not found"))?;
    Ok(Json(View::of(&named.namespace, &found, lmstfy.service.now_ms())).into_response())
}

/// The number of ready jobs. As with lmstfy, this call needs no token.
pub(super) async fn size(
    State(lmstfy): State<Lmstfy>,
    Counted { named, is_known }: Counted,
) -> Result<Json<Value>, Error> {
    let queue = lmstfy.declared(&named)?;
    let size = lmstfy.sizes.of(&lmstfy.service, queue, JobState::Ready, is_known).await?;
    Ok(Json(json!({ "namespace": named.namespace, "queue": named.queue, "size": size })))
}

/// Removes the ready jobs.
pub(super) async fn destroy(State(lmstfy): State<Lmstfy>, call: Call) -> Result<StatusCode, Error> {
    let queue = call.allow(Scope::Act)?.full();
    if lmstfy.service.queue(&queue).is_some() {
        let removed = lmstfy.service.purge_ready(&queue).await?;
        tracing::info!(queue, removed, "ready jobs removed");
    }
    Ok(StatusCode::NO_CONTENT)
}

impl Lmstfy {
    /// The name of a queue that is declared.
    pub(super) fn declared(&self, named: &Named) -> Result<String, Error> {
        let queue = named.full();
        if self.service.queue(&queue).is_some() {
            Ok(queue)
        } else {
            Err(Error::undeclared(&queue))
        }
    }
}
