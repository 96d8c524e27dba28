//! Headers that carry what the target's broker has no field for: the key, a missing body, AMQP
//! properties. Nothing is lost between brokers.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::{Capabilities, Header, Properties, Value};

/// The Kafka key, on a broker without keys.
pub const KEY: &str = "kafka-key";
/// The Kafka key in base64, where the key is not UTF-8 and header values are text.
pub const KEY_BASE64: &str = "kafka-key-base64";
/// `true` for a Kafka tombstone: a message without a body, which differs from an empty body.
pub const TOMBSTONE: &str = "kafka-tombstone";

/// The headers that carry what a broker of these capabilities has no field for.
#[must_use]
pub fn stand_ins(
    key: Option<&[u8]>,
    has_body: bool,
    properties: Option<&Properties>,
    to: &Capabilities,
) -> Vec<Header> {
    let mut headers = Vec::new();
    let mut add = |name: &str, value: Value| headers.push(Header { name: name.to_owned(), value });
    if let (Some(key), false) = (key, to.keys) {
        match std::str::from_utf8(key) {
            Ok(text) if !text.chars().any(char::is_control) => {
                add(KEY, Value::Text(text.to_owned()))
            }
            _ if to.byte_headers => add(KEY, Value::Bytes(key.to_vec().into())),
            _ => add(KEY_BASE64, Value::Text(STANDARD.encode(key))),
        }
    }
    if !has_body && !to.keys {
        add(TOMBSTONE, Value::Text("true".to_owned()));
    }
    if let (Some(properties), false) = (properties, to.properties) {
        for (name, value) in texts(properties) {
            add(name, Value::Text(value));
        }
    }
    headers
}

/// The properties that are set, as text.
fn texts(properties: &Properties) -> impl Iterator<Item = (&'static str, String)> + use<> {
    // Taken apart by name, so that a new property cannot be forgotten here.
    let Properties {
        content_type,
        content_encoding,
        delivery_mode,
        priority,
        correlation_id,
        reply_to,
        expiration,
        message_id,
        timestamp,
        kind,
        user_id,
        app_id,
        cluster_id,
    } = properties.clone();
    [
        ("amqp-content-type", content_type),
        ("amqp-content-encoding", content_encoding),
        ("amqp-delivery-mode", delivery_mode.map(|mode| mode.to_string())),
        ("amqp-priority", priority.map(|priority| priority.to_string())),
        ("amqp-correlation-id", correlation_id),
        ("amqp-reply-to", reply_to),
        ("amqp-expiration", expiration),
        ("amqp-message-id", message_id),
        ("amqp-timestamp", timestamp.map(|seconds| seconds.to_string())),
        ("amqp-type", kind),
        ("amqp-user-id", user_id),
        ("amqp-app-id", app_id),
        ("amqp-cluster-id", cluster_id),
    ]
    .into_iter()
    .filter_map(|(name, value)| value.map(|value| (name, value)))
}
