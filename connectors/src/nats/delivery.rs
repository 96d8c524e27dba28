//! A delivered message, and the metadata in its reply subject.

use async_nats::Subject;

use super::headers;
use crate::{Destination, Message, Position};

/// A message with the reply subject of its acknowledgement.
pub(super) struct Delivery {
    pub(super) message: Message,
    pub(super) reply: Subject,
    /// The memory of the message, in bytes.
    pub(super) bytes: usize,
    /// The bytes on the wire: body, headers and subjects.
    pub(super) wire: usize,
}

/// Converts a delivered message; the error is a status message instead.
pub(super) fn delivery(message: async_nats::Message) -> Result<Delivery, Box<async_nats::Message>> {
    let Some(info) = message.reply.as_ref().and_then(|reply| Info::parse(reply)) else {
        return Err(Box::new(message));
    };
    let async_nats::Message { subject, reply: Some(reply), payload, headers, length, .. } = message
    else {
        return Err(Box::new(message));
    };
    let message = Message {
        body: payload,
        has_body: true,
        headers: headers::from_nats(headers),
        destination: Destination::new(subject.into_string()),
        position: Some(Position { log: info.stream, partition: 0, offset: info.sequence }),
        timestamp_ms: Some(info.timestamp_ms),
        timestamp_is_cut: info.is_cut,
        redelivered: info.delivered > 1,
        ..Message::default()
    };
    // The body is a slice of the bytes read from the socket, and keeps the rest alive.
    let bytes = message.footprint() + reply.len() + length.saturating_sub(message.body.len());
    Ok(Delivery { message, reply, bytes, wire: length })
}

/// The stream sequence in the reply subject of a delivered message.
pub(super) fn sequence(reply: &str) -> Option<u64> {
    Info::parse(reply).map(|info| info.sequence)
}

/// The metadata in the reply subject of a delivered message.
#[derive(Debug, PartialEq)]
struct Info {
    stream: String,
    delivered: u64,
    sequence: u64,
    timestamp_ms: i64,
    is_cut: bool,
}

impl Info {
    /// `$JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time, ns>.<pending>`.
    /// Newer servers put a domain and an account hash before the stream, and may add tokens at the
    /// end.
    fn parse(reply: &str) -> Option<Self> {
        let rest = reply.strip_prefix("$JS.ACK.")?;
        let mut tokens = rest.split('.');
        if rest.bytes().filter(|byte| *byte == b'.').count() > 6 {
            tokens.nth(1)?;
        }
        let stream = tokens.next()?.to_owned();
        let delivered = tokens.nth(1)?.parse().ok()?;
        let sequence = tokens.next()?.parse().ok()?;
        let nanos: i64 = tokens.nth(1)?.parse().ok()?;
        Some(Info {
            stream,
            delivered,
            sequence,
            timestamp_ms: nanos / 1_000_000,
            is_cut: nanos % 1_000_000 > 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reply_subjects_of_both_kinds_are_read() {
        let info = Info {
            stream: "S".to_owned(),
            delivered: 2,
            sequence: 7,
            timestamp_ms: 1_700_000_000_123,
            is_cut: true,
        };
        assert_eq!(Info::parse("$JS.ACK.S.C.2.7.9.1700000000123456789.4"), Some(info));
        let info = Info::parse("$JS.ACK._.HASH.S.C.1.7.9.1700000000123456789.4.rnd");
        assert_eq!(
            info.map(|info| (info.stream, info.delivered, info.sequence)),
            Some(("S".to_owned(), 1, 7))
        );
        let exact = Info::parse("$JS.ACK.S.C.1.7.9.1700000000123000000.4");
        assert_eq!(
            exact.map(|info| (info.timestamp_ms, info.is_cut)),
            Some((1_700_000_000_123, false))
        );
        for other in ["_INBOX.x", "$JS.ACK.S", "$JS.ACK.S.C.x.7.9.17.4", ""] {
            assert_eq!(Info::parse(other), None);
        }
    }
}
