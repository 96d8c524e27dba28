//! Sources and sinks: one contract over every broker. This package knows brokers, and nothing of delay or Redis.
//!
//! In reading order:
//! - [`message`]: a message as it came or as it goes: body, key, headers, properties, where it was read.
//! - [`source`]: where messages are read: batches in, one acknowledgement a batch.
//! - [`sink`]: where messages are published: batches of (token, message) in, batches of (token, [`Outcome`]) out.
//! - [`error`]: what went wrong, and what the caller does next.
//! - [`connector`]: the contract of a broker: names, header rules, how its sources and sinks are opened; [`capabilities`]: how brokers differ, as data.
//! - [`config`]: the list of brokers, a line each.
//! - [`stand_ins`]: headers for what another broker has no field for.
//! - [`memory`]: a broker in this process, for tests of logic and for faults that no server can be made to show.
//! - [`amqp`]: AMQP 0-9-1, RabbitMQ's.
//! - [`nats`]: NATS JetStream.
//! - [`kafka`]: Apache Kafka.
//! - [`conformance`]: the suite that every connector passes; `fuzz`: doors to parsers, for the package that feeds them anything.
//!
//! Connectors never retry and never reopen: they report, and the runner decides (see [`ErrorKind`]).

#[cfg(any(feature = "amqp", feature = "nats"))]
mod address;
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
#[cfg(feature = "fuzz")]
pub mod fuzz;
#[cfg(feature = "kafka")]
pub mod kafka;
pub mod memory;
pub mod message;
#[cfg(feature = "nats")]
pub mod nats;
#[cfg(any(feature = "amqp", feature = "nats"))]
mod secret;
pub mod sink;
pub mod source;
pub mod stand_ins;

pub use capabilities::Capabilities;
pub use config::BrokerConfig;
pub use connector::{Caution, CautionKind, Connector, Declared, FirstRead, Reader, Role};
pub use dwell_core::{Destination, Header, Headers, Properties, Value, redacted};
pub use error::{ConnectorError, ErrorKind};
pub use message::{Message, Position};
pub use sink::{Outcome, Outcomes, Publication, Sink, Token};
pub use source::{Acks, Batch, BatchId, Source, SourceOptions, Start};
