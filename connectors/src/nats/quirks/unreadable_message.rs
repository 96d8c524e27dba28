//! Fetches messages that async-nats cannot parse.
//!
//! - Behaviour: an unparsable message ends the delivery connection (see `header_block`), and the
//!   server redelivers it on the next one.
//! - Workaround: when a delivery connection ends alone, the source looks through the messages that
//!   the consumer has delivered and nobody has settled. With `STREAM.MSG.GET`, whose answer is JSON
//!   with headers and body in base64, the source fetches messages that async-nats may fail on.
//!   Messages that async-nats can parse may be lost with the connection (see `lost_deliveries`).
//! - May go when async-nats delivers messages with any header block and subject.

use std::collections::HashSet;
use std::sync::Arc;

use async_nats::Subject;
use async_nats::jetstream::stream::RawMessage;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use futures_util::future::join_all;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::header_block;
use super::lost_deliveries::LostDeliveries;
use crate::nats::connection::BrokerConnection;
use crate::nats::consumer::Consumer;
use crate::nats::delivery::Delivery;
use crate::nats::subject::allows;
use crate::{ConnectorError, Destination, ErrorKind, Message, Position};

/// The number of messages fetched in parallel.
const CONCURRENT_FETCHES: u64 = 8;
/// A search ends after this many bytes. The rest ends the next delivery connection and is found by
/// the next search.
const MAX_SEARCH_BYTES: usize = 16 << 20;
/// The JetStream API's error code for a missing message.
const NO_MESSAGE_CODE: u32 = 10_037;

/// Searches for messages that async-nats may not be able to parse.
pub(in crate::nats) struct UnreadableSearch {
    connection: Arc<BrokerConnection>,
    stream: String,
    consumer: String,
    topic: String,
    /// The last sequence that was searched, or came, or was delivered to any reader before the
    /// source opened. Messages lost on their first delivery have higher ones.
    looked: u64,
    /// The last search stopped before its end: messages that come tell nothing of those behind.
    is_cut: bool,
    lost: LostDeliveries,
}

/// The result of a search.
#[derive(Default)]
pub(in crate::nats) struct Found {
    pub(in crate::nats) deliveries: Vec<Delivery>,
    /// The bytes of the deliveries.
    bytes: usize,
    /// Unreadable messages exist, and this source holds them already.
    pub(in crate::nats) held: bool,
    /// The reply subjects of parsable messages to nak.
    pub(in crate::nats) lost: Vec<Subject>,
}

/// The bounds of a search.
struct Bounds<'a> {
    held: &'a HashSet<u64>,
    /// The most deliveries.
    most: usize,
    /// The most messages that can be lost.
    asked: usize,
    /// Messages lost on their first delivery have sequences above this one.
    old: u64,
}

#[derive(Deserialize)]
struct Info {
    delivered: Sequences,
    ack_floor: Sequences,
    num_ack_pending: u64,
}

#[derive(Deserialize)]
struct Sequences {
    consumer_seq: u64,
    stream_seq: u64,
}

#[derive(Deserialize)]
struct Fetched {
    message: RawMessage,
}

/// An answer of the JetStream API.
#[derive(Deserialize)]
#[serde(untagged)]
enum Answer<T> {
    Error { error: Failure },
    Good(T),
}

#[derive(Deserialize)]
struct Failure {
    #[serde(default)]
    err_code: u32,
    #[serde(default)]
    description: String,
}

impl UnreadableSearch {
    pub(in crate::nats) fn new(connection: Arc<BrokerConnection>, consumer: &Consumer) -> Self {
        UnreadableSearch {
            connection,
            stream: consumer.stream.clone(),
            consumer: consumer.name.clone(),
            topic: consumer.topic.clone(),
            looked: consumer.delivered,
            is_cut: false,
            lost: LostDeliveries::default(),
        }
    }

    /// Records a message that came by the normal delivery.
    pub(in crate::nats) fn came(&mut self, delivery: &Delivery) {
        if let Some(position) = &delivery.message.position {
            if !self.is_cut {
                self.looked = self.looked.max(position.offset);
            }
            self.lost.came(position.offset);
        }
    }

    /// Fetches unparsable messages that were delivered to any reader and not settled, except those
    /// with sequences in `held`. At most about `most`. `asked`: the most messages that can be lost
    /// with the connection.
    ///
    /// The server tells only the range of unsettled sequences, not which ones they are. So a
    /// message may come that is settled already or that another reader settles (if the stream keeps
    /// settled messages, or another reader found it too): rather twice than never. Messages that
    /// async-nats can parse come by the normal delivery; messages that may be lost are naked.
    pub(in crate::nats) async fn run(
        &mut self,
        held: &HashSet<u64>,
        most: usize,
        asked: usize,
    ) -> Result<Found, ConnectorError> {
        let info = self
            .ask::<Info>(&format!("CONSUMER.INFO.{}.{}", self.stream, self.consumer), Bytes::new())
            .await?;
        let Some(info) = info.filter(|info| info.num_ack_pending > 0) else {
            self.lost = LostDeliveries::default();
            return Ok(Found::default());
        };
        let (floor, old) = (info.ack_floor.stream_seq, self.looked);
        self.lost.retain(|sequence| sequence > floor && !held.contains(&sequence));
        let bounds = Bounds { held, most, asked, old };
        let mut found =
            if old > floor { self.walk(old, &info, &bounds).await? } else { Found::default() };
        if found.deliveries.is_empty() {
            found = self.walk(floor, &info, &bounds).await?;
        }
        // The server ignores the time in the reply subject.
        found.lost = self
            .lost
            .due()
            .into_iter()
            .map(|sequence| self.reply(sequence, info.delivered.consumer_seq, 0))
            .collect();
        Ok(found)
    }

    /// Searches the messages delivered after this sequence.
    async fn walk(
        &mut self,
        after: u64,
        info: &Info,
        bounds: &Bounds<'_>,
    ) -> Result<Found, ConnectorError> {
        let Bounds { held, most, asked, old } = *bounds;
        let (mut found, mut others) = (Found::default(), Vec::new());
        let (mut next, last) = (after + 1, info.delivered.stream_seq);
        while next <= last && found.deliveries.len() < most && found.bytes < MAX_SEARCH_BYTES {
            let end = (next + CONCURRENT_FETCHES - 1).min(last);
            let answers =
                join_all((next..=end).map(|sequence| self.get(format!(r#"{{"seq":{sequence}}}"#))))
                    .await;
            next = end + 1;
            let mut ours = false;
            for raw in answers {
                let Some(raw) =
                    raw?.filter(|raw| allows(&self.topic, &Destination::new(&raw.subject)))
                else {
                    continue;
                };
                ours = true;
                let sequence = raw.sequence;
                let is_held = held.contains(&sequence);
                if let Some(unreadable) = self.unreadable(raw, info.delivered.consumer_seq)? {
                    if is_held {
                        found.held = true;
                    } else {
                        found.bytes += unreadable.bytes;
                        found.deliveries.push(unreadable);
                    }
                } else if !is_held {
                    others.push(sequence);
                }
            }
            if !ours && next <= last {
                // Settled messages, or messages of other subjects: skips them all at once.
                let topic = serde_json::Value::from(self.topic.as_str());
                next = self
                    .get(format!(r#"{{"seq":{next},"next_by_subj":{topic}}}"#))
                    .await?
                    .map_or(last + 1, |raw| raw.sequence.max(next));
            }
        }
        // Redelivered messages, in any order, are lost only behind an unparsable redelivered one.
        // Recent messages are less likely to be another reader's.
        let is_redelivered = after < old && (found.held || !found.deliveries.is_empty());
        for sequence in others
            .into_iter()
            .rev()
            .filter(|sequence| is_redelivered || *sequence > old)
            .take(asked)
        {
            self.lost.add(sequence);
        }
        (self.looked, self.is_cut) = (self.looked.max(next - 1), next <= last);
        Ok(found)
    }

    /// The message as a delivery, if async-nats may not be able to parse it.
    fn unreadable(
        &self,
        raw: RawMessage,
        consumer_sequence: u64,
    ) -> Result<Option<Delivery>, ConnectorError> {
        let decode = |text: &str| {
            BASE64.decode(text).map_err(|error| {
                self.connection
                    .fail(
                        ErrorKind::Disconnected,
                        &format!("message {} of `{}` cannot be read", raw.sequence, self.stream),
                    )
                    .because(error)
            })
        };
        let headers = decode(raw.headers.as_deref().unwrap_or_default())?;
        // async-nats splits the protocol line at white space and requires UTF-8; the API has
        // replaced other bytes in the subject.
        if header_block::is_plain(&headers)
            && raw.subject.bytes().all(|byte| byte.is_ascii_graphic())
        {
            return Ok(None);
        }
        let nanos = raw.time.unix_timestamp_nanos();
        let message = Message {
            body: decode(&raw.payload)?.into(),
            has_body: true,
            headers: header_block::parse(&headers),
            destination: Destination::new(raw.subject),
            position: Some(Position {
                log: self.stream.clone(),
                partition: 0,
                offset: raw.sequence,
            }),
            timestamp_ms: Some(i64::try_from(nanos / 1_000_000).unwrap_or_default()),
            timestamp_is_cut: nanos % 1_000_000 > 0,
            redelivered: true,
            ..Message::default()
        };
        let reply = self.reply(raw.sequence, consumer_sequence, nanos);
        let wire =
            message.body.len() + headers.len() + message.destination.address.len() + reply.len();
        let bytes = message.footprint() + reply.len();
        Ok(Some(Delivery { message, reply, bytes, wire }))
    }

    /// The reply subject that the server would have written. The server settles by the stream
    /// sequence, ignores acks of messages that are not unsettled, and requires a consumer sequence
    /// that it has given out.
    fn reply(&self, sequence: u64, consumer_sequence: u64, nanos: i128) -> Subject {
        Subject::from(format!(
            "$JS.ACK.{}.{}.2.{sequence}.{consumer_sequence}.{nanos}.0",
            self.stream, self.consumer
        ))
    }

    async fn get(&self, body: String) -> Result<Option<RawMessage>, ConnectorError> {
        Ok(self
            .ask::<Fetched>(&format!("STREAM.MSG.GET.{}", self.stream), body.into())
            .await?
            .map(|fetched| fetched.message))
    }

    /// The answer of the JetStream API; `None` if the message does not exist.
    async fn ask<T: DeserializeOwned>(
        &self,
        what: &str,
        body: Bytes,
    ) -> Result<Option<T>, ConnectorError> {
        let failed = |why: &str| {
            let failure = self.connection.fail(
                ErrorKind::Disconnected,
                &format!("cannot fetch messages that the client cannot parse: {what}: {why}"),
            );
            failure.hint("grant the user `$JS.API.>`, or delete these messages from the stream")
        };
        let answer = self
            .connection
            .ask(self.connection.client.request(self.connection.api(what), body))
            .await?;
        let answer = answer.map_err(|error| failed(&error.to_string()).because(error))?;
        match serde_json::from_slice(&answer.payload) {
            Ok(Answer::Good(answer)) => Ok(Some(answer)),
            Ok(Answer::Error { error: Failure { err_code: NO_MESSAGE_CODE, .. } }) => Ok(None),
            Ok(Answer::Error { error }) => Err(failed(&error.description)),
            Err(error) => {
                Err(failed("the answer is not what the JetStream API answers").because(error))
            }
        }
    }
}
