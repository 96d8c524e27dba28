//! Compares the verdicts that producers received with the actual results, and finds missing
//! verdicts.

use std::collections::{BTreeMap, BTreeSet};

use super::Case;
use super::timeline::{Asked, Came, Heard};
use super::verdict::{Verdict, Wrong};
use crate::chaos::history::{Event, Op, Phase, UNREADABLE};

/// This many requests without an answer are a defect.
const MIN_DEAF_REQUESTS: u64 = 5;

impl Case<'_, '_> {
    /// Checks the verdicts on a job and on its control requests.
    pub(super) fn answers(&mut self) {
        let Case { job, timeline, .. } = *self;
        for heard @ Heard { at_us, action, res } in &timeline.replies {
            match *action {
                // Repeated by the producer or the broker, and recognised; or unreadable: see below.
                "schedule" if ["added", "duplicate", UNREADABLE].contains(res) => {}
                "schedule" => self.find(Wrong::FalseVerdict, format!("`{res}` for one schedule")),
                // See `consumer`.
                "finish" | "fail" if job.consumer.is_some() => {}
                _ if timeline.has_asked(action) => {}
                _ => self.find(Wrong::Unexpected, format!("`{res}` for no `{action}`")),
            }
            if self.is_misread(heard) {
                let why =
                    format!("{action} is `{res}` at {at_us}, against the state of its record");
                self.find(Wrong::FalseVerdict, why);
            }
        }
        for ask in &timeline.asks {
            self.answer(ask);
        }
    }

    /// Whether the job's own request was returned because its bucket was unreadable, and no verdict
    /// says that the job was stored.
    pub(super) fn is_refused(&self) -> bool {
        let mut said = self.timeline.heard("schedule").peekable();
        said.peek().is_some()
            && said.all(|heard| {
                heard.res == UNREADABLE && self.windows.refuses(self.id, self.job, heard.at_us)
            })
    }

    /// Requests are rejected as unreadable exactly while the record is unreadable.
    fn is_misread(&self, heard: &Heard<'_>) -> bool {
        let Case { id, job, windows, .. } = *self;
        let at_us = heard.at_us;
        match (heard.res == UNREADABLE, windows.unreadable_us(id)) {
            // The answer may arrive after the end of the damage.
            (true, Some((from_us, to_us))) => {
                !(from_us..=to_us + windows.lease_us()).contains(&at_us)
            }
            (false, Some((from_us, to_us))) => (from_us..to_us).contains(&at_us),
            (said, None) => said && !windows.refuses(id, job, at_us),
        }
    }

    fn answer(&mut self, ask: &Asked<'_>) {
        let Case { job, timeline, windows, .. } = *self;
        let action = ask.action;
        let heard: BTreeSet<&str> = timeline.heard(action).map(|heard| heard.res).collect();
        if heard.len() > 1 {
            self.find(Wrong::Differing, format!("{action} answered with {heard:?}"));
        }
        let (Some(verdict), Some(heard_us)) = (heard.first(), timeline.heard_us(action)) else {
            if ask.confirmed_us.is_some() {
                self.unanswered(
                    (ask.at_us, ask.at_us),
                    format!("{action} at {} has no answer", ask.at_us),
                );
            }
            return;
        };
        let (came, died) = (self.came(), self.died());
        let by_us = windows.read_by_us(heard_us);
        let at_its_time = || timeline.out().any(|came| came.what.due_ms == ask.due_ms);
        let lie = match (action, *verdict) {
            ("cancel", "cancelled") => came || died,
            ("cancel", "cancelled_after_attempt" | "in_flight") => {
                self.comes_back(&timeline.deliveries, heard_us)
            }
            (_, "fired") => !timeline.deliveries.iter().any(|came| came.taken_us() <= by_us),
            (_, "not_found") => timeline.certain && !came && !died && !self.is_refused(),
            ("reschedule" | "fire", "dead") => !died,
            ("reschedule", "rescheduled") => !at_its_time() && self.dead.is_none(),
            ("fire", "firing") => !came && !died,
            ("reschedule" | "fire", "in_flight") => false,
            // See `is_misread`.
            (_, UNREADABLE) => false,
            _ => true,
        };
        if lie {
            let (arrivals, due_ms) = (timeline.deliveries.len(), job.due_ms);
            let why =
                format!("{action} is `{verdict}`, but it arrived {arrivals} times, due {due_ms}");
            self.find(Wrong::FalseVerdict, why);
        }
    }

    /// Whether, after the end of a job, more than the attempt in flight arrived, or something
    /// arrived too late.
    pub(super) fn comes_back(&self, came: &[Came<'_>], over_us: i64) -> bool {
        let after = || came.iter().map(Came::taken_us).filter(|taken_us| *taken_us > over_us);
        let by_us = self.windows.lands_by_us(over_us);
        let sent_us = self.timeline.sent_us;
        // An unreachable broker may hold back more than one attempt.
        let one = !self.windows.between(|effects| effects.holds_back, sent_us, by_us);
        after().any(|taken_us| taken_us > by_us) || (one && after().count() > 1)
    }

    /// A confirmed request without an answer is a defect, unless the answer could not be published.
    pub(super) fn unanswered(&mut self, (first_us, last_us): (i64, i64), what: String) {
        let by_us = last_us + self.windows.lease_us();
        if self.windows.between(|effects| effects.fails_publish, first_us, by_us) {
            self.verdict.counts.untold += 1;
        } else {
            self.find(Wrong::Unanswered, what);
        }
    }

    /// Whether a message arrived for the due time before a reschedule, although it cannot have been
    /// in flight at the reschedule.
    pub(super) fn is_stale(&self, came: &Came<'_>) -> bool {
        let Case { id, job, timeline, windows, .. } = *self;
        let moves = |ask: &&Asked<'_>| ask.action == "reschedule" && ask.due_ms != Some(job.due_ms);
        let (Some(ask), Some("rescheduled"), Some(heard_us)) = (
            timeline.asks.iter().find(moves),
            timeline.answer("reschedule"),
            timeline.heard_us("reschedule"),
        ) else {
            return false;
        };
        let taken_us = came.taken_us();
        let afresh =
            |other: &Came<'_>| other.what.due_ms == ask.due_ms && other.what.attempt <= Some(1);
        came.what.due_ms == Some(job.due_ms)
            && !windows.rolls_back(id, timeline.sent_us, taken_us)
            && (taken_us > windows.lands_by_us(heard_us) || timeline.deliveries.iter().any(afresh))
    }
}

/// Reports an interface that never answers: nothing else would notice it.
pub(super) fn interfaces(events: &[Event], verdict: &mut Verdict) {
    let mut interfaces: BTreeMap<(&str, bool), (u64, u64)> = BTreeMap::new();
    for event in events.iter().filter(|event| event.is_over_http()) {
        // Schedules and control requests separately, because their answers are read separately.
        let new = matches!(event.op, Op::Schedule(_));
        let (asked, answered) = interfaces.entry((&event.proc, new)).or_default();
        *asked += u64::from(event.phase == Phase::Invoke);
        *answered += u64::from(event.phase == Phase::Ok);
    }
    for ((interface, _), (asked, answered)) in interfaces {
        if asked >= MIN_DEAF_REQUESTS && answered == 0 {
            verdict.find(Wrong::Broken, format!("{interface}: {asked} requests without an answer"));
        }
    }
}
