//! One partition as a source has read it: which offsets are open, which shall come again, and how far it may be committed.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

/// How long after a position was handed over it is handed over once more, where nothing was settled since: it may have been refused, and nobody says so.
const REPEAT: Duration = Duration::from_secs(30);

/// One partition, from its assignment to its end.
#[derive(Debug, Default)]
pub(super) struct PartitionOffsets {
    /// Tells this assignment from every other.
    pub(super) generation: u64,
    /// Read and not acked.
    open: BTreeSet<i64>,
    /// Those of `open` that were given back: they come again.
    nacked: BTreeSet<i64>,
    /// After the last that was read.
    next: Option<i64>,
    /// The source has to go back for them.
    turn: bool,
    /// What comes now up to here was read before: the source went back.
    again_until: Option<i64>,
    /// What comes again comes from here on: where the source went back to, then after the last that came.
    again_from: i64,
    /// Whether it went back for sure. Where that is open, nothing follows from what does not come.
    sure: bool,
    /// The last position that was handed over to be committed.
    handed: Option<Handed>,
    /// The last position that the broker is known to have.
    stored: Option<i64>,
}

/// A position that was handed over to be committed.
#[derive(Debug)]
struct Handed {
    position: i64,
    at: Instant,
    /// That was its repetition.
    again: bool,
}

impl PartitionOffsets {
    pub(super) fn new(generation: u64) -> Self {
        PartitionOffsets { generation, ..PartitionOffsets::default() }
    }

    /// Takes in what was read; false for what is not to be delivered, because it is settled or held.
    pub(super) fn read(&mut self, offset: i64) -> bool {
        if let Some(end) = self.again_until {
            // Before where the source went back to: a log that lost its end, as below.
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
        // An offset before `next` is a log that lost its end, or a reset to its beginning: other messages, to be read.
        self.open.insert(offset);
        self.next = Some(offset + 1);
        true
    }

    /// The log has no more for now; true where something that was given back is not there any more.
    pub(super) fn at_end(&mut self) -> bool {
        self.again_until.take().is_some() && self.gone_until(i64::MAX)
    }

    /// What was given back, and is not between the last that came again and this, is gone: compacted, or deleted. That settles it. What was given
    /// back only after the source had passed it is still there: it takes another turn.
    fn gone_until(&mut self, end: i64) -> bool {
        let gone: Vec<i64> =
            if self.sure && self.again_from < end { self.nacked.range(self.again_from..end).copied().collect() } else { Vec::new() };
        for offset in &gone {
            self.nacked.remove(offset);
            self.open.remove(offset);
        }
        !gone.is_empty()
    }

    /// This offset is done; false where it was not held.
    pub(super) fn ack(&mut self, offset: i64) -> bool {
        !self.nacked.contains(&offset) && self.open.remove(&offset)
    }

    /// This offset shall come again; false where it was not held.
    pub(super) fn nack(&mut self, offset: i64) -> bool {
        let held = self.open.contains(&offset) && self.nacked.insert(offset);
        self.turn |= held;
        held
    }

    /// Where to go back to, where something shall come again and the source did not go back yet.
    pub(super) fn back_to(&self) -> Option<i64> {
        self.nacked.first().copied().filter(|_| self.turn)
    }

    /// The source went back to this offset, for sure or perhaps: what it reads next it may have read before. What was given back meanwhile from
    /// before it takes another turn, and so does all where it is not sure.
    pub(super) fn went_back(&mut self, to: i64, sure: bool) {
        self.turn = !sure || self.nacked.first().is_some_and(|first| *first < to);
        self.again_from = to;
        self.again_until = self.next;
        self.sure = sure;
    }

    /// How many are read, neither acked nor given back.
    pub(super) fn held(&self) -> usize {
        self.open.len() - self.nacked.len()
    }

    /// The position to commit: everything before it is settled. `None` where the broker has it, or may have it and nobody waits to be sure (`sure`).
    pub(super) fn to_commit(&self, sure: bool) -> Option<i64> {
        // Before anything was settled there is nothing to say.
        let position = self.open.first().copied().or(self.next)?;
        if self.stored == Some(position) {
            return None;
        }
        match &self.handed {
            Some(handed) if !sure && handed.position == position => (!handed.again && handed.at.elapsed() >= REPEAT).then_some(position),
            _ => Some(position),
        }
    }

    /// The position is handed over to be committed. Where somebody waits for that (`sure`) it counts as stored, until `not_committed`.
    pub(super) fn committed(&mut self, position: i64, sure: bool) {
        let again = self.handed.as_ref().is_some_and(|handed| handed.position == position);
        self.handed = Some(Handed { position, at: Instant::now(), again });
        self.stored = sure.then_some(position);
    }

    /// The position that was handed over last was not committed.
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
        // The same before the source said that it went back.
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
        (0..10).filter(|offset| ![2, 4].contains(offset)).for_each(|offset| assert!(offsets.ack(offset)));
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
        // By the next message after what was read before, or by the end of the log.
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
            assert_eq!((offsets.back_to(), offsets.to_commit(false)), (None, Some(comes.map_or(10, |offset| offset + 1))));
        }
        // Where the source did not go back there is nothing to conclude.
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
        // It went back later after all.
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
        assert_eq!((offsets.to_commit(false), offsets.to_commit(true)), (None, Some(2)), "who waits is sure");
        tokio::time::advance(REPEAT - Duration::from_millis(1)).await;
        assert_eq!(offsets.to_commit(false), None);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(offsets.to_commit(false), Some(2), "never more than is settled");
        offsets.committed(2, false);
        tokio::time::advance(REPEAT * 10).await;
        assert_eq!((offsets.to_commit(false), offsets.to_commit(true)), (None, Some(2)), "once");
        offsets.committed(2, true);
        assert_eq!((offsets.to_commit(false), offsets.to_commit(true)), (None, None));
        // What is settled later has a repetition of its own.
        offsets.ack(2);
        offsets.committed(3, false);
        tokio::time::advance(REPEAT).await;
        assert_eq!(offsets.to_commit(false), Some(3));
    }

    #[test]
    fn what_was_given_back_comes_again_and_nothing_else() {
        let mut offsets = offsets(0..6);
        offsets.ack(1);
        assert!(offsets.nack(2) && offsets.nack(4) && !offsets.nack(4) && !offsets.nack(1));
        assert!(!offsets.ack(4));
        assert_eq!((offsets.back_to(), offsets.held()), (Some(2), 3));
        // One more was under way.
        assert!(offsets.read(6));
        back(&mut offsets);
        assert_eq!(offsets.back_to(), None);
        let again: Vec<i64> = (2..8).filter(|offset| offsets.read(*offset)).collect();
        assert_eq!(again, [2, 4, 7]);
        assert_eq!((offsets.back_to(), offsets.held(), offsets.to_commit(false)), (None, 7, Some(0)));
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
