//! What becomes of the jobs that a claim took: published, dropped as too late, buried, or given back.

use std::time::Duration;

use super::flight::Flight;
use super::share::{Room, TURN};
use super::{ClaimAnswer, Dispatch};
use crate::clock::{self, Instant, micros, whole_ms};
use crate::config::Broker;
use crate::job::{Confirm, DeadReason, Late};
use crate::outgoing;
use crate::publisher::{ANSWER, Attempt};
use crate::reconnect::Backoff;
use crate::store::error::Class;
use crate::store::lease::Lease;
use crate::store::settle::{Bury, Release, Retry};
use crate::telemetry::trace::About;

impl Dispatch {
    /// A claim came back: what it took is published, kept until it is due, or on its way elsewhere.
    pub(super) async fn claimed(&mut self, claim: ClaimAnswer, stopping: bool) {
        let ClaimAnswer { bucket, lane, reserved: (most, bytes), answer } = claim;
        let now = clock::now();
        self.lanes.end(lane, answer.as_ref().err().map(|error| error.class));
        let taken = match answer {
            Ok(taken) => taken,
            Err(error) => {
                // Damage, and a slot that moved, are one bucket's own, and a master of a cluster says nothing of the others: they go on. What a single
                // server says otherwise (it loads, it is busy) it says to all.
                let is_own = self.store.is_spread() || matches!(error.class, Class::Script | Class::Moved);
                let backoff = if is_own { self.ailing.entry(bucket).or_insert_with(Backoff::link) } else { &mut self.backoff };
                let pause = backoff.pause();
                tracing::warn!(broker = &*self.broker, bucket, %error, hint = error.hint, "claiming failed, trying again");
                self.window.unreserve(most, bytes);
                self.wakes.failed(bucket, now + pause);
                if !is_own {
                    self.rest_until = Some(now + pause);
                }
                return;
            }
        };
        self.backoff.reset();
        self.ailing.remove(&bucket);
        self.shares.forget(now);
        if self.pauses.forget(now) {
            self.count_pauses();
        }
        let next = taken.next_ms.map(|due_ms| now + micros(due_ms.saturating_mul(1000).saturating_sub(taken.now_us)));
        self.wakes.read(bucket, if taken.more { Some(now) } else { next }, now);
        // Once all of them were looked at.
        if !taken.more && self.unread.is_news(bucket, taken.unknown, now) {
            tracing::warn!(
                broker = &*self.broker,
                bucket,
                jobs = taken.unknown,
                "due jobs that this version cannot read stay in place for an instance that can; where there is none, run `dwell fsck`"
            );
        }
        if taken.orphans > 0 {
            tracing::error!(broker = &*self.broker, bucket, orphans = taken.orphans, "ids without a record were removed; run `dwell fsck`");
        }
        self.window.unreserve(most, bytes);
        for broken in taken.broken {
            tracing::error!(id = %broken.id, bucket, why = broken.why, "a stored job cannot be read, it is kept among the dead");
            self.window.take(0);
            self.gathered.bury(bucket, Bury { job: broken.held(), reason: DeadReason::Invalid, error: broken.why });
        }
        let mut attempts = Vec::with_capacity(taken.jobs.len());
        for lease in taken.jobs {
            self.window.take(lease.size);
            if stopping {
                self.give_back(&lease, Duration::ZERO);
            } else if lease.ready > now {
                self.early.keep(lease.ready, lease);
            } else {
                attempts.extend(self.attempt(lease, now, now));
            }
        }
        if !attempts.is_empty() {
            self.publisher.publish(attempts).await;
        }
    }

    /// Publishes what was claimed early and is due now.
    pub(super) async fn publish_due(&mut self) {
        let now = clock::now();
        let mut attempts = Vec::new();
        while let Some(lease) = self.early.due(now) {
            attempts.extend(self.attempt(lease, now, now));
        }
        if !attempts.is_empty() {
            self.publisher.publish(attempts).await;
        }
    }

    /// Publishes what waited for its destination to have a place, where it has one now, and gives back what waited too long.
    pub(super) async fn publish_parked(&mut self) {
        let now = clock::now();
        if !std::mem::take(&mut self.moved) && self.parked_until().is_none_or(|until| now < until) {
            return;
        }
        let mut attempts = Vec::new();
        for (since, lease) in std::mem::take(&mut self.parked) {
            attempts.extend(self.attempt(lease, since, now));
        }
        if !attempts.is_empty() {
            self.publisher.publish(attempts).await;
        }
    }

    /// When what waits for a place is given back.
    pub(super) fn parked_until(&self) -> Option<Instant> {
        self.parked.front().map(|(since, _)| *since + TURN)
    }

    /// Gives back what was claimed early and is not due yet, and what waits for a place.
    pub(super) fn give_back_waiting(&mut self) {
        let parked = std::mem::take(&mut self.parked).into_iter().map(|(_, lease)| lease);
        for lease in self.early.take().chain(parked) {
            self.give_back(&lease, Duration::ZERO);
        }
    }

    /// What to publish for a job that may go out since then; `None` where it goes elsewhere, or waits.
    fn attempt(&mut self, lease: Lease, since: Instant, now: Instant) -> Option<Attempt> {
        let job = &lease.record.job;
        let timeout = Duration::from_millis(self.rules.publish_timeout_ms);
        if now + timeout + ANSWER > lease.deadline {
            // This process slept, or the answer did: by the time of a confirm others may hold the job.
            self.give_back(&lease, Duration::ZERO);
            return None;
        }
        let to = match (lease.state.reason, &self.dead) {
            (Some(reason), None) => {
                self.gathered.bury(lease.bucket, Bury { job: lease.held(), reason, error: lease.state.last_error.clone() });
                self.window.settling(lease.size);
                return None;
            }
            (Some(_), Some(dead)) => dead.clone(),
            (None, _) => job.to.clone(),
        };
        if lease.state.reason.is_none() && self.is_too_late(&lease) {
            return None;
        }
        if let Some(left) = self.pauses.left(&to, now) {
            self.give_back(&lease, left);
            return None;
        }
        let Broker { allow, connector } = &self.settings;
        let pattern = || allow.iter().position(|pattern| connector.allows(pattern, &to)).unwrap_or(allow.len());
        match self.shares.enter(&to, lease.size, now, pattern) {
            Room::Taken => {}
            Room::Soon if now < since + TURN && !self.pauses.has(&to) => {
                self.parked.push_back((since, lease));
                return None;
            }
            Room::Soon | Room::None => {
                let wait = self.pauses.crowded(&to, now);
                self.count_pauses();
                self.give_back(&lease, wait);
                return None;
            }
        }
        let (kind, job) = (self.publisher.kind(), &lease.record.job);
        let message = match lease.state.reason {
            Some(reason) => outgoing::dead_letter(&lease, kind, reason),
            None => outgoing::attempt(&lease, kind),
        };
        let dedupe_id = outgoing::dedupe_id(&lease);
        let timeout = match job.confirm {
            Confirm::Broker => timeout.min(Duration::from_millis(u64::from(job.ttr_ms))),
            Confirm::Consumer => timeout,
        };
        let about = About { system: kind, exchange: &to.exchange, address: &to.address, group: "", message: &message };
        let mut span = self.traces.attempt(about, lease.state.attempt, job.trace.as_deref());
        span.job(lease.id.as_str());
        let token = self.publisher.token();
        self.pauses.sent(&to, token);
        let deadline = now + timeout;
        self.flights.insert(token, Flight::new(lease, now, deadline, span));
        Some(Attempt { token, to, message, dedupe_id, deadline })
    }

    /// Applies the overdue policy to a first attempt: true where the job was too late. A rejected request that is kept dies until it was requeued.
    fn is_too_late(&mut self, lease: &Lease) -> bool {
        let job = &lease.record.job;
        if let Some(refusal) = outgoing::refusal(&job.headers) {
            if lease.state.due_ms == 0 {
                self.die(lease, DeadReason::Invalid, refusal);
            }
            return lease.state.due_ms == 0;
        }
        let Some(max_late_ms) = job.max_late_ms.or(self.rules.max_late_ms) else { return false };
        // By the clock of the master that it was claimed from: others of a cluster may have another.
        let late_ms = (lease.taken_us / 1000).saturating_sub(lease.state.due_ms);
        if lease.state.attempt > 1 || late_ms <= i64::try_from(max_late_ms).unwrap_or(i64::MAX) {
            return false;
        }
        match job.late.unwrap_or(self.rules.late) {
            Late::Fire => return false,
            Late::Drop => {
                self.metrics.late_dropped(1);
                self.gathered.drop_late(lease.bucket, lease.held());
                self.window.settling(lease.size);
            }
            Late::Dead => {
                let error = format!("overdue by {late_ms} ms at its first attempt, max_late is {max_late_ms} ms");
                self.die(lease, DeadReason::Late, error);
            }
        }
        true
    }

    /// On its way to the dead letters, without an attempt.
    fn die(&mut self, lease: &Lease, reason: DeadReason, error: String) {
        let retry = Retry { job: lease.held(), wait_ms: 0, unpublished: true, dies: Some(reason), error };
        self.gathered.retry(lease.bucket, retry);
        self.window.settling(lease.size);
    }

    /// Back to due without an attempt: after the pause, and never before it was due.
    fn give_back(&mut self, lease: &Lease, pause: Duration) {
        let pause_ms = whole_ms(pause.max(lease.ready.saturating_duration_since(clock::now())));
        self.gathered.release(lease.bucket, Release { job: lease.held(), pause_ms, unpublished: true });
        self.window.settling(lease.size);
    }
}
