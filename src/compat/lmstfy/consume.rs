//! `GET /api/:namespace/:queue[,:queue…]` and `DELETE /api/:namespace/:queue/job/:job_id`

use std::time::Duration;

use axum::extract::State;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};

use super::Lmstfy;
use super::answer::{Error, View, left, panicked};
use super::call::{Call, Consumption, Named};
use super::query::Query;
use crate::clock;
use crate::compat::service::{PopCall, Service};
use crate::config::Scope;
use crate::consumers::PoppedJobs;
use crate::http::server::trace::of_consumers;
use crate::http::server::waits::WaitShare;
use crate::request::OwnQueues;
use crate::store::error::StoreError;
use crate::store::jobs::pop::Popped;

/// The longest wait of a consumer of a queue that is not declared: consumers ask again at once.
const MAX_UNDECLARED_WAIT: Duration = Duration::from_secs(1);

/// Hands out ready jobs: one as an object, or up to `count` as an array.
pub(super) async fn consume(
    State(lmstfy): State<Lmstfy>,
    call: Consumption,
    method: Method,
    share: WaitShare,
    query: Query,
) -> Result<Response, Error> {
    // Nobody would get the jobs.
    if method == Method::HEAD {
        return Err(Error::no_such_call());
    }
    let (ttr, timeout, count) = (query.ttr()?, query.timeout()?, query.count()?);
    let wait = Duration::from_secs(timeout.into());
    let queues: Vec<String> = call.queues.iter().map(Named::full).collect();
    if let Some(queue) = queues.iter().find(|queue| lmstfy.service.queue(queue).is_none()) {
        tracing::warn!(queue, "a consumer asks for a queue that the settings do not declare");
        clock::sleep(wait.min(MAX_UNDECLARED_WAIT)).await;
        return Err(Error::undeclared(queue));
    }
    // A lease of no time is over at once.
    let ttr_ms = (u64::from(ttr) * 1000).max(1);
    let (asked, namespace) = (
        PopCall { queues: queues.clone(), max: count, wait, ttr_ms: Some(ttr_ms), share },
        call.namespace,
    );
    let answer = move |service: &Service, popped: Result<PoppedJobs, StoreError>| {
        popped
            .map_err(Error::from)
            .and_then(|popped| handed(service, &namespace, &queues, count, popped))
            .into_response()
    };
    Ok(lmstfy.service.pop(asked, answer, panicked).await)
}

/// The answer that hands out these jobs of a namespace.
fn handed(
    service: &Service,
    namespace: &str,
    queues: &[String],
    count: usize,
    popped: PoppedJobs,
) -> Result<Response, Error> {
    let now_ms = service.now_ms();
    // The queues in their order, and of each the oldest first: they come by buckets.
    let mut in_order: Vec<&Popped> = popped.iter().collect();
    in_order.sort_by_key(|job| {
        (
            queues.iter().position(|queue| Some(queue.as_str()) == job.record.job.queue()),
            job.due_ms(),
            &job.id,
        )
    });
    let views: Vec<View<'_>> = in_order
        .iter()
        .map(|job| {
            View::new(
                namespace,
                &job.id,
                &job.record.job,
                left(&job.record.job, job.state.step),
                now_ms,
            )
            .handed()
        })
        .collect();
    let text = match views.first() {
        None => return Err(Error::no_job()),
        Some(view) if count == 1 => serde_json::value::to_raw_value(view),
        Some(_) => serde_json::value::to_raw_value(&views),
    };
    Ok(service.hand_out(&text.map_err(|_| Error::bug())?, popped))
}

/// Ends a job, in whatever state it is. Always 204: the job is not there afterwards.
pub(super) async fn acknowledge(
    State(lmstfy): State<Lmstfy>,
    call: Call,
) -> Result<Response, Error> {
    let named = call.allow(Scope::Consume)?;
    lmstfy.end(named, &call.job).await?;
    Ok(of_consumers(StatusCode::NO_CONTENT))
}

impl Lmstfy {
    /// Ends the job of this id if it belongs to this queue.
    pub(super) async fn end(&self, named: &Named, id: &str) -> Result<(), Error> {
        let queue = named.full();
        if let Some(found) = self.service.find(Some(&queue), id).await? {
            self.service.end(&found, &OwnQueues::new([queue.as_str()])).await?;
        }
        Ok(())
    }
}
