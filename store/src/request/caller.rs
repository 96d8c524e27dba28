//! The caller of a request: the identity of its message, and its queues.

use std::sync::Arc;

/// The queues of a caller that has neither all queues nor a target on a broker: the store compares
/// them with the owner of the job in the same step that changes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnQueues(Arc<str>);

impl OwnQueues {
    /// The queues of these names and patterns; `*` in a pattern is any characters.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        // No queue has a name with a space.
        let names: Vec<&str> =
            names.into_iter().filter(|name| !name.contains(char::is_whitespace)).collect();
        OwnQueues(names.join(" ").into())
    }

    /// All queues.
    #[must_use]
    pub fn any() -> Self {
        OwnQueues::new(["*"])
    }

    /// The names in the notation of the scripts.
    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

/// The identity of an inbound message, by which a redelivery changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// A hash of broker, position and more; random if the broker reports nothing that a redelivery
    /// has in common.
    pub fingerprint: [u8; 8],
    /// The message may be a redelivery, or the call a repeat: look up its fingerprint among the
    /// applied ones.
    pub maybe_redelivered: bool,
    /// True for a message, which may be redelivered after later ones. False for a call, which
    /// nobody repeats after its answer.
    pub is_message: bool,
}

impl Origin {
    /// The identity of a call: random, and looked up all the same, because a call without an answer
    /// is repeated.
    #[must_use]
    pub fn of_call() -> Self {
        Origin { fingerprint: rand::random(), maybe_redelivered: true, is_message: false }
    }
}
