//! The deliveries that were lost with a delivery connection.
//!
//! - Behaviour: when async-nats ends a connection, it drops everything that it has not parsed (see
//!   `header_block`). The server counts these messages as delivered, and redelivers them after
//!   `ack_wait`.
//! - Workaround: the source naks them. The server does not say on which connection a message was
//!   delivered, so another reader may hold some of them. The nak has a delay, in which that reader
//!   settles its messages: the server ignores a nak of a settled message. If the reader holds a
//!   message longer, the message comes twice.
//! - May go when async-nats delivers messages with any header block and subject.

use std::collections::btree_map::{BTreeMap, Entry};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

/// The delay of a nak.
const NAK_DELAY: Duration = Duration::from_secs(1);
/// A nak with `NAK_DELAY`, in nanoseconds.
pub(in crate::nats) const NAK_WITH_DELAY: Bytes =
    Bytes::from_static(br#"-NAK {"delay":1000000000}"#);
/// The most naks of a message in a row: its redelivery may be lost with the next connection. After
/// that it comes after `ack_wait`.
const MAX_NAKS: u32 = 5;

/// The sequences of messages that may be lost and have not come since.
#[derive(Default)]
pub(super) struct LostDeliveries(BTreeMap<u64, Lost>);

struct Lost {
    attempts: u32,
    /// When the last nak ends. Until then another nak would only postpone the redelivery.
    due: Instant,
}

impl LostDeliveries {
    pub(super) fn add(&mut self, sequence: u64) {
        if let Entry::Vacant(place) = self.0.entry(sequence) {
            place.insert(Lost { attempts: 0, due: Instant::now() });
        }
    }

    /// Records that the message came.
    pub(super) fn came(&mut self, sequence: u64) {
        self.0.remove(&sequence);
    }

    /// Keeps only these sequences.
    pub(super) fn retain(&mut self, keep: impl Fn(u64) -> bool) {
        self.0.retain(|sequence, _| keep(*sequence));
    }

    /// The sequences to nak now. Asked at each loss of a connection.
    pub(super) fn due(&mut self) -> Vec<u64> {
        let (mut due, now) = (Vec::new(), Instant::now());
        self.0.retain(|sequence, lost| {
            if lost.due > now {
                return true;
            }
            due.push(*sequence);
            lost.attempts += 1;
            lost.due = now + NAK_DELAY;
            lost.attempts < MAX_NAKS
        });
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_is_the_one_of_the_nak() {
        assert_eq!(NAK_WITH_DELAY, format!(r#"-NAK {{"delay":{}}}"#, NAK_DELAY.as_nanos()));
    }

    #[tokio::test(start_paused = true)]
    async fn each_is_naked_again_after_the_delay_until_it_comes() {
        let mut lost = LostDeliveries::default();
        for sequence in 1..=3 {
            lost.add(sequence);
        }
        assert_eq!(lost.due(), [1, 2, 3]);
        lost.add(2);
        assert_eq!(lost.due(), [0; 0], "their naks are not over");
        lost.came(1);
        lost.retain(|sequence| sequence != 3);
        for _ in 1..MAX_NAKS {
            tokio::time::advance(NAK_DELAY).await;
            assert_eq!(lost.due(), [2]);
        }
        tokio::time::advance(NAK_DELAY).await;
        assert_eq!(lost.due(), [0; 0]);
    }
}
