//! Decides when to claim from which bucket, and makes the claims.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::bucket_timers::BucketTimers;
use super::claim_concurrency::ClaimConcurrency;
use super::unreadable::UnreadableJobs;
use super::window::Window;
use crate::clock::{self, Instant, micros};
use crate::fleet::Fleet;
use crate::reconnect::Backoff;
use crate::store::Store;
use crate::store::error::{Class, StoreError};
use crate::store::jobs::claim::{Claim, ClaimRequest, MAX_CLAIM_AHEAD};
use crate::store::wake_up::WakeUp;

/// While the window is nearly full, a claim that gets little room waits this long after the last
/// one: otherwise each settlement of a few jobs would be followed by a claim of as few.
const CLAIM_GATHER_INTERVAL: Duration = Duration::from_millis(2);
/// An error of all buckets that lasts is logged again after this time.
const LOG_REPEAT_INTERVAL: Duration = Duration::from_secs(60);

/// Schedules the claims for one broker.
pub(super) struct ClaimScheduler {
    store: Arc<Store>,
    broker: Arc<str>,
    lease: Duration,
    timers: BucketTimers,
    limits: ClaimConcurrency,
    /// No claim before this instant: the last one failed in a way that concerns every bucket.
    backoff_until: Option<Instant>,
    backoff: Backoff,
    /// The error of such claims in the log.
    logged: LoggedError,
    /// When the last claim began.
    last_claim: Option<Instant>,
    /// Buckets whose last claim failed in a way that concerns only them.
    bucket_backoffs: HashMap<u16, Backoff>,
    unreadable: UnreadableJobs,
}

/// The answer of one claim.
pub(super) struct ClaimAnswer {
    pub(super) bucket: u16,
    /// Jobs and bytes that the window holds for the claim.
    pub(super) reserved: (usize, usize),
    master: usize,
    /// When the claim began, and when the one before it did.
    begun: (Instant, Option<Instant>),
    answer: Result<Claim, StoreError>,
}

impl ClaimScheduler {
    /// `lease`: how long a claim holds its jobs.
    pub(super) fn new(store: Arc<Store>, broker: Arc<str>, lease: Duration) -> Self {
        let buckets = store.keys().buckets();
        ClaimScheduler {
            store,
            broker,
            lease,
            timers: BucketTimers::new(buckets, clock::now()),
            limits: ClaimConcurrency::new(buckets),
            backoff_until: None,
            backoff: Backoff::link(),
            logged: LoggedError::default(),
            last_claim: None,
            bucket_backoffs: HashMap::new(),
            unreadable: UnreadableJobs::default(),
        }
    }

    /// The next claim that may start now, with its reservation in the window.
    pub(super) fn next_claim(
        &mut self,
        window: &mut Window,
    ) -> Option<impl Future<Output = ClaimAnswer> + use<>> {
        if !window.has_room() || self.is_backing_off() {
            return None;
        }
        let (limits, now) = (&self.limits, clock::now());
        if self.gathers_until(window).is_some_and(|until| now < until) {
            return None;
        }
        let bucket = self.timers.take_due(now, |bucket| limits.is_free(bucket))?;
        let begun = (now, self.last_claim.replace(now));
        let (master, is_probe) = self.limits.begin(bucket);
        let reserved = window.reserve(is_probe);
        let (store, broker) = (self.store.clone(), self.broker.clone());
        let ask = ClaimRequest {
            lease: self.lease,
            most: reserved.0,
            most_bytes: reserved.1,
            ahead: MAX_CLAIM_AHEAD,
        };
        Some(async move {
            let answer = store.jobs.claim_ahead(bucket, &broker, ask).await;
            ClaimAnswer { bucket, reserved, master, begun, answer }
        })
    }

    /// When the next claim may start.
    #[must_use]
    pub(super) fn next_at(&self, window: &Window) -> Option<Instant> {
        let at = self.timers.next(|bucket| self.limits.is_free(bucket))?;
        [self.backoff_until, self.gathers_until(window)].into_iter().flatten().chain([at]).max()
    }

    /// Until when no claim starts because the window has little room.
    fn gathers_until(&self, window: &Window) -> Option<Instant> {
        self.last_claim
            .filter(|_| window.has_little_room())
            .map(|last| last + CLAIM_GATHER_INTERVAL)
    }

    /// Follows the slots of a cluster to other masters.
    pub(super) fn follow_slots(&mut self) {
        self.limits.follow(&self.store);
    }

    /// Ends a claim and sets the next time of its bucket. Returns what was claimed.
    pub(super) fn answered(&mut self, claim: ClaimAnswer, now: Instant) -> Option<Claim> {
        let ClaimAnswer { bucket, master, begun: (begun, before), answer, .. } = claim;
        self.limits.end(master, answer.as_ref().err().map(|error| error.class));
        let taken = match answer {
            Ok(taken) => taken,
            Err(error) => {
                self.failed(bucket, &error, now);
                return None;
            }
        };
        self.backoff.reset();
        self.logged = LoggedError::default();
        self.bucket_backoffs.remove(&bucket);
        if taken.jobs.is_empty() && self.last_claim == Some(begun) {
            // The claim used no room: the next one need not wait for more.
            self.last_claim = before;
        }
        let next = taken
            .next_ms
            .map(|due_ms| now + micros(due_ms.saturating_mul(1000).saturating_sub(taken.now_us)));
        self.timers.claimed(bucket, if taken.more { Some(now) } else { next }, now);
        // The count is complete only in the last claim of a bucket.
        if !taken.more && self.unreadable.should_log(bucket, taken.unknown, now) {
            tracing::warn!(
                broker = &*self.broker,
                bucket,
                jobs = taken.unknown,
                "due jobs that this version cannot read stay in place for an instance that can; if no instance can, run `dwell fsck`"
            );
        }
        if taken.orphans > 0 {
            tracing::error!(
                broker = &*self.broker,
                bucket,
                orphans = taken.orphans,
                "ids without a record were removed; run `dwell fsck`"
            );
        }
        Some(taken)
    }

    fn failed(&mut self, bucket: u16, error: &StoreError, now: Instant) {
        // Damage and a moved slot concern one bucket, and so does every error of one master of a
        // cluster. Any other error of a single server (loading, busy) concerns all buckets.
        let is_own = self.store.is_cluster() || matches!(error.class, Class::Script | Class::Moved);
        let backoff = if is_own {
            self.bucket_backoffs.entry(bucket).or_insert_with(Backoff::link)
        } else {
            &mut self.backoff
        };
        let until = now + backoff.pause();
        // Claims of several buckets run at a time.
        if !error.is_told() && (is_own || self.logged.should_log(&error.message, now)) {
            tracing::warn!(broker = &*self.broker, bucket, %error, hint = error.hint, "claiming failed, trying again");
        }
        self.timers.failed(bucket, until);
        if !is_own {
            self.backoff_until = Some(until);
        }
    }

    fn is_backing_off(&mut self) -> bool {
        self.backoff_until = self.backoff_until.filter(|until| *until > clock::now());
        self.backoff_until.is_some()
    }

    pub(super) fn set_fleet(&mut self, fleet: &Fleet) {
        let fleet = fleet.serving(&self.broker);
        self.timers.set_fleet(
            fleet.preferred(self.store.keys().buckets()),
            fleet.floor_poll(),
            clock::now(),
        );
    }

    /// Another agent or instance scheduled a job.
    pub(super) fn wake_up(&mut self, head: &WakeUp) {
        let ahead_us = head.due_ms.saturating_mul(1000).saturating_sub(self.store.now_us());
        self.timers.job_due(head.bucket, clock::now() + micros(ahead_us));
    }

    /// A job of this bucket is due at `due`.
    pub(super) fn job_due(&mut self, bucket: u16, due: Instant) {
        self.timers.job_due(bucket, due);
    }

    /// Makes every bucket due: the broker is back.
    pub(super) fn all_due(&mut self) {
        self.timers.all(clock::now());
    }

    /// Gives back the jobs of claims whose answers were lost: no later claim does, and their leases
    /// would have to expire first.
    pub(super) async fn reclaim_lost(&mut self) {
        while let Err(error) = self.store.jobs.reclaim_all_lost(&self.broker).await {
            let broker = &*self.broker;
            if error.class == Class::Script {
                tracing::error!(broker, %error, hint = "run `dwell fsck --repair`", "claims of a damaged bucket were not given back");
                return;
            }
            if !error.is_told() {
                tracing::warn!(broker, %error, "giving back claims failed, trying again");
            }
            clock::sleep(self.backoff.pause()).await;
        }
    }
}

/// The last error of all buckets that was logged, and when.
#[derive(Debug, Default)]
struct LoggedError(Option<(String, Instant)>);

impl LoggedError {
    /// Whether to log this error: it is another one, or the last log line is older than
    /// [`LOG_REPEAT_INTERVAL`].
    fn should_log(&mut self, message: &str, now: Instant) -> bool {
        let is_repeated = self
            .0
            .as_ref()
            .is_some_and(|(logged, at)| logged == message && now < *at + LOG_REPEAT_INTERVAL);
        if !is_repeated {
            self.0 = Some((message.to_owned(), now));
        }
        !is_repeated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_lasts_is_logged_once_a_minute() {
        let (mut logged, now) = (LoggedError::default(), clock::now());
        let later = now + LOG_REPEAT_INTERVAL;
        let errors =
            [("away", now), ("away", now), ("full", now), ("full", later), ("full", later)];
        assert_eq!(
            errors.map(|(message, at)| logged.should_log(message, at)),
            [true, false, true, true, false]
        );
    }
}
