//! The messages that readers received.

use serde::{Deserialize, Serialize};

/// A message that was read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Arrival {
    /// `delayed-id`; of what came back `delay-id`; empty where it has none.
    pub id: String,
    /// Where it was read.
    pub topic: String,
    /// `delayed-due`, epoch ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_ms: Option<i64>,
    /// `delayed-attempt`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Of the body and the producer's own headers.
    pub digest: String,
    /// Where the broker has it: one place is one message, however often it is read. AMQP has no
    /// places.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// The broker says that it may have handed it out before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub redelivered: bool,
    /// When the broker took it, by the broker, epoch ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_ms: Option<i64>,
    /// `delayed-dead-reason`, or `delayed-error`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// `delay-action` of what came back; empty: `schedule`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub action: String,
}

/// A place in a log.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// Topic or stream.
    pub log: String,
    /// Its part.
    pub partition: i32,
    /// Where in it.
    pub offset: u64,
}

/// What an arrival is compared by: 16 hex digits of its body, and of the headers that its producer
/// set beside the control headers.
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
