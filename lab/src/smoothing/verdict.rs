//! The promises that a scenario found broken.

use serde::Serialize;

/// The most broken promises that are told.
const MAX_REPORTED: usize = 20;

/// The broken promises.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Wrongs {
    /// How many.
    pub wrongs: u64,
    /// The first of them.
    pub wrong: Vec<String>,
}

impl Wrongs {
    /// Notes a broken promise.
    pub(super) fn broken(&mut self, what: impl Into<String>) {
        self.wrongs += 1;
        if self.wrong.len() < MAX_REPORTED {
            self.wrong.push(what.into());
        }
    }
}
