//! Jobs, recurring schedules, verdicts and counts as JSON: the same for commands, verdict messages
//! and HTTP.

use std::collections::HashMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dwell_connectors::{Header, Headers, Value};
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;
use utoipa::openapi::schema::SchemaType;
use utoipa::openapi::{Object, ObjectBuilder, Type};

use crate::job::{self, Action, Confirm, JobId, Verdict};
use crate::store::jobs::batch::Answer;
use crate::store::reader::lookup::{JobState, StoredJob};
use crate::store::record::Record;
use crate::units::{show_duration_ms, show_time_ms};

mod fetched;
mod schedule;
mod stats;

pub use fetched::{Fetched, FetchedJob, LeaseResult, Queue};
pub use schedule::{Changed, Schedule, Times};
pub use stats::{
    Broker, Bucket, ErrorSeen, Horizon, Ingest, Instance, Lateness, Limited, Stats, Step,
};

/// A job.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[allow(missing_docs, reason = "docs/reference/http.md explains the others")]
pub struct Job {
    pub id: String,
    /// `scheduled`, `ready` (of a queue: due, and not fetched), `reserved` or `dead`.
    #[schema(schema_with = state_schema)]
    pub state: &'static str,
    /// The next due time, RFC 3339 in UTC; for a reserved or dead job, the time when it was due.
    pub due: String,
    /// The same in epoch ms.
    pub due_ms: i64,
    /// The broker; null for a job of a queue.
    pub broker: Option<String>,
    /// The AMQP exchange; empty for other brokers; null for a job of a queue.
    pub exchange: Option<String>,
    /// The topic, subject or routing key; null for a job of a queue.
    pub target: Option<String>,
    /// The queue from which consumers fetch the job; null for a job of a broker.
    pub queue: Option<String>,
    /// The Kafka key: text, or `{"base64": "…"}` if it is not UTF-8; null without a key.
    #[schema(schema_with = key_schema)]
    pub key: serde_json::Value,
    /// The headers by name; a repeated name has a list of values.
    #[schema(value_type = std::collections::BTreeMap<String, serde_json::Value>)]
    pub headers: serde_json::Map<String, serde_json::Value>,
    /// The number of attempts started.
    #[schema(value_type = u64)]
    pub attempt: u32,
    /// The waits between attempts, as durations; empty: a single attempt.
    pub retry: Vec<String>,
    #[schema(value_type = u64)]
    pub ttr_ms: u32,
    pub confirm: Confirm,
    /// Whether the job is published and waits for `finish` or `fail` of its consumer.
    pub awaiting_finish: bool,
    /// The size of the body, bytes.
    pub size: usize,
    pub created_ms: i64,
    /// The last error; null if no attempt failed.
    pub last_error: Option<String>,
    /// Why the job is dead or dying: `retries_exhausted`, `invalid`, `late`, `failed`, `crashed`,
    /// `expired`, `unknown`; else null.
    #[schema(value_type = Option<String>)]
    pub dead_reason: Option<&'static str>,
    /// When a dead job died, epoch ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub died_ms: Option<i64>,
    /// For a reserved job, the time-out of its attempt or of the wait for its consumer, epoch ms;
    /// else null.
    pub deadline_ms: Option<i64>,
    /// The body, if it was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_base64: Option<String>,
}

impl Job {
    /// A job of the store. `default_retry_ms`: the retry array of a job that has none.
    #[must_use]
    pub fn of(found: &StoredJob, default_retry_ms: &[u64]) -> Self {
        let job = &found.record.job;
        let state = found.state_record.as_ref();
        let due_ms = found.due_ms();
        let MessageFields { broker, exchange, target, queue, key, headers } =
            MessageFields::of(job);
        Job {
            id: found.id.as_str().to_owned(),
            state: found.state.as_str(),
            due: show_time_ms(due_ms),
            due_ms,
            broker,
            exchange,
            target,
            queue,
            key,
            headers,
            attempt: state.map_or(0, |state| state.attempt),
            retry: retry(job, default_retry_ms),
            ttr_ms: job.ttr_ms,
            confirm: job.confirm,
            awaiting_finish: state.is_some_and(|state| state.held),
            size: found.size,
            created_ms: job.created_ms,
            last_error: state
                .map(|state| state.last_error.clone())
                .filter(|error| !error.is_empty()),
            dead_reason: state.and_then(|state| state.reason).map(|reason| reason.as_str()),
            died_ms: Some(found.score_ms).filter(|_| found.state == JobState::Dead),
            deadline_ms: Some(found.score_ms)
                .filter(|ms| found.state == JobState::Reserved && *ms > 0),
            body_base64: None,
        }
    }

    /// A new job as requested, due then. `is_due`: whether that time has come.
    #[must_use]
    pub fn asked(
        id: &JobId,
        job: job::Job,
        due_ms: i64,
        is_due: bool,
        default_retry_ms: &[u64],
    ) -> Self {
        let size = job.body.len();
        let state =
            if job.queue().is_some() && is_due { JobState::Ready } else { JobState::Scheduled };
        let record = Record { job, generated: false, generation: [0; 8], fingerprint: [0; 8] };
        let (id, state_record, held_by) = (id.clone(), None, None);
        Job::of(
            &StoredJob { id, state, score_ms: due_ms, record, state_record, held_by, size },
            default_retry_ms,
        )
    }

    /// The same with its body, which `found` must have.
    #[must_use]
    pub fn with_body(mut self, found: &StoredJob) -> Self {
        self.body_base64 = Some(STANDARD.encode(&found.record.job.body));
        self
    }
}

/// The verdict on a request.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = Verdict)]
#[allow(missing_docs, reason = "docs/reference/http.md explains the words")]
pub struct ActionResult {
    pub id: String,
    pub action: Action,
    pub verdict: Verdict,
    /// When the job is due, epoch ms, if known.
    pub due_ms: Option<i64>,
}

impl ActionResult {
    /// The result of this action on this job.
    #[must_use]
    pub fn of(id: &str, action: Action, answer: Answer) -> Self {
        ActionResult { id: id.to_owned(), action, verdict: answer.verdict, due_ms: answer.due_ms }
    }

    /// The HTTP status; a command exits with 0 if it is 2xx.
    #[must_use]
    pub fn status(&self) -> u16 {
        use Verdict as V;
        match self.verdict {
            V::Added | V::Replaced => 201,
            V::Duplicate | V::Kept | V::Cancelled | V::CancelledAfterAttempt => 200,
            V::Rescheduled | V::Firing | V::Finished | V::Failed | V::Requeued => 200,
            // A queue's job that died by this `fail`; one that was dead before has a due time.
            V::Dead if self.action == Action::Fail && self.due_ms.is_none() => 200,
            V::Conflict | V::InFlight | V::Fired | V::Dead | V::Waiting | V::Stale => 409,
            V::NotFound => 404,
        }
    }
}

/// The fields of a job and of a recurring schedule that say what is published, and where. They are
/// written out in both: flattened, they would change the form of the OpenAPI document.
struct MessageFields {
    broker: Option<String>,
    exchange: Option<String>,
    target: Option<String>,
    queue: Option<String>,
    key: serde_json::Value,
    headers: serde_json::Map<String, serde_json::Value>,
}

impl MessageFields {
    fn of(job: &job::Job) -> Self {
        let to = job.destination();
        MessageFields {
            broker: job.broker().map(str::to_owned),
            exchange: to.map(|to| to.exchange.clone()),
            target: to.map(|to| to.address.clone()),
            queue: job.queue().map(str::to_owned),
            key: job.key.as_ref().map_or(serde_json::Value::Null, |key| text_or_base64(key)),
            headers: headers(&job.headers),
        }
    }
}

/// The waits between the attempts of a job, as durations.
fn retry(job: &job::Job, default_retry_ms: &[u64]) -> Vec<String> {
    let waits = job.retry.as_deref().unwrap_or(default_retry_ms);
    waits.iter().map(|ms| show_duration_ms(*ms)).collect()
}

pub(crate) fn headers(headers: &Headers) -> serde_json::Map<String, serde_json::Value> {
    // In one pass: a message may have a hundred thousand headers.
    let mut by_name: HashMap<&str, Vec<serde_json::Value>> = HashMap::new();
    for header in headers.iter() {
        by_name.entry(&header.name).or_default().push(value(&header.value));
    }
    let named = |header: &Header| {
        let mut values = by_name.remove(header.name.as_str())?;
        let one = if values.len() == 1 {
            values.swap_remove(0)
        } else {
            serde_json::Value::Array(values)
        };
        Some((header.name.clone(), one))
    };
    headers.iter().filter_map(named).collect()
}

/// The JSON value of a header; bytes as base64.
fn value(header: &Value) -> serde_json::Value {
    match header {
        Value::Null => serde_json::Value::Null,
        Value::Bool(value) => json!(value),
        Value::I8(value) => json!(value),
        Value::I16(value) => json!(value),
        Value::I32(value) => json!(value),
        Value::I64(value) => json!(value),
        Value::U8(value) => json!(value),
        Value::U16(value) => json!(value),
        Value::U32(value) => json!(value),
        Value::F32(value) => json!(value),
        Value::F64(value) => json!(value),
        Value::Decimal(scale, number) => json!(f64::from(*number) / 10f64.powi(i32::from(*scale))),
        Value::Text(text) => json!(text),
        Value::Bytes(bytes) => text_or_base64(bytes),
        Value::Timestamp(seconds) => json!(seconds),
        Value::List(values) => values.iter().map(value).collect(),
        Value::Table(entries) => entries
            .iter()
            .map(|(name, entry)| (name.clone(), value(entry)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
    }
}

/// The value as compact JSON, without control characters: a header that has no other text.
pub(crate) fn json(header: &Value) -> String {
    // The rest is escaped by JSON itself.
    value(header).to_string().replace('\u{7f}', "\\u007f")
}

fn state_schema() -> Object {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .enum_values(Some(["scheduled", "ready", "reserved", "dead"]))
        .build()
}

fn key_schema() -> Object {
    let types = SchemaType::from_iter([Type::String, Type::Object, Type::Null]);
    ObjectBuilder::new()
        .schema_type(types)
        .description(Some("text, {\"base64\": …} if it is not UTF-8, or null"))
        .build()
}

fn text_or_base64(bytes: &[u8]) -> serde_json::Value {
    std::str::from_utf8(bytes)
        .map_or_else(|_| json!({ "base64": STANDARD.encode(bytes) }), |text| json!(text))
}

#[cfg(test)]
mod tests {
    use dwell_connectors::Destination;

    use super::*;
    use crate::store::reader::counts::Counts;

    fn found() -> StoredJob {
        let headers = [("a", "1"), ("b", "2"), ("a", "3")].into_iter().fold(
            Headers::default(),
            |mut headers, (name, value)| {
                headers.push(name, Value::from(value));
                headers
            },
        );
        let job = job::Job {
            target: job::Target::Broker {
                broker: "main".to_owned(),
                to: Destination::new("orders.close"),
            },
            key: Some(vec![0xff].into()),
            headers,
            properties: None,
            ttr_ms: 30_000,
            confirm: Confirm::Broker,
            retry: None,
            late: None,
            max_late_ms: None,
            expire: None,
            on_timeout: job::OnTimeout::Ready,
            tries: None,
            remove_at_ms: None,
            created_ms: 1,
            origin: "nats".to_owned(),
            trace: None,
            round: 0,
            debounced_ms: None,
            has_body: true,
            body: "hello".into(),
        };
        let record = Record { job, generated: false, generation: [0; 8], fingerprint: [0; 8] };
        StoredJob {
            id: JobId::new("x").unwrap(),
            state: JobState::Scheduled,
            score_ms: 1_800_000_000_000,
            record,
            state_record: None,
            held_by: None,
            size: 5,
        }
    }

    #[test]
    fn a_job_has_the_keys_of_the_contract_in_its_order() {
        let found = found();
        let json = serde_json::to_string(&Job::of(&found, &[120_000])).unwrap();
        assert_eq!(
            json,
            concat!(
                r#"{"id":"x","state":"scheduled","due":"2027-01-15T08:00:00.000Z","due_ms":1800000000000,"broker":"main","exchange":"","#,
                r#""target":"orders.close","queue":null,"key":{"base64":"/w=="},"headers":{"a":["1","3"],"b":"2"},"attempt":0,"retry":["2m"],"ttr_ms":30000,"#,
                r#""confirm":"broker","awaiting_finish":false,"size":5,"created_ms":1,"last_error":null,"#,
                r#""dead_reason":null,"deadline_ms":null}"#
            )
        );
        let with_body = serde_json::to_value(Job::of(&found, &[]).with_body(&found)).unwrap();
        assert_eq!(
            (&with_body["body_base64"], &with_body["retry"]),
            (&json!("aGVsbG8="), &json!([]))
        );
    }

    #[test]
    fn a_job_of_a_queue_has_no_broker() {
        let mut found = found();
        found.record.job = job::Job::for_queue("emails", "hello");
        let json = serde_json::to_value(Job::of(&found, &[])).unwrap();
        assert_eq!(json["queue"], "emails");
        assert!(
            ["broker", "exchange", "target"].iter().all(|name| json[*name].is_null()),
            "{json}"
        );
    }

    #[test]
    fn a_hundred_thousand_headers_are_shown_at_once() {
        let mut found = found();
        for number in 0..100_000 {
            found.record.job.headers.push(format!("h{number}"), Value::from("1"));
        }
        let begun = crate::clock::now();
        assert_eq!(Job::of(&found, &[]).headers.len(), 100_002);
        let took = crate::clock::now().duration_since(begun);
        assert!(took < std::time::Duration::from_secs(30), "{took:?}");
    }

    #[test]
    fn a_verdict_and_counts_have_the_keys_of_the_contract() {
        let answer = Answer::of(Verdict::CancelledAfterAttempt);
        let json = serde_json::to_string(&ActionResult::of("x", Action::Cancel, answer)).unwrap();
        assert_eq!(
            json,
            r#"{"id":"x","action":"cancel","verdict":"cancelled_after_attempt","due_ms":null}"#
        );

        let counts = Counts {
            scheduled: vec![2, 0],
            reserved: vec![0, 1],
            dead: vec![0, 0],
            brokers: vec![("main".to_owned(), 2)],
            overdue: 1,
            next_due_ms: Some(7),
            now_ms: 5,
            ..Counts::default()
        };
        let unknown = json!({"scheduled": 2, "kind": null, "connected": null, "paused": null, "last_error": null, "stranded": null});
        assert_eq!(
            serde_json::to_value(Stats::of(&counts)).unwrap(),
            json!({
                "scheduled": 2, "ready": 0, "reserved": 1, "dead": 0, "died": 0, "oldest_ready_ms": null, "paused_queues": [],
                "limited": [],
                "overdue": 1, "next_due_ms": 7, "now_ms": 5,
                "buckets": [{"scheduled": 2, "ready": 0, "reserved": 0, "dead": 0}, {"scheduled": 0, "ready": 0, "reserved": 1, "dead": 0}],
                "brokers": {"main": unknown}, "ingests": {}, "rates": {}, "lateness": null, "instance": null,
            })
        );
    }
}
