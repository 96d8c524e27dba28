//! The body of `POST /v1/jobs`: the fields of a new job.

use std::collections::BTreeMap;

use bytes::Bytes;
use dwell_connectors::Message;
use serde::Deserialize;
use utoipa::ToSchema;

use super::empty;
use super::text::{Text, TextOrBytes, decode, header_values};
use crate::http::server::Problem;
use crate::job::{JobId, is_queue_name};
use crate::request::{Code, NewJob, Rejection, RequestRules, from_fields};
use crate::units::{quote, quote_address};

/// The fields of a request: their names and values.
pub(super) type Fields = Vec<(&'static str, String)>;

/// A new job. Values have the form of the `delay-*` headers of a message and obey the same rules.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = NewJob)]
#[serde(deny_unknown_fields)]
pub(super) struct NewJobRequest {
    /// The job's id: 1 to 256 bytes without control characters; by default generated
    #[schema(min_length = 1, max_length = 256)]
    id: Option<String>,
    /// The delay from receipt, by Redis's clock: `90s`, `1h30m`, `PT15M`, or milliseconds. Either
    /// this or `until`
    #[serde(rename = "for")]
    #[schema(example = "5m")]
    delay_for: Option<Text>,
    /// The due time: RFC 3339 with an offset, or without one beside `time_zone`; or epoch
    /// milliseconds
    until: Option<Text>,
    /// The zone of times without an offset, by its IANA name
    #[schema(example = "Europe/Berlin")]
    time_zone: Option<String>,
    /// The due time is later by less than this, by a hash of the id
    spread: Option<Text>,
    /// The target: Kafka topic, NATS subject, AMQP routing key
    #[schema(example = "orders.close")]
    target: Option<String>,
    /// The AMQP exchange; empty is the default exchange, whose routing key is a queue
    exchange: Option<String>,
    /// The `[brokers.NAME]` to publish to; optional if the settings have one ingest or one broker
    broker: Option<String>,
    /// The queue from which consumers fetch the job, instead of `target`, `exchange` and `broker`
    #[schema(min_length = 1, max_length = 255, pattern = r"^[A-Za-z0-9._-]+$")]
    queue: Option<String>,
    /// The Kafka key: text, or `{"base64": "…"}`
    key: Option<TextOrBytes>,
    /// The headers by name: text, a number, a boolean, null, `{"base64": "…"}`, or a list of these
    /// for a repeated name (AMQP: a value of type list)
    #[serde(default, deserialize_with = "empty::object")]
    #[schema(schema_with = empty::object_schema, required = false)]
    headers: BTreeMap<String, serde_json::Value>,
    /// The time to run: how long one attempt may take until it is confirmed
    ttr: Option<Text>,
    /// The waits between attempts; empty for a single attempt
    retry: Option<Vec<Text>>,
    /// Who confirms an attempt: `broker` or `consumer`
    confirm: Option<String>,
    /// What happens to a job that is overdue by more than `max_late` at its first attempt: `fire`,
    /// `drop` or `dead`
    late: Option<String>,
    /// How long the job may be overdue at its first attempt
    max_late: Option<Text>,
    /// The job is dead, with the reason `expired`, if it is not delivered within this from its due
    /// time; or the time, as in `until` (not of a schedule)
    #[schema(example = "1h")]
    expire: Option<Text>,
    /// What happens if the id exists: `replace`, `keep`, `reject` or `debounce`
    on_conflict: Option<String>,
    /// With `debounce`: the longest time from the first request to the due time
    max_wait: Option<Text>,
    /// The body as text. Either this or `body_base64`
    body: Option<String>,
    /// The body in base64
    body_base64: Option<String>,
}

impl NewJobRequest {
    /// The id in the request.
    pub(super) fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// The queue in the request.
    pub(super) fn queue(&self) -> Option<&str> {
        self.queue.as_deref()
    }

    /// Whether the request has this part of the message: `body`, `headers` or `key`.
    pub(super) fn has(&self, part: &str) -> bool {
        match part {
            "body" => self.body.is_some() || self.body_base64.is_some(),
            "headers" => !self.headers.is_empty(),
            _ => self.key.is_some(),
        }
    }

    /// The same with this id.
    pub(super) fn with_id(self, id: &JobId) -> Self {
        NewJobRequest { id: Some(id.as_str().to_owned()), ..self }
    }

    /// The request as the rules have it.
    pub(super) fn read(self, rules: &RequestRules, now_ms: i64) -> Result<NewJob, Problem> {
        let (fields, message) = self.fields(rules)?;
        Ok(from_fields(&fields, &message, rules, now_ms)?)
    }

    /// The fields of the request, each named as a `delay-*` header without its prefix, and a
    /// message of the rest.
    pub(super) fn fields(self, rules: &RequestRules) -> Result<(Fields, Message), Problem> {
        // Headers of messages are taken without the white space around them.
        if let Some(queue) = self.queue.as_ref().filter(|queue| !is_queue_name(queue)) {
            let detail = format!(
                "queue: {} is not the name of a queue: write 1 to 255 of A-Z a-z 0-9 . _ -",
                quote_address(queue)
            );
            return Err(Rejection::new(Code::BadQueue, detail).into());
        }
        if let Some(broker) = self.broker.as_ref().filter(|broker| broker.trim() != **broker) {
            return Err(Rejection::new(
                Code::UnknownBroker,
                format!("broker: no [brokers] of the settings is {}", quote_address(broker)),
            )
            .into());
        }
        let body = match (self.body, self.body_base64) {
            (Some(_), Some(_)) => {
                return Err(Problem::bad(
                    "the request has both `body` and `body_base64`: send one",
                ));
            }
            (Some(text), None) => Bytes::from(text),
            (None, Some(base64)) => {
                decode(&base64).map_err(|why| Problem::bad(format!("body_base64: {why}")))?
            }
            (None, None) => Bytes::new(),
        };
        let broker = self.broker.as_deref().unwrap_or(&rules.ingest.broker);
        let has_lists = self.queue.is_none()
            && rules.brokers.get(broker).is_some_and(|broker| broker.capabilities().typed_headers);
        let mut message = Message::new(body);
        message.key = self.key.map(|key| key.0);
        for (name, value) in self.headers {
            let bad =
                |why| Rejection::new(Code::BadHeader, format!("header {}: {why}", quote(&name)));
            let values = header_values(value, has_lists).map_err(bad)?;
            values.into_iter().for_each(|value| message.headers.push(name.clone(), value));
        }
        let retry = self.retry.map(|waits| match waits.is_empty() {
            true => "none".to_owned(),
            false => waits.into_iter().map(|wait| wait.0).collect::<Vec<_>>().join(","),
        });
        let text = |text: Option<Text>| text.map(|text| text.0);
        let fields = [
            ("id", self.id),
            ("for", text(self.delay_for)),
            ("until", text(self.until)),
            ("time-zone", self.time_zone),
            ("spread", text(self.spread)),
            ("target", self.target),
            ("exchange", self.exchange),
            ("broker", self.broker),
            ("queue", self.queue),
            ("ttr", text(self.ttr)),
            ("retry", retry),
            ("confirm", self.confirm),
            ("late", self.late),
            ("max-late", text(self.max_late)),
            ("expire", text(self.expire)),
            ("on-conflict", self.on_conflict),
            ("max-wait", text(self.max_wait)),
        ];
        Ok((given(fields), message))
    }
}

/// Those of the fields that have a value.
pub(super) fn given(fields: impl IntoIterator<Item = (&'static str, Option<String>)>) -> Fields {
    fields.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}
