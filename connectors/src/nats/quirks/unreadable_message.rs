//! Messages that end the line they come on: looked for among what the consumer has delivered and nobody has settled, and fetched from the stream in
//! the JSON of the JetStream API, which any client reads.

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
use crate::nats::connection::BrokerConnection;
use crate::nats::consumer::Consumer;
use crate::nats::delivery::Delivery;
use crate::nats::subject::allows;
use crate::{ConnectorError, Destination, ErrorKind, Message, Position};

/// How many messages are asked for together.
const TOGETHER: u64 = 8;
/// With as many bytes a search ends; the next line ends on what is left, and another begins.
const MOST_BYTES: usize = 16 << 20;
/// The error of the JetStream API where there is no such message.
const NO_MESSAGE: u32 = 10_037;

/// Looks for messages that the client library may not be able to read.
pub(in crate::nats) struct UnreadableSearch {
    connection: Arc<BrokerConnection>,
    stream: String,
    consumer: String,
    topic: String,
    /// How far it looked. What lies below and is not settled is with us, unless it was given back since.
    looked: u64,
}

/// What a search gives.
#[derive(Default)]
pub(in crate::nats) struct Found {
    pub(in crate::nats) deliveries: Vec<Delivery>,
    /// Of the deliveries.
    bytes: usize,
    /// There are such messages, with us already.
    pub(in crate::nats) held: bool,
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
            looked: 0,
        }
    }

    /// Fetches unreadable messages that were delivered, to whomever, and not settled; not those whose sequences are `held`. At most about `most`.
    ///
    /// The server does not tell which sequences are unsettled, only between which they lie. Where the stream keeps settled messages, or another
    /// reader has found one too, one comes that was settled or will be: rather twice than never. Readable ones are left to come by themselves.
    pub(in crate::nats) async fn run(&mut self, held: &HashSet<u64>, most: usize) -> Result<Found, ConnectorError> {
        let body = Bytes::new();
        let info = self.ask::<Info>(&format!("CONSUMER.INFO.{}.{}", self.stream, self.consumer), body).await?;
        let Some(info) = info.filter(|info| info.num_ack_pending > 0) else { return Ok(Found::default()) };
        let floor = info.ack_floor.stream_seq;
        if self.looked > floor {
            let found = self.walk(self.looked, &info, held, most).await?;
            if !found.deliveries.is_empty() {
                return Ok(found);
            }
        }
        self.walk(floor, &info, held, most).await
    }

    /// Looks at what was delivered after this sequence.
    async fn walk(&mut self, after: u64, info: &Info, held: &HashSet<u64>, most: usize) -> Result<Found, ConnectorError> {
        let mut found = Found::default();
        let (mut next, last) = (after + 1, info.delivered.stream_seq);
        while next <= last && found.deliveries.len() < most && found.bytes < MOST_BYTES {
            let end = (next + TOGETHER - 1).min(last);
            let asked = join_all((next..=end).map(|sequence| self.get(format!(r#"{{"seq":{sequence}}}"#)))).await;
            next = end + 1;
            let mut ours = false;
            for raw in asked {
                let Some(raw) = raw?.filter(|raw| allows(&self.topic, &Destination::new(&raw.subject))) else { continue };
                ours = true;
                let sequence = raw.sequence;
                if let Some(unreadable) = self.unreadable(raw, info.delivered.consumer_seq)? {
                    if held.contains(&sequence) {
                        found.held = true;
                    } else {
                        found.bytes += unreadable.bytes;
                        found.deliveries.push(unreadable);
                    }
                }
            }
            if !ours && next <= last {
                // Settled messages, or those of other subjects: past them at once, however many.
                let topic = serde_json::Value::from(self.topic.as_str());
                next =
                    self.get(format!(r#"{{"seq":{next},"next_by_subj":{topic}}}"#)).await?.map_or(last + 1, |raw| raw.sequence.max(next));
            }
        }
        self.looked = self.looked.max(next - 1);
        Ok(found)
    }

    /// The message as a delivery, where the client library may not be able to read it.
    fn unreadable(&self, raw: RawMessage, consumer_sequence: u64) -> Result<Option<Delivery>, ConnectorError> {
        let decode = |text: &str| {
            BASE64.decode(text).map_err(|error| {
                self.connection
                    .fail(ErrorKind::Disconnected, &format!("message {} of `{}` cannot be read", raw.sequence, self.stream))
                    .because(error)
            })
        };
        let headers = decode(raw.headers.as_deref().unwrap_or_default())?;
        // The line that leads a message is split at white space, and is UTF-8: the API has put a mark in the place of what is not.
        if header_block::is_plain(&headers) && raw.subject.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Ok(None);
        }
        let nanos = raw.time.unix_timestamp_nanos();
        let message = Message {
            body: decode(&raw.payload)?.into(),
            has_body: true,
            headers: header_block::parse(&headers),
            destination: Destination::new(raw.subject),
            position: Some(Position { log: self.stream.clone(), partition: 0, offset: raw.sequence }),
            timestamp_ms: Some(i64::try_from(nanos / 1_000_000).unwrap_or_default()),
            timestamp_is_cut: nanos % 1_000_000 > 0,
            redelivered: true,
            ..Message::default()
        };
        // As the server would have written it, had the message come through. It goes by the stream sequence, takes no word on a message that is not
        // unsettled, and wants a consumer sequence that it has given out.
        let UnreadableSearch { stream, consumer, .. } = self;
        let reply = Subject::from(format!("$JS.ACK.{stream}.{consumer}.2.{}.{consumer_sequence}.{nanos}.0", raw.sequence));
        let wire = message.body.len() + headers.len() + message.destination.address.len() + reply.len();
        let bytes = message.footprint() + reply.len();
        Ok(Some(Delivery { message, reply, bytes, wire }))
    }

    async fn get(&self, body: String) -> Result<Option<RawMessage>, ConnectorError> {
        Ok(self.ask::<Fetched>(&format!("STREAM.MSG.GET.{}", self.stream), body.into()).await?.map(|fetched| fetched.message))
    }

    /// The answer of the JetStream API; `None` where there is no such message.
    async fn ask<T: DeserializeOwned>(&self, what: &str, body: Bytes) -> Result<Option<T>, ConnectorError> {
        let failed = |why: &str| {
            let failure =
                self.connection.fail(ErrorKind::Disconnected, &format!("cannot fetch messages that the client cannot read: {what}: {why}"));
            failure.hint("grant the user `$JS.API.>`, or delete these messages from the stream")
        };
        let answer = self.connection.ask(self.connection.client.request(format!("$JS.API.{what}"), body)).await?;
        let answer = answer.map_err(|error| failed(&error.to_string()).because(error))?;
        match serde_json::from_slice(&answer.payload) {
            Ok(Answer::Good(answer)) => Ok(Some(answer)),
            Ok(Answer::Error { error: Failure { err_code: NO_MESSAGE, .. } }) => Ok(None),
            Ok(Answer::Error { error }) => Err(failed(&error.description)),
            Err(error) => Err(failed("the answer is not what the JetStream API answers").because(error)),
        }
    }
}
