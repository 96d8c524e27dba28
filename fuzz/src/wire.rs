//! AMQP's frames and NATS's header blocks, as producers can make them.

use dwell_connectors::fuzz::{amqp_message, amqp_sanitize, nats_headers, publishable};
use dwell_connectors::{Message, Value};

/// The first byte tells which; the rest is it.
pub(crate) fn target(bytes: &[u8]) {
    let Some((which, rest)) = bytes.split_first() else { return };
    match which % 3 {
        0 => amqp(2, rest),
        1 => amqp(1, rest),
        _ => nats(rest),
    }
}

fn amqp(kind: u8, payload: &[u8]) {
    let mut right = payload.to_vec();
    let changed = amqp_sanitize(kind, &mut right);
    assert_eq!(right.len(), payload.len());
    assert_eq!(changed, right != payload);
    let mut again = right.clone();
    assert!(!amqp_sanitize(kind, &mut again), "what was put right is right");
    if kind == 2
        && let Some(message) = amqp_message(&right)
    {
        assert!(message.headers.iter().all(|header| depth(&header.value) <= 33), "{message:?}");
        let _ = publishable("amqp", message, 1 << 20);
    }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::List(values) => 1 + values.iter().map(depth).max().unwrap_or(0),
        Value::Table(entries) => {
            1 + entries.iter().map(|(_, value)| depth(value)).max().unwrap_or(0)
        }
        _ => 1,
    }
}

fn nats(block: &[u8]) {
    let (headers, plain) = nats_headers(block);
    if !plain {
        return;
    }
    // The library can write each block that it reads.
    let message = Message { headers, ..Message::new("") };
    for header in message.headers.iter() {
        assert!(!header.name.is_empty() && header.value.as_text().is_some(), "{header:?}");
    }
    if message.headers.iter().all(|header| !header.name.contains(':')) {
        publishable("nats", message, 0).expect("a plain block passes on");
    }
}
