//! What a message carries besides body and headers, where the target's broker has no place for it: written as headers, never dropped.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dwell_connectors::{Header, Message, Properties, Value};

use super::rules::Kind;

/// The Kafka key, on a broker without keys.
pub const KEY: &str = "kafka-key";
/// The same in base64, where it is not UTF-8 and the broker has text only.
pub const KEY_BASE64: &str = "kafka-key-base64";
/// `true` on what was a Kafka tombstone: a message without a body, which is not one of an empty body.
pub const TOMBSTONE: &str = "kafka-tombstone";

/// The headers that stand in for what a broker of this kind has no place for.
pub(super) fn stand_ins(key: Option<&[u8]>, has_body: bool, message: &Message, to: Kind) -> Vec<Header> {
    let mut headers = Vec::new();
    let mut add = |name: &str, value: Value| headers.push(Header { name: name.to_owned(), value });
    if let (Some(key), false) = (key, keeps_key(to)) {
        match std::str::from_utf8(key) {
            Ok(text) if !text.chars().any(char::is_control) => add(KEY, Value::Text(text.to_owned())),
            _ if to == Kind::Nats => add(KEY_BASE64, Value::Text(STANDARD.encode(key))),
            _ => add(KEY, Value::Bytes(key.to_vec().into())),
        }
    }
    if !has_body && !keeps_key(to) {
        add(TOMBSTONE, Value::Text("true".to_owned()));
    }
    if let (Some(properties), false) = (&message.properties, keeps_properties(to)) {
        for (name, value) in texts(properties) {
            add(name, Value::Text(value));
        }
    }
    headers
}

/// Whether messages have a key there, and tell "no body" from an empty one.
pub(super) fn keeps_key(kind: Kind) -> bool {
    matches!(kind, Kind::Kafka | Kind::Memory)
}

/// Whether messages have AMQP properties there.
pub(super) fn keeps_properties(kind: Kind) -> bool {
    matches!(kind, Kind::Amqp | Kind::Memory)
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
