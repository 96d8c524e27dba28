//! The checker: a history in, a verdict out. Pure.
//!
//! - [`mod@verdict`]: the result.
//! - `timeline`: the known events of each job; `answers`: the verdicts that producers received.
//! - `consumer`: jobs that their consumers confirm; `expiry`: jobs that expire; `limited`: the rate
//!   of the limited target.
//! - `burst`: requests that are debounced; `recurring`: schedules, and their occurrences.
//! - `redelivery`: a job that runs again because its request was redelivered.
//! - `windows`: the faults, and the copies that each explains.
//! - `queue`: the rules of the jobs of a queue.

mod answers;
mod burst;
mod consumer;
mod expiry;
mod limited;
mod queue;
mod recurring;
mod redelivery;
#[cfg(test)]
mod tests;
mod timeline;
pub mod verdict;
mod windows;

use std::collections::HashMap;
use std::fmt::Display;

use consumer::{is_repeat, waits_us};
use expiry::EXPIRED;
use redelivery::Redelivery;
use timeline::{Came, Heard, Timeline, timelines};
use verdict::{Verdict, Wrong};
use windows::{Copy, FaultWindows};

use crate::chaos::history::{CANCELLED, DeadJob, Event, Fault, History, Job, Op, Phase, QUEUE};

/// The bound on the lateness of jobs that an active fault does not affect, ms. It allows for a busy
/// machine.
const MAX_UNAFFECTED_LATENESS_MS: i64 = 12_000;

/// Checks a history.
#[must_use]
pub fn check(history: &History) -> Verdict {
    let faults: Vec<Fault> = history.events.iter().filter_map(healed).cloned().collect();
    if history.head.broker == QUEUE {
        return queue::check(history, &faults);
    }
    let occurrences = recurring::occurrences(&history.events);
    let mut windows = FaultWindows::new(history, &faults);
    let mut verdict = Verdict::default();
    let mut timelines = timelines(&history.events, &faults);
    recurring::adopt(&mut timelines, &occurrences);
    let made = recurring::made(&timelines);
    let end = history.end();
    let claims = end.and_then(|end| end.schedules.as_deref());
    let kept: HashMap<&str, &DeadJob> =
        end.iter().flat_map(|end| &end.dead).map(|dead| (&*dead.id, dead)).collect();
    let end_us = history.events.last().map_or(i64::MAX, |event| event.t_us);
    let mut copied = Vec::new();
    for (&id, timeline) in &timelines {
        let lives = Redelivery::of(&windows, timeline);
        verdict.counts.redelivered += lives.begun_again();
        copied.extend(copies(id, timeline, &lives, &windows));
        let Some(job) = timeline.job else {
            unexpected(id, timeline, "it was not requested", &mut verdict);
            continue;
        };
        let (windows, lives, dead, verdict) =
            (&windows, &lives, kept.get(id).copied(), &mut verdict);
        let mut case = Case { id, job, timeline, lives, windows, dead, end_us, verdict };
        match job {
            Job { queued: true, .. } => case.returned(),
            Job { debounce: Some(_), .. } => case.burst(),
            Job { recurring: Some(of), .. } => case.schedule(*of, made.get(id), claims),
            _ => case.check(),
        }
    }
    limited::check(&windows, &timelines, &mut verdict);
    queue::beside(history, &faults, &mut verdict);
    windows.explain(copied, &mut verdict);
    windows.counted(&history.events, &mut verdict);
    answers::interfaces(&history.events, &mut verdict);
    verdict.leases = windows.leases(&history.events);
    verdict.impacts = windows.impacts(timelines.values());
    verdict.end(end);
    verdict
}

fn healed(event: &Event) -> Option<&Fault> {
    match (&event.op, event.phase) {
        (Op::Fault(fault), Phase::Ok) => Some(fault),
        _ => None,
    }
}

/// Reports all that became of a request that asked for no job.
fn unexpected(id: &str, timeline: &Timeline<'_>, why: &str, verdict: &mut Verdict) {
    let rejections = timeline.rejections.iter().filter(|_| timeline.job.is_none());
    for Came { what, .. } in timeline.out().chain(rejections) {
        verdict.find(Wrong::Unexpected, format!("`{id}` on {}: {why}", what.topic));
    }
    for Heard { at_us, action, res } in &timeline.replies {
        verdict
            .find(Wrong::Unexpected, format!("`{id}`: `{res}` for `{action}` at {at_us}: {why}"));
    }
}

/// Every message after the first of a job, among deliveries and dead letters together, and among
/// returned requests. The first message of a job that runs again does not count.
fn copies<'a>(
    id: &'a str,
    timeline: &Timeline<'a>,
    lives: &Redelivery<'_>,
    windows: &FaultWindows<'_>,
) -> Vec<Copy<'a>> {
    let mut copies = Vec::new();
    let lists: [(Vec<&Came<'_>>, bool); 2] =
        [(timeline.out().collect(), true), (timeline.rejections.iter().collect(), false)];
    for (mut list, of_job) in lists {
        list.sort_by_key(|came| came.taken_us());
        for (at, pair) in list.windows(2).enumerate() {
            let (one, other) = (pair[0], pair[1]);
            if lives.begins(other) || is_repeat(windows, timeline, one, other) {
                continue;
            }
            // A burst may become several jobs, each with a time of its own.
            if !timeline.burst.is_empty() && one.what.due_ms != other.what.due_ms {
                continue;
            }
            let by_client = of_job && list[..=at].iter().any(|one| windows.sends_again(one, other));
            let (first_us, again_us) = (one.taken_us(), other.taken_us());
            copies.push(Copy { id, job: timeline.job, first_us, again_us, of_job, by_client });
        }
    }
    copies
}

/// A job, all that is known of it, and the verdict that its violations go to.
struct Case<'a, 'r> {
    id: &'a str,
    job: &'a Job,
    timeline: &'r Timeline<'a>,
    lives: &'r Redelivery<'a>,
    windows: &'r FaultWindows<'a>,
    /// The job is dead in Redis.
    dead: Option<&'a DeadJob>,
    /// The end of the run, epoch µs.
    end_us: i64,
    verdict: &'r mut Verdict,
}

impl Case<'_, '_> {
    fn check(&mut self) {
        self.count();
        let job = self.job;
        if let Some(code) = &job.refused {
            return self.bad_request(code);
        }
        self.whereabouts();
        self.contents();
        self.attempts();
        self.deaths();
        self.answers();
        self.lateness();
        if let Some(consumer) = &job.consumer {
            self.consumer(consumer);
        }
        self.expiry();
        self.turn();
    }

    /// Adds a violation.
    fn find(&mut self, wrong: Wrong, what: impl Display) {
        self.verdict.find(wrong, format!("{}: {what}", self.id));
    }

    fn came(&self) -> bool {
        !self.timeline.deliveries.is_empty()
    }

    fn died(&self) -> bool {
        self.dead.is_some() || !self.timeline.deaths.is_empty()
    }

    fn count(&mut self) {
        let Case { timeline, .. } = *self;
        let (came, died) = (self.came(), self.died());
        let answered = timeline.asks.iter().filter(|ask| timeline.answer(ask.action).is_some());
        let counts = &mut self.verdict.counts;
        counts.taken += u64::from(timeline.certain);
        counts.uncertain += u64::from(!timeline.certain && !timeline.refused);
        counts.recovered += u64::from(!timeline.certain && came);
        counts.delivered += u64::from(came);
        counts.dead += u64::from(died);
        counts.rejected += u64::from(!timeline.rejections.is_empty());
        counts.asked += timeline.asks.len() as u64;
        counts.answered += answered.count() as u64;
    }

    /// A rejected request must be returned, and must have no other result.
    fn bad_request(&mut self, code: &str) {
        let Case { id, timeline, .. } = *self;
        if timeline.certain && timeline.rejections.is_empty() {
            self.find(Wrong::Lost, "a bad request that was not returned");
        }
        for Came { what, .. } in &timeline.rejections {
            if what.reason != code {
                let reason = &what.reason;
                self.find(Wrong::Refused, format!("returned with `{reason}`, not with `{code}`"));
            }
        }
        unexpected(id, timeline, "a bad request", self.verdict);
        if let Some(dead) = self.dead {
            self.find(Wrong::Unexpected, format!("dead of {:?}: a bad request", dead.reason));
        }
    }

    /// Each arrival is at an expected destination.
    fn whereabouts(&mut self) {
        let Case { job, timeline, .. } = *self;
        let nowhere = !self.came() && !self.died() && timeline.rejections.is_empty();
        let cancelled = timeline.may("cancel", &CANCELLED);
        if timeline.certain && nowhere && !cancelled && !self.is_refused() {
            let replies = &timeline.replies;
            self.find(Wrong::Lost, format!("due {}, answers {replies:?}", job.due_ms));
        }
        for Came { what, .. } in &timeline.deliveries {
            let topic = &what.topic;
            if *topic != job.target {
                self.find(Wrong::Unexpected, format!("on {topic}, not on {}", job.target));
            } else if timeline.refused && !timeline.certain {
                self.find(Wrong::Unexpected, format!("on {topic}: the broker had refused it"));
            }
        }
        self.returned();
    }

    /// Nothing asks for the return of a valid request.
    fn returned(&mut self) {
        for Came { what, .. } in &self.timeline.rejections {
            self.verdict
                .find(Wrong::Refused, format!("{}: returned with `{}`", self.id, what.reason));
        }
    }

    /// Time and contents of each arrival.
    fn contents(&mut self) {
        let Case { job, timeline, windows, .. } = *self;
        let earliest_us = timeline.earliest_us(job);
        for came @ Came { what, .. } in &timeline.deliveries {
            let taken_us = came.taken_us();
            // A message with a later due time is measured by that due time.
            let due_us = what.due_ms.map_or(earliest_us, |due_ms| earliest_us.max(due_ms * 1000));
            // A job that a clock fired too early is repeated at its own pace.
            let before = |one: &Came<'_>| {
                one.what.due_ms == what.due_ms
                    && one.what.attempt < what.attempt
                    && one.taken_us() < taken_us
            };
            let repeats = timeline.deliveries.iter().any(before);
            if taken_us + windows.ahead_us(taken_us) < due_us && !repeats {
                self.find(Wrong::Early, format!("{} µs before {due_us}", due_us - taken_us));
            } else if self.is_stale(came) {
                let due_ms = job.due_ms;
                self.find(Wrong::Early, format!("at {taken_us} for {due_ms}, but rescheduled"));
            }
        }
        for came @ Came { what, .. } in timeline.out() {
            let (topic, digest) = (&what.topic, &what.digest);
            if *digest != job.digest {
                self.find(Wrong::Damaged, format!("on {topic}: {digest} and not {}", job.digest));
            }
            let behind_us =
                |asked_us| windows.behind_us(asked_us).max(windows.behind_us(came.taken_us()));
            if !what.due_ms.is_some_and(|due_ms| timeline.may_be_due(job, due_ms, behind_us)) {
                let (due_ms, asked_ms) = (what.due_ms, job.due_ms);
                let why = format!("on {topic}: due {due_ms:?}, asked for {asked_ms}");
                self.find(Wrong::Misdated, why);
            }
        }
    }

    /// Each copy has an attempt of its own, and later copies have higher ones.
    fn attempts(&mut self) {
        let Case { id, windows, lives, .. } = *self;
        // A promoted master may not know that the attempt began.
        let rolled_back = |one: &Came<'_>, other: &Came<'_>| {
            windows.rolls_back(id, one.taken_us(), other.taken_us())
        };
        // A delayed message may arrive after a later one.
        let falls = |pair: &[Came<'_>]| {
            let (from_us, to_us) = (pair[0].taken_us(), pair[1].taken_us());
            pair[0].what.attempt > pair[1].what.attempt
                && !windows.between(|effects| effects.holds_back, from_us, to_us)
                && !rolled_back(&pair[0], &pair[1])
        };
        for life in lives.each() {
            let numbers: Vec<u32> =
                life.iter().map(|came| came.what.attempt.unwrap_or(0)).collect();
            let mut is_wrong = numbers.contains(&0) || life.windows(2).any(falls);
            for (at, other) in life.iter().enumerate() {
                let is_twin = |one: &&Came<'_>| {
                    one.what.attempt == other.what.attempt && !rolled_back(one, other)
                };
                let twins = life[..at].iter().filter(is_twin);
                let by_client: Vec<bool> =
                    twins.map(|one| windows.sends_again(one, other)).collect();
                is_wrong |= by_client.contains(&false);
                self.verdict.counts.sent_again += u64::from(by_client.contains(&true));
            }
            if is_wrong {
                self.find(Wrong::WrongAttempt, format!("attempts {numbers:?}"));
            }
        }
    }

    /// A dead job has a reason within the run, and a dead letter if one could be written.
    fn deaths(&mut self) {
        let Case { timeline, end_us, .. } = *self;
        for Came { at_us, what } in &timeline.deaths {
            self.death(*at_us, &what.reason, what.attempt);
        }
        let Some(dead) = self.dead.filter(|_| timeline.deaths.is_empty()) else { return };
        // Older histories have no reason.
        if let Some(reason) = &dead.reason {
            self.death(end_us, reason, dead.attempt);
        }
        if !self.fails_publish(end_us) {
            self.find(Wrong::Lost, "it is dead, without a dead letter");
        }
    }

    /// A failed publication is a failed attempt. A crash or a fault of Redis uses up no attempt. A
    /// consumer fails an attempt by a word, or without one.
    fn death(&mut self, at_us: i64, reason: &str, attempt: Option<u32>) {
        let Case { job, timeline, .. } = *self;
        if reason == EXPIRED {
            return self.expired(at_us);
        }
        let may = match (reason, &job.consumer) {
            ("retries_exhausted", None) => job.absent || self.fails_publish(at_us),
            ("retries_exhausted", Some(_)) => true,
            ("failed", Some(_)) => timeline.words("fail").any(|word| word.at_us <= at_us),
            _ => false,
        };
        // The retries of the settings outlast every fault.
        let is_last = |(waits, attempt): (&Vec<u64>, u32)| attempt as usize > waits.len();
        if !may || !job.retry_ms.as_ref().zip(attempt).is_some_and(is_last) {
            let retry_ms = &job.retry_ms;
            let why = format!("`{reason}` at attempt {attempt:?} with retry {retry_ms:?}");
            self.find(Wrong::DeadTooEarly, why);
        }
    }

    /// Whether a publish of the job may have failed until this time.
    fn fails_publish(&self, to_us: i64) -> bool {
        let Case { id, job, timeline, windows, .. } = *self;
        windows.fails_publish(id, job, timeline.earliest_us(job), to_us)
    }

    /// After all faults are healed, overdue jobs arrive within the bound.
    fn lateness(&mut self) {
        let Case { id, job, timeline, windows, .. } = *self;
        let Some(came @ Came { what, .. }) = timeline.deliveries.first() else { return };
        let (at_us, sent_us) = (came.taken_us(), timeline.sent_us);
        let due_us = what.due_ms.unwrap_or(job.due_ms) * 1000;
        // A job that has failed before also waits for its retries.
        let waits_us: i64 = if what.attempt > Some(1) { waits_us(job).sum() } else { 0 };
        let late_ms = (windows.unbroken_us(due_us.max(sent_us), at_us) - waits_us) / 1000;
        let beside = windows.beside_us((id, job), (sent_us, due_us), at_us);
        if late_ms > windows.head.late_ms {
            self.find(Wrong::Late, format!("{late_ms} ms late without an active fault"));
        } else if let Some((late_us, fault)) = beside
            && timeline.certain
            && !job.absent
            && (late_us - waits_us) / 1000 > MAX_UNAFFECTED_LATENESS_MS
        {
            let (late_ms, kind) = (late_us / 1000, fault.kind);
            let why = format!("{late_ms} ms late during {kind}, which does not affect it");
            self.find(Wrong::Late, why);
        }
    }
}
