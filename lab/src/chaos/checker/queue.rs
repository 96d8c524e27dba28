//! The rules of the jobs of a queue: what consumers saw of each job, and the promises that it
//! breaks.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use super::verdict::{Counts, FaultImpact, QueueCounts, Verdict, Wrong};
use super::windows::FaultWindows;
use crate::chaos::fault::InQueues;
use crate::chaos::history::{
    Event, FINISHED, Fault, History, LeaseWord, Op, Phase, PoppedJob, Schedule, UNREADABLE,
};
use crate::chaos::queue::faults::kills_redis;

/// The most that two times of Redis's clock may be apart by rounding alone, ms.
const ROUNDING_TOLERANCE_MS: i64 = 1;
/// The longest travel of an answer that leaves no doubt about it, ms.
const MAX_ANSWER_TRAVEL_MS: i64 = 5;
/// The time before a failover, and after its end, in which the promoted master may not know a pop,
/// ms: by the lag of its replication, and until Dwell has left the former master.
const MAX_LOST_POP_AGE_MS: i64 = 2000;

/// A broken promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Breach {
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

/// One hand-out of a job. All times are epoch ms.
#[derive(Debug, Clone, Default)]
struct HandOut {
    lease: String,
    attempt: u32,
    begun_ms: i64,
    deadline_ms: i64,
    /// When a `fail` or a `release` that was answered was sent: the lease ended then at the
    /// earliest.
    given_up_ms: Option<i64>,
    /// The answer to a `fail` or a `release` was lost: the lease may have ended before its
    /// deadline.
    is_unsure: bool,
    /// When the `finish` that was answered `finished` was sent.
    finished_ms: Option<i64>,
    /// When the consumer was told that the lease was over.
    refused_ms: Option<i64>,
}

/// The life of a job.
#[derive(Debug, Default)]
struct Life {
    due_ms: i64,
    /// When the request was answered. Without an answer the job may be stored or not.
    accepted_ms: Option<i64>,
    hand_outs: Vec<HandOut>,
    /// When a consumer was first told that the job is finished, by itself or before.
    over_ms: Option<i64>,
    /// When a word was last sent that was answered with: there is no such job.
    unknown_ms: Option<i64>,
    /// A body was not the one that was sent.
    is_damaged: bool,
    /// Its request was returned, because its bucket was unreadable.
    is_returned: bool,
}

/// Checks a history of a queue. The faults say what a promoted master may have forgotten.
pub(super) fn check(history: &History, faults: &[Fault]) -> Verdict {
    let mut verdict = Verdict::default();
    let counts = judge(history, &lives(history, |_| true), faults, |_| false, &mut verdict);
    let QueueCounts { unseen, unseen_at_most: most, .. } = counts;
    if unseen > most {
        let why = format!("{unseen} attempts seen by nobody, of which lost answers explain {most}");
        verdict.find(Wrong::Unexplained, why);
    }
    verdict.leases = FaultWindows::new(history, faults).leases(&history.events);
    verdict.impacts = faults.iter().map(FaultImpact::from).collect();
    verdict.queue = Some(counts);
    verdict.end(history.end());
    verdict
}

/// Checks the jobs of a queue among those of a broker. Around a fault that the queue scenario never
/// injects, the attempts of a job and the answers to its consumers are not judged: such a fault may
/// move Redis's clock, or have the broker deliver a request again.
pub(super) fn beside(history: &History, faults: &[Fault], verdict: &mut Verdict) {
    let queued = |event: &Event| match &event.op {
        Op::Schedule(Schedule { id, job: Some(job), .. }) if job.queued => Some(id.clone()),
        _ => None,
    };
    let queued: HashSet<String> = history.events.iter().filter_map(queued).collect();
    if queued.is_empty() {
        return;
    }
    // A pop is not flushed.
    let is_flushed = history.head.durability.contains("fsync");
    let is_strange = |fault: &Fault| {
        fault.kind.in_queues() == InQueues::Never || is_flushed && kills_redis(fault)
    };
    let is_disturbed = |life: &Life| {
        let ends_ms = life.hand_outs.iter().map(|one| one.deadline_ms).chain(life.over_ms);
        let end_ms = ends_ms.max().unwrap_or(i64::MAX);
        faults.iter().filter(|fault| is_strange(fault)).any(|fault| {
            fault.began_us / 1000 - MAX_LOST_POP_AGE_MS <= end_ms
                && fault.healed_us / 1000 + MAX_LOST_POP_AGE_MS >= life.due_ms
        })
    };
    let lives = lives(history, |id| queued.contains(id));
    verdict.queue = Some(judge(history, &lives, faults, is_disturbed, verdict));
}

/// Reports the broken promises of jobs, and counts. Of a disturbed job only a loss and a damage are
/// reported.
fn judge(
    history: &History,
    lives: &BTreeMap<&str, Life>,
    faults: &[Fault],
    is_disturbed: impl Fn(&Life) -> bool,
    verdict: &mut Verdict,
) -> QueueCounts {
    let consumers = history.end().and_then(|end| end.consumers).unwrap_or_default();
    let mut counts = QueueCounts {
        hand_outs: lives.values().map(|life| life.hand_outs.len() as u64).sum(),
        unseen: lives.values().map(Life::unseen).sum(),
        unseen_at_most: consumers.unanswered_jobs,
        forgotten: 0,
        consumers,
    };
    for (id, life) in lives {
        for (breach, is_excused) in life.breaches(id, faults) {
            let (wrong, ..) = breach.rule();
            let is_judged =
                matches!(breach, Breach::Damaged | Breach::Unfinished) || !is_disturbed(life);
            if is_excused {
                counts.forgotten += u64::from(breach == Breach::AttemptAgain);
            } else if is_judged {
                verdict.find(wrong, format!("{id}: {breach}: {life:?}"));
            }
        }
    }
    let count = |is: fn(&Life) -> bool| lives.values().filter(|life| is(life)).count() as u64;
    verdict.counts += Counts {
        taken: count(|life| life.accepted_ms.is_some()),
        uncertain: count(|life| life.accepted_ms.is_none()),
        delivered: count(|life| !life.hand_outs.is_empty()),
        recovered: count(|life| life.accepted_ms.is_none() && !life.hand_outs.is_empty()),
        held: count(|life| !life.hand_outs.is_empty()),
        finished: count(|life| life.over_ms.is_some()),
        ..Counts::default()
    };
    counts
}

/// The life of every job that was sent, of those that are wanted.
fn lives(history: &History, is_wanted: impl Fn(&str) -> bool) -> BTreeMap<&str, Life> {
    let mut lives: BTreeMap<&str, Life> = BTreeMap::new();
    for event in &history.events {
        let Some(id) = event.op.id().filter(|id| is_wanted(id)) else { continue };
        let life = lives.entry(id).or_default();
        match &event.op {
            Op::Schedule(sent) => {
                life.due_ms = sent.job.as_ref().map_or(life.due_ms, |job| job.due_ms);
                if event.phase == Phase::Ok {
                    life.accepted_ms.get_or_insert(event.t_us / 1000);
                }
            }
            Op::Pop(popped) => life.popped(popped),
            Op::Lease(said) => life.said(said, event.phase),
            Op::Reject(what) => life.is_returned |= what.reason == UNREADABLE,
            _ => {}
        }
    }
    lives
}

impl Breach {
    /// The kind of violation, the words for people, and whether a failover may cause it: pops do
    /// not wait for the durability level, all other answers do.
    fn rule(self) -> (Wrong, &'static str, bool) {
        match self {
            Self::Damaged => (Wrong::Damaged, "another body", false),
            Self::Unfinished => (Wrong::Lost, "nobody finished it", false),
            Self::Unknown => (Wrong::FalseVerdict, "it is not known", false),
            Self::FinishedTwice => (Wrong::FalseVerdict, "two consumers finished it", false),
            Self::FinishedLate => (Wrong::FalseVerdict, "finished by a lease that was over", false),
            Self::Early => (Wrong::Early, "handed out early", false),
            Self::AttemptAgain => {
                (Wrong::WrongAttempt, "an attempt was handed out twice, or fell", true)
            }
            Self::HeldByTwo => (Wrong::Unexplained, "held by two consumers at a time", true),
            Self::Refused => {
                (Wrong::FalseVerdict, "a word was refused while its lease lasted", true)
            }
            Self::AfterFinish => (Wrong::Unexplained, "handed out after its finish", true),
        }
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, words, _) = self.rule();
        f.write_str(words)
    }
}

impl Life {
    fn popped(&mut self, popped: &PoppedJob) {
        let PoppedJob { lease, attempt, begun_ms, deadline_ms, is_damaged, .. } = popped.clone();
        self.is_damaged |= is_damaged;
        self.hand_outs.push(HandOut {
            lease,
            attempt,
            begun_ms,
            deadline_ms,
            ..HandOut::default()
        });
    }

    /// A word on a hand-out, and its answer.
    fn said(&mut self, said: &LeaseWord, phase: Phase) {
        let LeaseWord { lease, sent_ms, heard_ms, verdict, .. } = said;
        if FINISHED.contains(&&**verdict) {
            self.over_ms = Some(self.over_ms.map_or(*heard_ms, |over_ms| over_ms.min(*heard_ms)));
        }
        if verdict == "not_found" {
            self.unknown_ms = self.unknown_ms.max(Some(*sent_ms));
        }
        let Some(hand_out) = self.hand_outs.iter_mut().find(|known| known.lease == *lease) else {
            return;
        };
        hand_out.is_unsure |= phase == Phase::Info;
        match &**verdict {
            "finished" => hand_out.finished_ms = Some(*sent_ms),
            // From the moment of the word on, another consumer may have the job.
            "failed" | "released" => hand_out.given_up_ms = Some(*sent_ms),
            "stale" => hand_out.refused_ms = Some(*heard_ms),
            _ => {}
        }
    }

    /// The number of attempts before the last one that no consumer saw.
    fn unseen(&self) -> u64 {
        let seen: HashSet<u32> = self.hand_outs.iter().map(|hand_out| hand_out.attempt).collect();
        let last = seen.iter().max().copied().unwrap_or(0);
        u64::from(last) - seen.len() as u64
    }

    /// The broken promises, and whether a failover excuses each.
    fn breaches(&self, id: &str, faults: &[Fault]) -> Vec<(Breach, bool)> {
        let mut breaches = Vec::new();
        // A hand-out may be forgotten: by a master that was promoted around that time.
        let mut test = |is_broken: bool, breach: Breach, hand_outs: &[&HandOut]| {
            let (_, _, may_be_forgotten) = breach.rule();
            if is_broken {
                let is_excused =
                    may_be_forgotten && hand_outs.iter().any(|one| is_forgotten(id, one, faults));
                breaches.push((breach, is_excused));
            }
        };
        let is_after = |at_ms: i64, of_ms: i64| at_ms > of_ms + ROUNDING_TOLERANCE_MS;
        let finishes = self.hand_outs.iter().filter(|one| one.finished_ms.is_some()).count();
        // Before the answer, a job may be handed out by a master that dies, and stored again by the
        // next.
        let is_unknown = self.accepted_ms.is_some() && self.unknown_ms > self.accepted_ms;
        let is_unfinished =
            self.accepted_ms.is_some() && self.over_ms.is_none() && !self.is_returned;
        test(self.is_damaged, Breach::Damaged, &[]);
        test(is_unfinished, Breach::Unfinished, &[]);
        test(is_unknown, Breach::Unknown, &[]);
        test(finishes > 1, Breach::FinishedTwice, &[]);
        for one in &self.hand_outs {
            let is_late = one.finished_ms.is_some_and(|ms| is_after(ms, one.deadline_ms));
            let lasted = |refused_ms: i64| refused_ms + MAX_ANSWER_TRAVEL_MS < one.deadline_ms;
            let is_refused = one.refused_ms.is_some_and(lasted) && !one.is_unsure;
            let is_over = self.over_ms.is_some_and(|over_ms| is_after(one.begun_ms, over_ms));
            test(is_after(self.due_ms, one.begun_ms), Breach::Early, &[one]);
            test(is_late, Breach::FinishedLate, &[one]);
            test(is_refused, Breach::Refused, &[one]);
            test(is_over, Breach::AfterFinish, &[one]);
        }
        let mut in_time: Vec<&HandOut> = self.hand_outs.iter().collect();
        in_time.sort_by_key(|hand_out| (hand_out.begun_ms, hand_out.attempt));
        for pair in in_time.windows(2) {
            let (one, next) = (pair[0], pair[1]);
            let end_ms = one.given_up_ms.map_or(one.deadline_ms, |ms| ms.min(one.deadline_ms));
            // A `finish` whose answer was lost ended the lease for good, or not at all.
            let is_open = !one.is_unsure && one.finished_ms.is_none();
            test(next.attempt <= one.attempt, Breach::AttemptAgain, pair);
            test(is_open && is_after(end_ms, next.begun_ms), Breach::HeldByTwo, pair);
            test(one.finished_ms.is_some(), Breach::AfterFinish, &[next]);
        }
        breaches
    }
}

/// Whether a master that was promoted around that time may not know of this hand-out, or the former
/// one gave it.
fn is_forgotten(id: &str, hand_out: &HandOut, faults: &[Fault]) -> bool {
    faults.iter().any(|fault| {
        let (from_ms, to_ms) = (
            fault.began_us / 1000 - MAX_LOST_POP_AGE_MS,
            fault.healed_us / 1000 + MAX_LOST_POP_AGE_MS,
        );
        fault.rolls_back(id) && (from_ms..=to_ms).contains(&hand_out.begun_ms)
    })
}

#[cfg(test)]
mod tests;
