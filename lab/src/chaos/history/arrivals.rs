//! The messages that readers received.

use serde::{Deserialize, Serialize};

/// A received message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Arrival {
    /// `delayed-id`; for a returned request `delay-id`; empty without one.
    pub id: String,
    /// The destination that was read.
    pub topic: String,
    /// `delayed-due`, epoch ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_ms: Option<i64>,
    /// `delayed-attempt`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// `delayed-occurrence`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub occurrence: Option<u64>,
    /// The [`digest`] of the body and the producer's own headers.
    pub digest: String,
    /// The position in the broker's log, which identifies the message over redeliveries. AMQP has
    /// no positions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// The broker marks the message as possibly redelivered.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub redelivered: bool,
    /// The time of receipt by the broker's clock, epoch ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_ms: Option<i64>,
    /// `delayed-dead-reason`, or `delayed-error`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// `delay-action` of a returned request; empty: `schedule`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub action: String,
}

/// A position in a log.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// Topic or stream.
    pub log: String,
    /// The partition.
    pub partition: i32,
    /// The position in the partition.
    pub offset: u64,
}

/// A hash of the body and of the headers except control headers, 16 hexadecimal digits. Arrivals
/// are compared by it.
#[must_use]
pub fn digest<'a>(body: &[u8], headers: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(body.len() as u64).to_be_bytes()).update(body);
    let mut headers: Vec<_> = headers.into_iter().collect();
    headers.sort_unstable();
    for (name, value) in headers {
        hasher.update(name.as_bytes()).update(&[0]).update(value.as_bytes()).update(&[0]);
    }
    hasher.finalize().to_hex()[..16].to_owned()
}
