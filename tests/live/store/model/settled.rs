//! Publications and settles of the instances, and the invariants after each step.

use std::collections::BTreeSet;

use dwell::store::record::{StateRecord, decode};
use proptest::sample::Index;

use super::reference::{Fence, How, Location};
use super::run::Run;
use super::system::name_of;

impl Run {
    pub(super) fn publish(&mut self, by: usize, which: Index) {
        let ready: Vec<usize> = (0..self.instances[by].held.len())
            .filter(|at| {
                let held = &self.instances[by].held[*at];
                !held.published
                    && !held.dying
                    && !held.early
                    && (!held.over || self.reference.clone().leased(held.id, held.fence).is_some())
            })
            .collect();
        if ready.is_empty() {
            return;
        }
        let held = &mut self.instances[by].held[*which.get(&ready)];
        held.published = true;
        assert!(!self.cancelled.contains(&held.life), "`cancelled`, and it is published after");
        let attempts = self.published.entry(held.life).or_default();
        let is_next = |attempt: &u32| {
            if held.failed { *attempt != held.attempt } else { *attempt < held.attempt }
        };
        assert!(
            self.failed_over || attempts.iter().all(is_next),
            "attempt {} after {attempts:?}",
            held.attempt
        );
        attempts.push(held.attempt);
    }

    /// Ends a lease in a way that its owner may, by the outcome of the publication.
    pub(super) fn settle(&mut self, by: usize, which: Index, how: How) {
        if self.instances[by].held.is_empty() {
            return;
        }
        let at = which.index(self.instances[by].held.len());
        let held = self.instances[by].held[at].clone();
        let how = match how {
            // An instance that took a job over does not know of a publish; an unpublished job is
            // not confirmed.
            How::Complete | How::Hold { .. } | How::Drop if held.rescued => {
                How::Release { ripe: true }
            }
            How::Complete | How::Hold { .. } if !held.published => How::Release { ripe: true },
            How::Retry { .. } | How::Die | How::Drop if held.early => How::Release { ripe: true },
            How::Complete | How::Hold { .. } | How::Retry { .. } | How::Die | How::Drop
                if held.dying =>
            {
                How::Bury
            }
            How::Drop if held.published => How::Complete,
            how => how,
        };
        let unpublished = !held.published;
        let expected = self.reference.settle(held.id, held.fence, how, unpublished);
        assert_eq!(self.system.settle(held.id, held.fence, how, unpublished), expected, "{how:?}");
        self.settles.push((held.id, held.fence, how, unpublished));
        // A drop is an end that was asked for, and is told by a metric.
        if expected && how == How::Drop {
            self.standing.remove(&held.id);
        }
        self.instances[by].held.remove(at);
    }

    /// The scripts and the reference hold the same, and nothing is lost.
    pub(super) fn check(&mut self) {
        let dump = self.system.dump();
        let holds = |table: &str, id: u8| dump[table].get(name_of(id).as_bytes());
        let lent = self.system.lent();
        for id in 0..2 {
            let mut places: Vec<&str> = ["due", "held", "dead"]
                .into_iter()
                .filter(|place| holds(place, id).is_some())
                .collect();
            places.extend(lent.iter().filter(|(lent, _)| *lent == id).map(|_| "lease"));
            let Some(job) = self.reference.jobs.get(&id) else {
                assert!(
                    places.is_empty()
                        && holds("jobs", id).is_none()
                        && holds("state", id).is_none(),
                    "{id} in {places:?}"
                );
                if let Some(life) = self.standing.get(&id) {
                    assert!(
                        self.published.contains_key(life),
                        "{id} is neither here nor published, and nobody ended it"
                    );
                }
                continue;
            };
            let expected = match job.location {
                Location::Due { .. } => "due",
                Location::ClaimedJob { .. } => "lease",
                Location::Held { .. } => "held",
                Location::Dead => "dead",
            };
            assert_eq!(places, [expected], "{job:?}");
            if let Some(score) = holds("due", id).filter(|_| job.attempt == 0 && !job.dying) {
                let score: i64 = std::str::from_utf8(score).unwrap().parse().unwrap();
                assert!(score >= job.due, "due at {score}: {job:?}");
            }
            let record = decode(holds("jobs", id).unwrap().clone().into()).unwrap();
            assert_eq!(
                (record.fingerprint, record.job.body.as_ref()),
                (job.message.to_be_bytes(), &[job.body][..])
            );
            // The end of a lease counts the attempt.
            let is_out = expected == "lease" && !job.held && !job.dying;
            let attempt = job.attempt - u32::from(is_out);
            let Some(state) = holds("state", id) else {
                assert!(matches!(expected, "due" | "lease"), "{job:?}");
                assert_eq!(
                    (attempt, job.step, job.crashes, job.dying),
                    (0, 0, 0, false),
                    "{job:?}"
                );
                let due = match expected {
                    "due" => {
                        std::str::from_utf8(holds("due", id).unwrap()).unwrap().parse().unwrap()
                    }
                    _ => lent.iter().find(|(lent, _)| *lent == id).unwrap().1,
                };
                assert_eq!((record.generation, due), (job.generation, job.due), "{job:?}");
                continue;
            };
            let state = StateRecord::decode(state).unwrap();
            assert_eq!(
                (
                    state.attempt,
                    state.step,
                    state.crashes,
                    state.due_ms,
                    state.held,
                    state.counted,
                    state.reason.is_some()
                ),
                (attempt, job.step, job.crashes, job.due, job.held, false, job.dying),
                "{job:?}"
            );
            assert_eq!(state.generation, job.generation);
        }
        assert_eq!(dump["claim_deadlines"].len(), dump["claims"].len());
        assert_eq!(dump["settled"].len(), dump["claims"].len());
        let leases: BTreeSet<Fence> = self
            .reference
            .jobs
            .values()
            .filter(|job| matches!(job.location, Location::ClaimedJob { .. }))
            .map(|job| job.fence)
            .collect();
        assert_eq!(
            dump["claims"].len(),
            leases.len(),
            "a lease without a job stays, or jobs are in the wrong one"
        );
        assert_eq!(dump["applied"].len(), self.reference.acts.len());
        assert_eq!(dump["completed"].len(), self.reference.gone.len());
    }
}
