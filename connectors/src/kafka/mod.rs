//! Kafka: sources read as a member of a consumer group, sinks publish with an idempotent producer
//! and `acks=all`.
//!
//! librdkafka reconnects by itself. So the connection of a source or sink ends only when no broker
//! has answered for a while (see `connection`); a broker that restarts within that time causes only
//! a pause.
//!
//! A log cannot redeliver a single message. `nack` seeks back in the partition and reads on, and
//! skips messages that are settled or held.
//!
//! A message that was not delivered is unknown unless it cannot have been stored. librdkafka
//! reports only the last error of a message, but logs each failed request. So a message is refused
//! if no request that failed since it was handed over may have been written (see `outcome`). That
//! log is about requests, not messages, so a few messages that were never sent are reported as
//! unknown too.
//!
//! Known limit of rdkafka: the name and the value of a header whose name is not UTF-8 cannot be
//! read; the message is told as unreadable (see `quirks::header_names`). A name ends at a NUL byte.

mod addresses;
mod buffer;
mod config;
mod connection;
mod connector;
mod delivery;
mod error_log;
#[cfg(feature = "fuzz")]
pub(crate) mod fuzz;
mod group_start;
mod headers;
mod java_names;
mod offsets;
mod outcome;
mod properties;
mod quirks;
mod reader;
mod sink;
mod source;
mod topic;
mod untimed;
mod window;
mod writer;

pub use self::addresses::Addresses;
pub use self::config::Config;
pub(crate) use self::connector::CAPABILITIES;
pub use self::properties::Properties;
