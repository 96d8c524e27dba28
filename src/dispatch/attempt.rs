//! A claimed job becomes a publication, or is settled without one: too late, dying, or no time left
//! on its lease.

use std::sync::Arc;
use std::time::Duration;

use dwell_connectors::Destination;

use super::settle_queue::Settlement;
use super::settler::Noted;
use crate::clock::{self, Instant, whole_ms};
use crate::config::Delivery;
use crate::job::{Confirm, DeadReason, JobId};
use crate::outgoing;
use crate::policy::attempt::GIVEN_BACK;
use crate::policy::delivery::{self, Claimed};
use crate::policy::limit::Turn;
use crate::policy::{Fate, expiry, late};
use crate::publisher::{OUTCOME_MARGIN, PublicationRequest, Publisher};
use crate::store::jobs::claim::ClaimedJob;
use crate::telemetry::trace::{About, AboutAttempt, Span, Templates, Traces};

/// The destination of a job of a queue, which only damage puts into a lease of a broker. No broker
/// takes the empty address.
static NOWHERE: Destination = Destination { exchange: String::new(), address: String::new() };

/// The rules for the attempts of one broker.
pub(super) struct AttemptRules {
    /// `[delivery]`
    pub(super) delivery: Delivery,
    /// Where dead letters go; `None`: they stay in Redis only.
    pub(super) dead: Option<Destination>,
}

impl AttemptRules {
    /// Where the next publication of a job goes.
    pub(super) fn destination<'a>(&'a self, lease: &'a ClaimedJob) -> &'a Destination {
        match (&self.dead, lease.state.reason) {
            (Some(dead), Some(_)) => dead,
            _ => lease.record.job.destination().unwrap_or(&NOWHERE),
        }
    }

    pub(super) fn publish_timeout(&self) -> Duration {
        Duration::from_millis(self.delivery.publish_timeout.ms())
    }
}

/// A publication without an outcome.
#[derive(Debug)]
pub(super) struct Unconfirmed {
    /// The job and its lease, without body and headers.
    pub(super) lease: Box<ClaimedJob>,
    pub(super) published: Instant,
    /// Without an answer by then the outcome is unknown.
    pub(super) deadline: Instant,
    pub(super) span: Span,
    /// The facts of the job, if a subscriber wants them.
    pub(super) facts: Option<(JobId, Noted)>,
}

/// The last turn that is of use to a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LastTurn {
    /// Epoch ms.
    pub(super) at_ms: i64,
    /// The job expires then; otherwise it is too late from then on.
    pub(super) expires: bool,
}

/// Makes the attempts of one broker.
pub(super) struct Attempts {
    rules: Arc<AttemptRules>,
    publisher: Publisher,
    traces: Traces,
    /// `None` without spans.
    templates: Option<Templates>,
}

impl Attempts {
    /// `allow`: the patterns of the broker.
    pub(super) fn new(
        rules: Arc<AttemptRules>,
        publisher: Publisher,
        traces: Traces,
        allow: &[String],
    ) -> Self {
        let templates = traces.is_on().then(|| Templates::new(&**publisher.connector(), allow));
        Attempts { rules, publisher, traces, templates }
    }

    /// Until when a job may be published: its outcome comes before the end of its lease.
    #[must_use]
    pub(super) fn latest(&self, lease: &ClaimedJob) -> Instant {
        lease
            .deadline
            .checked_sub(self.rules.publish_timeout() + OUTCOME_MARGIN)
            .unwrap_or(lease.deadline)
    }

    /// Where to publish a job, or how to settle it without a publication.
    pub(super) fn destination<'a>(
        &'a self,
        lease: &'a ClaimedJob,
        now: Instant,
    ) -> Result<&'a Destination, Box<Settlement>> {
        let job = &lease.record.job;
        let claim = Claimed {
            now_ms: lease.taken_us / 1000,
            has_time: now <= self.latest(lease),
            has_dead_letters: self.rules.dead.is_some(),
            refusal: outgoing::refusal(&job.headers),
        };
        let rules = self.rules.delivery.late_rules();
        match delivery::claimed(job, lease.state.progress(), claim, rules) {
            None => Ok(self.rules.destination(lease)),
            Some(fate) => Err(Box::new(settle_unpublished(lease, fate, Duration::ZERO))),
        }
    }

    /// Where to publish a job that is to be published.
    pub(super) fn target<'a>(&'a self, lease: &'a ClaimedJob) -> &'a Destination {
        self.rules.destination(lease)
    }

    /// The last turn of a limited target that is of use to a job; `None`: any.
    pub(super) fn last_turn(&self, lease: &ClaimedJob) -> Option<LastTurn> {
        let (job, state) = (&lease.record.job, lease.state.progress());
        let late = late::latest_ms(job, state, self.rules.delivery.late_rules())
            .map(|at_ms| LastTurn { at_ms, expires: false });
        let expiry = expiry::expires_ms(job, state)
            .map(|at_ms| LastTurn { at_ms: at_ms.saturating_sub(1), expires: true });
        // Late is judged first.
        late.into_iter().chain(expiry).min_by_key(|last| last.at_ms)
    }

    /// Makes the publication of a job, and the state that is kept until its outcome.
    pub(super) fn start(
        &mut self,
        mut lease: Box<ClaimedJob>,
        to: Destination,
        now: Instant,
    ) -> (PublicationRequest, Unconfirmed) {
        let (connector, job) = (self.publisher.connector(), &lease.record.job);
        let message = match lease.state.reason {
            Some(reason) => outgoing::dead_letter(&lease, connector.capabilities(), reason),
            None => outgoing::attempt(&lease, connector.capabilities()),
        };
        let dedupe_id = outgoing::dedupe_id(&lease);
        let timeout = self.rules.publish_timeout();
        let timeout = match job.confirm {
            Confirm::Broker => timeout.min(Duration::from_millis(u64::from(job.ttr_ms))),
            Confirm::Consumer => timeout,
        };
        let templates = self.templates.as_mut();
        let about = About {
            connector,
            exchange: &to.exchange,
            address: &to.address,
            template: templates.and_then(|templates| templates.of(&**connector, &to)),
            group: "",
            message: &message,
        };
        let about_attempt = AboutAttempt {
            attempt: lease.state.attempt,
            due_ms: lease.state.due_ms,
            request: job.trace.as_deref(),
        };
        let mut span = self.traces.attempt(about, about_attempt);
        span.job(lease.id.as_str());
        let (token, deadline) = (self.publisher.token(), now + timeout);
        // The publication holds the body as long as it is needed; headers are not needed again
        // either.
        lease.record.job.body = bytes::Bytes::new();
        lease.record.job.headers = dwell_connectors::Headers::default();
        // This attempt uses the turn of a limited target.
        lease.token.state.turn = Turn::NONE;
        (
            PublicationRequest { token, to, message, dedupe_id, deadline },
            Unconfirmed { lease, published: now, deadline, span, facts: None },
        )
    }
}

/// Sends a job back to due without an attempt: after the pause, and never before it was due.
pub(super) fn give_back(lease: &ClaimedJob, pause: Duration) -> Settlement {
    settle_unpublished(lease, GIVEN_BACK, pause)
}

/// How to settle a job whose wait would end past its expiry: the wait is not begun. `None`: the job
/// may wait.
pub(super) fn expires_within(lease: &ClaimedJob, wait: Duration) -> Option<Settlement> {
    let (job, state) = (&lease.record.job, lease.state.progress());
    expiry::is_over_after(job, state, whole_ms(wait), lease.taken_us / 1000)
        .then(|| expired_before_turn(lease))
}

/// How to settle a job that expires before its turn.
pub(super) fn expired_before_turn(lease: &ClaimedJob) -> Settlement {
    let error = "its turn at the limited target comes after its expiry".to_owned();
    let fate = Fate::Die { reason: DeadReason::Expired, error, unpublished: true };
    settle_unpublished(lease, fate, Duration::ZERO)
}

/// Gives a job its fate without an attempt. A released job is due after the pause, and never before
/// it was due.
fn settle_unpublished(lease: &ClaimedJob, fate: Fate, pause: Duration) -> Settlement {
    let pause = pause.max(lease.ready.saturating_duration_since(clock::now()));
    Settlement::of(fate, lease.token(), whole_ms(pause))
}
