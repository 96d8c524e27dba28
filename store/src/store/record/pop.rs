//! What a state says of the last pop of a job of a queue, or of the turn of a job of a broker.

use super::{MARK_EARLY, Nonce, StateRecord, VERSION};
use crate::policy::limit::Turn;

/// A job goes back to due for its turn by another clock than that of the turn, ms.
const MAX_DRIFT_MS: i64 = 1000;

impl StateRecord {
    /// The proof of the pop that handed the job out last, in the bytes of a state.
    pub(in crate::store) fn pop_of(bytes: &[u8]) -> Option<Nonce> {
        bytes.get(17..25)?.try_into().ok()
    }

    /// The last pop took the job before its due time.
    pub(in crate::store) fn is_early(&self) -> bool {
        self.marks & MARK_EARLY != 0
    }

    /// This state with the turn that its bytes hold, if the record is that of a job of a broker.
    pub(in crate::store) fn with_turn(self, bytes: &[u8], record: &[u8]) -> StateRecord {
        let is_of_broker = record.first() == Some(&VERSION);
        let turn = StateRecord::pop_of(bytes).filter(|_| is_of_broker);
        StateRecord { turn: turn.map_or(Turn::NONE, Turn::of_bytes), ..self }
    }

    /// Whether a job that has never been attempted, and is due again at `next_ms`, waits for its
    /// turn.
    pub(in crate::store) fn waits_for_turn(&self, next_ms: i64) -> bool {
        self.attempt == 0
            && self.turn != Turn::NONE
            && next_ms <= self.turn.at_ms().saturating_add(MAX_DRIFT_MS)
    }
}
