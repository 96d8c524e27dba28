//! Logs, metrics and traces.
//!
//! - [`log`]: tracing to stderr, as text on a terminal, as JSON elsewhere.
//! - [`metrics`]: every metric with its name and help text, and the handles that count.
//! - [`trace`]: spans, exported by OTLP.
//! - [`labels`]: the label values; [`recent`]: recent errors, pauses and lateness for the API;
//!   [`gauges`]: the age of the gauges.

pub mod gauges;
pub mod labels;
pub mod log;
pub mod metrics;
pub mod recent;
pub mod trace;

pub use labels::{
    DueWithin, DuplicateCause, IngestResult, JobState, LeaseEnd, PauseReason, PublishOutcome,
    RedisErrorClass,
};
pub use metrics::{BrokerMetrics, IngestMetrics, Metrics, Paused, QueueMetrics, Totals};
