//! The suite that every connector passes. A connector's test file brings a [`Harness`] and calls [`conformance_tests`](crate::conformance_tests).
//!
//! The functions panic where the connector breaks the contract: they are tests. Waiting has a deadline; only "nothing comes" takes its time.

#![allow(clippy::unwrap_used, reason = "tests")]

mod hand;
mod links;
pub mod proxy;
mod settling;
mod sinks;
mod sources;

use std::time::Duration;

use async_trait::async_trait;

pub use self::hand::options;
pub use self::{links::*, settling::*, sinks::*, sources::*};
use crate::BrokerConfig;

/// A broker to test against, and the hand that breaks it.
#[async_trait]
pub trait Harness: Send + Sync {
    /// How to open sources and sinks.
    fn broker(&self) -> BrokerConfig;

    /// What the broker can carry.
    fn can(&self) -> Capabilities;

    /// A new name; nothing exists under it.
    fn fresh_name(&self) -> String;

    /// Makes a topic under this name that `source` reads and `sink` publishes to.
    async fn create(&self, topic: &str);

    /// Breaks every open link; nothing can be opened until `heal`.
    async fn cut(&self);

    /// Undoes `cut`; what the broker had confirmed is there.
    async fn heal(&self);

    /// How long the broker leaves an unsettled message with a reader that shows no sign of life; `None`: as long as its link lives.
    fn patience(&self) -> Option<Duration>;

    /// Waits until the broker has worked off the acks of everything in this topic, where it may forget the last of them when a link ends.
    async fn worked_off(&self, _topic: &str) {}
}

/// What a broker can carry. What it cannot is not asked of it.
#[derive(Debug, Clone, Copy)]
pub struct Capabilities {
    /// The order of headers of different names survives.
    pub ordered_headers: bool,
    /// A name may stand more than once. Not on AMQP: its headers are a table, where names are unique.
    pub repeated_headers: bool,
    /// Messages have a key.
    pub keys: bool,
    /// Messages have a position that rises.
    pub positions: bool,
    /// Messages have the broker's timestamp.
    pub timestamps: bool,
    /// A first delivery is known to be the first. False for a log: another reader of the group may have read, and ended before it committed.
    pub first_deliveries: bool,
}

/// Makes one test of each function of the suite. `$harness` is an expression, evaluated for each test, of a future of a [`Harness`]. Where tests
/// share a server, the harness of those that cut its links, `$cut`, has one of its own.
#[macro_export]
macro_rules! conformance_tests {
    ($harness:expr) => {
        $crate::conformance_tests!($harness, $harness);
    };
    ($harness:expr, $cut:expr) => {
        $crate::conformance_tests! { @each $harness =>
            opens_and_closes, a_missing_topic_is_missing, declare_makes_what_is_missing,
            carries_a_message, carries_bodies_of_any_size, acked_is_gone, nacked_comes_again, dropped_comes_again,
            closed_comes_again_at_once, keeps_the_bounds_of_a_batch, stops_at_the_unsettled_bound,
            stops_at_the_unsettled_bound_in_bytes, pauses, recv_can_be_cancelled, readers_of_a_group_share, holds_what_is_unsettled,
            an_unroutable_publication_is_reported, each_token_has_one_outcome, outcomes_end_after_close,
        }
        $crate::conformance_tests! { @each $cut =>
            a_lost_link_is_reported_and_can_be_reopened, an_open_outcome_is_reported_when_the_link_goes,
        }
    };
    (@each $harness:expr => $($name:ident,)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                $crate::conformance::$name(&$harness.await).await;
            }
        )+
    };
}
