//! What of a limit is out at a time: attempts, held jobs and leases of consumers. All instances take
//! the places of a limit from one sorted set of the namespace; each place lasts until the end of its
//! lease, so that those of an instance that died come back.
//!
//! - [`place`]: the name of what is out; [`verify`](Namespace::verify_places): whether it still is.
//! - [`hasten`](Namespace::hasten): has jobs that wait for a place be due.

mod hasten;
pub mod place;
mod verify;

use std::sync::{Arc, Weak};
use std::time::Duration;

use self::place::Place;
use super::answer::Items;
use super::due_set::DueSet;
use super::error::StoreError;
use super::namespace::Namespace;
use super::place_observers::PlaceObserver;
use super::record::Nonce;
use crate::clock::{self, whole_ms};
use crate::job::JobId;

/// A place lasts for so much longer than its lease, which the answer of another call began: nobody
/// has the place while the lease lasts.
pub const LEASE_MARGIN: Duration = Duration::from_millis(20);
const SCRIPT: &str = include_str!("scripts/places.lua");
/// The mark of the fields in which processes tell who waits for places, behind the name of the limit.
const TOLD_MARK: &str = "\0in_flight ";
/// A field is of use for so long (`TOLD` in places.lua), µs.
const TOLD_US: i64 = 60_000_000;
/// So long after it was told a process still has jobs that wait (`LIVE` in places.lua), µs.
const LIVE_US: i64 = 5_000_000;

/// How many attempts of a limit may be out at a time.
#[derive(Debug, Clone)]
pub struct PlaceLimit {
    name: Arc<str>,
    most: u32,
}

impl PlaceLimit {
    /// The limit of the targets of this broker that the pattern matches.
    #[must_use]
    pub fn of_targets(broker: &str, pattern: &str, most: u32) -> Self {
        // As the name of a limit of turns.
        PlaceLimit { name: format!("{broker} {pattern}").into(), most }
    }

    /// The limit of this queue, to which the pattern applies. Each queue has its own.
    #[must_use]
    pub fn of_queue(queue: &str, pattern: &str, most: u32) -> Self {
        PlaceLimit { name: format!("{} {pattern}", DueSet::Queue(queue)).into(), most }
    }

    /// The limit for people: its broker, a space, and its pattern.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The most places.
    #[must_use]
    pub fn most(&self) -> u32 {
        self.most
    }
}

/// The changes of one call to the places of one limit, in this order.
#[derive(Debug, Clone)]
pub struct PlaceCall {
    /// The limit.
    pub limit: PlaceLimit,
    /// Places whose attempt or lease is over.
    pub back: Vec<Place>,
    /// Places that last for this time from now, whether there is room or not.
    pub kept: Vec<(Place, Duration)>,
    /// Places to take, as far as there are free ones, each for this time. One that is taken already
    /// is taken again.
    pub taken: Vec<(Place, Duration)>,
    /// Who tells whether jobs wait for a place; empty: all processes alike.
    pub teller: String,
    /// What is told.
    pub waiting: Waiting,
}

/// What a call tells of the jobs that wait for a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// Nothing.
    Untold,
    /// Their number.
    Count(u64),
    /// Jobs wait if a place of the call is not free.
    IfRefused,
}

impl PlaceCall {
    /// A call without a change.
    #[must_use]
    pub fn new(limit: &PlaceLimit) -> PlaceCall {
        PlaceCall {
            limit: limit.clone(),
            back: Vec::new(),
            kept: Vec::new(),
            taken: Vec::new(),
            teller: String::new(),
            waiting: Waiting::Untold,
        }
    }
}

/// The places of one limit after a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlaceAnswer {
    /// When Redis made the call, by its clock, epoch µs.
    pub now_us: i64,
    /// Of each place to take, in the order of the call: whether it is taken.
    pub taken: Vec<bool>,
    /// The number of free places.
    pub free: usize,
    /// The time until the next lease ends; `None`: nothing is out.
    pub next_end: Option<Duration>,
}

/// The jobs that wait for places of a limit, as a process tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Told {
    /// The name of the limit.
    pub(super) name: String,
    /// The most places, as that process knows them.
    pub(super) most: u32,
    /// The number of the jobs; 0 if the process told none lately.
    pub(super) waiting: u64,
    /// Since when jobs wait, epoch ms.
    pub(super) since_ms: i64,
}

impl Told {
    /// `None`: the field is of something else, or too old.
    pub(super) fn read(field: &str, value: &str, now_us: i64) -> Option<Told> {
        let (name, _) = field.split_once(TOLD_MARK)?;
        let mut words = value.split(' ');
        let mut number = || words.next()?.parse::<i64>().ok();
        let (until_us, since_ms, most, waiting) = (number()?, number()?, number()?, number()?);
        if until_us < now_us {
            return None;
        }
        let is_live = since_ms > 0 && until_us.saturating_sub(TOLD_US - LIVE_US) >= now_us;
        Some(Told {
            name: name.to_owned(),
            most: u32::try_from(most).ok()?,
            waiting: if is_live { u64::try_from(waiting).ok()? } else { 0 },
            since_ms,
        })
    }
}

impl Namespace {
    /// Makes these changes. A call without an answer may have made them; it can be repeated.
    pub async fn places(&self, calls: &[PlaceCall]) -> Result<Vec<PlaceAnswer>, StoreError> {
        let mut command = redis::cmd("EVAL");
        command.arg(SCRIPT).arg(1 + calls.len()).arg(self.keys.limits());
        for call in calls {
            command.arg(self.keys.places(&call.limit.name));
        }
        for call in calls {
            let waiting = match call.waiting {
                Waiting::Untold => String::new(),
                Waiting::Count(count) => count.to_string(),
                Waiting::IfRefused => "?".to_owned(),
            };
            command.arg(&*call.limit.name).arg(call.limit.most).arg(&call.teller).arg(waiting);
            command.arg(call.back.len()).arg(call.kept.len()).arg(call.taken.len());
            for place in &call.back {
                command.arg(place.as_bytes());
            }
            for (place, span) in call.kept.iter().chain(&call.taken) {
                command.arg(place.as_bytes()).arg(whole_ms(*span));
            }
        }
        let mut items = Items::new("places", self.link.command("places", &command).await?)?;
        let now_us = items.int()?;
        let mut answers = Vec::with_capacity(calls.len());
        for call in calls {
            let (free, end_ms, taken) = (items.int()?, items.int()?, items.bytes()?);
            answers.push(PlaceAnswer {
                now_us,
                taken: (0..call.taken.len()).map(|at| taken.get(at) == Some(&b'1')).collect(),
                free: usize::try_from(free).unwrap_or(0),
                next_end: (end_ms >= 0).then(|| clock::micros(end_ms.saturating_mul(1000))),
            });
        }
        Ok(answers)
    }

    /// Has the observer told of places of queues that this process gives back, as long as it lives.
    pub(crate) fn observe_places(&self, observer: Weak<dyn PlaceObserver>) {
        self.place_observers.add(observer);
    }

    /// Tells that this process gave places of a queue back.
    pub(crate) fn places_free(&self, queue: &str, count: usize) {
        self.place_observers.tell(queue, count);
    }

    /// The place of a job of this queue, popped under this nonce.
    pub(crate) fn place_of(&self, nonce: Nonce, queue: &str, id: &JobId) -> Place {
        Place::of_lease(self.keys.bucket_of(id.as_str()), self.pop_proof(nonce, queue), id)
    }

    /// Gives the places of popped jobs back, whose pop had this proof, and tells the pops that wait
    /// for one.
    pub(super) async fn give_lease_places_back(
        &self,
        bucket: u16,
        proof: Nonce,
        queue: &str,
        ids: &[JobId],
    ) {
        let Some(limit) = self.places_of_queue(queue).filter(|_| !ids.is_empty()) else { return };
        let back = ids.iter().map(|id| Place::of_lease(bucket, proof, id)).collect();
        let call = PlaceCall { back, ..PlaceCall::new(&limit) };
        match self.places(&[call]).await {
            Ok(_) => self.places_free(queue, ids.len()),
            Err(error) => tracing::debug!(%error, queue, "places were not given back"),
        }
    }

    /// The names of those of these limits of which another process knows another number of places.
    pub async fn other_places(&self, limits: &[PlaceLimit]) -> Result<Vec<String>, StoreError> {
        let fields = super::meta::fields(&self.link, &self.keys.limits()).await?;
        let now_us = self.read_clock().await?;
        let told: Vec<Told> =
            fields.iter().filter_map(|(field, value)| Told::read(field, value, now_us)).collect();
        let is_other = |limit: &&PlaceLimit| {
            told.iter().any(|told| told.name == *limit.name && told.most != limit.most)
        };
        Ok(limits.iter().filter(is_other).map(|limit| limit.name().to_owned()).collect())
    }
}

#[cfg(test)]
mod tests;
