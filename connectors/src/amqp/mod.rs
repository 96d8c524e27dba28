//! AMQP 0-9-1 as in RabbitMQ: sources read a queue, sinks publish with confirms to a queue or to
//! `exchange/routing.key`.
//!
//! - A source reads a queue with manual acks. The prefetch counts messages: as many as fit into the
//!   bound in bytes by the size of recent messages, at most `max_unsettled`. If that is too many,
//!   the socket is not read until there is room (see `read_limiter`). The queue is the group:
//!   `group` only names the reader in the broker's tools. There are no positions and no timestamps
//!   of the broker.
//! - A source also reads the queue that `expired_queue` names. The main queue's dead-letter
//!   exchange leads a message there when its `expiration` ends before it is read. The message comes
//!   out as it was published (see `expired`). `declare_source` creates both queues.
//! - A stream is unsuitable for requests: a reader of a stream gets only messages published after
//!   it started.
//! - RabbitMQ limits how long a message may stay unsettled: `consumer_timeout`, 30 minutes by
//!   default. Then it closes the channel and redelivers the messages. Raise the limit if Redis may
//!   be away for longer.
//! - On a quorum queue each redelivery counts towards the delivery limit, 20 by default on RabbitMQ
//!   4; `declare` sets the highest limit. A quorum queue may also ignore the last acks before a
//!   channel closes (rabbitmq-server#10327): those messages come again.
//! - Headers are a table: names are unique, and order is lost (see `values`). A message without a
//!   `message_id`, or whose `message_id` is already in flight, gets one more header,
//!   `delayed-publication`, to match returned messages (see `quirks::return_matcher`).
//! - A frame that lapin's parser cannot read is changed before the parser sees it (see
//!   `quirks::sanitize`): lists and tables nested deeper than 32 become bytes, and in short strings
//!   (names of headers, properties, routing keys; at most 255 bytes) each byte that is not UTF-8
//!   becomes `?`.
//! - A nack from a queue means refused. A nack from an exchange leaves open whether other queues
//!   stored the message.

mod buffer;
mod config;
mod connection;
mod connector;
mod delivery;
mod fault;
#[cfg(feature = "fuzz")]
pub(crate) mod fuzz;
mod in_flight;
mod limit;
mod login;
mod names;
mod properties;
mod publish_queue;
mod publisher;
mod queue;
mod quirks;
mod read_limiter;
mod reader;
mod router;
mod server;
mod sink;
mod source;
mod values;
mod window;

pub use self::config::Config;
pub(crate) use self::connector::CAPABILITIES;
pub use crate::secret::{Secret, Urls};
