//! The due time of a job, the side that confirms an attempt, and the rules for late jobs and
//! existing ids.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::clock::{epoch_ms, span_ms};

/// The due time of a job: at a time, or after a delay from the moment when Redis stores the job, by
/// Redis's clock.
///
/// Made from a [`SystemTime`] or a [`Duration`]. Both are rounded up to whole ms. A time before 1970
/// is 1970, which is due now; a delay of more than 126 thousand years, and a time so long after
/// 1970, are cut to that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "exhaustive"), non_exhaustive)]
pub enum Due {
    /// Epoch ms.
    #[doc(hidden)]
    At(i64),
    /// ms from the call of the `schedule` script.
    #[doc(hidden)]
    In(u64),
    /// The earlier of the two. For a message whose timestamp seems to be in the future: this
    /// process only estimates Redis's clock, and may hold a request for long before it calls the
    /// script.
    #[doc(hidden)]
    Earlier {
        /// Epoch ms.
        at_ms: i64,
        /// ms from the call of the script.
        in_ms: u64,
    },
}

impl Due {
    /// At once.
    pub const NOW: Due = Due::In(0);

    /// The due time, epoch ms, of a job that is stored at `now_ms`.
    #[doc(hidden)]
    #[must_use]
    pub fn at_ms(self, now_ms: i64) -> i64 {
        let after = |span_ms: u64| now_ms.saturating_add_unsigned(span_ms);
        match self {
            Due::At(at_ms) => at_ms,
            Due::In(span_ms) => after(span_ms),
            Due::Earlier { at_ms, in_ms } => at_ms.min(after(in_ms)),
        }
    }
}

impl From<Duration> for Due {
    fn from(delay: Duration) -> Self {
        Due::In(span_ms(delay))
    }
}

impl From<SystemTime> for Due {
    fn from(time: SystemTime) -> Self {
        Due::At(epoch_ms(time))
    }
}

/// The side that confirms an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema, utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[cfg_attr(not(feature = "exhaustive"), non_exhaustive)]
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
#[cfg_attr(not(feature = "exhaustive"), non_exhaustive)]
pub enum Late {
    /// The job is published all the same.
    #[default]
    Fire,
    /// The job is dropped and counted.
    Drop,
    /// The job goes to the dead letters, with the reason `late`.
    Dead,
}

/// When a job expires: it dies if it was not delivered by then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "exhaustive"), non_exhaustive)]
pub enum Expire {
    /// ms after the due time; after the time of a `fire`.
    After(u64),
    /// Epoch ms. A new schedule (`reschedule`, `requeue`, `fire`) whose time is not before then does
    /// not expire.
    At(i64),
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
#[cfg_attr(not(feature = "exhaustive"), non_exhaustive)]
pub enum Conflict {
    /// The new job replaces the old one: time, body and rules.
    #[default]
    Replace,
    /// The old job stays, and the new one is dropped.
    Keep,
    /// The new job is rejected with `conflict`.
    Reject,
    /// The new job replaces the old one, but is never due later than `max_wait_ms` after the first of
    /// the requests that replaced each other so. That request is the first again once the job was
    /// attempted or rescheduled, or was stored by another rule.
    Debounce {
        /// The most ms from the first request to the due time.
        max_wait_ms: u64,
    },
}

impl Conflict {
    /// [`Conflict::Debounce`] with this longest wait from the first request; rounded up to whole ms.
    #[must_use]
    pub fn debounce(max_wait: Duration) -> Self {
        Conflict::Debounce { max_wait_ms: span_ms(max_wait) }
    }

    /// Whether the new job takes the place of one that waits.
    pub(crate) fn replaces(self) -> bool {
        matches!(self, Conflict::Replace | Conflict::Debounce { .. })
    }
}
