//! The next call of an agent for places: its time, and what it changes.

use std::time::Duration;

use super::spares::Renewal;
use super::work::{PlaceWork, Work};
use super::{Asking, MAX_CALL_WAIT, Places, place_of};
use crate::clock::Instant;
use crate::store::places::{LEASE_MARGIN, PlaceCall, Waiting};

/// While jobs wait, Redis is asked for free places so often: other instances give theirs back. Less
/// often where no job has got a place for long.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
const SLOW_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The most places that one call gives back, and keeps for held jobs, of one limit: Redis does
/// nothing else meanwhile. Once a call renews as many spare places, other limits wait for the next
/// call with theirs.
pub(super) const MAX_CHANGES: usize = 1000;

impl Places {
    /// The next call, not running yet. One that changes places runs at a time.
    pub(in crate::dispatch) fn next_call(
        &mut self,
        now: Instant,
    ) -> Option<impl Future<Output = PlaceWork> + use<>> {
        let work = self.next_work(now)?;
        let (store, broker) = (self.store.clone(), self.broker.clone());
        Some(async move { work.run(&store, &broker).await })
    }

    fn next_work(&mut self, now: Instant) -> Option<Work> {
        if !self.called.is_empty() {
            return Some(Work::hasten(std::mem::take(&mut self.called)));
        }
        if let Some(limit) = self.to_judge.pop() {
            return Some(Work::Judge(limit, self.limits[limit].limit.clone()));
        }
        if self.begun.is_some() || self.retry_at.is_some_and(|at| now < at) {
            return None;
        }
        let is_time = self.poll_at(now).is_some_and(|at| now >= at)
            || self.renew_at().is_some_and(|at| now >= at);
        let has_changes = !self.asking.is_empty()
            || self.limits.iter().any(|of| !(of.back.is_empty() && of.kept.is_empty()));
        if !(is_time || has_changes) {
            return None;
        }
        self.begun = Some(now);
        self.asked = std::mem::take(&mut self.asking);
        // The jobs of a limit keep their order.
        self.asked.sort_by_key(|asking| asking.limit);
        let (mut calls, mut renewed) = (Vec::new(), 0);
        for (at, of) in self.limits.iter_mut().enumerate() {
            let waiting = of.line.waiting(now);
            let asked = self.asked.iter().filter(|asking| asking.limit == at);
            let may_renew = renewed < MAX_CHANGES;
            let renewal = if may_renew { of.spares.renewal(now) } else { Renewal::default() };
            renewed += renewal.kept.len();
            of.back.extend(renewal.unused);
            let mut call = PlaceCall {
                back: first_of(&mut of.back),
                teller: self.teller.clone(),
                waiting: Waiting::Count(waiting),
                ..PlaceCall::new(&of.limit)
            };
            let left = |until: Instant| until.saturating_duration_since(now);
            let kept = first_of(&mut of.kept).into_iter();
            call.kept.extend(kept.map(|(place, until)| (place, left(until))));
            call.kept.extend(renewal.kept);
            let mut for_spares = 0;
            for Asking { lease, .. } in asked {
                for_spares += usize::from(Self::can_have_spare(lease));
                call.taken.push((place_of(lease), left(lease.deadline) + LEASE_MARGIN));
            }
            // Behind those of jobs.
            call.taken.extend(of.spares.more(for_spares, of.free, now));
            let is_needed = !(call.back.is_empty()
                && call.kept.is_empty()
                && call.taken.is_empty()
                && waiting == 0
                && of.told == 0);
            of.told = waiting;
            if is_needed {
                calls.push((at, call));
            }
        }
        Some(Work::Change(calls))
    }

    /// When to ask for free places although nothing changed; `None`: no job waits.
    fn poll_at(&mut self, now: Instant) -> Option<Instant> {
        let (mut is_waited_for, mut is_stuck) = (false, true);
        for of in &mut self.limits {
            if !of.line.is_empty(now) || of.told > 0 {
                is_waited_for = true;
                is_stuck &= of.line.is_stuck(now);
            }
        }
        let interval = if is_stuck { SLOW_POLL_INTERVAL } else { POLL_INTERVAL };
        is_waited_for.then(|| self.answered + interval)
    }

    /// When spare places are to be renewed.
    fn renew_at(&self) -> Option<Instant> {
        self.limits.iter().filter_map(|of| of.spares.renew_at()).min()
    }

    /// When the next call may begin, or the jobs of the running one have waited too long.
    #[must_use]
    pub(in crate::dispatch) fn next_at(&mut self, now: Instant) -> Option<Instant> {
        if let Some(begun) = self.begun {
            let has_jobs = !self.asked.is_empty() || !self.asking.is_empty();
            return has_jobs.then(|| begun + MAX_CALL_WAIT);
        }
        // The others begin at once.
        let has_changes = !self.asking.is_empty() || !self.is_idle();
        let retry_at = self.retry_at.filter(|_| has_changes);
        let at = self.poll_at(now).into_iter().chain(self.renew_at()).min();
        let poll_at = at.map(|at| self.retry_at.map_or(at, |retry| retry.max(at)));
        retry_at.into_iter().chain(poll_at).min()
    }
}

/// Takes the first ones for a call.
pub(super) fn first_of<T>(changes: &mut Vec<T>) -> Vec<T> {
    let count = changes.len().min(MAX_CHANGES);
    changes.drain(..count).collect()
}
