//! The limit of one pattern, as this agent knows it.

use std::time::Duration;

use super::MAX_BACK;
use super::line::Line;
use super::spares::Spares;
use crate::clock::Instant;
use crate::policy::limit::mark_of;
use crate::store::limits::Limit;
use crate::store::places::PlaceLimit;
use crate::store::places::place::Place;

/// A limit without a free place has its places judged so often while jobs wait: who finishes a held
/// job does not know the limit.
const JUDGE_INTERVAL: Duration = Duration::from_millis(500);

/// The limit of one pattern.
pub(super) struct Limited {
    pub(super) limit: PlaceLimit,
    /// The mark in the states of the jobs that wait for a place.
    pub(super) mark: u16,
    /// Where the pattern has a rate: the mark of its turns, and how long these are good, ms.
    pub(super) turns: Option<(u16, i64)>,
    pub(super) line: Line,
    pub(super) spares: Spares,
    /// Places whose attempts are over.
    pub(super) back: Vec<Place>,
    /// Places of jobs that are held until then.
    pub(super) kept: Vec<(Place, Instant)>,
    /// The free places after the last call.
    pub(super) free: usize,
    /// No free place until then.
    pub(super) full_until: Option<Instant>,
    /// Since when no call found a free place, and when the places were judged last.
    pub(super) full_since: Option<Instant>,
    pub(super) judged: Option<Instant>,
    /// How many jobs waited when that was told last.
    pub(super) told: u64,
}

impl Limited {
    pub(super) fn new(
        (broker, pattern): (&str, &str),
        most: u32,
        turns: Option<&Limit>,
        lease: Duration,
        now: Instant,
    ) -> Limited {
        let limit = PlaceLimit::of_targets(broker, pattern, most);
        Limited {
            mark: mark_of(&format!("{} in_flight", limit.name())),
            limit,
            turns: turns.map(|limit| (limit.mark(), limit.rate().turn_ttl_ms())),
            line: Line::new(now),
            spares: Spares::new(most, lease, now),
            back: Vec::new(),
            kept: Vec::new(),
            free: 0,
            full_until: None,
            full_since: None,
            judged: None,
            told: 0,
        }
    }

    /// Has the next call give this place back.
    pub(super) fn give_back(&mut self, place: Option<Place>) {
        if self.back.len() < MAX_BACK {
            self.back.extend(place);
        }
    }

    /// Whether it is time to judge the places, which have no room for the jobs that wait.
    /// `is_any_refused`: a job has just got none.
    pub(super) fn is_time_to_judge(&mut self, is_any_refused: bool, now: Instant) -> bool {
        let Some(since) = self.full_since else { return false };
        let from = self.judged.map_or(since, |judged| judged.max(since));
        let has_waiting = is_any_refused || !self.line.is_empty(now);
        let is_time = now >= from + JUDGE_INTERVAL && has_waiting;
        if is_time {
            self.judged = Some(now);
        }
        is_time
    }
}
