//! A delivered message, and the tag by which it is settled.

use bytes::Bytes;

use super::properties::received;
use crate::{Destination, Message};

/// A message with its tag on its channel.
pub(super) struct Delivery {
    pub(super) tag: u64,
    pub(super) message: Message,
    /// How much memory the message takes.
    pub(super) bytes: usize,
}

impl From<lapin::message::Delivery> for Delivery {
    fn from(delivery: lapin::message::Delivery) -> Self {
        let (headers, properties) = received(&delivery.properties);
        let mut body = delivery.data;
        // It grew by doubling.
        body.shrink_to_fit();
        let message = Message {
            body: Bytes::from(body),
            has_body: true,
            headers,
            properties: Some(Box::new(properties)),
            destination: Destination { exchange: delivery.exchange.to_string(), address: delivery.routing_key.to_string() },
            redelivered: delivery.redelivered,
            ..Message::default()
        };
        let bytes = message.footprint();
        Delivery { tag: delivery.delivery_tag, message, bytes }
    }
}
