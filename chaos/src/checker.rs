//! The checker: a history in, a verdict out. Pure.
//!
//! - [`mod@verdict`]: what it says.
//! - `course`: what is known of each job; `windows`: the faults, and what each of them explains.

mod course;
#[cfg(test)]
mod tests;
pub mod verdict;
mod windows;

use std::collections::{BTreeSet, HashSet};

use course::{Came, Course, courses};
use verdict::{Verdict, Wrong};
use windows::{Copy, Windows};

use crate::history::{End, Event, Fault, History, Job, Op, Phase};

/// Checks a run.
#[must_use]
pub fn check(history: &History) -> Verdict {
    let faults: Vec<Fault> = history.events.iter().filter_map(healed).cloned().collect();
    let mut checker = Checker { history, windows: Windows::new(history, &faults), verdict: Verdict::default() };
    let courses = courses(&history.events, &faults);
    let end = history.events.iter().rev().find_map(|event| if let Op::End(end) = &event.op { Some(end) } else { None });
    let kept: HashSet<&str> = end.iter().flat_map(|end| &end.dead).map(|dead| dead.id.as_str()).collect();
    let mut copies = Vec::new();
    for (id, course) in &courses {
        checker.job(id, course, kept.contains(id));
        copies.extend(again(id, course));
    }
    checker.windows.explain(copies, &mut checker.verdict);
    checker.windows.counted(&history.events, &mut checker.verdict);
    checker.verdict.strikes = checker.windows.strikes(courses.values());
    checker.end(end);
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
    windows: Windows<'a>,
    verdict: Verdict,
}

impl Checker<'_> {
    fn job(&mut self, id: &str, course: &Course<'_>, kept: bool) {
        let Some(job) = course.job else {
            for came in course.deliveries.iter().chain(&course.deaths).chain(&course.rejections) {
                self.verdict.find(Wrong::Unexpected, format!("`{id}` on {}: nobody asked for it", came.what.topic));
            }
            return;
        };
        let came = !course.deliveries.is_empty();
        let counts = &mut self.verdict.counts;
        counts.taken += u64::from(course.certain);
        counts.uncertain += u64::from(!course.certain && !course.refused);
        counts.recovered += u64::from(!course.certain && came);
        counts.delivered += u64::from(came);
        counts.dead += u64::from(!course.deaths.is_empty() || kept);
        counts.rejected += u64::from(!course.rejections.is_empty());
        counts.asked += course.asks.len() as u64;
        counts.answered += course.asks.iter().filter(|ask| course.answer(ask.action).is_some()).count() as u64;
        match &job.refused {
            Some(code) => self.bad_request(id, course, code),
            None => {
                self.whereabouts(id, job, course, kept);
                self.contents(id, job, course);
                self.attempts(id, course);
                self.deaths(id, job, course);
                self.verdicts(id, job, course, kept);
                self.lateness(id, job, course);
            }
        }
    }

    /// It must have come back, and nothing else.
    fn bad_request(&mut self, id: &str, course: &Course<'_>, code: &str) {
        if course.certain && course.rejections.is_empty() {
            self.verdict.find(Wrong::Lost, format!("{id}: a bad request that did not come back"));
        }
        for came in &course.rejections {
            if came.what.reason != code {
                self.verdict.find(Wrong::Refused, format!("{id}: came back with `{}` and not with `{code}`", came.what.reason));
            }
        }
        for came in course.deliveries.iter().chain(&course.deaths) {
            self.verdict.find(Wrong::Unexpected, format!("{id} on {}: a bad request", came.what.topic));
        }
    }

    /// It came where it was to come, or must not have.
    fn whereabouts(&mut self, id: &str, job: &Job, course: &Course<'_>, kept: bool) {
        let cancelled = course.may("cancel", &["cancelled", "cancelled_after_attempt", "in_flight"]);
        let nowhere = course.deliveries.is_empty() && course.deaths.is_empty() && course.rejections.is_empty() && !kept;
        if course.certain && nowhere && !cancelled {
            self.verdict.find(Wrong::Lost, format!("{id}: due {}, answers {:?}", job.due_ms, course.replies));
        }
        for came in &course.deliveries {
            if came.what.topic != job.target {
                self.verdict.find(Wrong::Unexpected, format!("{id} on {}, not on {}", came.what.topic, job.target));
            } else if course.refused && !course.certain {
                self.verdict.find(Wrong::Unexpected, format!("{id} on {}: the broker had refused it", came.what.topic));
            }
        }
        for came in &course.rejections {
            self.verdict.find(Wrong::Refused, format!("{id}: came back with `{}`", came.what.reason));
        }
    }

    /// Time and contents of each message.
    fn contents(&mut self, id: &str, job: &Job, course: &Course<'_>) {
        let earliest_us = course.earliest_us(job);
        for came @ Came { what, .. } in &course.deliveries {
            // What came with a later due time than it was asked for is measured by that.
            let due_us = what.due_ms.map_or(earliest_us, |due_ms| earliest_us.max(due_ms * 1000));
            if came.taken_us() + self.windows.skew_us(came.taken_us()) < due_us {
                self.verdict.find(Wrong::Early, format!("{id}: {} µs before {due_us}", due_us - came.taken_us()));
            }
        }
        for came @ Came { what, .. } in course.deliveries.iter().chain(&course.deaths) {
            if what.digest != job.digest {
                self.verdict.find(Wrong::Damaged, format!("{id} on {}: {} and not {}", what.topic, what.digest, job.digest));
            }
            let skew_us = |asked_us| self.windows.skew_us(asked_us).max(self.windows.skew_us(came.taken_us()));
            if !what.due_ms.is_some_and(|due_ms| course.may_be_due(job, due_ms, skew_us)) {
                self.verdict.find(Wrong::Misdated, format!("{id} on {}: due {:?}, asked for {}", what.topic, what.due_ms, job.due_ms));
            }
        }
    }

    /// Each copy has an attempt of its own, and later ones higher ones.
    fn attempts(&mut self, id: &str, course: &Course<'_>) {
        let numbers: Vec<u32> = course.deliveries.iter().map(|came| came.what.attempt.unwrap_or(0)).collect();
        let distinct: BTreeSet<u32> = numbers.iter().copied().collect();
        if distinct.len() < numbers.len() || distinct.contains(&0) {
            self.verdict.find(Wrong::Misnumbered, format!("{id}: attempts {numbers:?}"));
        } else if let Some(pair) = course.deliveries.windows(2).find(|pair| pair[0].what.attempt > pair[1].what.attempt) {
            // What a broken link held back may come after what was sent later.
            if !self.windows.broken_between(pair[0].at_us, pair[1].at_us) {
                self.verdict.find(Wrong::Misnumbered, format!("{id}: attempts {numbers:?}"));
            }
        }
    }

    /// It died of something that the run gives.
    fn deaths(&mut self, id: &str, job: &Job, course: &Course<'_>) {
        for Came { at_us, what } in &course.deaths {
            // An answer that did not come is a failed attempt; a crash burns none.
            let failed = job.absent || self.windows.broken_between(course.earliest_us(job), *at_us);
            if what.reason != "retries_exhausted" || !failed {
                self.verdict.find(Wrong::Burned, format!("{id}: `{}` with retry {:?}", what.reason, job.retry_ms));
            }
        }
    }

    /// What was said of it is what became of it.
    fn verdicts(&mut self, id: &str, job: &Job, course: &Course<'_>, kept: bool) {
        let came = !course.deliveries.is_empty();
        let died = kept || !course.deaths.is_empty();
        for ask in &course.asks {
            let heard: BTreeSet<&str> = course.replies.iter().filter(|(_, of, _)| *of == ask.action).map(|(_, _, res)| *res).collect();
            if heard.len() > 1 {
                self.verdict.find(Wrong::Differing, format!("{id}: {} answered with {heard:?}", ask.action));
            }
            let Some(verdict) = heard.first() else { continue };
            let at_its_time = || course.deliveries.iter().chain(&course.deaths).any(|came| came.what.due_ms == ask.due_ms);
            let lie = match (ask.action, *verdict) {
                ("cancel", "cancelled") => came || died,
                (_, "fired") => !came,
                (_, "not_found") => course.certain && !came && !died,
                ("reschedule" | "fire", "dead") => !died,
                ("reschedule", "rescheduled") => !at_its_time() && !kept,
                ("fire", "firing") => !came && !died,
                ("cancel", "cancelled_after_attempt" | "in_flight") | ("reschedule" | "fire", "in_flight") => false,
                _ => true,
            };
            if lie {
                let arrivals = course.deliveries.len();
                self.verdict.find(
                    Wrong::FalseVerdict,
                    format!("{id}: {} is `{verdict}`, and it came {arrivals} times, due {}", ask.action, job.due_ms),
                );
            }
        }
    }

    /// Once everything is whole, what is overdue is out within a bound.
    fn lateness(&mut self, id: &str, job: &Job, course: &Course<'_>) {
        let Some(came @ Came { what, .. }) = course.deliveries.first() else { return };
        let at_us = came.taken_us();
        let due_us = what.due_ms.unwrap_or(job.due_ms) * 1000;
        // One that has failed before waits for its retries, too.
        let waits_ms = if what.attempt > Some(1) { job.retry_ms.iter().flatten().sum::<u64>() } else { 0 };
        let from_us = self.windows.healed_before(at_us).map_or(due_us, |healed_us| healed_us.max(due_us)).max(course.sent_us);
        let late_ms = (at_us - from_us) / 1000 - i64::try_from(waits_ms).unwrap_or(i64::MAX);
        if late_ms > self.history.head.late_ms {
            self.verdict.find(Wrong::Late, format!("{id}: {late_ms} ms after everything was whole"));
        }
    }

    /// Nothing is left.
    fn end(&mut self, end: Option<&End>) {
        let Some(end) = end else {
            self.verdict.find(Wrong::Broken, "the record has no end");
            return;
        };
        if end.scheduled + end.reserved > 0 {
            self.verdict.find(Wrong::Left, format!("{} jobs wait and {} are claimed", end.scheduled, end.reserved));
        }
        for damage in &end.damage {
            self.verdict.find(Wrong::Damage, damage);
        }
        for broken in &end.broken {
            self.verdict.find(Wrong::Broken, broken);
        }
    }
}

/// Every message past the first of a job: of what is delivered or dead together, and of what came back.
fn again<'a>(id: &'a str, course: &Course<'_>) -> Vec<Copy<'a>> {
    let mut copies = Vec::new();
    let out: Vec<&Came<'_>> = course.deliveries.iter().chain(&course.deaths).collect();
    for (mut list, of_job) in [(out, true), (course.rejections.iter().collect(), false)] {
        list.sort_by_key(|came| came.taken_us());
        copies.extend(list.windows(2).map(|pair| Copy { id, first_us: pair[0].taken_us(), again_us: pair[1].taken_us(), of_job }));
    }
    copies
}
