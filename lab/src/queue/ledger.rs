//! The records of the consumers about each job. All times are epoch ms; times of leases are by
//! Redis's clock, which is that of the consumers.

use std::collections::{HashMap, HashSet};

use crate::chaos::history::Fault;

/// A broken promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Breach {
    /// A body was not the one that was sent.
    Damaged,
    /// An accepted job that nobody finished.
    Unfinished,
    /// An accepted job that Dwell does not know.
    Unknown,
    /// Two consumers were told that they finished it.
    FinishedTwice,
    /// A lease that was over finished the job.
    FinishedLate,
    /// A hand-out before the due time.
    Early,
    /// The attempt of a hand-out is not above that of the one before.
    AttemptAgain,
    /// A hand-out while the lease before lasted.
    HeldByTwo,
    /// A word was refused although its lease lasted.
    Refused,
    /// A hand-out of a finished job.
    AfterFinish,
}

/// One hand-out of a job, as its consumer saw it.
#[derive(Debug, Clone, Default)]
pub(super) struct HandOut {
    /// The lease, which no other hand-out has. After a failover two may have one attempt.
    pub(super) lease: String,
    pub(super) attempt: u32,
    /// When the lease began.
    pub(super) begun_ms: i64,
    /// When the lease ends by itself.
    pub(super) deadline_ms: i64,
    /// When a `fail` or a `release` that was answered was sent: the lease ended then at the
    /// earliest.
    pub(super) given_up_ms: Option<i64>,
    /// The answer to a `fail` or a `release` was lost: the lease may have ended before its
    /// deadline.
    pub(super) is_unsure: bool,
    /// When the `finish` that was answered `finished` was sent.
    pub(super) finished_ms: Option<i64>,
    /// When the consumer was told that the lease was over.
    pub(super) refused_ms: Option<i64>,
}

/// The life of a job.
#[derive(Debug, Default)]
pub(super) struct Life {
    pub(super) due_ms: i64,
    /// When the request was answered. Without an answer the job may be stored or not.
    pub(super) accepted_ms: Option<i64>,
    pub(super) hand_outs: Vec<HandOut>,
    /// When a consumer was first told that the job is finished, by itself or before.
    pub(super) over_ms: Option<i64>,
    /// When a word was last sent that was answered with: there is no such job.
    pub(super) unknown_ms: Option<i64>,
    /// A body was not the one that was sent.
    pub(super) is_damaged: bool,
}

/// Every job that was sent.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    jobs: HashMap<String, Life>,
    finished: usize,
}

/// The sums of a campaign.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sums {
    /// Jobs that were accepted.
    pub(super) jobs: usize,
    /// Hand-outs that a consumer saw.
    pub(super) hand_outs: usize,
    /// Attempts that no consumer saw, although a later one of the job was seen.
    pub(super) unseen: u64,
}

/// The findings of the check.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// The broken promises; a line each.
    pub(super) wrong: Vec<String>,
    /// Hand-outs that a promoted master forgot.
    pub(super) forgotten: usize,
}

impl Ledger {
    /// Changes the life of a job.
    fn change(&mut self, id: &str, change: impl FnOnce(&mut Life)) {
        let life = self.jobs.entry(id.to_owned()).or_default();
        let was_finished = life.accepted_ms.is_some() && life.over_ms.is_some();
        change(life);
        self.finished +=
            usize::from(!was_finished && life.accepted_ms.is_some() && life.over_ms.is_some());
    }

    /// A job is sent to be stored.
    pub(super) fn sent(&mut self, id: &str, due_ms: i64) {
        self.change(id, |life| life.due_ms = due_ms);
    }

    /// The storing of a job was answered at this time.
    pub(super) fn accepted(&mut self, id: &str, at_ms: i64) {
        self.change(id, |life| life.accepted_ms = Some(at_ms));
    }

    pub(super) fn handed_out(&mut self, id: &str, hand_out: HandOut) {
        self.change(id, |life| life.hand_outs.push(hand_out));
    }

    pub(super) fn damaged(&mut self, id: &str) {
        self.change(id, |life| life.is_damaged = true);
    }

    /// A word on a hand-out was sent and answered at these times.
    pub(super) fn said(
        &mut self,
        id: &str,
        lease: &str,
        (sent_ms, heard_ms): (i64, i64),
        verdict: &str,
    ) {
        self.change(id, |life| {
            if matches!(verdict, "finished" | "fired") {
                life.over_ms = Some(life.over_ms.map_or(heard_ms, |over_ms| over_ms.min(heard_ms)));
            }
            if verdict == "not_found" {
                life.unknown_ms = life.unknown_ms.max(Some(sent_ms));
            }
            let Some(hand_out) = life.hand_out(lease) else { return };
            match verdict {
                "finished" => hand_out.finished_ms = Some(sent_ms),
                // From the moment of the word on, another consumer may have the job.
                "failed" | "released" => hand_out.given_up_ms = Some(sent_ms),
                "stale" => hand_out.refused_ms = Some(heard_ms),
                _ => {}
            }
        });
    }

    /// The answer to a `fail` or a `release` was lost.
    pub(super) fn unsure(&mut self, id: &str, lease: &str) {
        self.change(id, |life| {
            if let Some(hand_out) = life.hand_out(lease) {
                hand_out.is_unsure = true;
            }
        });
    }

    /// The number of jobs that are accepted and finished, as far as a consumer knows.
    pub(super) fn finished(&self) -> usize {
        self.finished
    }

    pub(super) fn sums(&self) -> Sums {
        Sums {
            jobs: self.jobs.values().filter(|life| life.accepted_ms.is_some()).count(),
            hand_outs: self.jobs.values().map(|life| life.hand_outs.len()).sum(),
            unseen: self.jobs.values().map(Life::unseen).sum(),
        }
    }

    /// Checks every life. The faults say what a promoted master may have forgotten.
    pub(super) fn check(&self, faults: &[Fault]) -> Findings {
        let mut findings = Findings::default();
        for (id, life) in &self.jobs {
            for (breach, is_excused) in life.breaches(id, faults) {
                if is_excused {
                    findings.forgotten += usize::from(breach == Breach::AttemptAgain);
                } else {
                    findings.wrong.push(format!("{id}: {breach}: {life:?}"));
                }
            }
        }
        findings
    }
}

impl Life {
    /// The hand-out with this lease.
    fn hand_out(&mut self, lease: &str) -> Option<&mut HandOut> {
        self.hand_outs.iter_mut().find(|known| known.lease == lease)
    }

    /// The number of attempts before the last one that no consumer saw.
    pub(super) fn unseen(&self) -> u64 {
        let seen: HashSet<u32> = self.hand_outs.iter().map(|hand_out| hand_out.attempt).collect();
        let last = seen.iter().max().copied().unwrap_or(0);
        u64::from(last) - seen.len() as u64
    }
}
