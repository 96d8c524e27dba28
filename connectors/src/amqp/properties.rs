//! The properties of a message: conversion to AMQP and back.

use lapin::BasicProperties;
use lapin::types::ShortString;

use super::quirks::sanitize::INVALID_BYTE_MARK;
use super::values::{headers, table, table_size};
use crate::{Headers, Properties, Value, quote};

/// Lost at a restart of the broker.
const TRANSIENT: u8 = 1;
/// Written to the disk of a durable queue.
const PERSISTENT: u8 = 2;
/// The bytes of a content header frame besides the properties: frame header and end, class, weight,
/// body size and flags.
const HEADER_FRAME_BYTES: usize = 8 + 14;

/// The headers and properties of a received message, and the names of those whose bytes are not
/// UTF-8, which are left out.
pub(super) fn received(properties: &BasicProperties) -> (Headers, Properties, Vec<String>) {
    let mut unreadable = Vec::new();
    let mut text = |name: &str, text: &Option<ShortString>| {
        let text = text.as_ref()?.as_str();
        if is_marked(text) {
            unreadable.push(format!("the property {name}"));
            return None;
        }
        Some(text.to_owned())
    };
    let own = Properties {
        content_type: text("content_type", properties.content_type()),
        content_encoding: text("content_encoding", properties.content_encoding()),
        delivery_mode: *properties.delivery_mode(),
        priority: *properties.priority(),
        correlation_id: text("correlation_id", properties.correlation_id()),
        reply_to: text("reply_to", properties.reply_to()),
        expiration: text("expiration", properties.expiration()),
        message_id: text("message_id", properties.message_id()),
        timestamp: *properties.timestamp(),
        kind: text("type", properties.kind()),
        user_id: text("user_id", properties.user_id()),
        app_id: text("app_id", properties.app_id()),
        cluster_id: text("cluster_id", properties.cluster_id()),
    };
    let mut headers = properties.headers().as_ref().map(headers).unwrap_or_default();
    headers.retain(|header| {
        let named = is_marked(&header.name);
        let nested = !named && has_marked_name(&header.value);
        if named || nested {
            let shown = quote(&header.name.replace(char::from(INVALID_BYTE_MARK), "\u{fffd}"));
            unreadable.push(if named {
                format!("the name of the header {shown}")
            } else {
                format!("a name in the header {shown}")
            });
        }
        !named && !nested
    });
    (headers, own, unreadable)
}

/// Whether bytes of this short string were not UTF-8.
pub(super) fn is_marked(text: &str) -> bool {
    text.as_bytes().contains(&INVALID_BYTE_MARK)
}

fn has_marked_name(value: &Value) -> bool {
    match value {
        Value::List(values) => values.iter().any(has_marked_name),
        Value::Table(entries) => {
            entries.iter().any(|(name, value)| is_marked(name) || has_marked_name(value))
        }
        _ => false,
    }
}

/// The properties of a message to publish, or why it can never be published. A message without
/// properties comes from another kind of broker and becomes persistent. A `user_id` other than
/// `user`, the login, is dropped: the broker would close the channel.
pub(super) fn outgoing(
    headers: Headers,
    properties: Option<Properties>,
    dedupe_id: &str,
    user: Option<&str>,
    frame_max: usize,
) -> Result<BasicProperties, String> {
    let mut own = properties
        .unwrap_or_else(|| Properties { delivery_mode: Some(PERSISTENT), ..Properties::default() });
    if own.message_id.is_none() && !dedupe_id.is_empty() {
        own.message_id = Some(dedupe_id.to_owned());
    }
    if own.user_id.as_deref() != user {
        own.user_id = None;
    }
    if let Some(expiration) = &own.expiration
        && (expiration.is_empty()
            || !expiration.bytes().all(|digit| digit.is_ascii_digit())
            || expiration.parse::<u32>().is_err())
    {
        return Err(format!(
            "expiration `{}` is not a valid number of milliseconds",
            expiration.escape_debug()
        ));
    }
    if let Some(mode) = own.delivery_mode
        && !matches!(mode, TRANSIENT | PERSISTENT)
    {
        return Err(format!(
            "delivery mode {mode} does not exist: AMQP has {TRANSIENT} (transient) and {PERSISTENT} (persistent)"
        ));
    }
    let headers = table(headers)?;
    let mut size = HEADER_FRAME_BYTES + table_size(&headers);
    let mut out = BasicProperties::default();
    let mut set = |name: &str,
                   value: Option<String>,
                   with: fn(BasicProperties, ShortString) -> BasicProperties| {
        let Some(text) = value else { return Ok(()) };
        size += 1 + text.len();
        let short = ShortString::try_new(text.as_str())
            .map_err(|_| format!("property {name} has {} bytes, AMQP takes 255", text.len()))?;
        out = with(std::mem::take(&mut out), short);
        Ok::<(), String>(())
    };
    set("content_type", own.content_type, BasicProperties::with_content_type)?;
    set("content_encoding", own.content_encoding, BasicProperties::with_content_encoding)?;
    set("correlation_id", own.correlation_id, BasicProperties::with_correlation_id)?;
    set("reply_to", own.reply_to, BasicProperties::with_reply_to)?;
    set("expiration", own.expiration, BasicProperties::with_expiration)?;
    set("message_id", own.message_id, BasicProperties::with_message_id)?;
    set("type", own.kind, BasicProperties::with_type)?;
    set("user_id", own.user_id, BasicProperties::with_user_id)?;
    set("app_id", own.app_id, BasicProperties::with_app_id)?;
    set("cluster_id", own.cluster_id, BasicProperties::with_cluster_id)?;
    // Delivery mode, priority and timestamp, and the header that matches returned messages.
    size += 10 + 48;
    if size > frame_max {
        return Err(format!(
            "properties and headers have {size} bytes, the server takes {frame_max} in one frame"
        ));
    }
    if !headers.inner().is_empty() {
        out = out.with_headers(headers);
    }
    if let Some(mode) = own.delivery_mode {
        out = out.with_delivery_mode(mode);
    }
    if let Some(priority) = own.priority {
        out = out.with_priority(priority);
    }
    if let Some(timestamp) = own.timestamp {
        out = out.with_timestamp(timestamp);
    }
    Ok(out)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    const MAX_FRAME_BYTES: usize = 131_072;

    fn out(properties: Option<Properties>, dedupe_id: &str) -> Properties {
        received(
            &outgoing(Headers::default(), properties, dedupe_id, Some("me"), MAX_FRAME_BYTES)
                .unwrap(),
        )
        .1
    }

    #[test]
    fn all_properties_come_back() {
        let text = |text: &str| Some(text.to_owned());
        let all = Properties {
            content_type: text("a/b"),
            content_encoding: text("gzip"),
            delivery_mode: Some(1),
            priority: Some(9),
            correlation_id: text("c"),
            reply_to: text("r"),
            expiration: text("60000"),
            message_id: text("m"),
            timestamp: Some(1_700_000_000),
            kind: text("t"),
            user_id: text("me"),
            app_id: text("app"),
            cluster_id: text(""),
        };
        assert_eq!(out(Some(all.clone()), "dedupe"), all);
        assert_eq!(out(Some(Properties::default()), ""), Properties::default());
    }

    #[test]
    fn what_would_act_or_is_missing_is_put_right() {
        let other = Properties { user_id: Some("other".to_owned()), ..Properties::default() };
        assert_eq!(out(Some(other), ""), Properties::default());
        let foreign = Properties {
            delivery_mode: Some(2),
            message_id: Some("d".to_owned()),
            ..Properties::default()
        };
        assert_eq!(out(None, "d"), foreign);
    }

    #[test]
    fn what_can_never_pass_is_refused() {
        let long = Properties { app_id: Some("x".repeat(256)), ..Properties::default() };
        assert!(
            outgoing(Headers::default(), Some(long), "", None, MAX_FRAME_BYTES)
                .unwrap_err()
                .contains("app_id")
        );
        for expiration in ["", "-1", "soon", "1.5", "99999999999"] {
            let expiring =
                Properties { expiration: Some(expiration.to_owned()), ..Properties::default() };
            assert!(
                outgoing(Headers::default(), Some(expiring), "", None, MAX_FRAME_BYTES)
                    .unwrap_err()
                    .contains("expiration")
            );
        }
        let other = Properties { delivery_mode: Some(3), ..Properties::default() };
        assert!(
            outgoing(Headers::default(), Some(other), "", None, MAX_FRAME_BYTES)
                .unwrap_err()
                .contains("delivery mode")
        );
        let mut headers = Headers::default();
        headers.push("large", Value::Text("x".repeat(MAX_FRAME_BYTES)));
        assert!(
            outgoing(headers, None, "", None, MAX_FRAME_BYTES).unwrap_err().contains("one frame")
        );
    }
}
