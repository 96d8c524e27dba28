//! Logs, metrics and traces.
//!
//! - [`events`]: the subscribers to the events of jobs.
//! - [`feed`]: hands the events of jobs on to be published.
//! - [`log`]: tracing to stderr, as text on a terminal, as JSON elsewhere.
//! - [`metrics`]: every metric with its name and help text, and the handles that count.
//! - [`trace`]: spans, exported by OTLP.
//! - [`labels`]: the label values; [`recent`]: recent errors, pauses and lateness for the API;
//!   [`gauges`]: the age of the gauges.

pub mod events;
pub mod feed;
pub mod gauges;
pub mod labels;
pub mod log;
pub mod metrics;
pub mod recent;
pub mod trace;

pub use events::Events;
pub use labels::{DueWithin, JobState, PauseReason, ScheduleState, publish_outcome};
pub use metrics::{BrokerMetrics, GivenBack, IngestMetrics, Metrics, Paused, Totals};
