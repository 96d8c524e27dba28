//! Compares the verdicts that producers received with the actual results, and finds missing
//! verdicts.

use std::collections::{BTreeMap, BTreeSet};

use super::Checker;
use super::timeline::{Asked, Came, Timeline};
use super::verdict::{Verdict, Wrong};
use crate::chaos::history::{Event, Job, Op, Phase, UNREADABLE};

/// This many requests without an answer are a defect.
const MIN_DEAF_REQUESTS: u64 = 5;

impl Checker<'_> {
    /// Checks the verdicts on a job and on its control requests.
    pub(super) fn answers(&mut self, id: &str, job: &Job, timeline: &Timeline<'_>, kept: bool) {
        for (_, action, res) in &timeline.replies {
            match *action {
                // Repeated while the record was unreadable: see `damaged`.
                "schedule" if *res == UNREADABLE => {}
                // Repeated by the producer or the broker, and recognised.
                "schedule" if ["added", "duplicate"].contains(res) => {}
                "schedule" => self.verdict.find(
                    Wrong::FalseVerdict,
                    format!("{id}: schedule is `{res}`, and it was sent once"),
                ),
                // See `consumer`.
                "finish" | "fail" if job.consumer.is_some() => {}
                _ if !timeline.has_asked(action) => {
                    self.verdict.find(
                        Wrong::Unexpected,
                        format!("{id}: `{res}` for `{action}`, which was not requested"),
                    );
                }
                _ => {}
            }
        }
        self.damaged(id, job, timeline);
        for ask in &timeline.asks {
            self.answer(id, job, timeline, ask, kept);
        }
    }

    /// Whether the job's own request was returned because its bucket was unreadable, and no verdict
    /// says that the job was stored.
    pub(super) fn is_refused(&self, id: &str, job: &Job, timeline: &Timeline<'_>) -> bool {
        let mut of_it =
            timeline.replies.iter().filter(|(_, action, _)| *action == "schedule").peekable();
        of_it.peek().is_some()
            && of_it
                .all(|(at_us, _, res)| *res == UNREADABLE && self.windows.refuses(id, job, *at_us))
    }

    /// Checks that requests are rejected as unreadable exactly while the record is unreadable.
    fn damaged(&mut self, id: &str, job: &Job, timeline: &Timeline<'_>) {
        for (heard_us, action, res) in &timeline.replies {
            let lie = match (*res == UNREADABLE, self.windows.unreadable_us(id)) {
                // The answer may arrive after the end of the damage.
                (true, Some((from_us, to_us))) => {
                    *heard_us < from_us || *heard_us > to_us + self.history.head.lease_ms * 1000
                }
                (false, Some((from_us, to_us))) => (from_us..to_us).contains(heard_us),
                (said, None) => said && !self.windows.refuses(id, job, *heard_us),
            };
            if lie {
                self.verdict.find(
                    Wrong::FalseVerdict,
                    format!("{id}: {action} is `{res}` at {heard_us}, which does not fit whether its record was readable"),
                );
            }
        }
    }

    fn answer(&mut self, id: &str, job: &Job, timeline: &Timeline<'_>, ask: &Asked, kept: bool) {
        let heard: BTreeSet<&str> = timeline
            .replies
            .iter()
            .filter(|(_, of, _)| *of == ask.action)
            .map(|(_, _, res)| *res)
            .collect();
        if heard.len() > 1 {
            self.verdict
                .find(Wrong::Differing, format!("{id}: {} answered with {heard:?}", ask.action));
        }
        let (Some(verdict), Some(heard_us)) = (heard.first(), timeline.heard_us(ask.action)) else {
            self.unanswered(id, ask);
            return;
        };
        let came = !timeline.deliveries.is_empty();
        let died = kept || !timeline.deaths.is_empty();
        let at_its_time = || {
            timeline
                .deliveries
                .iter()
                .chain(&timeline.deaths)
                .any(|came| came.what.due_ms == ask.due_ms)
        };
        let lie = match (ask.action, *verdict) {
            ("cancel", "cancelled") => came || died,
            ("cancel", "cancelled_after_attempt" | "in_flight") => {
                self.comes_back(timeline, heard_us)
            }
            (_, "fired") => !timeline
                .deliveries
                .iter()
                .any(|came| came.taken_us() <= self.windows.read_by_us(heard_us)),
            (_, "not_found") => {
                timeline.certain && !came && !died && !self.is_refused(id, job, timeline)
            }
            ("reschedule" | "fire", "dead") => !died,
            ("reschedule", "rescheduled") => !at_its_time() && !kept,
            ("fire", "firing") => !came && !died,
            ("reschedule" | "fire", "in_flight") => false,
            // See `damaged`.
            (_, UNREADABLE) => false,
            _ => true,
        };
        if lie {
            let arrivals = timeline.deliveries.len();
            self.verdict.find(
                Wrong::FalseVerdict,
                format!(
                    "{id}: {} is `{verdict}`, but it arrived {arrivals} times, due {}",
                    ask.action, job.due_ms
                ),
            );
        }
    }

    /// Whether, after a cancel, more than the attempt in flight arrived, or something arrived too
    /// late.
    fn comes_back(&self, timeline: &Timeline<'_>, heard_us: i64) -> bool {
        let after: Vec<i64> = timeline
            .deliveries
            .iter()
            .map(Came::taken_us)
            .filter(|taken_us| *taken_us > heard_us)
            .collect();
        let by_us = self.windows.lands_by_us(heard_us);
        // An unreachable broker may hold back more than one attempt.
        let one = !self.windows.between(|effects| effects.holds_back, timeline.sent_us, by_us);
        after.iter().any(|taken_us| *taken_us > by_us) || (one && after.len() > 1)
    }

    /// A confirmed request without an answer is a defect, unless the answer could not be published.
    fn unanswered(&mut self, id: &str, ask: &Asked) {
        if !ask.confirmed {
            return;
        }
        if self.windows.between(
            |effects| effects.fails_publish,
            ask.at_us,
            ask.at_us + self.history.head.lease_ms * 1000,
        ) {
            self.verdict.counts.untold += 1;
        } else {
            self.verdict.find(
                Wrong::Unanswered,
                format!("{id}: {} at {} has no answer", ask.action, ask.at_us),
            );
        }
    }

    /// Whether a message arrived for the due time before a reschedule, although it cannot have been
    /// in flight at the reschedule.
    pub(super) fn is_stale(
        &self,
        id: &str,
        job: &Job,
        timeline: &Timeline<'_>,
        came: &Came<'_>,
    ) -> bool {
        let moved = timeline
            .asks
            .iter()
            .find(|ask| ask.action == "reschedule" && ask.due_ms != Some(job.due_ms));
        let (Some(ask), Some("rescheduled"), Some(heard_us)) =
            (moved, timeline.answer("reschedule"), timeline.heard_us("reschedule"))
        else {
            return false;
        };
        if came.what.due_ms != Some(job.due_ms)
            || self.windows.rolls_back(id, timeline.sent_us, came.taken_us())
        {
            return false;
        }
        let afresh =
            |other: &Came<'_>| other.what.due_ms == ask.due_ms && other.what.attempt <= Some(1);
        came.taken_us() > self.windows.lands_by_us(heard_us)
            || timeline.deliveries.iter().any(afresh)
    }
}

/// Reports an interface that never answers: nothing else would notice it.
pub(super) fn interfaces(events: &[Event], verdict: &mut Verdict) {
    let mut interfaces: BTreeMap<(&str, bool), (u64, u64)> = BTreeMap::new();
    for event in events.iter().filter(|event| event.proc.starts_with("http-")) {
        // Schedules and control requests separately, because their answers are read separately.
        let new = matches!(event.op, Op::Schedule(_));
        let (asked, answered) = interfaces.entry((&event.proc, new)).or_default();
        match (event.phase, &event.op) {
            (Phase::Invoke, _) => *asked += 1,
            (Phase::Ok, _) => *answered += 1,
            _ => {}
        }
    }
    for ((interface, _), (asked, _)) in interfaces
        .into_iter()
        .filter(|(_, (asked, answered))| *asked >= MIN_DEAF_REQUESTS && *answered == 0)
    {
        verdict.find(Wrong::Broken, format!("{interface}: {asked} requests without an answer"));
    }
}
