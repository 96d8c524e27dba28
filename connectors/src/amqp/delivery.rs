//! A delivered message and its delivery tag.

use bytes::Bytes;

use super::properties::{is_marked, received};
use crate::{Destination, Message};

/// A message with its delivery tag on its channel.
pub(super) struct Delivery {
    pub(super) tag: u64,
    pub(super) message: Message,
    /// The memory of the message, in bytes.
    pub(super) bytes: usize,
}

impl From<lapin::message::Delivery> for Delivery {
    fn from(delivery: lapin::message::Delivery) -> Self {
        let (headers, properties, mut unreadable) = received(&delivery.properties);
        let mut name = |what: &str, name: &str| {
            if is_marked(name) {
                unreadable.push(what.to_owned());
            }
            name.to_owned()
        };
        let destination = Destination {
            exchange: name("the exchange", delivery.exchange.as_str()),
            address: name("the routing key", delivery.routing_key.as_str()),
        };
        let mut body = delivery.data;
        // lapin grew the buffer by doubling.
        body.shrink_to_fit();
        let message = Message {
            body: Bytes::from(body),
            has_body: true,
            headers,
            properties: Some(Box::new(properties)),
            destination,
            unreadable,
            redelivered: delivery.redelivered,
            ..Message::default()
        };
        let bytes = message.footprint();
        Delivery { tag: delivery.delivery_tag, message, bytes }
    }
}
