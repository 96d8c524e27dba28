//! The queue or job that a call names, and its caller.

use std::collections::HashMap;

use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;

use super::Lmstfy;
use super::answer::Error;
use crate::compat::access::{Denied, allow};
use crate::config::Scope;
use crate::http::api::caller::Caller;
use crate::job::is_queue_name;

/// The most bytes of a namespace or a queue.
const MAX_NAME_BYTES: usize = 255;
/// The pool of a token that names none. Dwell has no others.
const DEFAULT_POOL: &str = "default";

/// The names in the path of a call.
#[derive(Debug, Clone)]
pub(super) struct Named {
    pub(super) namespace: String,
    pub(super) queue: String,
}

impl Named {
    fn read(namespace: &str, queue: &str) -> Result<Named, Error> {
        if namespace.len() > MAX_NAME_BYTES || queue.len() > MAX_NAME_BYTES {
            return Err(Error::bad("namespace or queue name too long"));
        }
        if !is_name(namespace) {
            return Err(Error::bad("namespace name contains forbidden characters"));
        }
        if queue.starts_with('_') || !is_name(queue) {
            return Err(Error::bad("queue name contains forbidden characters"));
        }
        let named = Named { namespace: namespace.to_owned(), queue: queue.to_owned() };
        if is_queue_name(&named.full()) {
            Ok(named)
        } else {
            Err(Error::bad("namespace and queue name too long together"))
        }
    }

    /// The queue's name in Dwell.
    pub(super) fn full(&self) -> String {
        format!("{}.{}", self.namespace, self.queue)
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

/// A call for one queue.
#[derive(Debug)]
pub(super) struct Call {
    named: Named,
    /// The id of the job in the path; empty if the call has none.
    pub(super) job: String,
    caller: Caller,
}

impl Call {
    /// The names, if the caller may make such calls for this queue.
    pub(super) fn allow(&self, scope: Scope) -> Result<&Named, Error> {
        allow(&self.caller, scope, &self.named.full())?;
        Ok(&self.named)
    }
}

impl FromRequestParts<Lmstfy> for Call {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, lmstfy: &Lmstfy) -> Result<Self, Error> {
        let path = path(parts).await?;
        let named = Named::read(part(&path, "namespace"), part(&path, "queue"))?;
        let caller = caller(parts, lmstfy).await?;
        Ok(Call { named, job: part(&path, "job_id").to_owned(), caller })
    }
}

/// A call for one queue that needs no token.
#[derive(Debug)]
pub(super) struct Counted {
    pub(super) named: Named,
    /// The call brought a token all the same, or the listener asks for none.
    pub(super) is_known: bool,
}

impl FromRequestParts<Lmstfy> for Counted {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, lmstfy: &Lmstfy) -> Result<Self, Error> {
        let path = path(parts).await?;
        let named = Named::read(part(&path, "namespace"), part(&path, "queue"))?;
        Ok(Counted { named, is_known: caller(parts, lmstfy).await.is_ok() })
    }
}

/// A call for several queues.
#[derive(Debug)]
pub(super) struct Consumption {
    /// The queues in the order of the call.
    pub(super) queues: Vec<Named>,
    pub(super) namespace: String,
}

impl FromRequestParts<Lmstfy> for Consumption {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, lmstfy: &Lmstfy) -> Result<Self, Error> {
        let path = path(parts).await?;
        let (namespace, list) = (part(&path, "namespace"), part(&path, "queue"));
        let read = |queue: &str| Named::read(namespace, queue);
        let queues: Vec<Named> = list
            .split(',')
            .filter(|queue| !queue.is_empty())
            .map(read)
            .collect::<Result<_, _>>()?;
        let caller = caller(parts, lmstfy).await?;
        for queue in &queues {
            allow(&caller, Scope::Consume, &queue.full())?;
        }
        if queues.is_empty() {
            return Err(Error::bad("invalid queue name(s)"));
        }
        Ok(Consumption { queues, namespace: namespace.to_owned() })
    }
}

async fn path(parts: &mut Parts) -> Result<HashMap<String, String>, Error> {
    // Only a path that is not UTF-8 cannot be read.
    let path: Result<Path<HashMap<String, String>>, _> = Path::from_request_parts(parts, &()).await;
    path.map(|Path(path)| path).map_err(|_| Error::no_such_call())
}

fn part<'a>(path: &'a HashMap<String, String>, name: &str) -> &'a str {
    path.get(name).map(String::as_str).unwrap_or_default()
}

#[derive(serde::Deserialize)]
struct InQuery {
    token: Option<String>,
}

/// The caller, by the header `X-Token` or the query's `token`.
async fn caller(parts: &mut Parts, lmstfy: &Lmstfy) -> Result<Caller, Error> {
    let header = parts
        .headers
        .get("x-token")
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
        .to_owned();
    let sent = if header.is_empty() {
        let query: Result<Query<InQuery>, _> = Query::from_request_parts(parts, &()).await;
        query.ok().and_then(|Query(query)| query.token).unwrap_or_default()
    } else {
        header
    };
    // A token may be written with its pool in front, or have been taken over as a whole.
    match (lmstfy.access.caller(&sent), sent.split_once(':')) {
        (Err(Denied::Unknown), Some((DEFAULT_POOL, token))) => Ok(lmstfy.access.caller(token)?),
        (Err(Denied::Unknown), Some(_)) => Err(Error::no_such_pool()),
        (known, _) => Ok(known?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_lmstfy() {
        let read = |namespace: &str, queue: &str| {
            Named::read(namespace, queue)
                .map(|named| named.full())
                .map_err(|error| error.text().to_owned())
        };
        assert_eq!(read("client-ns", "a_B-9"), Ok("client-ns.a_B-9".to_owned()));
        let long = "a".repeat(256);
        for (namespace, queue, wanted) in [
            ("a.b", "q", "namespace name contains forbidden characters"),
            ("", "q", "namespace name contains forbidden characters"),
            ("n", "q.q", "queue name contains forbidden characters"),
            ("n", "_q", "queue name contains forbidden characters"),
            ("n", "q,r", "queue name contains forbidden characters"),
            ("n", &long, "namespace or queue name too long"),
            (&long[..200], &long[..200], "namespace and queue name too long together"),
        ] {
            assert_eq!(read(namespace, queue), Err(wanted.to_owned()), "{namespace} {queue}");
        }
    }
}
