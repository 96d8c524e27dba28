//! The jobs of limited targets: each is published once it has a place and its turn.

use std::time::Duration;

use super::InFlight;
use crate::clock::{self, Instant};
use crate::dispatch::attempt::{expired_before_turn, expires_within, give_back};
use crate::dispatch::places::{PlaceResults, PlaceWork, Places, key_of};
use crate::dispatch::settler::Settler;
use crate::dispatch::turns::{MAX_TURN_WAIT, NO_TURN_PAUSE, TurnAnswer, TurnState};
use crate::store::jobs::claim::{ClaimedJob, MAX_CLAIM_AHEAD};
use crate::store::jobs::settle::{ClaimToken, Release};

impl InFlight {
    /// The next call for turns of limited targets, not running yet.
    pub(in crate::dispatch) fn next_turns(
        &mut self,
    ) -> Option<impl Future<Output = TurnAnswer> + use<>> {
        self.turns.as_mut()?.next_call(clock::now())
    }

    /// A call for turns was answered: publishes the jobs whose turn has come.
    pub(in crate::dispatch) async fn took_turns(
        &mut self,
        answer: TurnAnswer,
        settler: &mut Settler,
    ) {
        let Some(turns) = &mut self.turns else { return };
        let now = clock::now();
        match turns.answered(answer, now) {
            Ok(jobs) => {
                let mut attempts = Vec::with_capacity(jobs.len());
                for (since, lease, turn) in jobs {
                    attempts.extend(self.attempt_at(lease, since, now, Some(turn), settler));
                }
                self.publish(attempts).await;
            }
            Err(jobs) => {
                for (_, lease) in jobs {
                    self.settle(&lease, give_back(&lease, NO_TURN_PAUSE), settler);
                }
            }
        }
    }

    /// The next call for places of limited targets, not running yet.
    pub(in crate::dispatch) fn next_places(
        &mut self,
    ) -> Option<impl Future<Output = PlaceWork> + use<>> {
        self.places.as_mut()?.next_call(clock::now())
    }

    /// Whether no place is to be given back.
    #[must_use]
    pub(in crate::dispatch) fn is_without_places(&self) -> bool {
        self.places.as_ref().is_none_or(Places::is_idle)
    }

    /// A call for places was answered: publishes the jobs that have one, and sends back the others.
    /// Returns the buckets with jobs that are due now.
    pub(in crate::dispatch) async fn took_places(
        &mut self,
        work: PlaceWork,
        settler: &mut Settler,
    ) -> Vec<u16> {
        let Some(places) = &mut self.places else { return Vec::new() };
        let now = clock::now();
        let PlaceResults { granted, refused, due } = places.answered(work, now);
        for (lease, pause) in refused {
            self.settle(&lease, give_back(&lease, pause), settler);
        }
        let mut attempts = Vec::with_capacity(granted.len());
        for (since, lease) in granted {
            attempts.extend(self.attempt(lease, since, now, settler));
        }
        self.publish(attempts).await;
        due
    }

    /// These jobs are back in the store.
    pub(in crate::dispatch) fn released(&mut self, jobs: &[Release]) {
        if let Some(places) = &mut self.places {
            let now = clock::now();
            jobs.iter().for_each(|release| places.released(&release.job, now));
        }
    }

    /// The settlement of these jobs was to hold them for so many ms each. False: it found a job that
    /// is not in its claim any more, mostly because its consumer was faster.
    pub(in crate::dispatch) fn held<'a>(
        &mut self,
        jobs: impl Iterator<Item = (&'a ClaimToken, u32, bool)>,
    ) {
        let Some(places) = &mut self.places else { return };
        let now = clock::now();
        for (token, ttr_ms, is_held) in jobs {
            if is_held {
                places.held(key_of(token), ttr_ms, now);
            } else {
                places.ended(key_of(token));
            }
        }
    }

    /// Gives back the jobs that have waited too long for a call.
    pub(super) fn give_back_late(&mut self, now: Instant, settler: &mut Settler) {
        let late = self.turns.as_mut().map(|turns| turns.take_late(now));
        for (_, lease) in late.into_iter().flatten() {
            self.settle(&lease, give_back(&lease, NO_TURN_PAUSE), settler);
        }
        let late = self.places.as_mut().map(|places| places.take_late(now));
        for (lease, pause) in late.into_iter().flatten() {
            self.settle(&lease, give_back(&lease, pause), settler);
        }
    }

    /// The job, if its target has no limit, or if the job has its place and its turn. Otherwise the
    /// job waits, here or in the store. `turn`: if it is known.
    pub(super) fn within_limits(
        &mut self,
        lease: Box<ClaimedJob>,
        since: Instant,
        now: Instant,
        turn: Option<TurnState>,
        settler: &mut Settler,
    ) -> Option<Box<ClaimedJob>> {
        if self.turns.is_none() && self.places.is_none() {
            return Some(lease);
        }
        let to = self.attempts.target(&lease);
        // A job without a place takes no turn. A job of a paused destination goes back in any case.
        if let Some(places) = &mut self.places
            && let Some(limit) = places.needed(to, &lease)
            && !self.destinations.is_paused(to, now)
            && !places.take_spare(limit, &lease, now)
        {
            let last = self.attempts.last_turn(&lease);
            if let Some((lease, pause)) = places.ask(limit, since, last, lease, now) {
                self.settle(&lease, give_back(&lease, pause), settler);
            }
            return None;
        }
        let Some(turns) = &mut self.turns else { return Some(lease) };
        match turn.unwrap_or_else(|| turns.state(to, &lease, now)) {
            TurnState::Free => return Some(lease),
            TurnState::At(at) => self.until_turn(lease, at, now, settler),
            // A job of a paused destination goes back in any case.
            TurnState::Needed(_) if self.destinations.is_paused(to, now) => return Some(lease),
            TurnState::Needed(limit) => {
                let last = self.attempts.last_turn(&lease);
                if let Some(lease) = turns.ask(limit, since, last, lease, now) {
                    self.settle(&lease, give_back(&lease, NO_TURN_PAUSE), settler);
                }
            }
            TurnState::TooFar { expires: true, .. } => {
                self.settle(&lease, expired_before_turn(&lease), settler);
            }
            // The job is judged when it is too late, or by another rate.
            TurnState::TooFar { within, .. } => {
                let pause = within.clamp(NO_TURN_PAUSE, MAX_TURN_WAIT);
                self.settle(&lease, give_back(&lease, pause), settler);
            }
        }
        None
    }

    /// Has a job wait for its turn: here if the turn comes at once, in the store otherwise.
    fn until_turn(
        &mut self,
        mut lease: Box<ClaimedJob>,
        at: Instant,
        now: Instant,
        settler: &mut Settler,
    ) {
        if let Some(settlement) = expires_within(&lease, at.saturating_duration_since(now)) {
            self.settle(&lease, settlement, settler);
            return;
        }
        lease.ready = lease.ready.max(at.min(now + MAX_TURN_WAIT));
        if at <= now + MAX_CLAIM_AHEAD {
            self.waiting.until_due(lease);
        } else {
            // The job goes back for its `ready`.
            self.settle(&lease, give_back(&lease, Duration::ZERO), settler);
        }
    }
}
