//! The metadata of a record: a job without the fields that the record's prefix has, and without its
//! body. The names and the order of the fields are those of version 1.

use std::borrow::Cow;

use bytes::Bytes;
use dwell_core::{Destination, Headers, Properties};
use serde::{Deserialize, Serialize};

use crate::job::{Confirm, Expire, Job, Late, OnTimeout, Target};

/// The fields of a job as they are stored, borrowed from a job that is written. The fields have
/// their meanings in [`Job`].
#[derive(Serialize, Deserialize)]
pub(super) struct Metadata<'a> {
    /// The destination on the broker; empty for a job of a queue.
    to: Cow<'a, Destination>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<Cow<'a, Bytes>>,
    #[serde(default, skip_serializing_if = "has_no_headers")]
    headers: Cow<'a, Headers>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    properties: Option<Cow<'a, Properties>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry: Option<Cow<'a, [u64]>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    late: Option<Late>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_late_ms: Option<u64>,
    /// The scripts find the names of these two (`may_expire` of prelude.lua).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expire_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expire_at_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "is_ready")]
    on_timeout: OnTimeout,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tries: Option<u16>,
    #[serde(rename = "ends_ms", default, skip_serializing_if = "Option::is_none")]
    remove_at_ms: Option<i64>,
    #[serde(default)]
    created_ms: i64,
    #[serde(default, skip_serializing_if = "is_empty")]
    origin: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trace: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "is_zero")]
    round: u32,
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    has_body: bool,
    /// The last field: `schedule.lua` finds these 8 bytes, big-endian, at the end of the metadata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    debounced: Option<Bytes>,
}

impl<'a> Metadata<'a> {
    /// The metadata of a job. `first_ms`: of one that debounces, the time of its first request.
    pub(super) fn of(job: &'a Job, first_ms: Option<i64>) -> Self {
        Metadata {
            to: job.destination().map_or_else(Cow::default, Cow::Borrowed),
            key: job.key.as_ref().map(Cow::Borrowed),
            headers: Cow::Borrowed(&job.headers),
            properties: job.properties.as_deref().map(Cow::Borrowed),
            retry: job.retry.as_deref().map(Cow::Borrowed),
            late: job.late,
            max_late_ms: job.max_late_ms,
            expire_ms: if let Some(Expire::After(ms)) = job.expire { Some(ms) } else { None },
            expire_at_ms: if let Some(Expire::At(ms)) = job.expire { Some(ms) } else { None },
            on_timeout: job.on_timeout,
            tries: job.tries,
            remove_at_ms: job.remove_at_ms,
            created_ms: job.created_ms,
            origin: Cow::Borrowed(&job.origin),
            trace: job.trace.as_deref().map(Cow::Borrowed),
            round: job.round,
            has_body: job.has_body,
            debounced: first_ms.map(|ms| Bytes::copy_from_slice(&ms.to_be_bytes())),
        }
    }

    /// The same without the retry array.
    pub(super) fn without_retry(self) -> Self {
        Metadata { retry: None, ..self }
    }

    /// The job, with the rest of its record. `target_of`: the target for the stored destination.
    pub(super) fn into_job(
        self,
        target_of: impl FnOnce(Destination) -> Target,
        ttr_ms: u32,
        confirm: Confirm,
        body: Bytes,
    ) -> Job {
        Job {
            target: target_of(self.to.into_owned()),
            key: self.key.map(Cow::into_owned),
            headers: self.headers.into_owned(),
            properties: self.properties.map(|properties| Box::new(properties.into_owned())),
            ttr_ms,
            confirm,
            retry: self.retry.map(Cow::into_owned),
            late: self.late,
            max_late_ms: self.max_late_ms,
            expire: self.expire_at_ms.map(Expire::At).or(self.expire_ms.map(Expire::After)),
            on_timeout: self.on_timeout,
            tries: self.tries,
            remove_at_ms: self.remove_at_ms,
            created_ms: self.created_ms,
            origin: self.origin.into_owned(),
            trace: self.trace.map(Cow::into_owned),
            round: self.round,
            has_body: self.has_body,
            debounced_ms: self
                .debounced
                .and_then(|bytes| Some(i64::from_be_bytes(bytes[..].try_into().ok()?))),
            body,
        }
    }
}

fn has_no_headers(headers: &Headers) -> bool {
    headers.is_empty()
}

fn is_empty(text: &str) -> bool {
    text.is_empty()
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn is_ready(value: &OnTimeout) -> bool {
    *value == OnTimeout::Ready
}

fn yes() -> bool {
    true
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn is_zero(value: &u32) -> bool {
    *value == 0
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn is_yes(value: &bool) -> bool {
    *value
}
