//! `PUT /api/:namespace/:queue`, `…/bulk` and `…/job/:job_id`

use std::collections::BTreeMap;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{FromRequest, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use dwell_connectors::{Headers, Value};
use futures_util::future::join_all;
use serde_json::json;

use super::Lmstfy;
use super::answer::{ATTRIBUTE_HEADER_PREFIX, Error};
use super::call::{Call, Named};
use super::query::{Query, Terms};
use crate::compat::service::Refusal;
use crate::config::Scope;
use crate::http::api::extract::BODY_TIMEOUT;
use crate::http::api::one_or_many::Elements;
use crate::job::{Due, Job, JobId};
use crate::request::OwnQueues;

/// The most jobs of one `bulk`.
const MAX_BULK_JOBS: usize = 64;
/// The most bytes of a `bulk`, whatever `limits.max_body` is.
const MAX_BULK_BYTES: usize = 16 << 20;
/// The most bytes of a `bulk` besides its jobs.
const BULK_ENVELOPE_BYTES: usize = 64 << 10;
const MAX_ATTRIBUTES: usize = 16;
const MAX_ATTRIBUTE_NAME_BYTES: usize = 32;
const MAX_ATTRIBUTE_VALUE_BYTES: usize = 128;

/// The most bytes of a `bulk` of jobs that have at most so many.
pub(super) fn bulk_bytes(max_body: usize) -> usize {
    max_body
        .saturating_mul(MAX_BULK_JOBS)
        .min(MAX_BULK_BYTES.max(max_body))
        .saturating_add(BULK_ENVELOPE_BYTES)
}

/// Publishes a job.
pub(super) async fn publish(
    State(lmstfy): State<Lmstfy>,
    call: Call,
    query: Query,
    request: Request,
) -> Result<Response, Error> {
    let named = call.allow(Scope::Schedule)?;
    lmstfy.publish(named, &query, request, false).await
}

/// Publishes a job under a new id, and ends the one in the path, if it belongs to the queue. A
/// failure in between leaves two jobs, not none.
pub(super) async fn publish_again(
    State(lmstfy): State<Lmstfy>,
    call: Call,
    query: Query,
    request: Request,
) -> Result<Response, Error> {
    call.allow(Scope::Consume)?;
    let named = call.allow(Scope::Schedule)?;
    let before = lmstfy.service.find(Some(&named.full()), &call.job).await?;
    let answer = lmstfy.publish(named, &query, request, before.is_some()).await?;
    if let Some(before) = before {
        lmstfy.service.end(&before, &OwnQueues::new([named.full().as_str()])).await?;
    }
    Ok(answer)
}

/// Publishes each value of an array as a job, byte for byte.
pub(super) async fn bulk(
    State(lmstfy): State<Lmstfy>,
    call: Call,
    query: Query,
    request: Request,
) -> Result<Response, Error> {
    let named = call.allow(Scope::Schedule)?;
    let terms = query.terms(lmstfy.service.rules().limits.max_delay.ms())?;
    let attributes = Attributes::of(request.headers())?;
    let body = read(request).await?;
    let Elements::<MAX_BULK_JOBS>(bodies) = serde_json::from_slice(&body)
        .map_err(|_| Error::bad("request body should be an array of objects"))?;
    if bodies.is_empty() {
        return Err(Error::bad("no jobs"));
    }
    if bodies.len() > MAX_BULK_JOBS {
        return Err(Error::bad("too many jobs"));
    }
    let jobs = bodies.iter().map(|json| {
        let json = json.get().as_bytes();
        lmstfy.job(named, terms, &attributes, body.slice_ref(json))
    });
    let jobs: Vec<(JobId, Job)> = jobs.collect::<Result<_, _>>()?;
    let own_queues = OwnQueues::new([named.full().as_str()]);
    let ids: Vec<String> = jobs.iter().map(|(id, _)| id.as_str().to_owned()).collect();
    for stored in
        join_all(jobs.into_iter().map(|(id, job)| {
            lmstfy.service.schedule(id, job, terms.due(), Some(own_queues.clone()))
        }))
        .await
    {
        stored?;
    }
    Ok((StatusCode::CREATED, Json(json!({ "msg": "published", "job_ids": ids }))).into_response())
}

impl Lmstfy {
    /// `instead`: a job of the queue ends for this one.
    async fn publish(
        &self,
        named: &Named,
        query: &Query,
        request: Request,
        instead: bool,
    ) -> Result<Response, Error> {
        let terms = query.terms(self.service.rules().limits.max_delay.ms())?;
        let attributes = Attributes::of(request.headers())?;
        let (id, job) = self.job(named, terms, &attributes, read(request).await?)?;
        if instead {
            self.service.schedule_instead(id.clone(), job, terms.due()).await?;
        } else {
            self.service
                .schedule(
                    id.clone(),
                    job,
                    terms.due(),
                    Some(OwnQueues::new([named.full().as_str()])),
                )
                .await?;
        }
        Ok((StatusCode::CREATED, Json(json!({ "msg": "published", "job_id": id.as_str() })))
            .into_response())
    }

    /// A new job with its id, unless its queue refuses it.
    fn job(
        &self,
        named: &Named,
        terms: Terms,
        attributes: &Attributes,
        body: Bytes,
    ) -> Result<(JobId, Job), Error> {
        let queue = named.full();
        if let Some(refusal) = self.service.refuses(&queue, body.len()) {
            return Err(Error::refused(refusal, &queue));
        }
        let now_ms = self.service.now_ms();
        let id = self.ids.next(now_ms, terms.delay, attributes.enabled);
        let id = JobId::new(id).map_err(Error::bad)?;
        let job = Job {
            headers: attributes.headers.clone(),
            ttr_ms: self
                .service
                .queue(&queue)
                .map_or(crate::job::DEFAULT_TTR_MS, |rules| rules.ttr.stored_ms()),
            retry: Some(Vec::new()),
            tries: Some(terms.tries),
            remove_at_ms: terms.remove_at_ms(now_ms),
            created_ms: now_ms,
            ..Job::for_queue(queue, body)
        };
        Ok((id, job))
    }
}

impl Terms {
    fn due(self) -> Due {
        Due::In(u64::from(self.delay) * 1000)
    }

    fn remove_at_ms(self, now_ms: i64) -> Option<i64> {
        (self.ttl > 0).then(|| now_ms + i64::from(self.ttl) * 1000)
    }
}

/// The whole body.
async fn read(request: Request) -> Result<Bytes, Error> {
    match crate::clock::timeout(BODY_TIMEOUT, Bytes::from_request(request, &())).await {
        Some(Ok(body)) => Ok(body),
        Some(Err(rejection)) if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            Err(Error::refused(Refusal::TooLarge, ""))
        }
        _ => Err(Error::bad("failed to read body")),
    }
}

/// The attributes of a job, as the headers that keep them.
#[derive(Debug, Default)]
struct Attributes {
    /// The call asks for an id with a version; else there are no attributes.
    enabled: bool,
    headers: Headers,
}

impl Attributes {
    /// Returns the attributes of a call. Names and values that are too long are cut; of several
    /// values of a name the first counts.
    fn of(headers: &HeaderMap) -> Result<Self, Error> {
        let is_yes =
            |value: &axum::http::HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"yes");
        if !headers.get("enable-job-version").is_some_and(is_yes) {
            return Ok(Attributes::default());
        }
        let mut found: BTreeMap<String, String> = BTreeMap::new();
        for name in headers.keys() {
            let value =
                headers.get(name).map(axum::http::HeaderValue::as_bytes).unwrap_or_default();
            let Some(name) = name.as_str().strip_prefix("job-attr-").filter(|_| !value.is_empty())
            else {
                continue;
            };
            // The names of headers are ASCII.
            let name = &name[..name.len().min(MAX_ATTRIBUTE_NAME_BYTES)];
            let value =
                String::from_utf8_lossy(&value[..value.len().min(MAX_ATTRIBUTE_VALUE_BYTES)])
                    .into_owned();
            found.insert(name.to_owned(), value);
        }
        if found.len() > MAX_ATTRIBUTES {
            return Err(Error::bad("too many attributes, cannot exceed 16"));
        }
        let mut headers = Headers::default();
        found.into_iter().for_each(|(name, value)| {
            headers.push(format!("{ATTRIBUTE_HEADER_PREFIX}{name}"), Value::Text(value))
        });
        Ok(Attributes { enabled: true, headers })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn attributes(pairs: &[(&str, &str)]) -> Result<Attributes, Error> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers
                .append(axum::http::HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        Attributes::of(&headers)
    }

    #[test]
    fn attributes_are_cut_and_counted() {
        let (name, value) = (format!("job-attr-{}", "k".repeat(300)), "v".repeat(300));
        let made = attributes(&[
            ("enable-job-version", "Yes"),
            (&name, &value),
            ("Job-Attr-FOO", "bar"),
            ("job-attr-foo", "2"),
            ("job-attr-no", ""),
        ]);
        let made = made.unwrap();
        assert_eq!(made.headers.text("job-attr-foo"), Some("bar"));
        assert_eq!(
            made.headers.text(&format!("job-attr-{}", "k".repeat(32))),
            Some("v".repeat(128).as_str())
        );
        assert_eq!((made.enabled, made.headers.len()), (true, 2));
        let without = attributes(&[("enable-job-version", "no"), ("job-attr-foo", "bar")]).unwrap();
        assert_eq!((without.enabled, without.headers.len()), (false, 0));
        let names: Vec<String> = (0..17).map(|n| format!("job-attr-{n}")).collect();
        let many: Vec<(&str, &str)> = names
            .iter()
            .map(|name| (name.as_str(), "x"))
            .chain([("enable-job-version", "YES")])
            .collect();
        assert_eq!(attributes(&many).unwrap_err().text(), "too many attributes, cannot exceed 16");
    }

    #[test]
    fn a_bulk_may_have_its_most_jobs_of_the_usual_size() {
        assert_eq!(bulk_bytes(1 << 20), (16 << 20) + BULK_ENVELOPE_BYTES);
        assert_eq!(bulk_bytes(100 << 20), (100 << 20) + BULK_ENVELOPE_BYTES);
        assert_eq!(bulk_bytes(1000), 64_000 + BULK_ENVELOPE_BYTES);
    }
}
