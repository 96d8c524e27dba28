//! The destinations that may take another message: their shares of the window, and their pauses.
//! Destinations of one endpoint (the URLs of one host) share both.

use std::sync::Arc;
use std::time::Duration;

use dwell_connectors::{Allow, Destination, Token};

use super::pauses::Pauses;
use super::shares::{Response, SHARE_WAIT, ShareState, Shares};
use crate::clock::Instant;
use crate::config::Broker;
use crate::telemetry::BrokerMetrics;

/// The most jobs that wait for a place in the share of a destination that may answer late.
const MAX_WAITING_JOBS: usize = 128;

/// The destinations of one broker.
pub(super) struct Destinations {
    broker: Arc<str>,
    settings: Broker,
    allow: Allow,
    metrics: Option<BrokerMetrics>,
    shares: Shares,
    /// The most jobs that wait for destinations that may answer late. Beside those, claims go on.
    waiting_max: usize,
    pauses: Pauses,
}

/// Whether a destination may take a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// It may: the message counts to its share.
    Granted,
    /// Perhaps in a moment: ask again after the next outcome. `late`: the destination may take
    /// longer than the job may wait.
    Wait { late: bool },
    /// Not now: the job goes back to due for this time.
    GiveBack(Duration),
}

impl Destinations {
    /// The window has `jobs_max` jobs and `bytes_max` bytes.
    pub(super) fn new(
        broker: Arc<str>,
        settings: Broker,
        metrics: Option<BrokerMetrics>,
        jobs_max: usize,
        bytes_max: u64,
    ) -> Self {
        // Destinations that no pattern of `allow` names share one more entry: dead letters, and the
        // target of an ingest.
        let shares = Shares::new(jobs_max, bytes_max, settings.allow.len() + 1);
        let allow = Allow::new(&*settings.connector, &settings.allow);
        Destinations {
            broker,
            settings,
            allow,
            metrics,
            shares,
            waiting_max: (jobs_max / 8).min(MAX_WAITING_JOBS),
            pauses: Pauses::default(),
        }
    }

    /// Asks for a place for a message of `size` bytes, whose job has waited for one since `since`.
    /// `late`: the number of jobs that wait for destinations that may answer late.
    pub(super) fn admit(
        &mut self,
        to: &Destination,
        size: usize,
        late: usize,
        since: Instant,
        now: Instant,
    ) -> Admission {
        let (allow, connector) = (&self.allow, &self.settings.connector);
        let endpoint = connector.endpoint(to);
        if let Some(remaining) = self.pauses.remaining(&endpoint, now) {
            return Admission::GiveBack(remaining);
        }
        let pattern = || allow.find(&**connector, to).unwrap_or(allow.patterns().len());
        let may_wait = || now < since + SHARE_WAIT && !self.pauses.has(&endpoint);
        match self.shares.enter(&endpoint, size, now, pattern) {
            ShareState::Taken => Admission::Granted,
            ShareState::Soon if may_wait() => Admission::Wait { late: false },
            ShareState::Later if late < self.waiting_max && may_wait() => {
                Admission::Wait { late: true }
            }
            ShareState::Soon | ShareState::Later | ShareState::Full => {
                let wait = self.pauses.crowded(&endpoint, now);
                self.count_pauses();
                Admission::GiveBack(wait)
            }
        }
    }

    /// Whether jobs for this destination wait until it takes messages again.
    pub(super) fn is_paused(&self, to: &Destination, now: Instant) -> bool {
        self.pauses.count() > 0 && self.pauses.is_paused(&self.settings.connector.endpoint(to), now)
    }

    /// A message was handed over.
    pub(super) fn sent(&mut self, to: &Destination, token: Token) {
        if self.pauses.count() > 0 {
            self.pauses.sent(&self.settings.connector.endpoint(to), token);
        }
    }

    /// A publication of `size` bytes has its outcome: frees its place in the share, and a confirm
    /// ends a pause.
    pub(super) fn responded(
        &mut self,
        to: &Destination,
        size: usize,
        response: Response,
        now: Instant,
    ) {
        let endpoint = self.settings.connector.endpoint(to);
        if self.shares.leave(&endpoint, size, response, now) {
            let (noun, hint) = self.words();
            tracing::warn!(
                broker = &*self.broker, to = %endpoint, hint,
                "no {noun} of this pattern of `allow` confirms: together they get an eighth of the window until one confirms"
            );
        }
        if let Response::Confirmed(took) = response
            && let Some(was_logged) =
                self.pauses.confirmed(&endpoint, self.shares.leaves_room(&endpoint, took, now), now)
        {
            if was_logged {
                tracing::info!(broker = &*self.broker, to = %endpoint, "the {} confirms again", self.words().0);
            }
            self.count_pauses();
        }
    }

    /// The destination refused a message after `took`. Returns how long the job waits.
    pub(super) fn refused(
        &mut self,
        to: &Destination,
        token: Token,
        took: Duration,
        now: Instant,
    ) -> Duration {
        let pause = self.pauses.refused(&self.settings.connector.endpoint(to), token, took, now);
        self.count_pauses();
        pause
    }

    /// The destination for logs and errors.
    pub(super) fn shown(&self, to: &Destination) -> String {
        self.settings.connector.shown(to)
    }

    /// Why an attempt failed, for logs and metrics: without the answer of a stranger.
    pub(super) fn why<'a>(&self, why: &'a str) -> &'a str {
        self.settings.connector.without_answer(why)
    }

    /// Returns words for logs: the thing that has a pause of its own, and the thing to check where
    /// it is silent.
    pub(super) fn words(&self) -> (&'static str, &'static str) {
        let capabilities = self.settings.connector.capabilities();
        (capabilities.endpoint, capabilities.silent_hint)
    }

    /// The destination takes no message for `wait`. Returns how long the job waits.
    pub(super) fn throttled(&mut self, to: &Destination, wait: Duration, now: Instant) -> Duration {
        let pause = self.pauses.throttled(&self.settings.connector.endpoint(to), wait, now);
        self.count_pauses();
        pause
    }

    /// The broker has no route to the destination, or the destination answered with an error: it is
    /// not silent.
    pub(super) fn answered(&mut self, to: &Destination, token: Token, now: Instant) {
        if self.pauses.answered(&self.settings.connector.endpoint(to), token, now) {
            self.count_pauses();
        }
    }

    /// The outcome is unknown. `is_early`: the deadline has not passed.
    pub(super) fn unknown(
        &mut self,
        to: &Destination,
        token: Token,
        is_early: bool,
        now: Instant,
        why: &str,
    ) {
        let endpoint = self.settings.connector.endpoint(to);
        if self.pauses.unknown(&endpoint, token, is_early, now) {
            let (noun, hint) = self.words();
            tracing::warn!(
                broker = &*self.broker, to = %endpoint, why = self.why(why), hint,
                "the {noun} does not confirm: its jobs wait, and one job at a time probes it"
            );
        }
        self.count_pauses();
    }

    /// The outcome says nothing about the destination.
    pub(super) fn inconclusive(&mut self, to: &Destination, token: Token) {
        self.pauses.inconclusive(&self.settings.connector.endpoint(to), token);
    }

    /// The connection is a new one: ends the pauses that the loss of the last one may have caused.
    pub(super) fn reconnected(&mut self) {
        if self.pauses.reconnected() {
            self.count_pauses();
        }
    }

    /// Removes the state of destinations that nobody publishes to any more.
    pub(super) fn forget(&mut self, now: Instant) {
        self.shares.forget(now);
        if self.pauses.forget(now) {
            self.count_pauses();
        }
    }

    fn count_pauses(&self) {
        if let Some(metrics) = &self.metrics {
            metrics.target_paused(self.pauses.count());
        }
    }
}

#[cfg(test)]
mod tests;
