//! The places of queues that limit how many jobs are out: a call asks for as many jobs as have
//! places. The places are the call's own until its jobs are known, and then those of the jobs.

use std::time::Duration;

use super::Consumers;
use super::asking::{Answer, Asking, cut};
use super::turn_wait::TurnWait;
use super::watch::Call;
use crate::clock;
use crate::store::error::{Class, StoreError};
use crate::store::jobs::claim::MAX_CLAIM_AHEAD;
use crate::store::jobs::pop::Popped;
use crate::store::places::place::Place;
use crate::store::places::{LEASE_MARGIN, PlaceAnswer, PlaceCall, PlaceLimit, Waiting};
use crate::store::record::Nonce;

/// The places of a call last for so long: its answer or its error comes before.
const CALL_TTL: Duration = Duration::from_secs(15);
/// Between two tries to give the places of a call back whose answer was lost.
const RETURN_RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// The places that a call took.
pub(super) struct TakenPlaces {
    limit: PlaceLimit,
    nonce: Nonce,
    count: usize,
}

impl TakenPlaces {
    /// So many places under this random number.
    pub(super) fn new(limit: PlaceLimit, nonce: Nonce, count: usize) -> TakenPlaces {
        TakenPlaces { limit, nonce, count }
    }

    /// The places of the call itself.
    fn of_call(&self) -> Vec<Place> {
        (0..self.count).map(|number| place_of_call(self.nonce, number)).collect()
    }
}

fn place_of_call(nonce: Nonce, number: usize) -> Place {
    Place::of_call(nonce, u32::try_from(number).unwrap_or(u32::MAX))
}

impl Consumers {
    /// Takes places for these pops, where their queue bounds what is out. Those without a place find
    /// no job, and leave; the others ask for as many jobs as have places. `None` without a limit.
    pub(super) async fn take_places(
        &self,
        call: &Call,
        pops: &mut Vec<Asking>,
    ) -> Option<TakenPlaces> {
        let limit = self.inner.store.places_of_queue(call.queue())?;
        let (nonce, before): (Nonce, _) = (rand::random(), call.places_freed());
        let asked: usize = pops.iter().map(|pop| pop.limits.most).sum();
        let mut ask = PlaceCall { waiting: Waiting::IfRefused, ..PlaceCall::new(&limit) };
        ask.taken = (0..asked).map(|number| (place_of_call(nonce, number), CALL_TTL)).collect();
        let answer = match self.change_places(ask).await {
            Ok(answer) => answer,
            Err(error) => {
                // The call may have taken them all the same.
                self.give_back_later(call.queue(), TakenPlaces::new(limit, nonce, asked));
                pops.drain(..).for_each(|pop| pop.answer(Err(error.clone())));
                return None;
            }
        };
        // The first ones are taken.
        let count = answer.taken.iter().filter(|is_taken| **is_taken).count();
        if count < asked || answer.free == 0 {
            if call.is_full(TurnWait::for_place(answer.next_end), before) {
                self.verify(call.queue(), limit.clone());
            }
        } else {
            call.has_place();
        }
        for pop in cut(pops, count) {
            pop.answer(Ok(Answer::NoneDue));
        }
        Some(TakenPlaces::new(limit, nonce, count))
    }

    /// The places of these jobs of a call, as long as their leases.
    pub(super) fn places_of(&self, call: &Call, jobs: &[Popped]) -> Vec<(Place, Duration)> {
        let place = |popped: &Popped| {
            let span = Duration::from_millis(popped.lease.ttr_ms.into());
            let place = self.inner.store.place_of(popped.lease.nonce, call.queue(), &popped.id);
            // The lease of a job that was popped early begins at its due time.
            (place, span + MAX_CLAIM_AHEAD + LEASE_MARGIN)
        };
        jobs.iter().map(place).collect()
    }

    /// The jobs of the call are known: they have these places, and the others are given back. After
    /// an error the jobs go back.
    pub(super) async fn keep_places(
        &self,
        call: &Call,
        taken: TakenPlaces,
        of_jobs: Vec<(Place, Duration)>,
    ) -> Result<(), StoreError> {
        let before = call.places_freed();
        let mut change = PlaceCall { back: taken.of_call(), ..PlaceCall::new(&taken.limit) };
        change.taken = of_jobs;
        let unused = taken.count.saturating_sub(change.taken.len());
        // More jobs were wanted than there are: none waits.
        if unused > 0 {
            change.waiting = Waiting::Count(0);
        }
        let answer = match self.change_places(change).await {
            Ok(answer) => answer,
            Err(error) => {
                self.give_back_later(call.queue(), taken);
                return Err(error);
            }
        };
        if answer.taken.contains(&false) {
            // The call took so long that its places went to others.
            let message = "the places of a limited queue ended before its jobs were known";
            return Err(StoreError::new(Class::Other, message));
        }
        if answer.free == 0 {
            if call.is_full(TurnWait::for_place(answer.next_end), before) {
                self.verify(call.queue(), taken.limit);
            }
        } else if unused > 0 {
            self.inner.store.places_free(call.queue(), unused);
        }
        Ok(())
    }

    /// Gives all places of a call back, which has no jobs.
    pub(super) async fn give_places_back(&self, call: &Call, taken: TakenPlaces) {
        if !self.give_back(call.queue(), &taken).await {
            self.give_back_later(call.queue(), taken);
        }
    }

    /// Whether the places of a call are back.
    async fn give_back(&self, queue: &str, taken: &TakenPlaces) -> bool {
        let change = PlaceCall { back: taken.of_call(), ..PlaceCall::new(&taken.limit) };
        match self.change_places(change).await {
            Ok(_) => {
                self.inner.store.places_free(queue, taken.count);
                true
            }
            Err(error) => {
                tracing::debug!(%error, queue, "places were not given back");
                false
            }
        }
    }

    /// Gives the places of a call back in the background, until they end: whatever Redis did, no job
    /// has them.
    pub(super) fn give_back_later(&self, queue: &str, taken: TakenPlaces) {
        let (consumers, queue) = (self.clone(), queue.to_owned());
        let ended = clock::now() + CALL_TTL;
        tokio::spawn(async move {
            while !consumers.give_back(&queue, &taken).await && clock::now() < ended {
                clock::sleep(RETURN_RETRY_INTERVAL).await;
            }
        });
    }

    async fn change_places(&self, change: PlaceCall) -> Result<PlaceAnswer, StoreError> {
        let answer = self.inner.store.places(&[change]).await?.pop();
        answer.ok_or_else(|| StoreError::new(Class::Script, "redis: places answered for no limit"))
    }

    /// Checks in the background whether the jobs that have the places are still out.
    fn verify(&self, queue: &str, limit: PlaceLimit) {
        let (consumers, queue) = (self.clone(), queue.to_owned());
        tokio::spawn(async move {
            match consumers.inner.store.verify_places(&limit).await {
                Ok(0) => {}
                Ok(count) => consumers.inner.store.places_free(&queue, count),
                Err(error) => tracing::debug!(%error, queue, "places could not be judged"),
            }
        });
    }
}
