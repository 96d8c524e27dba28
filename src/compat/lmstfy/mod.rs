//! The protocol of lmstfy's workers, on `[compat] lmstfy`. The queue `q` of the namespace `n` is
//! the queue `n.q`.
//!
//! - `publish`, `consume`, `inspect`, `dead_letter`: the calls.
//! - `call`: the queue or job that a call names, and its caller; `query`: its numbers; `answer`:
//!   jobs and errors as lmstfy writes them; `ids`: the ids of jobs; `sizes`: the counts that need
//!   no token.
//!
//! The calls of lmstfy's admin port are not here: tokens are settings.

mod answer;
mod call;
mod consume;
mod dead_letter;
mod ids;
mod inspect;
mod publish;
mod query;
mod sizes;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware;
use axum::routing::{delete, get, put};

use self::answer::Error;
use self::ids::Ids;
use self::sizes::Sizes;
use super::access::{self, Access};
use super::around;
use super::service::Service;

/// The state that the calls share.
#[derive(Clone)]
pub(super) struct Lmstfy {
    service: Service,
    access: Access,
    ids: Arc<Ids>,
    sizes: Arc<Sizes>,
}

/// The calls of lmstfy.
pub fn router(service: Service, access: Access) -> Router {
    let limit = usize::try_from(service.rules().limits.max_body.bytes()).unwrap_or(usize::MAX);
    let guard = access.clone();
    let lmstfy = Lmstfy { service, access, ids: Arc::default(), sizes: Arc::default() };
    let calls = Router::new()
        .route(
            "/api/{namespace}/{queue}",
            put(publish::publish).get(consume::consume).delete(inspect::destroy),
        )
        .route(
            "/api/{namespace}/{queue}/bulk",
            put(publish::bulk).layer(DefaultBodyLimit::max(publish::bulk_bytes(limit))),
        )
        .route(
            "/api/{namespace}/{queue}/job/{job_id}",
            put(publish::publish_again).get(inspect::job).delete(consume::acknowledge),
        )
        .route("/api/{namespace}/{queue}/peek", get(inspect::peek))
        .route("/api/{namespace}/{queue}/size", get(inspect::size))
        .route(
            "/api/{namespace}/{queue}/deadletter",
            get(dead_letter::peek).put(dead_letter::respawn),
        )
        .route("/api/{namespace}/{queue}/deadletter", delete(dead_letter::delete))
        .route("/api/{namespace}/{queue}/deadletter/size", get(dead_letter::size))
        .fallback(async || Error::no_such_call())
        .method_not_allowed_fallback(async || Error::no_such_call())
        // A larger body is refused by the calls in their own words.
        .layer(DefaultBodyLimit::max(limit.saturating_add(1)))
        .layer(middleware::from_fn_with_state(guard, access::guard))
        .with_state(lmstfy);
    around(calls, answer::panicked)
}
