//! The times of a cron expression in a zone, one after the other in both directions.

use crate::cron::Cron;
use crate::occurrence_id::MAX_TIME_MS;
use crate::segment::Segment;
use crate::zone::Zone;

/// The search ends here.
const MAX_TIME_S: i64 = MAX_TIME_MS / 1_000;

/// Finds the times of an expression, epoch seconds, and keeps the segment of the last one.
///
/// A fixed expression fires at the first time at which the clock has reached one of its local
/// times; a repeating one whenever the clock shows one of them.
pub(crate) struct Cursor<'a> {
    cron: &'a Cron,
    zone: &'a Zone,
    segment: Option<Segment>,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(cron: &'a Cron, zone: &'a Zone) -> Self {
        Self { cron, zone, segment: None }
    }

    /// The first time that is not before this one.
    pub(crate) fn first_from(&mut self, from: i64) -> Option<i64> {
        let mut segment = self.segment_of(from);
        loop {
            if let Some(found) = self.first_in(&segment, from.max(segment.from)) {
                return (found <= MAX_TIME_S).then_some(found);
            }
            segment = segment.next(self.zone).filter(|next| next.from <= MAX_TIME_S)?;
            self.segment = Some(segment);
        }
    }

    /// The last time from `from` to `to`, both included.
    pub(crate) fn last_in(&mut self, from: i64, to: i64) -> Option<i64> {
        let mut segment = self.segment_of(to);
        loop {
            if let Some(found) = self.last_until(&segment, from, to.min(segment.until - 1)) {
                return (found >= from).then_some(found);
            }
            if segment.from <= from {
                return None;
            }
            segment = segment.previous(self.zone)?;
            self.segment = Some(segment);
        }
    }

    fn segment_of(&mut self, second: i64) -> Segment {
        let segment = self
            .segment
            .filter(|segment| segment.contains(second))
            .unwrap_or_else(|| Segment::at(self.zone, second));
        self.segment = Some(segment);
        segment
    }

    /// The first time in the segment from `from`, which lies in it.
    fn first_in(&self, segment: &Segment, from: i64) -> Option<i64> {
        let mut local = from + segment.offset;
        if self.cron.is_fixed() {
            // Those in the gap before the segment fire at its begin.
            if from == segment.from && self.fires_in_gap(segment) {
                return Some(from);
            }
            local = local.max(segment.unseen);
        }
        let until = segment.local_until().min(MAX_TIME_S + segment.offset + 1);
        Some(self.cron.first_in(local, until)? - segment.offset)
    }

    /// The last time in the segment from `from` to `to`, which lies in it, or one before `from`.
    fn last_until(&self, segment: &Segment, from: i64, to: i64) -> Option<i64> {
        let mut local = segment.local_from().max(from.max(0) + segment.offset);
        if self.cron.is_fixed() {
            local = local.max(segment.unseen);
        }
        let found = self.cron.last_in(local, to + segment.offset + 1);
        found.map(|local| local - segment.offset).or_else(|| {
            (self.cron.is_fixed() && self.fires_in_gap(segment)).then_some(segment.from)
        })
    }

    /// Whether the expression has a local time that the clock skipped at the begin of the segment.
    fn fires_in_gap(&self, segment: &Segment) -> bool {
        segment.gap().is_some_and(|(first, shown)| self.cron.first_in(first, shown).is_some())
    }
}
