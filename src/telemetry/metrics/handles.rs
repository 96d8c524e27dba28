//! What the agents count with: of one broker, of one ingest, and while an ingest is paused.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use super::family::PerLabel;
use crate::telemetry::labels::{IngestResult, PublishOutcome};

/// What is counted of one `[brokers.NAME]`.
#[derive(Debug, Clone)]
pub struct BrokerMetrics {
    pub(super) publish: PerLabel<Counter>,
    pub(super) connected: Gauge,
    pub(super) target_paused: Gauge,
}

/// What is counted of one `[ingest.NAME]`.
#[derive(Debug, Clone)]
pub struct IngestMetrics {
    pub(super) results: PerLabel<Counter>,
    pub(super) replies: PerLabel<Counter>,
}

impl BrokerMetrics {
    /// Attempts came to this outcome.
    pub fn publish(&self, outcome: PublishOutcome, count: u64) {
        self.publish.of(outcome).inc_by(count);
    }

    /// Whether the connection for publishing is up.
    pub fn connected(&self, up: bool) {
        self.connected.set(i64::from(up));
    }

    /// How many destinations are paused now.
    pub fn target_paused(&self, destinations: usize) {
        self.target_paused.set(i64::try_from(destinations).unwrap_or(i64::MAX));
    }
}

impl IngestMetrics {
    /// Inbound messages came to this result.
    pub fn result(&self, result: IngestResult, count: u64) {
        self.results.of(result).inc_by(count);
    }

    /// A verdict that was asked for came to this outcome.
    pub fn reply(&self, outcome: PublishOutcome) {
        self.replies.of(outcome).inc();
    }
}

/// An ingest that does not read. Dropped, it reads again.
#[derive(Debug)]
pub struct Paused(Gauge);

impl Paused {
    pub(super) fn new(gauge: Gauge) -> Self {
        gauge.inc();
        Paused(gauge)
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        self.0.dec();
    }
}
