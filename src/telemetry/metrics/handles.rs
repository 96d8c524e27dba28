//! The metrics of a broker, of an ingest, and of a pause.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use super::family::PerLabel;
use super::given_back::GivenBack;
use crate::telemetry::labels::PauseReason;
use crate::telemetry::recent::{LastError, Reading};

/// The metrics of one `[brokers.NAME]`.
#[derive(Debug, Clone)]
pub struct BrokerMetrics {
    pub(super) publish: PerLabel<Counter>,
    pub(super) connected: Gauge,
    pub(super) target_paused: Gauge,
    pub(super) target_limited: Gauge,
    pub(super) given_back: GivenBack,
    pub(super) last_error: LastError,
}

/// The metrics of one `[ingest.NAME]`.
#[derive(Debug, Clone)]
pub struct IngestMetrics {
    pub(super) results: PerLabel<Counter>,
    pub(super) replies: PerLabel<Counter>,
    pub(super) reading: Reading,
    pub(super) last_error: LastError,
}

impl BrokerMetrics {
    /// Whether the connection for publishing is up.
    pub fn connected(&self, up: bool) {
        self.connected.set(i64::from(up));
    }

    /// Sets the number of paused destinations.
    pub fn target_paused(&self, destinations: usize) {
        self.target_paused.set(i64::try_from(destinations).unwrap_or(i64::MAX));
    }

    /// Sets the number of limits that hold jobs back.
    pub fn target_limited(&self, limits: usize) {
        self.target_limited.set(i64::try_from(limits).unwrap_or(i64::MAX));
    }

    /// Whether the connection for publishing is up.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.connected.get() != 0
    }

    /// Returns the number of paused destinations.
    #[must_use]
    pub fn paused(&self) -> u64 {
        u64::try_from(self.target_paused.get()).unwrap_or(0)
    }

    /// The overdue jobs that wait for their destination.
    #[must_use]
    pub fn given_back(&self) -> &GivenBack {
        &self.given_back
    }

    /// The last error of the connection or of a publication.
    #[must_use]
    pub fn last_error(&self) -> &LastError {
        &self.last_error
    }
}

impl IngestMetrics {
    /// Whether the ingest reads.
    #[must_use]
    pub fn reading(&self) -> &Reading {
        &self.reading
    }

    /// The last error of the source, the store or `rejected`.
    #[must_use]
    pub fn last_error(&self) -> &LastError {
        &self.last_error
    }
}

/// A paused ingest. Dropping it ends the pause.
#[derive(Debug)]
pub struct Paused {
    gauge: Gauge,
    reading: Option<Reading>,
}

impl Paused {
    pub(super) fn new(gauge: Gauge, reason: PauseReason, reading: Option<Reading>) -> Self {
        gauge.inc();
        reading.iter().for_each(|reading| reading.paused(Some(reason)));
        Paused { gauge, reading }
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        self.gauge.dec();
        self.reading.iter().for_each(|reading| reading.paused(None));
    }
}
