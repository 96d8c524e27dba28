//! The callers of the listeners: bearers of a token of `[http]`, which these protocols send in
//! their own ways. Without tokens, callers on this host may call if they address it by a loopback
//! name, and no page of another origin: calls of these protocols change something by any method.

use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::config::Scope;
use crate::http::api::caller::Caller;
use crate::http::api::guard::{Guard, refuses_open};

/// The tokens. Clones share them.
#[derive(Clone)]
pub struct Access(Guard);

/// Why a call is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Denied {
    /// It has no token.
    Missing,
    /// No token of the settings is this one.
    Unknown,
    /// The token is for other queues or other calls; the text names the missing right.
    Forbidden(String),
}

impl Access {
    /// The tokens of this guard.
    #[must_use]
    pub fn new(guard: Guard) -> Self {
        Access(guard)
    }

    /// The caller that sent this token. Notes the name of the token for the log.
    pub(super) fn caller(&self, sent: &str) -> Result<Caller, Denied> {
        if self.0.is_open() {
            return Ok(Caller::anyone());
        }
        if sent.is_empty() {
            return Err(Denied::Missing);
        }
        let caller = self.0.bearer(sent.as_bytes()).ok_or(Denied::Unknown)?;
        if let Some(name) = caller.name() {
            tracing::Span::current().record("token", name);
        }
        Ok(caller)
    }
}

/// Whether the caller may make such calls for this queue.
pub(super) fn allow(caller: &Caller, scope: Scope, queue: &str) -> Result<(), Denied> {
    let checked = caller.check_scope(scope).and_then(|()| caller.check_queue(queue));
    checked.map_err(|problem| Denied::Forbidden(problem.detail().to_owned()))
}

/// Refuses callers from elsewhere while there are no tokens.
pub(super) async fn guard(State(access): State<Access>, request: Request, next: Next) -> Response {
    let problem = if access.0.is_open() {
        refuses_open(&Method::POST, request.uri(), request.headers())
    } else {
        None
    };
    match problem {
        None => next.run(request).await,
        Some(problem) => problem.into_response(),
    }
}
