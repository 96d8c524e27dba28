//! What operators see: logs on stderr, and the metrics.
//!
//! - [`log`]: tracing to stderr, for people on a terminal, JSON elsewhere.
//! - [`metrics`]: every metric, its name and help text in one place, and the handles that the agents count with.
//! - [`trace`]: spans, where somebody collects them.
//! - [`labels`]: the closed sets of label values; [`recent`]: what happened of late, for people who look now; [`gauges`]: how old the gauges are.

pub mod gauges;
pub mod labels;
pub mod log;
pub mod metrics;
pub mod recent;
pub mod trace;

pub use labels::{DueWithin, DuplicateCause, IngestResult, JobState, PauseReason, PublishOutcome, RedisErrorClass};
pub use metrics::{BrokerMetrics, IngestMetrics, Metrics, Paused, Totals};
