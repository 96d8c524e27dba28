//! The parts of a stored schedule that a request for its id leaves as they are.

use crate::job::Job;

/// Parts of the message of each occurrence. They may hold what a request cannot say: types of
/// headers, AMQP properties, a tombstone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeptParts {
    /// The body, or that there is none.
    pub body: bool,
    /// The headers and the AMQP properties.
    pub headers: bool,
    /// The key.
    pub key: bool,
}

impl KeptParts {
    /// Whether any part is kept.
    #[must_use]
    pub fn is_any(self) -> bool {
        self != KeptParts::default()
    }

    /// The new job with these parts of the stored one. They passed the rules for its target, and no
    /// others: `None` if the new job has another target or queue.
    #[must_use]
    pub fn of(self, stored: &Job, mut new: Job) -> Option<Job> {
        if self.is_any() && stored.target != new.target {
            return None;
        }
        if self.body {
            (new.body, new.has_body) = (stored.body.clone(), stored.has_body);
        }
        if self.headers {
            (new.headers, new.properties) = (stored.headers.clone(), stored.properties.clone());
            new.origin.clone_from(&stored.origin);
        }
        if self.key {
            new.key.clone_from(&stored.key);
        }
        Some(new)
    }
}
