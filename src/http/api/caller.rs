//! The caller: the bearer of a token, and the rights of the token.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use crate::config::{Scope, Token};
use crate::http::server::Problem;
use crate::job::Job;
use crate::request::OwnQueues;
use crate::store::reader::list::QueueFilter;
use crate::units::quote;

/// The caller. The guard puts it into the extensions of each request.
#[derive(Debug, Clone)]
pub(crate) struct Caller(Option<Arc<Bearer>>);

#[derive(Debug)]
struct Bearer {
    name: String,
    token: Token,
    /// The queues of the token, if those are not all.
    own_queues: Option<OwnQueues>,
}

impl Caller {
    /// May do everything: the bearer of `http.token_file`, or any caller where there is no token.
    pub(crate) fn anyone() -> Caller {
        Caller(None)
    }

    /// The bearer of `[http.tokens.NAME]`.
    pub(super) fn bearer(name: &str, token: Token) -> Caller {
        let own_queues =
            (!token.has_all()).then(|| OwnQueues::new(token.queues.iter().map(String::as_str)));
        Caller(Some(Arc::new(Bearer { name: name.to_owned(), token, own_queues })))
    }

    /// The name of the token, if it is an application's.
    pub(crate) fn name(&self) -> Option<&str> {
        self.0.as_ref().map(|bearer| bearer.name.as_str())
    }

    /// Refuses a call of this kind, unless the token allows it.
    pub(crate) fn check_scope(&self, scope: Scope) -> Result<(), Problem> {
        let Some(bearer) = self.0.as_ref().filter(|bearer| !bearer.token.may(scope)) else {
            return Ok(());
        };
        let word = scope.as_str();
        Err(Problem::forbidden(format!(
            "the token `{}` may not `{word}`: add `{word}` to `may` of http.tokens.{0}",
            bearer.name
        )))
    }

    /// Refuses a queue that is not the token's.
    pub(crate) fn check_queue(&self, queue: &str) -> Result<(), Problem> {
        let Some(bearer) = self.0.as_ref().filter(|bearer| !bearer.token.has_queue(queue)) else {
            return Ok(());
        };
        let (name, queue) = (&bearer.name, quote(queue));
        Err(Problem::forbidden(format!(
            "the token `{name}` has no queue {queue}: add its name or a pattern to `queues` of http.tokens.{name}"
        )))
    }

    /// Refuses a target on a broker, unless the token has all queues.
    fn check_targets(&self) -> Result<(), Problem> {
        let Some(bearer) = self.0.as_ref().filter(|bearer| !bearer.token.has_all()) else {
            return Ok(());
        };
        let name = &bearer.name;
        Err(Problem::forbidden(format!(
            "the token `{name}` has only some queues, and no target on a broker: send `queue`, or write \"*\" into `queues` of http.tokens.{name}"
        )))
    }

    /// Refuses the receiver of new jobs, a queue or else a target, if the token does not have it.
    pub(super) fn check_receiver(&self, queue: Option<&str>) -> Result<(), Problem> {
        match queue {
            Some(queue) => self.check_queue(queue),
            None => self.check_targets(),
        }
    }

    /// Whether there are jobs that the caller must not see.
    pub(super) fn is_restricted(&self) -> bool {
        self.0.as_ref().is_some_and(|bearer| bearer.own_queues.is_some())
    }

    /// The queues of the caller, if those are not all: the store leaves the jobs of others alone.
    pub(crate) fn own_queues(&self) -> Option<OwnQueues> {
        self.0.as_ref().and_then(|bearer| bearer.own_queues.clone())
    }

    /// Whether the caller may use this queue.
    pub(super) fn has_queue(&self, queue: &str) -> bool {
        self.0.as_ref().is_none_or(|bearer| bearer.token.has_queue(queue))
    }

    /// Whether the caller may know of this job.
    pub(super) fn sees(&self, job: &Job) -> bool {
        !self.is_restricted() || job.queue().is_some_and(|queue| self.has_queue(queue))
    }

    /// The queues of the caller, if those are not all.
    pub(super) fn queue_filter(&self) -> Option<QueueFilter> {
        let caller = self.clone();
        self.is_restricted().then(|| QueueFilter::new(move |queue| caller.has_queue(queue)))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        // Without the guard's word nobody may anything.
        parts.extensions.get().cloned().ok_or_else(|| Problem::forbidden("the caller is unknown"))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use axum::response::IntoResponse;
    use dwell_connectors::Destination;

    use super::*;
    use crate::config::Secret;

    fn caller(may: &[Scope], queues: &[&str]) -> Caller {
        let queues = queues.iter().map(|queue| (*queue).to_owned()).collect();
        Caller::bearer(
            "shop",
            Token {
                token: Some(Secret::new("hush".to_owned())),
                token_file: None,
                may: may.to_vec(),
                queues,
            },
        )
    }

    #[test]
    fn no_scope_implies_another() {
        for scope in Scope::ALL {
            let caller = caller(&[scope], &["*"]);
            let allowed: Vec<Scope> =
                Scope::ALL.into_iter().filter(|other| caller.check_scope(*other).is_ok()).collect();
            assert_eq!(allowed, [scope]);
        }
        let problem = caller(&[Scope::Read], &["*"]).check_scope(Scope::Act).unwrap_err();
        assert_eq!(problem.clone().into_response().status(), 403);
        let problem = serde_json::to_value(problem).unwrap();
        assert_eq!(
            (&problem["code"], problem["detail"].as_str().unwrap().contains("http.tokens.shop")),
            (&"forbidden".into(), true)
        );
    }

    #[test]
    fn a_bearer_has_its_queues_and_with_all_of_them_the_brokers() {
        let (some, all) =
            (caller(&Scope::ALL, &["orders.*", "bills"]), caller(&Scope::ALL, &["orders.*", "*"]));
        for (queue, is_own) in [
            ("orders.eu", true),
            ("bills", true),
            ("bills.eu", false),
            ("orders", false),
            ("", false),
        ] {
            assert_eq!(
                (some.check_queue(queue).is_ok(), some.has_queue(queue)),
                (is_own, is_own),
                "{queue}"
            );
            assert!(all.check_queue(queue).is_ok() && Caller::anyone().check_queue(queue).is_ok());
            assert_eq!(some.sees(&Job::for_queue(queue, "")), is_own, "{queue}");
        }
        let of_broker = Job::new("main", Destination::new("orders.eu"), "");
        for (caller, sees) in [(some, false), (all, true), (Caller::anyone(), true)] {
            assert_eq!(
                (caller.sees(&of_broker), caller.check_targets().is_ok(), caller.is_restricted()),
                (sees, sees, !sees)
            );
            assert_eq!(caller.queue_filter().is_none(), sees);
        }
    }
}
