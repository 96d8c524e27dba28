//! The subscriber that hands the events of jobs on to be published, if the settings ask for them. It
//! never waits: where there is no room, an event is dropped and counted.

use dwell_connectors::shown_address;
use dwell_schedule::occurrence_id;
use tokio::sync::mpsc;

use super::metrics::Metrics;
use crate::clock;
use crate::config::EventKind;
use crate::events::{Facts, JobEvent, Settled};
use crate::job::{Action, JobId, Verdict};
use crate::store::due_set::DueSet;
use crate::store::jobs::acknowledge::LeaseVerdict;
use crate::store::record::short_error;

/// The most events that wait to be published: some megabytes, and some tens where the targets are
/// URLs of several KiB.
const MAX_WAITING: usize = 4096;
/// The most occurrences of a gap that are told, the latest ones.
const MAX_MISSED: usize = 100;

/// An event of a job that is to be published: all that its message tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// What became of the job.
    pub kind: EventKind,
    /// When this instance saw that, epoch ms.
    pub at_ms: i64,
    /// The id of the job.
    pub id: String,
    /// The name of the job's broker.
    pub broker: Option<String>,
    /// The exchange of the target.
    pub exchange: Option<String>,
    /// The target, without what may be secret of a URL.
    pub target: Option<String>,
    /// The queue of the job.
    pub queue: Option<String>,
    /// The due time of the schedule, epoch ms by Redis's clock.
    pub due_ms: Option<i64>,
    /// The number of attempts so far.
    pub attempt: Option<u32>,
    /// The verdict, or the reason of the death.
    pub reason: Option<&'static str>,
    /// The last error.
    pub error: Option<String>,
    /// The recurring schedule of the job.
    pub schedule: Option<String>,
    /// The number of the occurrence.
    pub occurrence: Option<u64>,
}

/// Hands events on. Clones share the way.
#[derive(Debug, Clone)]
pub struct Feed {
    kinds: [bool; EventKind::ALL.len()],
    facts: mpsc::Sender<Fact>,
}

impl Feed {
    /// A feed of events of these kinds, and their receiver.
    #[must_use]
    pub fn new(of: &[EventKind]) -> (Feed, mpsc::Receiver<Fact>) {
        let (facts, receiver) = mpsc::channel(MAX_WAITING);
        (Feed { kinds: EventKind::ALL.map(|kind| of.contains(&kind)), facts }, receiver)
    }

    /// Hands an event on, if it is of a kind that is asked for.
    pub(super) fn observe(&self, event: &JobEvent<'_>, metrics: &Metrics) {
        if let JobEvent::OccurrencesMissed { schedule, set, times, reason, .. } = *event {
            return self.missed(schedule, set, times, reason, metrics);
        }
        if let Some(told) = Told::of(event) {
            self.send(told, metrics);
        }
    }

    /// Hands the latest occurrences of a gap on, each under the id that it would have.
    fn missed(
        &self,
        schedule: &JobId,
        set: DueSet<'_>,
        times: &[i64],
        reason: &'static str,
        metrics: &Metrics,
    ) {
        for nominal_ms in &times[times.len().saturating_sub(MAX_MISSED)..] {
            // An id that is too long is none of a job.
            let Ok(id) = JobId::new(occurrence_id(schedule.as_str(), *nominal_ms)) else {
                continue;
            };
            let (due_ms, schedule) = (Some(*nominal_ms), Some(schedule.as_str()));
            let facts = Facts { due_ms, schedule, ..Facts::default() };
            let (kind, id, set, reason) = (EventKind::Missed, &id, Some(set), Some(reason));
            self.send(Told { kind, id, set, facts, reason, error: "" }, metrics);
        }
    }

    fn send(&self, told: Told<'_>, metrics: &Metrics) {
        if !self.kinds[told.kind as usize] {
            return;
        }
        // The room first: a fact that has none is not even made.
        match self.facts.try_reserve() {
            Ok(room) => room.send(told.fact()),
            Err(_) => metrics.events_dropped(1),
        }
    }
}

/// What an event tells of a job, borrowed.
#[derive(Clone, Copy)]
struct Told<'a> {
    kind: EventKind,
    id: &'a JobId,
    set: Option<DueSet<'a>>,
    facts: Facts<'a>,
    reason: Option<&'static str>,
    error: &'a str,
}

impl<'a> Told<'a> {
    /// What this event tells; `None` for an event that is not published.
    fn of(event: &JobEvent<'a>) -> Option<Told<'a>> {
        let told = |kind, id, set| {
            let (facts, reason, error) = (Facts::default(), None, "");
            Told { kind, id, set, facts, reason, error }
        };
        Some(match *event {
            JobEvent::Applied { id, set, to, action, verdict, due_ms } => {
                let (kind, reason) = match (action, verdict) {
                    (Action::Add, Verdict::Added | Verdict::Replaced) => {
                        (EventKind::Scheduled, Some(verdict.as_str()))
                    }
                    (
                        Action::Cancel,
                        Verdict::Cancelled | Verdict::CancelledAfterAttempt | Verdict::InFlight,
                    ) => (EventKind::Cancelled, Some(verdict.as_str())),
                    (Action::Finish, Verdict::Finished) => (EventKind::Delivered, None),
                    _ => return None,
                };
                let facts = Facts { to, due_ms, ..Facts::default() };
                Told { facts, reason, ..told(kind, id, set) }
            }
            JobEvent::OccurrenceMade { schedule, id, set, to, due_ms, number, is_caught_up } => {
                let (due_ms, schedule) = (Some(due_ms), Some(schedule.as_str()));
                let facts =
                    Facts { to, due_ms, schedule, occurrence: Some(number), ..Facts::default() };
                let reason = Some(if is_caught_up { "caught_up" } else { "made" });
                Told { facts, reason, ..told(EventKind::Scheduled, id, Some(set)) }
            }
            JobEvent::Acknowledged { queue, id, verdict, error, is_applied: false } => {
                let kind = match verdict {
                    LeaseVerdict::Finished => EventKind::Delivered,
                    LeaseVerdict::Failed => EventKind::Retried,
                    _ => return None,
                };
                Told { error, ..told(kind, id, Some(DueSet::Queue(queue))) }
            }
            JobEvent::Settled { set, id, end, facts } => {
                let (kind, error) = match end {
                    Settled::Delivered => (EventKind::Delivered, ""),
                    Settled::Retried { error } => (EventKind::Retried, error),
                    Settled::Dropped => (EventKind::Dropped, ""),
                };
                Told { facts, error, ..told(kind, id, set) }
            }
            JobEvent::Dead { set, id, reason, error, facts } => {
                let reason = Some(reason.as_str());
                Told { facts, reason, error, ..told(EventKind::Dead, id, set) }
            }
            // Of a job of a broker `Settled` follows.
            JobEvent::Dropped { set: set @ DueSet::Queue(_), id } => {
                told(EventKind::Dropped, id, Some(set))
            }
            _ => return None,
        })
    }

    fn fact(self) -> Fact {
        let Told { kind, id, set, facts, reason, error } = self;
        let (broker, queue) = match set {
            Some(DueSet::Broker(broker)) => (Some(broker.to_owned()), None),
            Some(DueSet::Queue(queue)) => (None, Some(queue.to_owned())),
            None => (None, None),
        };
        let exchange = facts.to.filter(|to| !to.exchange.is_empty());
        Fact {
            kind,
            at_ms: clock::wall_ms(),
            id: id.as_str().to_owned(),
            broker,
            exchange: exchange.map(|to| to.exchange.clone()),
            target: facts.to.map(|to| shown_address(&to.address).into_owned()),
            queue,
            due_ms: facts.due_ms,
            attempt: facts.attempt,
            reason,
            error: (!error.is_empty()).then(|| short_error(error).to_owned()),
            schedule: facts.schedule.map(str::to_owned),
            occurrence: facts.occurrence,
        }
    }
}

#[cfg(test)]
mod tests;
