//! NATS JetStream: sources read through a durable pull consumer, sinks publish with an ack.
//!
//! async-nats loses, and so does a message that passes through Dwell: the order of headers with
//! different names (values of one name keep theirs; here headers are sorted by name), and white
//! space around a value.
//!
//! async-nats ends a connection when a message comes that it cannot parse, such as one whose
//! headers are not UTF-8. So a source reads on a connection of its own
//! (`quirks::delivery_connection`). When only that connection ends, the source fetches the message
//! in another way (`quirks::unreadable_message`).

mod ack;
mod buffer;
mod config;
mod connection;
mod connector;
mod consumer;
mod delivery;
mod fetch_budget;
#[cfg(feature = "fuzz")]
pub(crate) mod fuzz;
mod headers;
mod login;
mod loop_check;
mod pub_ack;
mod pub_ack_reader;
mod quirks;
mod reader;
mod server;
mod sink;
mod source;
mod stream;
mod subject;
mod window;

pub use self::config::Config;
pub(crate) use self::connector::CAPABILITIES;
pub use crate::secret::{Secret, Urls};
