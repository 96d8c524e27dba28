//! Kafka: sources read as a member of a consumer group, sinks publish with an idempotent producer and `acks=all`.
//!
//! librdkafka reconnects by itself. So the link of a source or sink ends only when no broker has answered for a while (see `connection`); a broker that
//! restarts within that time is not noticed but by its pause.
//!
//! What a log cannot do: give back one message. `nack` goes back in the partition and reads on, and what is settled or held is left out on the way.
//!
//! A message that was not delivered is unknown unless it cannot have landed. The client tells only the last error of a message, but the log of each
//! request that failed: a message is refused where none that failed since it was handed over may have been written (see `outcome`). That is said of
//! requests, not of messages, so that a few that never left are unknown for the sake of others.
//!
//! Known limit of the client library: the value of a header whose name is not UTF-8 is lost.

mod buffer;
mod config;
mod connection;
mod connector;
mod delivery;
#[cfg(feature = "fuzz")]
pub(crate) mod fuzz;
mod group_start;
mod headers;
mod offsets;
mod outcome;
mod properties;
mod quirks;
mod reader;
mod sink;
mod source;
mod topic;
mod window;
mod writer;

pub use self::config::Config;
pub(crate) use self::connector::CAPABILITIES;
pub use self::properties::Properties;
