//! The due time of a job, the side that confirms an attempt, and the rules for late jobs and
//! existing ids.

use serde::{Deserialize, Serialize};

/// The due time of a job: at a time, after a delay from receipt by Redis's clock, or at the earlier
/// of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Epoch ms.
    At(i64),
    /// ms from the call of the `schedule` script.
    In(u64),
    /// The earlier of the two. For a message whose timestamp seems to be in the future: this
    /// process only estimates Redis's clock, and may hold a request for long before it calls the
    /// script.
    Earlier {
        /// Epoch ms.
        at_ms: i64,
        /// ms from the call of the script.
        in_ms: u64,
    },
}

/// The side that confirms an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema, utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Confirm {
    /// The broker, by its publish confirm.
    #[default]
    Broker,
    /// The consumer, by `finish` within the TTR.
    Consumer,
}

/// The fate of a job that is overdue by more than `max_late` at its first attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Late {
    /// The job is published all the same.
    #[default]
    Fire,
    /// The job is dropped and counted.
    Drop,
    /// The job goes to the dead letters, with the reason `late`.
    Dead,
}

/// The next step of a job of a queue after its lease expired: the consumer neither finished nor
/// failed the job. The step in the retry array moves either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum OnTimeout {
    /// The job is ready at once.
    #[default]
    Ready,
    /// The job is ready after the next wait of its retry array.
    Retry,
}

/// The rule for a schedule whose id exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Conflict {
    /// The new job replaces the old one: time, body and rules.
    #[default]
    Replace,
    /// The old job stays, and the new one is dropped.
    Keep,
    /// The new job is rejected with `conflict`.
    Reject,
}
