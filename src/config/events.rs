//! `[events]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::defaults;
use super::values::Optional;

/// What becomes of jobs, as messages of [CloudEvents](https://cloudevents.io): an audit trail. Each
/// is published at most once, and no delivery waits for one.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(default)]
pub struct Events {
    /// The broker that gets the events. Empty: none are published.
    #[serde(default)]
    pub broker: Optional<String>,
    /// The destination of the events: one topic, subject or queue, or an exchange with a routing
    /// key. It needs no `allow`, and is created with `declare` of any ingest.
    pub to: String,
    /// The kinds of events that are published.
    pub of: Vec<EventKind>,
}

impl Default for Events {
    fn default() -> Self {
        defaults::section("events")
    }
}

/// What became of a job.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// The job was added, replaced another one, or is an occurrence that was made.
    Scheduled,
    /// The job was confirmed; or finished, where the consumer confirms and in a queue.
    Delivered,
    /// An attempt failed, and a wait began.
    Retried,
    /// The job is among the dead.
    Dead,
    /// A verdict that ends the job.
    Cancelled,
    /// An occurrence of a recurring schedule was not made.
    Missed,
    /// The job was too late, and was dropped.
    Dropped,
}

impl EventKind {
    /// Every kind.
    pub const ALL: [EventKind; 7] = [
        EventKind::Scheduled,
        EventKind::Delivered,
        EventKind::Retried,
        EventKind::Dead,
        EventKind::Cancelled,
        EventKind::Missed,
        EventKind::Dropped,
    ];

    /// The word in the settings and in the type of an event.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            EventKind::Scheduled => "scheduled",
            EventKind::Delivered => "delivered",
            EventKind::Retried => "retried",
            EventKind::Dead => "dead",
            EventKind::Cancelled => "cancelled",
            EventKind::Missed => "missed",
            EventKind::Dropped => "dropped",
        }
    }
}
