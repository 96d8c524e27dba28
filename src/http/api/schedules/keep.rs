//! The parts of a stored schedule that a request for its id leaves as they are. They may hold what
//! JSON cannot say: types of headers, AMQP properties, a tombstone.

use serde::Deserialize;

use crate::http::server::Problem;
use crate::job::Job;
use crate::request::{KeptParts, NewSchedule};

/// A part of the message of each occurrence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Part {
    Body,
    /// With the AMQP properties.
    Headers,
    Key,
}

impl Part {
    /// The name of the part, and of its field.
    pub(super) fn name(self) -> &'static str {
        match self {
            Part::Body => "body",
            Part::Headers => "headers",
            Part::Key => "key",
        }
    }
}

/// Puts these parts of the stored schedule into the new one. The store does so again, with those that
/// are stored by then.
pub(super) fn keep(parts: &[Part], stored: &Job, new: NewSchedule) -> Result<NewSchedule, Problem> {
    let keep = kept(parts);
    let job = keep.of(stored, new.job.clone()).ok_or_else(|| {
        Problem::bad(
            "keep: the stored schedule has another target or queue: send the parts instead",
        )
    })?;
    Ok(NewSchedule { job, keep, ..new })
}

fn kept(parts: &[Part]) -> KeptParts {
    let has = |part: Part| parts.contains(&part);
    KeptParts { body: has(Part::Body), headers: has(Part::Headers), key: has(Part::Key) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use bytes::Bytes;
    use dwell_connectors::{Destination, Headers, Properties, Value};

    use super::*;

    fn keep(parts: &[Part], stored: &Job, new: Job) -> Option<Job> {
        kept(parts).of(stored, new)
    }

    /// A job of a target, as a message of AMQP may bring it.
    fn stored() -> Job {
        let mut headers = Headers::default();
        headers.push("n", Value::I16(5));
        let properties = Properties { priority: Some(3), ..Properties::default() };
        Job {
            headers,
            properties: Some(Box::new(properties)),
            origin: "amqp".to_owned(),
            key: Some("k".into()),
            has_body: false,
            ..Job::new("main", Destination::new("orders"), Bytes::new())
        }
    }

    #[test]
    fn what_json_cannot_say_stays_where_its_part_is_kept() {
        let stored = stored();
        let new = || Job { created_ms: 1, ..Job::new("main", Destination::new("orders"), "new") };
        let whole = keep(&[Part::Body, Part::Headers, Part::Key], &stored, new()).unwrap();
        assert_eq!(whole, Job { created_ms: 1, ..stored.clone() });
        let headers = keep(&[Part::Headers], &stored, new()).unwrap();
        assert_eq!(
            (&headers.headers, &headers.properties, &headers.origin),
            (&stored.headers, &stored.properties, &stored.origin)
        );
        assert_eq!((&headers.body[..], headers.has_body, headers.key), (&b"new"[..], true, None));
        assert_eq!(keep(&[], &stored, new()).unwrap(), new());
    }

    #[test]
    fn nothing_is_kept_for_another_receiver() {
        for other in [
            Job::new("main", Destination::new("bills"), ""),
            Job::new("other", Destination::new("orders"), ""),
            Job::for_queue("orders", ""),
        ] {
            assert!(keep(&[Part::Body], &stored(), other.clone()).is_none(), "{other:?}");
            assert!(keep(&[], &stored(), other).is_some());
        }
    }
}
