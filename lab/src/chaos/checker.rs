//! The checker: a history in, a verdict out. Pure.
//!
//! - [`mod@verdict`]: the result.
//! - `timeline`: the known events of each job; `answers`: the verdicts that producers received.
//! - `consumer`: jobs that their consumers confirm.
//! - `redelivery`: a job that runs again because its request was redelivered.
//! - `windows`: the faults, and the copies that each explains.
//! - `queue`: the rules of the queue scenario.

mod answers;
mod consumer;
mod queue;
mod redelivery;
#[cfg(test)]
mod tests;
mod timeline;
pub mod verdict;
mod windows;

use std::collections::{BTreeSet, HashMap};

use redelivery::Redelivery;
use timeline::{Came, Timeline, timelines};
use verdict::{Verdict, Wrong};
use windows::{Copy, FaultWindows};

use crate::chaos::fault::Effects;
use crate::chaos::history::{DeadJob, Event, Fault, History, Job, Op, Phase, QUEUE};

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
    let mut checker = Checker {
        history,
        windows: FaultWindows::new(history, &faults),
        verdict: Verdict::default(),
    };
    let timelines = timelines(&history.events, &faults);
    let end = history.end();
    let kept: HashMap<&str, &DeadJob> =
        end.iter().flat_map(|end| &end.dead).map(|dead| (&*dead.id, dead)).collect();
    let mut copies = Vec::new();
    for (id, timeline) in &timelines {
        let lives = Redelivery::of(history, &checker.windows, timeline);
        checker.verdict.counts.redelivered += lives.begun_again();
        checker.job(id, timeline, &lives, kept.get(id).copied());
        copies.extend(checker.again(id, timeline, &lives));
    }
    checker.windows.explain(copies, &mut checker.verdict);
    checker.windows.counted(&history.events, &mut checker.verdict);
    answers::interfaces(&history.events, &mut checker.verdict);
    checker.verdict.leases = checker.windows.leases(&history.events);
    checker.verdict.impacts = checker.windows.impacts(timelines.values());
    checker.verdict.end(end);
    checker.verdict
}

fn healed(event: &Event) -> Option<&Fault> {
    match (&event.op, event.phase) {
        (Op::Fault(fault), Phase::Ok) => Some(fault),
        _ => None,
    }
}

struct Checker<'a> {
    history: &'a History,
    windows: FaultWindows<'a>,
    verdict: Verdict,
}

impl Checker<'_> {
    fn job(
        &mut self,
        id: &str,
        timeline: &Timeline<'_>,
        lives: &Redelivery<'_>,
        dead: Option<&DeadJob>,
    ) {
        let kept = dead.is_some();
        let Some(job) = timeline.job else {
            for came in
                timeline.deliveries.iter().chain(&timeline.deaths).chain(&timeline.rejections)
            {
                self.verdict.find(
                    Wrong::Unexpected,
                    format!("`{id}` on {}: it was not requested", came.what.topic),
                );
            }
            for (at_us, action, res) in &timeline.replies {
                self.verdict.find(
                    Wrong::Unexpected,
                    format!("`{id}`: `{res}` for `{action}` at {at_us}, but there is no such job"),
                );
            }
            return;
        };
        let came = !timeline.deliveries.is_empty();
        let counts = &mut self.verdict.counts;
        counts.taken += u64::from(timeline.certain);
        counts.uncertain += u64::from(!timeline.certain && !timeline.refused);
        counts.recovered += u64::from(!timeline.certain && came);
        counts.delivered += u64::from(came);
        counts.dead += u64::from(!timeline.deaths.is_empty() || kept);
        counts.rejected += u64::from(!timeline.rejections.is_empty());
        counts.asked += timeline.asks.len() as u64;
        counts.answered +=
            timeline.asks.iter().filter(|ask| timeline.answer(ask.action).is_some()).count() as u64;
        match &job.refused {
            Some(code) => self.bad_request(id, timeline, dead, code),
            None => {
                self.whereabouts(id, job, timeline, kept);
                self.contents(id, job, timeline);
                self.attempts(id, lives);
                self.deaths(id, job, timeline, dead);
                self.answers(id, job, timeline, kept);
                self.lateness(id, job, timeline);
                if let Some(consumer) = &job.consumer {
                    self.consumer(id, (job, consumer), timeline, lives, kept);
                }
            }
        }
    }

    /// A rejected request must be returned, and must have no other result.
    fn bad_request(
        &mut self,
        id: &str,
        timeline: &Timeline<'_>,
        dead: Option<&DeadJob>,
        code: &str,
    ) {
        if timeline.certain && timeline.rejections.is_empty() {
            self.verdict.find(Wrong::Lost, format!("{id}: a bad request that was not returned"));
        }
        for came in &timeline.rejections {
            if came.what.reason != code {
                self.verdict.find(
                    Wrong::Refused,
                    format!("{id}: returned with `{}`, not with `{code}`", came.what.reason),
                );
            }
        }
        for came in timeline.deliveries.iter().chain(&timeline.deaths) {
            self.verdict
                .find(Wrong::Unexpected, format!("{id} on {}: a bad request", came.what.topic));
        }
        if let Some(dead) = dead {
            self.verdict.find(
                Wrong::Unexpected,
                format!("{id} is kept as dead of {:?}: a bad request", dead.reason),
            );
        }
        for (_, action, res) in &timeline.replies {
            self.verdict
                .find(Wrong::Unexpected, format!("{id}: `{res}` for `{action}`: a bad request"));
        }
    }

    /// Each arrival is at an expected destination.
    fn whereabouts(&mut self, id: &str, job: &Job, timeline: &Timeline<'_>, kept: bool) {
        let cancelled =
            timeline.may("cancel", &["cancelled", "cancelled_after_attempt", "in_flight"]);
        let nowhere = timeline.deliveries.is_empty()
            && timeline.deaths.is_empty()
            && timeline.rejections.is_empty()
            && !kept;
        if timeline.certain && nowhere && !cancelled && !self.is_refused(id, job, timeline) {
            self.verdict.find(
                Wrong::Lost,
                format!("{id}: due {}, answers {:?}", job.due_ms, timeline.replies),
            );
        }
        for came in &timeline.deliveries {
            if came.what.topic != job.target {
                self.verdict.find(
                    Wrong::Unexpected,
                    format!("{id} on {}, not on {}", came.what.topic, job.target),
                );
            } else if timeline.refused && !timeline.certain {
                self.verdict.find(
                    Wrong::Unexpected,
                    format!("{id} on {}: the broker had refused it", came.what.topic),
                );
            }
        }
        for came in &timeline.rejections {
            self.verdict
                .find(Wrong::Refused, format!("{id}: returned with `{}`", came.what.reason));
        }
    }

    /// Time and contents of each arrival.
    fn contents(&mut self, id: &str, job: &Job, timeline: &Timeline<'_>) {
        let earliest_us = timeline.earliest_us(job);
        for came @ Came { what, .. } in &timeline.deliveries {
            // A message with a later due time is measured by that due time.
            let due_us = what.due_ms.map_or(earliest_us, |due_ms| earliest_us.max(due_ms * 1000));
            // A job that a clock fired too early is repeated at its own pace.
            let before = |one: &Came<'_>| {
                one.what.due_ms == what.due_ms
                    && one.what.attempt < what.attempt
                    && one.taken_us() < came.taken_us()
            };
            let repeats = timeline.deliveries.iter().any(before);
            if came.taken_us() + self.windows.ahead_us(came.taken_us()) < due_us && !repeats {
                self.verdict.find(
                    Wrong::Early,
                    format!("{id}: {} µs before {due_us}", due_us - came.taken_us()),
                );
            } else if self.is_stale(id, job, timeline, came) {
                self.verdict.find(
                    Wrong::Early,
                    format!(
                        "{id}: at {} for {}, although it was rescheduled",
                        came.taken_us(),
                        job.due_ms
                    ),
                );
            }
        }
        for came @ Came { what, .. } in timeline.deliveries.iter().chain(&timeline.deaths) {
            if what.digest != job.digest {
                self.verdict.find(
                    Wrong::Damaged,
                    format!("{id} on {}: {} and not {}", what.topic, what.digest, job.digest),
                );
            }
            let behind_us = |asked_us| {
                self.windows.behind_us(asked_us).max(self.windows.behind_us(came.taken_us()))
            };
            if !what.due_ms.is_some_and(|due_ms| timeline.may_be_due(job, due_ms, behind_us)) {
                self.verdict.find(
                    Wrong::Misdated,
                    format!(
                        "{id} on {}: due {:?}, asked for {}",
                        what.topic, what.due_ms, job.due_ms
                    ),
                );
            }
        }
    }

    /// Each copy has an attempt of its own, and later copies have higher ones.
    fn attempts(&mut self, id: &str, lives: &Redelivery<'_>) {
        for came in lives.each() {
            self.life(id, came);
        }
    }

    fn life(&mut self, id: &str, came: &[Came<'_>]) {
        let numbers: Vec<u32> = came.iter().map(|came| came.what.attempt.unwrap_or(0)).collect();
        let between = |of: fn(Effects) -> bool, one: &Came<'_>, other: &Came<'_>| {
            self.windows.between(of, one.taken_us(), other.taken_us())
        };
        // A promoted master may not know that the attempt began.
        let rolled_back = |one: &Came<'_>, other: &Came<'_>| {
            self.windows.rolls_back(id, one.taken_us(), other.taken_us())
        };
        let is_twice = |one: &Came<'_>, other: &Came<'_>| {
            one.what.attempt == other.what.attempt && !rolled_back(one, other)
        };
        let twins = came
            .iter()
            .enumerate()
            .flat_map(|(at, one)| came[at + 1..].iter().map(move |other| (one, other)));
        let (sent_again, twice): (Vec<_>, Vec<_>) = twins
            .filter(|(one, other)| is_twice(one, other))
            .partition(|(one, other)| self.is_sent_again(one, other));
        // The later attempt of each pair, once.
        let later: BTreeSet<_> =
            sent_again.iter().map(|(_, other)| std::ptr::from_ref(*other)).collect();
        self.verdict.counts.sent_again += later.len() as u64;
        // A delayed message may arrive after a later one.
        let falls = |pair: &[Came<'_>]| {
            pair[0].what.attempt > pair[1].what.attempt
                && !between(|effects| effects.holds_back, &pair[0], &pair[1])
                && !rolled_back(&pair[0], &pair[1])
        };
        if numbers.contains(&0) || !twice.is_empty() || came.windows(2).any(falls) {
            self.verdict.find(Wrong::WrongAttempt, format!("{id}: attempts {numbers:?}"));
        }
    }

    /// A dead job has a reason within the run, and a dead letter if one could be written.
    fn deaths(&mut self, id: &str, job: &Job, timeline: &Timeline<'_>, dead: Option<&DeadJob>) {
        for Came { at_us, what } in &timeline.deaths {
            self.death(id, job, timeline, (*at_us, &what.reason, what.attempt));
        }
        let Some(dead) = dead.filter(|_| timeline.deaths.is_empty()) else { return };
        let end_us = self.history.events.last().map_or(i64::MAX, |event| event.t_us);
        // Older histories have no reason.
        if let (Some(reason), attempt) = (&dead.reason, dead.attempt) {
            self.death(id, job, timeline, (end_us, reason, attempt));
        }
        if !self.windows.fails_publish(id, job, timeline.earliest_us(job), end_us) {
            self.verdict.find(Wrong::Lost, format!("{id}: it is dead, without a dead letter"));
        }
    }

    fn death(
        &mut self,
        id: &str,
        job: &Job,
        timeline: &Timeline<'_>,
        (at_us, reason, attempt): (i64, &str, Option<u32>),
    ) {
        if job.consumer.is_some() {
            self.consumer_death(id, job, timeline, (at_us, reason, attempt));
            return;
        }
        // A failed publication is a failed attempt. A crash or a fault of Redis uses up no attempt.
        let failed =
            job.absent || self.windows.fails_publish(id, job, timeline.earliest_us(job), at_us);
        // The retries of the settings outlast every fault.
        let spent = job
            .retry_ms
            .as_ref()
            .is_some_and(|waits| attempt.is_some_and(|attempt| attempt as usize > waits.len()));
        if reason != "retries_exhausted" || !failed || !spent {
            self.verdict.find(
                Wrong::DeadTooEarly,
                format!("{id}: `{reason}` at attempt {attempt:?} with retry {:?}", job.retry_ms),
            );
        }
    }

    /// After all faults are healed, overdue jobs arrive within the bound.
    fn lateness(&mut self, id: &str, job: &Job, timeline: &Timeline<'_>) {
        let Some(came @ Came { what, .. }) = timeline.deliveries.first() else { return };
        let at_us = came.taken_us();
        let due_us = what.due_ms.unwrap_or(job.due_ms) * 1000;
        // A job that has failed before also waits for its retries.
        let waits_ms =
            if what.attempt > Some(1) { job.retry_ms.iter().flatten().sum::<u64>() } else { 0 };
        let whole_us = self.windows.unbroken_us(due_us.max(timeline.sent_us), at_us);
        let late_ms = whole_us / 1000 - i64::try_from(waits_ms).unwrap_or(i64::MAX);
        if late_ms > self.history.head.late_ms {
            self.verdict
                .find(Wrong::Late, format!("{id}: {late_ms} ms late without an active fault"));
        } else if let Some((late_us, fault)) =
            self.windows.beside_us((id, job), (timeline.sent_us, due_us), at_us)
            && timeline.certain
            && !job.absent
            && late_us / 1000 - i64::try_from(waits_ms).unwrap_or(i64::MAX)
                > MAX_UNAFFECTED_LATENESS_MS
        {
            self.verdict.find(
                Wrong::Late,
                format!(
                    "{id}: {} ms late during {}, which does not affect it",
                    late_us / 1000,
                    fault.kind
                ),
            );
        }
    }

    /// Every message after the first of a job, among deliveries and dead letters together, and
    /// among returned requests. The first message of a job that runs again does not count.
    fn again<'b>(
        &self,
        id: &'b str,
        timeline: &Timeline<'b>,
        lives: &Redelivery<'_>,
    ) -> Vec<Copy<'b>> {
        let mut copies = Vec::new();
        let out: Vec<&Came<'_>> = timeline.deliveries.iter().chain(&timeline.deaths).collect();
        for (mut list, of_job) in [(out, true), (timeline.rejections.iter().collect(), false)] {
            list.sort_by_key(|came| came.taken_us());
            let is_copy = |pair: &[&Came<'_>]| {
                !lives.begins(pair[1]) && !self.is_repeat(timeline, pair[0], pair[1])
            };
            for (at, pair) in list.windows(2).enumerate().filter(|(_, pair)| is_copy(pair)) {
                let by_client =
                    of_job && list[..=at].iter().any(|one| self.is_sent_again(one, pair[1]));
                let (first_us, again_us) = (pair[0].taken_us(), pair[1].taken_us());
                copies.push(Copy { id, job: timeline.job, first_us, again_us, of_job, by_client });
            }
        }
        copies
    }

    /// Whether the client library may have sent one attempt twice.
    fn is_sent_again(&self, one: &Came<'_>, other: &Came<'_>) -> bool {
        let is_same = one.what.attempt == other.what.attempt;
        is_same
            && self.history.head.broker == "kafka"
            && self.windows.sends_again(one.taken_us(), other.taken_us())
    }
}
