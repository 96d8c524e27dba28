//! Events of jobs as messages: CloudEvents 1.0 in binary mode.

use std::fmt::Write as _;

use dwell_connectors::{Capabilities, Message, Properties, Value};
use serde::Serialize;

use crate::delayed_headers::EVENT_TYPE_PREFIX;
use crate::telemetry::feed::Fact;
use crate::units::show_time_ms;

/// The type of the data.
const CONTENT_TYPE: &str = "application/json";

/// The data of an event. Fields without a value are null.
#[derive(Serialize)]
struct Data<'a> {
    id: &'a str,
    broker: Option<&'a str>,
    exchange: Option<&'a str>,
    target: Option<&'a str>,
    queue: Option<&'a str>,
    due_ms: Option<i64>,
    attempt: Option<u32>,
    reason: Option<&'a str>,
    error: Option<&'a str>,
    schedule: Option<&'a str>,
    occurrence: Option<u64>,
}

/// Makes the messages of the events of one instance.
#[derive(Debug)]
pub struct EventSource {
    source: String,
    instance: String,
    next: u64,
}

impl EventSource {
    /// The events of this instance in this namespace.
    #[must_use]
    pub fn new(namespace: &str, instance: &str) -> Self {
        let mut source = "/dwell/".to_owned();
        // A URI reference. A slash in it would be another path.
        percent_encode(
            namespace,
            |byte| byte.is_ascii_alphanumeric() || b"-._~:@".contains(&byte),
            &mut source,
        );
        EventSource { source, instance: instance.to_owned(), next: 0 }
    }

    /// The message of the next event, for a broker with these capabilities.
    pub fn message(&mut self, fact: &Fact, broker: &Capabilities) -> Message {
        self.next += 1;
        let Fact { kind, at_ms, id, .. } = fact;
        let attributes = [
            ("specversion", "1.0".to_owned()),
            ("type", format!("{EVENT_TYPE_PREFIX}{}.v1", kind.as_str())),
            ("source", self.source.clone()),
            ("id", format!("{}-{}", self.instance, self.next)),
            ("time", show_time_ms(*at_ms)),
            ("subject", id.clone()),
        ];
        let mut message = Message::new(data(fact));
        for (name, value) in attributes {
            let value = if broker.encodes_events { header_value(&value) } else { value };
            message.headers.push(format!("{}{name}", broker.event_prefix), Value::Text(value));
        }
        if broker.properties {
            message.properties = Some(Box::new(Properties {
                content_type: Some(CONTENT_TYPE.to_owned()),
                delivery_mode: broker.delivery_mode,
                ..Properties::default()
            }));
        } else {
            message.headers.push("content-type", Value::Text(CONTENT_TYPE.to_owned()));
        }
        if broker.keys {
            message.key = Some(id.clone().into());
        }
        message
    }
}

fn data(fact: &Fact) -> Vec<u8> {
    let Fact {
        kind: _,
        at_ms: _,
        id,
        broker,
        exchange,
        target,
        queue,
        due_ms,
        attempt,
        reason,
        error,
        schedule,
        occurrence,
    } = fact;
    let data = Data {
        id,
        broker: broker.as_deref(),
        exchange: exchange.as_deref(),
        target: target.as_deref(),
        queue: queue.as_deref(),
        due_ms: *due_ms,
        attempt: *attempt,
        reason: *reason,
        error: error.as_deref(),
        schedule: schedule.as_deref(),
        occurrence: *occurrence,
    };
    serde_json::to_vec(&data).expect("text and numbers can be written as JSON")
}

/// A value as the HTTP binding of CloudEvents writes it: printable ASCII stays, without space, quote
/// and percent.
fn header_value(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    percent_encode(text, |byte| byte.is_ascii_graphic() && !b"\"%".contains(&byte), &mut encoded);
    encoded
}

/// Writes text; each byte that does not stay becomes `%` and two digits.
fn percent_encode(text: &str, stays: impl Fn(u8) -> bool, into: &mut String) {
    for byte in text.bytes() {
        if stays(byte) {
            into.push(char::from(byte));
        } else {
            // Writing to a String does not fail.
            let _ = write!(into, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::config::EventKind;

    fn fact() -> Fact {
        Fact {
            kind: EventKind::Dead,
            at_ms: 1_769_860_800_123,
            id: "Jörg 7%".to_owned(),
            broker: Some("main".to_owned()),
            exchange: None,
            target: Some("orders.a".to_owned()),
            queue: None,
            due_ms: Some(1_769_860_000_000),
            attempt: Some(3),
            reason: Some("retries_exhausted"),
            error: Some("no \"queue\"".to_owned()),
            schedule: None,
            occurrence: None,
        }
    }

    const PLAIN: Capabilities = Capabilities::new("plain", "plain", "topic");

    fn headers(message: &Message) -> Vec<(&str, &str)> {
        message
            .headers
            .iter()
            .map(|header| (header.name.as_str(), header.value.as_text().unwrap()))
            .collect()
    }

    #[test]
    fn attributes_are_headers_that_each_kind_names_and_writes_its_way() {
        let (time, kind) = ("2026-01-31T12:00:00.123Z", "dwell.job.dead.v1");
        let mut source = EventSource::new("shop ä/1", "0a-1");
        let encoded = source.message(&fact(), &PLAIN);
        let expected = [
            ("ce-specversion", "1.0"),
            ("ce-type", kind),
            ("ce-source", "/dwell/shop%2520%25C3%25A4%252F1"),
            ("ce-id", "0a-1-1"),
            ("ce-time", time),
            ("ce-subject", "J%C3%B6rg%207%25"),
            ("content-type", "application/json"),
        ];
        assert_eq!(headers(&encoded), expected);
        assert_eq!((&encoded.key, &encoded.properties), (&None, &None));

        let keys = Capabilities { keys: true, event_prefix: "ce_", encodes_events: false, ..PLAIN };
        let keyed = source.message(&fact(), &keys);
        let expected = [
            ("ce_specversion", "1.0"),
            ("ce_type", kind),
            ("ce_source", "/dwell/shop%20%C3%A4%2F1"),
            ("ce_id", "0a-1-2"),
            ("ce_time", time),
            ("ce_subject", "Jörg 7%"),
            ("content-type", "application/json"),
        ];
        assert_eq!(headers(&keyed), expected);
        assert_eq!(keyed.key.as_deref(), Some("Jörg 7%".as_bytes()));

        let properties = Capabilities {
            properties: true,
            delivery_mode: Some(2),
            event_prefix: "cloudEvents_",
            encodes_events: false,
            ..PLAIN
        };
        let durable = source.message(&fact(), &properties);
        assert_eq!(headers(&durable)[1], ("cloudEvents_type", kind));
        assert_eq!(durable.headers.len(), 6, "the content type is a property");
        let own = durable.properties.as_deref().unwrap();
        let told = (own.content_type.as_deref(), own.delivery_mode);
        assert_eq!(told, (Some("application/json"), Some(2)));
    }

    #[test]
    fn the_data_has_every_field() {
        let message = EventSource::new("dwell", "a").message(&fact(), &PLAIN);
        let data = std::str::from_utf8(&message.body).unwrap();
        assert_eq!(
            data,
            r#"{"id":"Jörg 7%","broker":"main","exchange":null,"target":"orders.a","queue":null,"due_ms":1769860000000,"attempt":3,"reason":"retries_exhausted","error":"no \"queue\"","schedule":null,"occurrence":null}"#
        );
    }
}
