//! Entry points for `crate::fuzz`.

use lapin::protocol::basic::parse_properties;

use super::properties::{outgoing, received};
use super::quirks::sanitize;
use crate::Message;

/// The bytes before the properties: class, weight and body size.
const HEAD_BYTES: usize = 12;

pub(crate) fn sanitize(kind: u8, payload: &mut [u8]) -> bool {
    sanitize::sanitize(kind, payload)
}

pub(crate) fn message(payload: &[u8]) -> Option<Message> {
    let (_, properties) = parse_properties(payload.get(HEAD_BYTES..)?).ok()?;
    let (headers, own, unreadable) = received(&properties);
    Some(Message { headers, properties: Some(Box::new(own)), unreadable, ..Message::new("") })
}

pub(crate) fn publishable(message: Message, frame_max: usize) -> Result<(), String> {
    outgoing(message.headers, message.properties.map(|own| *own), "id", Some("guest"), frame_max)
        .map(drop)
}
