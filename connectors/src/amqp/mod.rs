//! AMQP 0-9-1, as RabbitMQ speaks it: sources read a queue, sinks publish with confirms to a queue or to `exchange/routing.key`.
//!
//! - A queue is read with manual acks. The prefetch counts messages: it is as many as fit into the bound in bytes by the size of those that came, at
//!   most `max_unsettled`; and where that was too many, the socket is not read until there is room (see `gate`). The queue is the group: `group` only
//!   names the reader in the broker's tools. There are no positions and no times of the broker.
//! - Beside a queue the one is read that `expired_queue` names: there the queue's dead-letter exchange leads a message whose `expiration` is over before it
//!   is read. It comes from there as it was published (see `expired`). `declare_source` makes both.
//! - A stream is no queue to read requests from: RabbitMQ gives a reader of one only what is published after it came.
//! - A broker has a patience of its own with what is unsettled: RabbitMQ's `consumer_timeout`, 30 minutes unless set otherwise. It then closes the
//!   channel and delivers the messages again. Raise it where Redis may be away for longer.
//! - On a quorum queue each time that a message comes back counts towards its delivery limit, 20 by default on RabbitMQ 4; `declare` sets the highest.
//!   A busy server may also forget the last acks before a channel closes (rabbitmq-server#10327): those messages come again.
//! - Headers are a table: a name stands once, and order is lost (see `values`). A message whose `message_id` is not its own among those that are
//!   out, or that has none, bears one more header, `delayed-publication`: by it returned messages are told apart (see `quirks::return_matcher`).
//! - What the library's parser cannot take is put right before it (see `quirks::sanitize`): lists and tables that are nested deeper than 32 come as bytes, and
//!   in texts with at most 255 bytes (names of headers, properties, keys) each byte that is not UTF-8 comes as `?`.
//! - A nack from a queue is a refusal. One from an exchange leaves open whether other queues took the message.

mod buffer;
mod config;
mod connection;
mod connector;
mod delivery;
mod expired;
mod fault;
#[cfg(feature = "fuzz")]
pub(crate) mod fuzz;
mod gate;
mod in_flight;
mod limit;
mod login;
mod names;
mod properties;
mod publish_queue;
mod publisher;
mod queue;
mod quirks;
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
