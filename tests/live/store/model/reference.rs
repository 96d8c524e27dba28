//! The reference implementation of the scripts, over maps. It learns times of Redis's clock from
//! answers.

use std::collections::BTreeMap;

use dwell::job::{Action, Conflict};
use dwell::store::jobs::claim::MAX_CLAIM_AHEAD;

pub(crate) type Fence = [u8; 8];
/// Verdict and due time. `None`: none is told. `Some(CLOCK)`: the script's own now decides.
pub(crate) type VerdictAndDue = (&'static str, Option<i64>);
/// A due time that Redis's clock decides.
pub(crate) const CLOCK: i64 = i64::MIN;
/// Jobs that a claim took, and whether each is not ripe yet.
pub(crate) type Taken = Vec<(u8, bool)>;
/// A due time that never comes.
pub(crate) const FAR: i64 = 4_000_000_000_000;
/// Waits in every job's retry array.
pub(crate) const STEPS: u16 = 2;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Location {
    /// Ripe: due by now.
    Due {
        ripe: bool,
    },
    /// In a lease. Over: the lease is past its time.
    ClaimedJob {
        over: bool,
        /// Before the lease.
        ripe: bool,
    },
    /// It waits for its consumer. Over: the TTR has passed.
    Held {
        over: bool,
    },
    Dead,
}

#[derive(Debug, Clone)]
pub(crate) struct Job {
    /// The inbound message that it is of.
    pub(crate) message: u64,
    pub(crate) body: u8,
    pub(crate) replaced: bool,
    /// One more with each schedule and requeue: a `cancelled` concerns one life.
    pub(crate) life: u64,
    pub(crate) location: Location,
    pub(crate) attempt: u32,
    pub(crate) step: u16,
    pub(crate) crashes: u8,
    pub(crate) due: i64,
    pub(crate) held: bool,
    /// In the lease of a rescue.
    pub(crate) rescued: bool,
    pub(crate) dying: bool,
    pub(crate) fence: Fence,
    pub(crate) doubt: bool,
    pub(crate) generation: [u8; 8],
}

impl Job {
    fn told(&self) -> VerdictAndDue {
        (if self.replaced { "replaced" } else { "added" }, Some(self.due))
    }

    fn to(&mut self, location: Location) {
        (self.location, self.fence, self.held, self.rescued) = (location, [0; 8], false, false);
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Over {
    fired: bool,
    message: u64,
    told: VerdictAndDue,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Reference {
    pub(crate) jobs: BTreeMap<u8, Job>,
    pub(crate) gone: BTreeMap<u8, Over>,
    pub(crate) acts: BTreeMap<u64, VerdictAndDue>,
    /// When another master was seen.
    pub(crate) changed: i64,
    pub(crate) lives: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) id: u8,
    pub(crate) due: i64,
    pub(crate) ripe: bool,
    pub(crate) body: u8,
    pub(crate) policy: Conflict,
}

#[derive(Debug, Clone)]
pub(crate) struct ModelAct {
    pub(crate) id: u8,
    pub(crate) action: Action,
    /// Of a reschedule.
    pub(crate) due: i64,
    pub(crate) ripe: bool,
    pub(crate) seen_due: Option<i64>,
    pub(crate) seen_attempt: Option<u32>,
    /// Not by a message: it never comes again.
    pub(crate) is_call: bool,
}

impl Reference {
    pub(crate) fn schedule(
        &mut self,
        message: u64,
        request: &Request,
        generation: [u8; 8],
    ) -> VerdictAndDue {
        let was = self.jobs.get(&request.id).cloned();
        let over = self.gone.get(&request.id).cloned();
        if let Some(was) = was.as_ref().filter(|was| was.message == message) {
            return was.told();
        }
        if let Some(over) = over.as_ref().filter(|over| over.message == message) {
            return over.told;
        }
        if let Some(told) = self.acts.get(&message) {
            return *told;
        }
        let standing = was.as_ref().filter(|was| was.location != Location::Dead);
        if let Some(was) = standing {
            let verdict = match request.policy {
                _ if was.body == request.body && was.due == request.due => Some("duplicate"),
                Conflict::Keep => Some("kept"),
                Conflict::Reject => Some("conflict"),
                // The bound is beyond every due time here.
                Conflict::Replace | Conflict::Debounce { .. } => None,
            };
            if let Some(verdict) = verdict {
                self.acts.insert(message, (verdict, Some(was.due)));
                return (verdict, Some(was.due));
            }
        }
        let replaced = standing.is_some();
        if let Some(was) = was {
            self.acts.insert(was.message, was.told());
        }
        if let Some(over) = over {
            self.acts.insert(over.message, over.told);
            self.gone.remove(&request.id);
        }
        self.lives += 1;
        let job = Job {
            message,
            body: request.body,
            replaced,
            life: self.lives,
            location: Location::Due { ripe: request.ripe },
            attempt: 0,
            step: 0,
            crashes: 0,
            due: request.due,
            held: false,
            rescued: false,
            dying: false,
            fence: [0; 8],
            doubt: false,
            generation,
        };
        let told = job.told();
        self.jobs.insert(request.id, job);
        told
    }

    pub(crate) fn act(
        &mut self,
        message: u64,
        action: &ModelAct,
        generation: [u8; 8],
        wait_is_over: bool,
    ) -> VerdictAndDue {
        if let Some(told) = self.acts.get(&message) {
            return *told;
        }
        let told = self.apply(action, generation, wait_is_over);
        let changed = [
            "cancelled",
            "cancelled_after_attempt",
            "rescheduled",
            "firing",
            "finished",
            "failed",
            "requeued",
        ];
        let has_changed =
            changed.contains(&told.0) || (action.action, told.0) == (Action::Cancel, "in_flight");
        if has_changed || !action.is_call && !self.is_harmless(action, told.0) {
            self.acts.insert(message, told);
        }
        told
    }

    /// Whether a word that changed nothing changes nothing either when it comes again.
    fn is_harmless(&self, action: &ModelAct, verdict: &str) -> bool {
        let job = self.jobs.get(&action.id);
        let names =
            action.seen_due.is_some() && matches!(action.action, Action::Finish | Action::Fail);
        match verdict {
            "fired" | "dead" => names,
            "not_found" => names && job.is_none(),
            "stale" => {
                names
                    && (action.seen_attempt.is_some()
                        || job.is_some_and(|job| action.seen_due != Some(job.due)))
            }
            "waiting" => names && action.seen_attempt.is_some(),
            _ => false,
        }
    }

    fn apply(
        &mut self,
        action: &ModelAct,
        generation: [u8; 8],
        wait_is_over: bool,
    ) -> VerdictAndDue {
        let changed = self.changed;
        let Some(job) = self.jobs.get_mut(&action.id) else {
            let fired = self.gone.get(&action.id).filter(|over| over.fired);
            return fired.map_or(("not_found", None), |over| ("fired", over.told.1));
        };
        let waits = matches!(job.location, Location::Due { .. });
        let runs = matches!(job.location, Location::ClaimedJob { .. } | Location::Held { .. });
        let dead = job.location == Location::Dead;
        // The former master may have let a claim reach this far ahead.
        let ahead = i64::try_from(MAX_CLAIM_AHEAD.as_millis()).unwrap();
        let doubtful = job.doubt || (changed > 0 && job.due <= changed + ahead);
        let stale = |seen: Option<i64>| seen.is_some_and(|due| due != job.due);
        match action.action {
            Action::Cancel => {
                let told = match () {
                    () if runs && !job.held => "in_flight",
                    () if waits && job.attempt == 0 && !job.dying && !doubtful => "cancelled",
                    () => "cancelled_after_attempt",
                };
                let told = (told, Some(job.due));
                self.acts.insert(job.message, job.told());
                self.jobs.remove(&action.id);
                told
            }
            Action::Reschedule | Action::Fire | Action::Fail if dead || job.dying => {
                ("dead", Some(job.due))
            }
            Action::Reschedule | Action::Fire if runs => ("in_flight", Some(job.due)),
            Action::Reschedule => {
                job.doubt |= job.attempt == 0 && doubtful;
                (job.due, job.generation, job.step, job.crashes) = (action.due, generation, 0, 0);
                job.location = Location::Due { ripe: action.ripe };
                ("rescheduled", Some(action.due))
            }
            Action::Fire => {
                job.location = Location::Due { ripe: true };
                if job.attempt == 0 {
                    job.due = CLOCK;
                }
                ("firing", Some(CLOCK))
            }
            Action::Finish | Action::Fail if job.attempt == 0 => ("not_found", None),
            Action::Finish | Action::Fail if stale(action.seen_due) => ("stale", Some(job.due)),
            Action::Finish => {
                let told = ("finished", Some(job.due));
                self.gone.insert(
                    action.id,
                    Over { fired: true, message: job.message, told: job.told() },
                );
                self.jobs.remove(&action.id);
                told
            }
            Action::Fail if action.seen_attempt.is_some_and(|attempt| attempt != job.attempt) => {
                ("stale", Some(job.due))
            }
            Action::Fail if waits => ("waiting", Some(CLOCK)),
            Action::Fail => {
                let dies = job.step >= STEPS;
                if dies {
                    job.dying = true;
                } else {
                    job.step += 1;
                }
                job.crashes = 0;
                job.to(Location::Due { ripe: dies || wait_is_over });
                ("failed", Some(CLOCK))
            }
            Action::Requeue if !dead => ("waiting", Some(CLOCK)),
            Action::Requeue => {
                self.lives += 1;
                (job.attempt, job.step, job.crashes, job.due, job.dying, job.doubt) =
                    (0, 0, 0, CLOCK, false, false);
                (job.generation, job.life) = (generation, self.lives);
                job.to(Location::Due { ripe: true });
                ("requeued", Some(CLOCK))
            }
            Action::Add => unreachable!(),
        }
    }

    /// Records what an answer told of Redis's clock.
    pub(crate) fn learn(&mut self, id: u8, message: u64, due: Option<i64>) {
        if let Some(told) = self.acts.get_mut(&message)
            && told.1 == Some(CLOCK)
        {
            told.1 = due;
        }
        if let (Some(job), Some(due)) = (self.jobs.get_mut(&id), due)
            && job.due == CLOCK
        {
            job.due = due;
        }
    }

    /// `early` takes what is due at any time.
    pub(crate) fn claim(&mut self, fence: Fence, over: bool, early: bool) -> Taken {
        let mut taken = Vec::new();
        for (id, job) in &mut self.jobs {
            let Location::Due { ripe } = job.location else { continue };
            if ripe || early {
                job.attempt += u32::from(!job.dying);
                job.to(Location::ClaimedJob { over, ripe });
                job.fence = fence;
                taken.push((*id, !ripe));
            }
        }
        taken
    }

    /// The jobs are as they were before the claim.
    pub(crate) fn reclaim(&mut self, fence: Fence) -> i64 {
        let mut back = 0;
        for job in self.jobs.values_mut().filter(|job| job.fence == fence) {
            let Location::ClaimedJob { ripe, .. } = job.location else { continue };
            job.attempt -= u32::from(!job.dying);
            job.to(Location::Due { ripe });
            back += 1;
        }
        back
    }

    pub(crate) fn rescue(&mut self, fence: Fence, over: bool) -> Vec<u8> {
        let is_late = |job: &Job| {
            matches!(
                job.location,
                Location::ClaimedJob { over: true, .. } | Location::Held { over: true }
            )
        };
        let late: Vec<u8> =
            self.jobs.iter().filter(|(_, job)| is_late(job)).map(|(id, _)| *id).collect();
        for id in &late {
            let job = self.jobs.get_mut(id).unwrap();
            (job.location, job.fence, job.rescued) =
                (Location::ClaimedJob { over, ripe: true }, fence, true);
        }
        late
    }

    pub(crate) fn has_lease(&self, fence: Fence) -> bool {
        self.jobs
            .values()
            .any(|job| job.fence == fence && matches!(job.location, Location::ClaimedJob { .. }))
    }

    /// The job, if this fence still stands.
    pub(crate) fn leased(&mut self, id: u8, fence: Fence) -> Option<&mut Job> {
        self.jobs
            .get_mut(&id)
            .filter(|job| job.fence == fence && matches!(job.location, Location::ClaimedJob { .. }))
    }

    pub(crate) fn settle(&mut self, id: u8, fence: Fence, how: How, unpublished: bool) -> bool {
        let Some(job) = self.leased(id, fence) else { return false };
        let undo = u32::from(unpublished && !job.dying);
        match how {
            How::Complete | How::Drop => {
                let told = job.told();
                let over = Over { fired: how == How::Complete, message: job.message, told };
                self.jobs.remove(&id);
                self.gone.insert(id, over);
            }
            How::Hold { over } => {
                job.to(Location::Held { over });
                (job.held, job.crashes) = (true, 0);
            }
            How::Release { ripe } => {
                job.attempt -= undo;
                if unpublished {
                    job.crashes = 0;
                } else if job.rescued && !job.held {
                    job.crashes += 1;
                }
                job.to(Location::Due { ripe: ripe && (job.attempt > 0 || job.due < FAR) });
            }
            How::Retry { ripe } => {
                job.attempt -= undo;
                job.step += u16::from(!job.dying);
                job.crashes = 0;
                job.to(Location::Due { ripe });
            }
            How::Die => {
                job.attempt -= undo;
                (job.dying, job.crashes) = (true, 0);
                job.to(Location::Due { ripe: true });
            }
            How::Bury => {
                (job.dying, job.crashes) = (true, 0);
                job.to(Location::Dead);
            }
        }
        true
    }
}

/// The ways to end a lease.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum How {
    Complete,
    Drop,
    Hold { over: bool },
    Release { ripe: bool },
    Retry { ripe: bool },
    Die,
    Bury,
}
