//! The subscribers to the events of jobs.

use super::metrics::Metrics;
use super::trace::{self, Span};
use crate::events::{JobEvent, Observer, log};

/// The subscribers of an instance: metrics, log and spans. Clones share them.
#[derive(Debug, Clone)]
pub struct Events {
    metrics: Metrics,
}

impl Events {
    /// The events are counted in these metrics.
    #[must_use]
    pub fn new(metrics: Metrics) -> Events {
        Events { metrics }
    }

    /// The metrics in which the events are counted.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// This happened, and ends a span.
    pub fn end(&self, span: Span, event: &JobEvent<'_>) {
        trace::end(span, event);
        self.observe(event);
    }
}

impl Observer for Events {
    fn observe(&self, event: &JobEvent<'_>) {
        self.metrics.observe(event);
        log::write(event);
    }
}

/// An attempt of a job to broker `main` after 2 ms.
#[cfg(test)]
pub(crate) fn attempted<'a>(
    id: &'a crate::job::JobId,
    to: &'a dwell_connectors::Destination,
    outcome: crate::events::PublishOutcome,
    is_over: bool,
) -> JobEvent<'a> {
    let is_confirmed = outcome == crate::events::PublishOutcome::Confirmed;
    JobEvent::Attempted {
        broker: "main",
        id,
        to,
        shown: "orders.a",
        attempt: 1,
        due_ms: 0,
        outcome,
        error: (!is_confirmed).then_some("no"),
        took: std::time::Duration::from_millis(2),
        late: is_confirmed.then_some(std::time::Duration::from_micros(700)),
        pause: None,
        is_over,
    }
}
