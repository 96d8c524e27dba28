//! `GET`, `PUT` and `DELETE …/deadletter`, and `GET …/deadletter/size`

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};

use super::Lmstfy;
use super::answer::Error;
use super::call::{Call, Counted};
use super::query::Query;
use crate::compat::service::Refusal;
use crate::config::Scope;
use crate::job::{Expire, Job};
use crate::store::reader::lookup::JobState;

/// The most dead jobs that are read at once.
const MAX_PAGE_JOBS: usize = 100;

/// The number of dead jobs and the id of the first one.
pub(super) async fn peek(State(lmstfy): State<Lmstfy>, call: Call) -> Result<Json<Value>, Error> {
    let named = call.allow(Scope::Read)?;
    let queue = lmstfy.declared(named)?;
    let size = lmstfy.service.count(&queue, JobState::Dead).await?;
    let first = lmstfy.service.dead(&queue, 1).await?.into_iter().next();
    let head = first.map(|job| job.id.as_str().to_owned()).unwrap_or_default();
    Ok(Json(
        json!({ "namespace": named.namespace, "queue": named.queue, "deadletter_size": size, "deadletter_head": head }),
    ))
}

/// The number of dead jobs. As with lmstfy, this call needs no token.
pub(super) async fn size(
    State(lmstfy): State<Lmstfy>,
    Counted { named, is_known }: Counted,
) -> Result<Json<Value>, Error> {
    let queue = lmstfy.declared(&named)?;
    let size = lmstfy.sizes.of(&lmstfy.service, queue, JobState::Dead, is_known).await?;
    Ok(Json(json!({ "namespace": named.namespace, "queue": named.queue, "size": size })))
}

/// Makes dead jobs ready again, each for one try.
pub(super) async fn respawn(
    State(lmstfy): State<Lmstfy>,
    call: Call,
    query: Query,
) -> Result<Json<Value>, Error> {
    let queue = call.allow(Scope::Act)?.full();
    let (limit, ttl) = (query.limit()?, query.respawned_ttl()?);
    if lmstfy.service.queue(&queue).is_none() {
        return Err(Error::refused(Refusal::Undeclared, &queue));
    }
    let mut count = 0;
    while count < limit {
        let page = lmstfy.service.dead(&queue, MAX_PAGE_JOBS.min(limit - count)).await?;
        let mut respawned = 0;
        for dead in page {
            // The list has no bodies.
            let found = lmstfy.service.find(Some(&queue), dead.id.as_str()).await?;
            let Some(found) = found.filter(|found| found.state == JobState::Dead) else { continue };
            let span_ms = i64::try_from(ttl.saturating_mul(1000)).unwrap_or(i64::MAX);
            let remove_at_ms = (ttl > 0).then(|| lmstfy.service.now_ms().saturating_add(span_ms));
            let job = found.record.job;
            // A fixed expiry that is over has no meaning for a job that begins anew, as with a requeue.
            let now_ms = lmstfy.service.now_ms();
            let expire = job
                .expire
                .filter(|expire| !matches!(expire, Expire::At(at_ms) if *at_ms <= now_ms));
            let job = Job { tries: Some(1), remove_at_ms, expire, ..job };
            respawned += usize::from(lmstfy.service.revive(found.id, job).await?);
        }
        count += respawned;
        // The rest is dead no more, by another call.
        if respawned == 0 {
            break;
        }
    }
    tracing::info!(queue, count, "dead jobs respawned");
    Ok(Json(json!({ "msg": "respawned", "count": count })))
}

/// Ends dead jobs.
pub(super) async fn delete(
    State(lmstfy): State<Lmstfy>,
    call: Call,
    query: Query,
) -> Result<StatusCode, Error> {
    let queue = call.allow(Scope::Act)?.full();
    let limit = query.limit()?;
    let mut count = 0;
    while count < limit && lmstfy.service.queue(&queue).is_some() {
        let page = lmstfy.service.dead(&queue, MAX_PAGE_JOBS.min(limit - count)).await?;
        if page.is_empty() {
            break;
        }
        count += page.len();
        lmstfy.service.end_dead(&queue, page).await?;
    }
    tracing::info!(queue, count, "dead jobs removed");
    Ok(StatusCode::NO_CONTENT)
}
