//! What tells one inbound message from every other: its fingerprint, and the id of a job that came without one.

use dwell_connectors::{Header, Message};

use super::rules::Rules;
use super::{Origin, control};
use crate::job::JobId;

/// Headers that RabbitMQ changes from one delivery of a message to the next.
const CHANGING: [&str; 2] = ["x-delivery-count", "x-acquired-count"];
/// Half of the digits of an id that is made here.
const HALF: usize = 16;

/// The fingerprint of an inbound message.
pub(super) fn origin(message: &Message, rules: &Rules) -> Origin {
    let mut hasher = blake3::Hasher::new();
    let known = if position(&mut hasher, message, rules) {
        Some(true)
    } else {
        named(&mut hasher, message, rules).then_some(message.redelivered || message.mark_lost)
    };
    let mut fingerprint = [0; 8];
    match known {
        Some(check) => {
            fingerprint.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
            Origin { fingerprint, check, is_message: true }
        }
        // Like no other, and looked up all the same: a call whose answer was lost is made again.
        None => Origin { fingerprint: rand::random(), check: true, is_message: true },
    }
}

/// The id of a job that came without one: the same for every delivery of one message where the broker lets that be told, else random.
pub(super) fn generated_id(message: &Message, rules: &Rules) -> JobId {
    let mut hasher = blake3::Hasher::new();
    let known = if position(&mut hasher, message, rules) { content(&mut hasher, message) } else { named(&mut hasher, message, rules) };
    if !known {
        return JobId::random();
    }
    let mut id = [0; 16];
    id.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    id_of(id)
}

fn id_of(bytes: [u8; 16]) -> JobId {
    JobId::new(hex(&bytes)).expect("32 hexadecimal digits are an id")
}

/// Whether the id of its job would be that of every message with the same content, though the broker says that it was not delivered before.
pub(super) fn is_first(message: &Message, rules: &Rules) -> bool {
    message.position.is_none() && message_id(message, rules).is_some() && !message.redelivered
}

fn message_id<'a>(message: &'a Message, rules: &Rules) -> Option<&'a str> {
    let id = message.properties.as_ref()?.message_id.as_deref()?;
    (rules.source.is_some_and(|source| !source.log) && !id.is_empty()).then_some(id)
}

/// The id of the job that keeps a bad request, and its origin. `request` as it came, `message` as it is kept. The second half of the id tells the content
/// from every other: what is published of the job and comes back unchanged finds that job again, and no other job is found by a header.
pub(super) fn kept(request: &Message, message: &Message, rules: &Rules) -> (JobId, Origin) {
    let named = |first: &str| format!("{first}{}", &told(first, message).to_hex()[..HALF]);
    let known = request.headers.text("delayed-id").filter(|id| id.get(..HALF).is_some_and(|first| named(first) == *id));
    let (id, check) = match known.and_then(|id| JobId::new(id).ok()) {
        // While its job is there a dead letter changes nothing. A requeued one, which left, is kept anew.
        Some(id) => (id, request.headers.get("delayed-dead-reason").is_some()),
        None => {
            let id = JobId::new(named(&generated_id(request, rules).as_str()[..HALF])).expect("32 hexadecimal digits are an id");
            (id, origin(request, rules).check)
        }
    };
    let mut fingerprint = [0; 8];
    fingerprint.copy_from_slice(&blake3::hash(id.as_str().as_bytes()).as_bytes()[..8]);
    (id, Origin { fingerprint, check, is_message: true })
}

/// Body and `delay-*` headers, which no broker changes on a way round; bindings and shovels add headers of their own.
fn told(first: &str, message: &Message) -> blake3::Hash {
    let header = |header: &Header| {
        Some((control::strip_prefix_ignore_case(&header.name, "delay-")?.to_ascii_lowercase(), header.value.written()?.into_owned()))
    };
    let mut asked: Vec<(String, String)> = message.headers.iter().filter_map(header).collect();
    asked.sort_unstable();
    let mut hasher = blake3::Hasher::new();
    feed(&mut hasher, first.as_bytes());
    feed(&mut hasher, &message.body);
    for text in asked.iter().flat_map(|(name, value)| [name, value]) {
        feed(&mut hasher, text.as_bytes());
    }
    hasher.finalize()
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
    let Some(id) = message_id(message, rules) else { return false };
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
