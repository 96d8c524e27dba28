//! Who may call the listeners, and what. With tokens, their bearers. Without, callers on this host
//! that address it by a loopback name, and no page of another origin: calls of these protocols
//! change something by any method.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::config::{Scope, Token};
use crate::http::guard;

/// The tokens. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Access(Arc<Vec<Bearer>>);

/// A token and what it is for.
#[derive(Debug)]
struct Bearer {
    /// The hash of the token: comparing hashes takes constant time for any input length.
    secret: blake3::Hash,
    /// The name in the settings and the rights; `None` for the token that may do everything.
    rights: Option<(String, Token)>,
}

/// Why a call is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Denied {
    /// It has no token.
    Missing,
    /// No token of the settings is this one.
    Unknown,
    /// The token is for other queues or other calls; what it lacks.
    Forbidden(String),
}

/// Who makes a call.
#[derive(Debug, Clone)]
pub(super) struct Caller(Option<(Arc<Vec<Bearer>>, usize)>);

impl Access {
    /// The token that may do everything, if there is one, and those of applications.
    #[must_use]
    pub fn new<'a>(whole: Option<&str>, tokens: impl IntoIterator<Item = (&'a String, &'a Token)>) -> Self {
        let hash = |text: &str| blake3::hash(text.as_bytes());
        let whole = whole.map(|text| Bearer { secret: hash(text), rights: None });
        let named = tokens
            .into_iter()
            .map(|(name, token)| Bearer { secret: hash(token.secret.expose()), rights: Some((name.clone(), token.clone())) });
        Access(Arc::new(whole.into_iter().chain(named).collect()))
    }

    /// Whether every caller on this host may do everything.
    pub(super) fn is_open(&self) -> bool {
        self.0.is_empty()
    }

    /// The caller that sent this token.
    pub(super) fn caller(&self, sent: &str) -> Result<Caller, Denied> {
        if self.is_open() {
            return Ok(Caller(None));
        }
        if sent.is_empty() {
            return Err(Denied::Missing);
        }
        let sent = blake3::hash(sent.as_bytes());
        let found = self.0.iter().position(|bearer| bearer.secret == sent).ok_or(Denied::Unknown)?;
        Ok(Caller(Some((self.0.clone(), found))))
    }
}

impl Caller {
    fn rights(&self) -> Option<&(String, Token)> {
        self.0.as_ref().and_then(|(bearers, at)| bearers.get(*at)?.rights.as_ref())
    }

    /// The name of the caller's token in the settings.
    pub(super) fn name(&self) -> Option<&str> {
        self.rights().map(|(name, _)| name.as_str())
    }

    /// Whether the caller may make such calls for this queue.
    pub(super) fn may(&self, scope: Scope, queue: &str) -> Result<(), Denied> {
        let Some((name, token)) = self.rights() else { return Ok(()) };
        if !token.may(scope) {
            return Err(Denied::Forbidden(format!("http.tokens.{name}.may does not have {}", word(scope))));
        }
        if !token.has_queue(queue) {
            return Err(Denied::Forbidden(format!("http.tokens.{name}.queues does not have {queue}")));
        }
        Ok(())
    }
}

fn word(scope: Scope) -> &'static str {
    match scope {
        Scope::Schedule => "`schedule`",
        Scope::Consume => "`consume`",
        Scope::Read => "`read`",
        Scope::Act => "`act`",
    }
}

/// Refuses callers from elsewhere while there are no tokens.
pub(super) async fn guard(State(access): State<Access>, request: Request, next: Next) -> Response {
    let problem = if access.is_open() { guard::refuses_open(&Method::POST, request.uri(), request.headers()) } else { None };
    match problem {
        None => next.run(request).await,
        Some(problem) => problem.into_response(),
    }
}
