//! What tells one inbound message from every other: its fingerprint, and the id of a job that came without one.

use dwell_connectors::{Header, Message};

use super::Origin;
use super::rules::{Kind, Rules};
use crate::job::JobId;

/// Headers that RabbitMQ changes from one delivery of a message to the next.
const CHANGING: [&str; 2] = ["x-delivery-count", "x-acquired-count"];

/// The fingerprint of an inbound message.
pub(super) fn origin(message: &Message, rules: &Rules) -> Origin {
    let mut hasher = blake3::Hasher::new();
    let known =
        if position(&mut hasher, message, rules) { Some(true) } else { named(&mut hasher, message, rules).then_some(message.redelivered) };
    let mut fingerprint = [0; 8];
    match known {
        Some(check) => {
            fingerprint.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
            Origin { fingerprint, check, is_message: true }
        }
        None => Origin { fingerprint: rand::random(), check: false, is_message: true },
    }
}

/// The id of a job that came without one: the same for every delivery of one message where the broker lets that be told, else random.
pub(super) fn generated_id(message: &Message, rules: &Rules) -> JobId {
    let mut hasher = blake3::Hasher::new();
    let known = if position(&mut hasher, message, rules) { content(&mut hasher, message) } else { named(&mut hasher, message, rules) };
    let mut id: [u8; 16] = rand::random();
    if known {
        id.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    }
    JobId::new(hex(&id)).expect("32 hexadecimal digits are an id")
}

/// Broker, position and timestamp; false where the broker has no positions.
fn position(hasher: &mut blake3::Hasher, message: &Message, rules: &Rules) -> bool {
    let Some(position) = &message.position else { return false };
    feed(hasher, rules.ingest.broker.as_bytes());
    feed(hasher, position.log.as_bytes());
    feed(hasher, &position.partition.to_le_bytes());
    feed(hasher, &position.offset.to_le_bytes());
    feed(hasher, &message.timestamp_ms.unwrap_or(i64::MIN).to_le_bytes());
    true
}

/// AMQP: the producer's `message_id` and the whole content, read from this queue; false without a `message_id`.
fn named(hasher: &mut blake3::Hasher, message: &Message, rules: &Rules) -> bool {
    let id = message.properties.as_ref().and_then(|properties| properties.message_id.as_deref()).filter(|id| !id.is_empty());
    let (Some(id), Kind::Amqp) = (id, rules.kind) else { return false };
    feed(hasher, rules.ingest.broker.as_bytes());
    feed(hasher, rules.ingest.topic.as_bytes());
    feed(hasher, id.as_bytes());
    content(hasher, message)
}

/// Everything that the producer wrote. False where it cannot be encoded (nested past every limit): two messages must never look the same.
fn content(hasher: &mut blake3::Hasher, message: &Message) -> bool {
    feed(hasher, &message.body);
    feed(hasher, message.destination.exchange.as_bytes());
    feed(hasher, message.destination.address.as_bytes());
    let headers: Vec<&Header> = message.headers.iter().filter(|header| !CHANGING.contains(&header.name.as_str())).collect();
    rmp_serde::encode::write(hasher, &(message.has_body, &message.key, headers, &message.properties)).is_ok()
}

/// With its length before it, so that two fields cannot look like one.
fn feed(hasher: &mut blake3::Hasher, bytes: &[u8]) {
    hasher.update(&(bytes.len() as u64).to_le_bytes());
    hasher.update(bytes);
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
}
