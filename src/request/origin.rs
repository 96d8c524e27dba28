//! The identity of an inbound message: its fingerprint, and the id of a job without an id of its
//! own.

use std::io::{BufWriter, Write};

use dwell_connectors::{Header, Message};

use super::rules::RequestRules;
use super::{Origin, control};
use crate::delayed_headers::{DEAD_REASON, ID};
use crate::job::JobId;

/// Headers that RabbitMQ changes between deliveries of one message.
const REDELIVERY_HEADERS: [&str; 2] = ["x-delivery-count", "x-acquired-count"];
/// Half of the digits of a generated id.
const ID_HALF_DIGITS: usize = 16;

/// The fingerprint of an inbound message.
pub(super) fn origin(message: &Message, rules: &RequestRules) -> Origin {
    let mut fields = Fields::default();
    let known = if position(&mut fields, message, rules) {
        Some(true)
    } else {
        named(&mut fields, message, rules).then_some(message.redelivered || message.mark_lost)
    };
    let mut fingerprint = [0; 8];
    match known {
        Some(maybe_redelivered) => {
            fingerprint.copy_from_slice(&fields.hash().as_bytes()[..8]);
            Origin { fingerprint, maybe_redelivered, is_message: true }
        }
        // Unique, and looked up nevertheless: the client repeats a call whose answer was lost.
        None => Origin { fingerprint: rand::random(), maybe_redelivered: true, is_message: true },
    }
}

/// The id of a job without one: equal for all deliveries of one message where the broker identifies
/// messages, else random.
pub(super) fn generated_id(message: &Message, rules: &RequestRules) -> JobId {
    let mut fields = Fields::default();
    let known = if position(&mut fields, message, rules) {
        content(&mut fields, message)
    } else {
        named(&mut fields, message, rules)
    };
    if !known {
        return JobId::random();
    }
    let mut id = [0; 16];
    id.copy_from_slice(&fields.hash().as_bytes()[..16]);
    id_of(id)
}

fn id_of(bytes: [u8; 16]) -> JobId {
    JobId::new(hex(&bytes)).expect("32 hexadecimal digits are an id")
}

/// Whether a message with the same content would get the same id, although the broker reports a
/// first delivery.
pub(super) fn is_new_message(message: &Message, rules: &RequestRules) -> bool {
    message.position.is_none() && message_id(message, rules).is_some() && !message.redelivered
}

fn message_id<'a>(message: &'a Message, rules: &RequestRules) -> Option<&'a str> {
    let id = message.properties.as_ref()?.message_id.as_deref()?;
    (rules.source.is_some_and(|source| !source.log) && !id.is_empty()).then_some(id)
}

/// The id and the origin of the dead job of a bad request. `request`: as received; `message`: as
/// stored. The second half of the id is a hash of the content: a message of this job that returns
/// unchanged finds the job, and a header that names another job's id finds none.
pub(super) fn of_dead_job(
    request: &Message,
    message: &Message,
    rules: &RequestRules,
) -> (JobId, Origin) {
    let named = |first: &str| {
        format!("{first}{}", &content_hash(first, message).to_hex()[..ID_HALF_DIGITS])
    };
    let known = request
        .headers
        .text(ID)
        .filter(|id| id.get(..ID_HALF_DIGITS).is_some_and(|first| named(first) == *id));
    let (id, maybe_redelivered) = match known.and_then(|id| JobId::new(id).ok()) {
        // A dead letter changes nothing while its job exists. A message that was requeued and
        // published becomes a new job.
        Some(id) => (id, request.headers.get(DEAD_REASON).is_some()),
        None => {
            let id = JobId::new(named(&generated_id(request, rules).as_str()[..ID_HALF_DIGITS]))
                .expect("32 hexadecimal digits are an id");
            (id, origin(request, rules).maybe_redelivered)
        }
    };
    let mut fingerprint = [0; 8];
    fingerprint.copy_from_slice(&blake3::hash(id.as_str().as_bytes()).as_bytes()[..8]);
    (id, Origin { fingerprint, maybe_redelivered, is_message: true })
}

/// A hash of body and `delay-*` headers, which no broker changes. Bindings and shovels add other
/// headers.
fn content_hash(first: &str, message: &Message) -> blake3::Hash {
    let header = |header: &Header| {
        Some((
            control::strip_prefix_ignore_case(&header.name, "delay-")?.to_ascii_lowercase(),
            header.value.written()?.into_owned(),
        ))
    };
    let mut asked: Vec<(String, String)> = message.headers.iter().filter_map(header).collect();
    asked.sort_unstable();
    let mut fields = Fields::default();
    fields.feed(first.as_bytes());
    fields.feed(&message.body);
    for text in asked.iter().flat_map(|(name, value)| [name, value]) {
        fields.feed(text.as_bytes());
    }
    fields.hash()
}

/// Hashes broker, position and timestamp; false where the broker has no positions.
fn position(fields: &mut Fields, message: &Message, rules: &RequestRules) -> bool {
    let Some(position) = &message.position else { return false };
    fields.feed(rules.ingest.broker.as_bytes());
    fields.feed(position.log.as_bytes());
    fields.feed(&position.partition.to_le_bytes());
    fields.feed(&position.offset.to_le_bytes());
    fields.feed(&message.timestamp_ms.unwrap_or(i64::MIN).to_le_bytes());
    true
}

/// Hashes queue, `message_id` and content, for brokers without positions; false without a
/// `message_id`.
fn named(fields: &mut Fields, message: &Message, rules: &RequestRules) -> bool {
    let Some(id) = message_id(message, rules) else { return false };
    fields.feed(rules.ingest.broker.as_bytes());
    fields.feed(rules.ingest.topic.as_bytes());
    fields.feed(id.as_bytes());
    content(fields, message)
}

/// Hashes everything that the producer wrote. False where the encoding fails (nested too deep): two
/// messages must never have one hash.
fn content(fields: &mut Fields, message: &Message) -> bool {
    fields.feed(&message.body);
    fields.feed(message.destination.exchange.as_bytes());
    fields.feed(message.destination.address.as_bytes());
    let headers: Vec<&Header> = message
        .headers
        .iter()
        .filter(|header| !REDELIVERY_HEADERS.contains(&header.name.as_str()))
        .collect();
    rmp_serde::encode::write(
        &mut fields.0,
        &(message.has_body, &message.key, headers, &message.properties),
    )
    .is_ok()
}

/// Hashes fields. Short ones are collected first: a hasher copies what does not fill a block.
struct Fields(BufWriter<blake3::Hasher>);

impl Default for Fields {
    fn default() -> Self {
        Fields(BufWriter::with_capacity(1024, blake3::Hasher::new()))
    }
}

impl Fields {
    /// Hashes the length first, so that two fields cannot equal one.
    fn feed(&mut self, bytes: &[u8]) {
        let fed = self
            .0
            .write_all(&(bytes.len() as u64).to_le_bytes())
            .and_then(|()| self.0.write_all(bytes));
        fed.expect(HASHER_EXPECTATION);
    }

    fn hash(self) -> blake3::Hash {
        self.0.into_inner().expect(HASHER_EXPECTATION).finalize()
    }
}

/// Why writing to a hasher does not fail.
const HASHER_EXPECTATION: &str = "a hasher takes all bytes";

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_hash_as_their_bytes_in_a_row() {
        let (mut fields, mut row) = (Fields::default(), Vec::new());
        for length in [0, 5, 1023, 1024, 5000, 1] {
            let field = vec![7; length];
            fields.feed(&field);
            row.extend_from_slice(&(length as u64).to_le_bytes());
            row.extend_from_slice(&field);
        }
        assert_eq!(fields.hash(), blake3::hash(&row));
    }
}
