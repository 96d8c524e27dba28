//! What follows from the answers of calls for places.

use std::time::Duration;

use super::work::PlaceWork;
use super::{Asking, MAX_BACK, Places, Taken, key_of};
use crate::clock::Instant;
use crate::dispatch::turns::ReadyJobs;
use crate::store::jobs::claim::ClaimedJob;
use crate::store::places::{PlaceAnswer, PlaceCall};

/// So long after a call that found no free place no job asks again, unless a place came free here.
const FULL_FOR: Duration = Duration::from_millis(10);
/// After a call that failed.
const RETRY_DELAY: Duration = Duration::from_millis(250);

/// What follows from an answer.
#[derive(Default)]
pub(in crate::dispatch) struct PlaceResults {
    /// The jobs that have a place, and since when each is ready.
    pub(in crate::dispatch) granted: ReadyJobs,
    /// The jobs that go back to due, and for how long.
    pub(in crate::dispatch) refused: Vec<(Box<ClaimedJob>, Duration)>,
    /// The buckets with jobs that are due now.
    pub(in crate::dispatch) due: Vec<u16>,
}

impl Places {
    /// A call was answered.
    pub(in crate::dispatch) fn answered(&mut self, work: PlaceWork, now: Instant) -> PlaceResults {
        let mut results = PlaceResults::default();
        match work {
            PlaceWork::Hastened(due) => results.due = due,
            PlaceWork::Judged(limit, given_back) => {
                let of = &mut self.limits[limit];
                if given_back > 0 {
                    of.full_until = None;
                    let called = of.line.call(given_back, now);
                    self.called.extend(called);
                }
            }
            PlaceWork::Changed(calls, Ok(answers)) => {
                self.is_slow = self.is_late(now);
                let begun = self.begun.unwrap_or(now);
                (self.begun, self.answered, self.retry_at) = (None, now, None);
                self.is_told = false;
                let mut asked = std::mem::take(&mut self.asked).into_iter().peekable();
                for ((limit, call), answer) in calls.into_iter().zip(answers) {
                    let mut of_limit = Vec::new();
                    while let Some(asking) = asked.next_if(|asking| asking.limit == limit) {
                        of_limit.push(asking);
                    }
                    self.took(limit, call, &answer, of_limit, (begun, now), &mut results);
                }
            }
            PlaceWork::Changed(calls, Err(error)) => {
                if !self.is_told && !error.is_told() {
                    let (broker, hint) = (&*self.broker, error.hint.as_str());
                    tracing::warn!(broker, %error, hint, "places of limited targets could not be taken, their jobs wait");
                }
                self.is_told = true;
                self.expect_no_free();
                self.give_spares_back();
                (self.begun, self.answered, self.retry_at) = (None, now, Some(now + RETRY_DELAY));
                for (limit, call) in calls {
                    let of = &mut self.limits[limit];
                    // The call may have been carried out all the same.
                    let taken = call.taken.into_iter().map(|(place, _)| place);
                    let room = MAX_BACK.saturating_sub(of.back.len());
                    of.back.extend(call.back.into_iter().chain(taken).take(room));
                    // Spare places are given back.
                    let kept = call.kept.into_iter().filter(|(place, _)| !place.is_spare());
                    of.kept.extend(kept.map(|(place, left)| (place, now + left)));
                }
                for asking in std::mem::take(&mut self.asked) {
                    let parked = self.park(asking, now);
                    results.refused.push(parked);
                }
            }
        }
        results
    }

    /// The jobs that asked for places of a limit have them or not. None is left if they waited too
    /// long.
    fn took(
        &mut self,
        limit: usize,
        call: PlaceCall,
        answer: &PlaceAnswer,
        asked: Vec<Asking>,
        (begun, now): (Instant, Instant),
        results: &mut PlaceResults,
    ) {
        let is_given_up = asked.is_empty();
        // A job on its way back to the store is not in the line yet.
        let mut is_any_refused = false;
        let taken = call.taken.into_iter().zip(&answer.taken);
        let mut taken = taken.map(|((place, _), is_taken)| (place, *is_taken));
        if is_given_up {
            let unused = taken.by_ref().filter_map(|(place, is_taken)| is_taken.then_some(place));
            self.limits[limit].back.extend(unused);
        } else {
            for (asking, (place, is_taken)) in asked.into_iter().zip(taken.by_ref()) {
                if is_taken {
                    let placed = (limit, Taken::Own(place));
                    self.taken.insert(key_of(&asking.lease.token), placed);
                    self.limits[limit].line.moved(now);
                    results.granted.push((asking.since, asking.lease));
                } else {
                    let parked = self.park(asking, now);
                    results.refused.push(parked);
                    is_any_refused = true;
                }
            }
        }
        let of = &mut self.limits[limit];
        of.spares.call_made(answer.now_us);
        // Spare ones stand behind those of jobs.
        for (place, _) in taken.filter(|(_, is_taken)| *is_taken) {
            of.spares.took(&place, begun, answer.now_us);
        }
        of.free = answer.free;
        let unused = of.spares.seen(answer.free);
        of.back.extend(unused);
        if answer.free > 0 {
            (of.full_until, of.full_since) = (None, None);
            self.called.extend(of.line.call(answer.free, now));
        } else {
            // A place that came free since is not in the answer.
            of.full_until = of.back.is_empty().then(|| now + FULL_FOR);
            of.full_since.get_or_insert(now);
            if of.is_time_to_judge(is_any_refused, now) {
                self.to_judge.push(limit);
            }
        }
    }
}
