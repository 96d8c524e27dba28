//! NATS JetStream: sources read by a durable pull consumer, sinks publish with an ack.
//!
//! What the client library loses, and with it a message that passes through: the order of headers of different names (values of one name keep
//! theirs; here headers come sorted by name), and white space around a value.
//!
//! Known limit: the library ends a connection on which a message comes whose headers are not UTF-8. JetStream delivers such a message again and
//! again, and what was delivered together with it waits behind it, until somebody deletes it from the stream.

mod answer;
mod config;
mod consumer;
mod delivery;
mod headers;
mod link;
mod login;
mod pump;
mod replies;
mod server;
mod shelf;
pub(crate) mod sink;
pub(crate) mod source;
mod stream;
mod subject;
mod window;

pub use self::config::Config;
pub(crate) use self::stream::declare;
pub(crate) use self::subject::{allows, forbidden};
pub use crate::secret::{Secret, Urls};
