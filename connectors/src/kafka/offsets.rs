//! The offsets of one partition: which are open, which must be read again, and what may be
//! committed.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

/// The time after which a position is committed once more if nothing was settled since: an
/// asynchronous commit may have failed without a report.
const RECOMMIT_INTERVAL: Duration = Duration::from_secs(30);

/// One partition, from its assignment to its revocation.
#[derive(Debug, Default)]
pub(super) struct PartitionOffsets {
    /// The number of this assignment.
    pub(super) generation: u64,
    /// Read and not acked.
    open: BTreeSet<i64>,
    /// The nacked ones of `open`: they must be read again.
    nacked: BTreeSet<i64>,
    /// The offset after the last one read.
    next: Option<i64>,
    /// The source must seek back to them.
    turn: bool,
    /// The source sought back: offsets below this were read before.
    again_until: Option<i64>,
    /// The lower bound of the next reread offset: first the position of the seek, then after the
    /// last offset read.
    again_from: i64,
    /// Whether the seek was confirmed. If not, a missing offset proves nothing.
    sure: bool,
    /// The last position handed over for a commit.
    handed: Option<Handed>,
    /// The last position that the broker is known to have.
    stored: Option<i64>,
}

/// A position handed over for a commit.
#[derive(Debug)]
struct Handed {
    position: i64,
    at: Instant,
    /// It was handed over for the second time.
    again: bool,
}

impl PartitionOffsets {
    pub(super) fn new(generation: u64) -> Self {
        PartitionOffsets { generation, ..PartitionOffsets::default() }
    }

    /// Records an offset read; false if the message must not be delivered, because it is settled or
    /// held.
    pub(super) fn read(&mut self, offset: i64) -> bool {
        if let Some(end) = self.again_until {
            // Below the position of the seek: the log lost its end, as below.
            if offset < self.again_from {
                self.again_until = None;
            } else {
                self.gone_until(offset);
                self.again_from = offset + 1;
                if offset + 1 >= end {
                    self.again_until = None;
                }
                if offset < end {
                    return self.nacked.remove(&offset);
                }
            }
        }
        // An offset below `next` means that the log lost its end, or was reset to its beginning:
        // new messages, to be read.
        self.open.insert(offset);
        self.next = Some(offset + 1);
        true
    }

    /// The partition is at its end; true if a nacked message is no longer in the log.
    pub(super) fn at_end(&mut self) -> bool {
        self.again_until.take().is_some() && self.gone_until(i64::MAX)
    }

    /// Settles nacked offsets between the last reread offset and this one: they are gone, compacted
    /// or deleted. An offset nacked after the source had passed it still exists, and needs another
    /// seek.
    fn gone_until(&mut self, end: i64) -> bool {
        let gone: Vec<i64> = if self.sure && self.again_from < end {
            self.nacked.range(self.again_from..end).copied().collect()
        } else {
            Vec::new()
        };
        for offset in &gone {
            self.nacked.remove(offset);
            self.open.remove(offset);
        }
        !gone.is_empty()
    }

    /// Acks an offset; false if it was not held.
    pub(super) fn ack(&mut self, offset: i64) -> bool {
        !self.nacked.contains(&offset) && self.open.remove(&offset)
    }

    /// Nacks an offset; false if it was not held.
    pub(super) fn nack(&mut self, offset: i64) -> bool {
        let held = self.open.contains(&offset) && self.nacked.insert(offset);
        self.turn |= held;
        held
    }

    /// The position to seek back to, if a nacked offset needs it.
    pub(super) fn back_to(&self) -> Option<i64> {
        self.nacked.first().copied().filter(|_| self.turn)
    }

    /// The source sought back to this offset; `sure`: the seek was confirmed. Offsets nacked
    /// meanwhile below it need another seek, and all of them do if the seek was not confirmed.
    pub(super) fn went_back(&mut self, to: i64, sure: bool) {
        self.turn = !sure || self.nacked.first().is_some_and(|first| *first < to);
        self.again_from = to;
        self.again_until = self.next;
        self.sure = sure;
    }

    /// The number of offsets read, neither acked nor nacked.
    pub(super) fn held(&self) -> usize {
        self.open.len() - self.nacked.len()
    }

    /// The position to commit: everything below is settled. `None` if the broker has it, or may
    /// have it and nobody waits for certainty (`sure`).
    pub(super) fn to_commit(&self, sure: bool) -> Option<i64> {
        // Nothing to commit before anything is read.
        let position = self.open.first().copied().or(self.next)?;
        if self.stored == Some(position) {
            return None;
        }
        match &self.handed {
            Some(handed) if !sure && handed.position == position => {
                (!handed.again && handed.at.elapsed() >= RECOMMIT_INTERVAL).then_some(position)
            }
            _ => Some(position),
        }
    }

    /// Records that the position is handed over for a commit. If the caller waits (`sure`) it
    /// counts as stored, until `not_committed`.
    pub(super) fn committed(&mut self, position: i64, sure: bool) {
        let again = self.handed.as_ref().is_some_and(|handed| handed.position == position);
        self.handed = Some(Handed { position, at: Instant::now(), again });
        self.stored = sure.then_some(position);
    }

    /// The last commit failed.
    pub(super) fn not_committed(&mut self) {
        (self.handed, self.stored) = (None, None);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn offsets(list: impl IntoIterator<Item = i64>) -> PartitionOffsets {
        let mut offsets = PartitionOffsets::new(1);
        for offset in list {
            assert!(offsets.read(offset));
        }
        offsets
    }

    fn back(offsets: &mut PartitionOffsets) {
        let to = offsets.back_to().unwrap();
        offsets.went_back(to, true);
    }

    #[test]
    fn what_is_given_back_while_it_reads_again_is_not_taken_for_gone() {
        let mut offsets = offsets(0..20);
        for offset in (0..20).filter(|offset| ![2, 8].contains(offset)) {
            offsets.ack(offset);
        }
        offsets.nack(8);
        back(&mut offsets);
        offsets.nack(2);
        assert!(offsets.read(8));
        assert_eq!((offsets.back_to(), offsets.to_commit(false)), (Some(2), Some(2)));
        // The same if the nack comes before the source recorded the seek.
        let mut offsets = self::offsets(0..20);
        offsets.nack(8);
        let to = offsets.back_to().unwrap();
        offsets.nack(2);
        offsets.went_back(to, true);
        assert_eq!(offsets.back_to(), Some(2));
    }

    #[test]
    fn what_is_given_back_after_the_source_passed_it_comes_again() {
        let mut offsets = offsets(0..10);
        (0..10)
            .filter(|offset| ![2, 4].contains(offset))
            .for_each(|offset| assert!(offsets.ack(offset)));
        offsets.nack(2);
        back(&mut offsets);
        let again: Vec<i64> = (2..7).filter(|offset| offsets.read(*offset)).collect();
        assert_eq!(again, [2]);
        offsets.nack(4);
        offsets.ack(2);
        assert!(!offsets.read(7) && !offsets.read(8) && !offsets.read(9));
        assert_eq!((offsets.back_to(), offsets.to_commit(false)), (Some(4), Some(4)));
        back(&mut offsets);
        assert!(offsets.read(4) && offsets.ack(4));
        assert_eq!(offsets.to_commit(false), Some(10));
    }

    #[test]
    fn what_was_given_back_and_is_gone_up_to_the_end_is_settled() {
        // Shown by the next message after those read before, or by the end of the log.
        for comes in [Some(12), None] {
            let mut offsets = offsets(0..10);
            (0..8).for_each(|offset| assert!(offsets.ack(offset)));
            offsets.nack(8);
            back(&mut offsets);
            offsets.nack(9);
            match comes {
                Some(offset) => assert!(offsets.read(offset) && offsets.ack(offset)),
                None => assert!(offsets.at_end() && !offsets.at_end()),
            }
            assert_eq!(
                (offsets.back_to(), offsets.to_commit(false)),
                (None, Some(comes.map_or(10, |offset| offset + 1)))
            );
        }
        // Without a seek there is nothing to conclude.
        let mut offsets = offsets(0..10);
        offsets.nack(8);
        assert!(!offsets.at_end());
        assert_eq!(offsets.to_commit(false), Some(0));
    }

    #[test]
    fn what_does_not_come_is_not_gone_where_the_source_may_not_have_gone_back() {
        let mut offsets = offsets(0..10);
        (0..8).for_each(|offset| assert!(offsets.ack(offset)));
        offsets.nack(8);
        let to = offsets.back_to().unwrap();
        offsets.went_back(to, false);
        assert!(offsets.read(10) && !offsets.at_end());
        assert_eq!((offsets.back_to(), offsets.to_commit(false)), (Some(8), Some(8)));
        // The seek took effect later.
        offsets.went_back(8, false);
        let again: Vec<i64> = (8..12).filter(|offset| offsets.read(*offset)).collect();
        assert_eq!(again, [8, 11]);
    }

    #[test]
    fn a_log_that_begins_anew_while_it_is_read_again_is_read() {
        let mut offsets = offsets(100..110);
        offsets.nack(105);
        back(&mut offsets);
        assert!(offsets.read(7) && offsets.read(8));
        assert_eq!(offsets.to_commit(false), Some(7));
    }

    #[test]
    fn only_the_settled_prefix_is_committed() {
        let mut offsets = offsets([3, 4, 7, 8]);
        assert_eq!(offsets.to_commit(false), Some(3));
        offsets.ack(4);
        offsets.ack(8);
        assert_eq!(offsets.to_commit(false), Some(3));
        offsets.ack(3);
        assert_eq!(offsets.to_commit(false), Some(7));
        offsets.committed(7, true);
        assert_eq!(offsets.to_commit(false), None);
        assert!(offsets.ack(7) && !offsets.ack(7));
        assert_eq!((offsets.to_commit(false), offsets.held()), (Some(9), 0));
        offsets.not_committed();
        assert_eq!(offsets.to_commit(false), Some(9));
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_waited_for_is_committed_once_more() {
        let mut offsets = offsets(0..3);
        assert!(offsets.ack(0) && offsets.ack(1));
        offsets.committed(2, false);
        assert_eq!(
            (offsets.to_commit(false), offsets.to_commit(true)),
            (None, Some(2)),
            "who waits is sure"
        );
        tokio::time::advance(RECOMMIT_INTERVAL - Duration::from_millis(1)).await;
        assert_eq!(offsets.to_commit(false), None);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(offsets.to_commit(false), Some(2), "never more than is settled");
        offsets.committed(2, false);
        tokio::time::advance(RECOMMIT_INTERVAL * 10).await;
        assert_eq!((offsets.to_commit(false), offsets.to_commit(true)), (None, Some(2)), "once");
        offsets.committed(2, true);
        assert_eq!((offsets.to_commit(false), offsets.to_commit(true)), (None, None));
        // A later position has a repetition of its own.
        offsets.ack(2);
        offsets.committed(3, false);
        tokio::time::advance(RECOMMIT_INTERVAL).await;
        assert_eq!(offsets.to_commit(false), Some(3));
    }

    #[test]
    fn what_was_given_back_comes_again_and_nothing_else() {
        let mut offsets = offsets(0..6);
        offsets.ack(1);
        assert!(offsets.nack(2) && offsets.nack(4) && !offsets.nack(4) && !offsets.nack(1));
        assert!(!offsets.ack(4));
        assert_eq!((offsets.back_to(), offsets.held()), (Some(2), 3));
        // One more was on its way.
        assert!(offsets.read(6));
        back(&mut offsets);
        assert_eq!(offsets.back_to(), None);
        let again: Vec<i64> = (2..8).filter(|offset| offsets.read(*offset)).collect();
        assert_eq!(again, [2, 4, 7]);
        assert_eq!(
            (offsets.back_to(), offsets.held(), offsets.to_commit(false)),
            (None, 7, Some(0))
        );
    }

    #[test]
    fn what_was_given_back_and_is_gone_is_settled() {
        let mut offsets = offsets(0..5);
        for offset in [0, 1, 3, 4] {
            offsets.ack(offset);
        }
        offsets.nack(2);
        back(&mut offsets);
        assert!(!offsets.read(3));
        assert_eq!((offsets.to_commit(false), offsets.back_to()), (Some(5), None));
    }

    #[test]
    fn a_log_that_begins_anew_is_read() {
        let mut offsets = offsets(100..103);
        for offset in 100..103 {
            offsets.ack(offset);
        }
        assert!(offsets.read(7));
        assert_eq!(offsets.to_commit(false), Some(7));
        offsets.ack(7);
        assert_eq!(offsets.to_commit(false), Some(8));
    }
}
