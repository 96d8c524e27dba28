//! NATS JetStream: sources read by a durable pull consumer, sinks publish with an ack.
//!
//! What the client library loses, and with it a message that passes through: the order of headers of different names (values of one name keep
//! theirs; here headers come sorted by name), and white space around a value.
//!
//! The library ends a connection on which a message comes that it cannot read, such as one whose headers are not UTF-8. So a source reads on a
//! connection of its own (`quirks::delivery_connection`), and when that ends alone, fetches what it could not read in another way (`quirks::unreadable_message`).

mod ack;
mod answer;
mod apart;
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
mod quirks;
mod reader;
mod replies;
mod server;
mod sink;
mod source;
mod stream;
mod subject;
mod window;

pub use self::config::Config;
pub(crate) use self::connector::CAPABILITIES;
pub use crate::secret::{Secret, Urls};
