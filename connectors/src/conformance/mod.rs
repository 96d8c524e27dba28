//! The test suite that every connector passes. A connector's test file provides a [`Harness`] and
//! calls [`conformance_tests`](crate::conformance_tests).
//!
//! The functions are tests: they panic if the connector breaks the contract. Every wait has a
//! deadline; only a test that nothing arrives waits for a fixed time.

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
use crate::{BrokerConfig, Message, Outcome, SourceOptions};

/// A broker under test, and control over its connections.
#[async_trait]
pub trait Harness: Send + Sync {
    /// The settings to open sources and sinks with.
    fn broker(&self) -> BrokerConfig;

    /// The features that the broker supports.
    fn can(&self) -> Capabilities;

    /// A new, unused name.
    fn fresh_name(&self) -> String;

    /// Creates a topic with this name, for `source` to read and `sink` to publish to.
    async fn create(&self, topic: &str);

    /// Breaks every open connection; nothing can connect until `heal`.
    async fn cut(&self);

    /// Undoes `cut`. Everything that the broker had confirmed still exists.
    async fn heal(&self);

    /// The time that the broker leaves an unsettled message with a reader that shows no activity;
    /// `None`: as long as its connection lives.
    fn ack_timeout(&self) -> Option<Duration>;

    /// Waits until the broker has processed the acks of everything in this topic, if it may lose
    /// the last of them when a connection ends.
    async fn worked_off(&self, _topic: &str) {}

    /// Waits until this many messages have arrived at a topic, and returns all that are there.
    async fn arrived(&self, topic: &str, count: usize) -> Vec<Message> {
        let max_unsettled_bytes = self.arrived_bytes();
        let options = SourceOptions {
            max_batch: 1000,
            max_unsettled: 50_000,
            max_unsettled_bytes,
            ..options(topic)
        };
        let source = hand::source_with(self, options).await;
        hand::read(&*source, count).await.1
    }

    /// The bound of unsettled bytes of [`arrived`](Harness::arrived), which settles nothing.
    fn arrived_bytes(&self) -> usize {
        64 << 20
    }

    /// The `publish_timeout` of sinks.
    fn publish_timeout(&self) -> Duration {
        Duration::from_secs(10)
    }

    /// The outcome of a publication that the broker has taken.
    fn taken(&self) -> Outcome {
        Outcome::Confirmed
    }

    /// Whether this is the outcome of a publication to a missing destination.
    fn is_missing(&self, outcome: &Outcome) -> bool {
        matches!(outcome, Outcome::Unroutable(_))
    }

    /// Whether a sink has one connection, and its outcomes end with that. Otherwise each
    /// publication may connect, and fails where nothing can.
    fn has_link(&self) -> bool {
        true
    }
}

/// The features that a broker supports. The suite skips checks of other features.
#[derive(Debug, Clone, Copy)]
pub struct Capabilities {
    /// Headers of different names keep their order.
    pub ordered_headers: bool,
    /// A name may occur more than once. Not on AMQP: its headers are a table with unique names.
    pub repeated_headers: bool,
    /// Messages have a key.
    pub keys: bool,
    /// Messages have a position, which increases.
    pub positions: bool,
    /// Messages have the broker's timestamp.
    pub timestamps: bool,
    /// A first delivery is known to be the first. False for a log: another reader of the group may
    /// have read the message and ended before a commit.
    pub first_deliveries: bool,
}

/// Defines one test for each function of the suite. `$harness` is an expression for a future of a
/// [`Harness`], evaluated for each test. Tests that break connections use `$cut`, which needs a
/// server of its own if the other tests share one.
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
        }
        $crate::conformance_tests! { @each $cut => a_lost_link_is_reported_and_can_be_reopened, }
        $crate::sink_conformance_tests!($harness, $cut);
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

/// Defines the tests of sinks, as [`conformance_tests`](crate::conformance_tests) does: all there
/// are for a connector without sources.
#[macro_export]
macro_rules! sink_conformance_tests {
    ($harness:expr) => {
        $crate::sink_conformance_tests!($harness, $harness);
    };
    ($harness:expr, $cut:expr) => {
        $crate::conformance_tests! { @each $harness =>
            an_unroutable_publication_is_reported, each_token_has_one_outcome, outcomes_end_after_close,
        }
        $crate::conformance_tests! { @each $cut => an_open_outcome_is_reported_when_the_link_goes, }
    };
}
