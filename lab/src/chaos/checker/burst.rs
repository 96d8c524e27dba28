//! Bursts: requests with `delay-on-conflict: debounce`. The latest request before a job is due
//! decides its body, and no request of a burst waits for longer than `delay-max-wait`.

use super::Case;
use super::timeline::{Came, Requested};
use super::verdict::Wrong;
use crate::chaos::history::{Debounce, UNREADABLE};

/// A job is claimed so long before its due time at most, and times are rounded, µs.
const CLAIM_LEAD_US: i64 = 10_000;

impl Case<'_, '_> {
    /// Checks what became of a burst.
    pub(super) fn burst(&mut self) {
        let Case { timeline, dead, .. } = *self;
        self.verdict.counts.bursts += 1;
        self.returned();
        for came in &timeline.deliveries {
            self.part_of_burst(came);
        }
        self.merged();
        let is_returned = timeline.replies.iter().any(|heard| heard.res == UNREADABLE);
        if is_returned || dead.is_some() {
            return;
        }
        for request in timeline.burst.iter().filter(|request| request.certain) {
            let after = || timeline.out().filter(|came| came.taken_us() >= request.at_us);
            let at_us = request.at_us;
            if after().next().is_none() {
                self.find(Wrong::Lost, format!("nothing arrived after the request at {at_us}"));
            } else if !after().any(|came| self.is_in_time(request, came)) {
                let why = format!("the request at {at_us} waited for longer than its max-wait");
                self.find(Wrong::Late, why);
            }
        }
        self.last();
    }

    /// Body, target and time of an arrival.
    fn part_of_burst(&mut self, came: &Came<'_>) {
        let Case { job, timeline, windows, .. } = *self;
        let (what, at_us) = (came.what, came.taken_us());
        if what.topic != job.target {
            self.find(Wrong::Unexpected, format!("on {}, not on {}", what.topic, job.target));
        }
        let of = timeline.burst.iter().find(|request| request.job.digest == what.digest);
        let Some((request, debounce)) = of.and_then(|of| Some((of, of.job.debounce?))) else {
            return self.find(Wrong::Damaged, format!("{} is of no request", what.digest));
        };
        let Debounce { delay_ms, max_wait_ms } = debounce;
        let first_us = timeline.burst.first().map_or(request.at_us, |first| first.at_us);
        let jump_us = windows.jump_us(first_us, at_us);
        let earliest_ms =
            (request.at_us / 1000 + delay_ms).min(first_us / 1000 + max_wait_ms) - jump_us / 1000;
        match what.due_ms {
            Some(due_ms) if due_ms >= earliest_ms => {
                if at_us + jump_us < due_ms * 1000 {
                    self.find(Wrong::Early, format!("at {at_us}, due {due_ms}"));
                }
            }
            due_ms => {
                let why = format!("due {due_ms:?}, {earliest_ms} at the earliest");
                self.find(Wrong::Misdated, why);
            }
        }
    }

    /// A request that was carried out while a job waited is part of that job.
    fn merged(&mut self) {
        let Case { id, timeline, windows, .. } = *self;
        for one in &timeline.deliveries {
            let Some(due_us) = one.what.due_ms.map(|due_ms| due_ms * 1000) else { continue };
            let beside = timeline.deliveries.iter().find(|other| {
                let of = timeline.burst.iter().find(|of| of.job.digest == other.what.digest);
                other.what.due_ms > one.what.due_ms
                    && of.is_some_and(|of| {
                        let jump_us = windows.jump_us(of.at_us, due_us);
                        of.answered_us.is_some_and(|us| us + jump_us + CLAIM_LEAD_US < due_us)
                            && !windows.rolls_back(id, of.at_us, other.taken_us())
                    })
            });
            if let Some(other) = beside {
                let (due_ms, other_ms) = (one.what.due_ms, other.what.due_ms);
                let why = format!("due {due_ms:?} and {other_ms:?}, from requests of one job");
                self.find(Wrong::Unexplained, why);
            }
        }
    }

    /// Whether the job that this request was part of may be the one that arrived: it was due within
    /// the longest wait. Over HTTP the time is known at which the request was carried out at the
    /// latest.
    fn is_in_time(&self, request: &Requested<'_>, came: &Came<'_>) -> bool {
        let windows = self.windows;
        let Some(Debounce { max_wait_ms, .. }) = request.job.debounce else { return false };
        let latest_us = |us: i64| us + max_wait_ms * 1000;
        let late_us = windows.unbroken_us(latest_us(request.at_us), came.taken_us());
        let is_due = |due_ms: i64| {
            request.answered_us.is_none_or(|us| {
                due_ms * 1000 <= latest_us(us) + windows.jump_us(request.at_us, us)
            })
        };
        // Around a fault an attempt may be out without an arrival. Then a later request begins anew, and
        // replaces this one.
        let may_be_out = !windows.is_calm(request.at_us, latest_us(request.at_us));
        late_us / 1000 <= windows.head.late_ms
            && came.what.due_ms.is_some_and(|due_ms| is_due(due_ms) || may_be_out)
    }

    /// The body of the last request arrives, if the order is known in which the requests were
    /// carried out: each was answered before the next, or nothing held one back.
    fn last(&mut self) {
        let Case { timeline, windows, .. } = *self;
        let Some((at, last)) =
            timeline.burst.iter().enumerate().rfind(|(_, request)| request.certain)
        else {
            return;
        };
        let before = &timeline.burst[..at];
        let is_answered = |of: &Requested<'_>| of.answered_us.is_some_and(|us| us < last.at_us);
        let end_us = timeline.out().map(Came::taken_us).max().unwrap_or(last.at_us);
        let first_us = timeline.burst.first().map_or(last.at_us, |first| first.at_us);
        let is_ordered = before.iter().all(is_answered) || windows.is_calm(first_us, end_us);
        // Those whose confirm is missing may have been carried out too.
        let mut digests = timeline.burst[at..].iter().map(|request| &request.job.digest);
        if is_ordered
            && !digests.any(|digest| timeline.out().any(|came| came.what.digest == *digest))
        {
            let why = format!("the body of the last request, at {}, did not arrive", last.at_us);
            self.find(Wrong::Lost, why);
        }
    }
}
