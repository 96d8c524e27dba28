//! NATS JetStream: sources read by a durable pull consumer, sinks publish with an ack.
//!
//! What the client library loses, and with it a message that passes through: the order of headers of different names (values of one name keep
//! theirs; here headers come sorted by name), and white space around a value. A message whose headers are not UTF-8 ends the connection that reads it.

mod answer;
mod config;
mod consumer;
mod headers;
mod link;
mod login;
mod pump;
mod replies;
mod secret;
pub(crate) mod sink;
pub(crate) mod source;
mod stream;
mod subject;

pub use self::config::Config;
pub use self::secret::{Secret, Urls};
pub(crate) use self::stream::declare;
pub(crate) use self::subject::{allows, forbidden};
