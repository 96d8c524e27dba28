//! Sources and sinks: one contract over every broker. This package knows brokers, and nothing of
//! delay or Redis.
//!
//! In reading order:
//! - [`message`]: a message, received or to be published: body, key, headers, properties, position.
//! - [`source`]: reads messages: batches come in, each batch is acknowledged once.
//! - [`sink`]: publishes messages: batches of (token, message) go in, batches of (token,
//!   [`Outcome`]) come out.
//! - [`error`]: errors, and what the caller does next.
//! - [`connector`]: the contract of a broker: names, header rules, how its sources and sinks are
//!   opened; [`capabilities`]: how brokers differ, as data.
//! - [`config`]: the list of brokers, a line each; [`allow`]: their patterns of targets.
//! - [`stand_ins`]: headers for what another broker has no field for.
//! - [`memory`]: a broker in this process, for tests of logic and for faults that a real server
//!   cannot be made to show.
//! - [`amqp`]: AMQP 0-9-1, as in RabbitMQ.
//! - [`nats`]: NATS JetStream.
//! - [`kafka`]: Apache Kafka.
//! - [`http`]: URLs, which get POST requests.
//! - [`conformance`]: the test suite that every connector passes; `fuzz`: entry points to parsers,
//!   for the fuzz tests.
//!
//! Connectors never retry a publication and never reopen a source or sink: they report errors, and
//! the caller decides (see [`ErrorKind`]). Only a NATS source reopens its delivery connection by
//! itself.

#[cfg(any(feature = "amqp", feature = "nats"))]
mod address;
pub mod allow;
#[cfg(feature = "amqp")]
pub mod amqp;
#[cfg(any(feature = "amqp", feature = "nats"))]
mod batches;
pub mod capabilities;
pub mod config;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod connector;
pub mod error;
mod followed;
#[cfg(feature = "fuzz")]
pub mod fuzz;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "kafka")]
pub mod kafka;
pub mod memory;
pub mod message;
#[cfg(feature = "nats")]
pub mod nats;
#[cfg(any(feature = "amqp", feature = "nats"))]
mod secret;
mod settings;
pub mod sink;
pub mod source;
pub mod stand_ins;

pub use allow::Allow;
pub use capabilities::Capabilities;
pub use config::BrokerConfig;
pub use connector::{Caution, CautionKind, Connector, ConsumerState, Declared, FirstRead, Role};
pub use dwell_core::{
    Destination, FILE_HINT, Header, Headers, Properties, Value, io_reason, is_address,
    known_scheme, parse_duration_ms, parse_durations_ms, quote, redacted, secret_text,
    show_duration_ms, shown_address, split_urls, unreadable,
};
pub use error::{ConnectorError, ErrorKind};
pub use followed::follow_secret;
pub use message::{MIN_EPOCH_MS, Message, Position};
pub use sink::{Outcome, Outcomes, Publication, Sink, Token};
pub use source::{Acks, Batch, BatchId, Source, SourceOptions, Start};
