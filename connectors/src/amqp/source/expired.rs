//! Messages whose `expiration` ended in the queue: read from the expired queue, and restored as
//! they were published.
//!
//! RabbitMQ drops a message whose `expiration` ends in an ingest's queue, or sends the message to
//! the queue's dead-letter exchange. The exchange cannot lead back to the same queue: RabbitMQ
//! drops a message that returns to the queue where it expired, over any number of queues, unless a
//! consumer rejected the message on the way. So it leads to a second queue. Nothing expires there,
//! because dead-lettering removes `expiration`.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{join, try_join};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};

use super::AmqpSource;
use crate::{Batch, BatchId, ConnectorError, Destination, Header, Headers, Message, Source, Value};

const DEATH_HEADER: &str = "x-death";
/// The prefixes of further headers that RabbitMQ adds: of the first death, and from 4.0 on of the
/// last.
const FIRST_DEATH_PREFIX: &str = "x-first-death-";
const LAST_DEATH_PREFIX: &str = "x-last-death-";

/// After this time without a delivery from the expired queue, another reader has its old messages.
/// Longer than the time to store a batch, which makes room for more.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest time that the main queue waits for the old messages of the expired queue: newly
/// expired messages count as old ones too.
const MAX_HEAD_START: Duration = Duration::from_secs(60);

/// Reads a queue and its expired queue.
pub(super) struct SourceWithExpired {
    name: String,
    queue: AmqpSource,
    expired: AmqpSource,
    lead: Mutex<HeadStart>,
}

/// The messages that were in the expired queue at the start. Most are older than those in the main
/// queue, and are read first.
#[derive(Clone, Copy)]
struct HeadStart {
    left: usize,
    /// The deadline of the next message.
    next: Instant,
    /// The deadline of all messages.
    end: Instant,
}

impl HeadStart {
    fn new(left: usize, now: Instant) -> Self {
        HeadStart { left, next: now + SILENCE_TIMEOUT, end: now + MAX_HEAD_START }
    }

    /// The state after this many messages.
    fn after(self, came: usize, now: Instant) -> Self {
        let left = if came == 0 || now >= self.end { 0 } else { self.left.saturating_sub(came) };
        HeadStart { left, next: self.end.min(now + SILENCE_TIMEOUT), ..self }
    }
}

impl SourceWithExpired {
    /// `name`: of the main queue. `waiting`: the number of messages in the expired queue.
    pub(super) fn new(name: String, queue: AmqpSource, expired: AmqpSource, waiting: u32) -> Self {
        let lead = Mutex::new(HeadStart::new(
            usize::try_from(waiting).unwrap_or(usize::MAX),
            Instant::now(),
        ));
        SourceWithExpired { name, queue, expired, lead }
    }

    /// A batch of the messages that were in the expired queue at the start; `None` once they are
    /// read, or another reader has them.
    async fn first(&self) -> Result<Option<Batch>, ConnectorError> {
        let lead = *self.lead.lock();
        if lead.left == 0 {
            return Ok(None);
        }
        let batch = timeout_at(lead.next, self.expired.recv()).await.ok().transpose()?;
        *self.lead.lock() =
            lead.after(batch.as_ref().map_or(0, |batch| batch.messages.len()), Instant::now());
        Ok(batch)
    }

    /// The source of a batch, and the batch's id there.
    fn of(&self, BatchId(id): BatchId) -> (&AmqpSource, BatchId) {
        (if id % 2 == 0 { &self.queue } else { &self.expired }, BatchId(id / 2))
    }
}

#[async_trait]
impl Source for SourceWithExpired {
    async fn recv(&self) -> Result<Batch, ConnectorError> {
        let (mut batch, place) = match self.first().await? {
            Some(batch) => (batch, 1),
            // `select!` polls in random order: neither queue starves the other.
            None => tokio::select! {
                batch = self.expired.recv() => (batch?, 1),
                batch = self.queue.recv() => (batch?, 0),
            },
        };
        batch.id = BatchId(2 * batch.id.0 + place);
        if place == 1 {
            batch.messages.iter_mut().for_each(|message| restore(message, &self.name));
        }
        Ok(batch)
    }

    async fn ack(&self, batch: BatchId) -> Result<(), ConnectorError> {
        let (source, batch) = self.of(batch);
        source.ack(batch).await
    }

    async fn nack(&self, batch: BatchId) -> Result<(), ConnectorError> {
        let (source, batch) = self.of(batch);
        source.nack(batch).await
    }

    async fn pause(&self, paused: bool) -> Result<(), ConnectorError> {
        try_join(self.queue.pause(paused), self.expired.pause(paused)).await.map(drop)
    }

    async fn close(self: Box<Self>) -> Result<(), ConnectorError> {
        let (queue, expired) =
            join(Box::new(self.queue).close(), Box::new(self.expired).close()).await;
        queue.and(expired)
    }
}

/// Restores a message to its state when it came to this queue, if this queue dead-lettered it last:
/// exchange and routing keys, `expiration`, and the headers without this death.
fn restore(message: &mut Message, queue: &str) {
    let mut deaths = match message.headers.get(DEATH_HEADER) {
        Some(Value::List(deaths)) => deaths.clone(),
        _ => return,
    };
    let Some(Value::Table(last)) = deaths.first() else { return };
    let told = |name: &str| last.iter().find(|(field, _)| field == name).map(|(_, value)| value);
    let text = |name: &str| told(name).and_then(Value::as_text).map(str::to_owned);
    if text("queue").as_deref() != Some(queue) {
        return;
    }
    let (exchange, expiration) = (text("exchange"), text("original-expiration"));
    let is_odd_exchange = matches!(told("exchange"), Some(Value::Bytes(_)));
    let keys = match told("routing-keys") {
        Some(Value::List(keys)) => keys.clone(),
        _ => Vec::new(),
    };
    deaths.remove(0);
    let is_only = deaths.is_empty();
    let is_of_death = |name: &str| {
        name == DEATH_HEADER
            || name.starts_with(LAST_DEATH_PREFIX)
            || is_only && name.starts_with(FIRST_DEATH_PREFIX)
    };
    let mut headers: Vec<Header> = std::mem::take(&mut message.headers)
        .into_iter()
        .filter(|header| !is_of_death(&header.name))
        .collect();
    if !is_only {
        headers.push(Header { name: DEATH_HEADER.to_owned(), value: Value::List(deaths) });
    }
    // A dead-letter routing key removes the header `CC`; its keys follow the message's own in
    // `routing-keys`.
    if keys.len() > 1 && !headers.iter().any(|header| header.name == "CC") {
        headers.push(Header { name: "CC".to_owned(), value: Value::List(keys[1..].to_vec()) });
    }
    // lapin sorts tables by name.
    headers.sort_by(|one, other| one.name.cmp(&other.name));
    message.headers = Headers::from_iter(headers);
    let odd = [
        ("the exchange", is_odd_exchange),
        ("the routing key", matches!(keys.first(), Some(Value::Bytes(_)))),
    ];
    message
        .unreadable
        .extend(odd.into_iter().filter(|(_, is_odd)| *is_odd).map(|(what, _)| what.to_owned()));
    if let Some(key) = keys.first().and_then(Value::as_text) {
        message.destination =
            Destination { exchange: exchange.unwrap_or_default(), address: key.to_owned() };
    }
    if let (Some(properties), Some(expiration)) = (&mut message.properties, expiration) {
        properties.expiration = Some(expiration);
    }
    message.mark_lost = true;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_on_expiring_leads_for_a_while_only() {
        let begun = Instant::now();
        let mut lead = HeadStart::new(1000, begun);
        for second in 1..60 {
            lead = lead.after(1, begun + Duration::from_secs(second));
            assert!(lead.left > 0 && lead.next <= lead.end, "second {second}");
        }
        assert_eq!(lead.after(1, begun + MAX_HEAD_START).left, 0);
        assert_eq!(
            (
                HeadStart::new(3, begun).after(2, begun).left,
                HeadStart::new(3, begun).after(0, begun).left
            ),
            (1, 0)
        );
    }

    use crate::Properties;

    fn table(fields: &[(&str, Value)]) -> Value {
        Value::Table(
            fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
        )
    }

    fn dead(queue: &str, more: &[Value]) -> Message {
        let keys = Value::List(vec!["my/key".into(), "copy".into()]);
        let last = table(&[
            ("queue", queue.into()),
            ("reason", "expired".into()),
            ("exchange", "ex".into()),
            ("routing-keys", keys),
            ("original-expiration", "300".into()),
        ]);
        let mut message = Message {
            properties: Some(Box::default()),
            destination: Destination::new("q.expired"),
            ..Message::new("body")
        };
        for (name, value) in
            [("tag", Value::I8(1)), (DEATH_HEADER, Value::List([&[last], more].concat()))]
        {
            message.headers.push(name, value);
        }
        message
            .with_header("x-delay", "700")
            .with_header("x-first-death-queue", "first")
            .with_header("x-last-death-queue", queue)
    }

    fn restored(mut message: Message) -> Message {
        restore(&mut message, "q");
        message
    }

    #[test]
    fn what_expired_is_as_it_was_published() {
        let message = restored(dead("q", &[]));
        let names: Vec<&str> = message.headers.iter().map(|header| header.name.as_str()).collect();
        assert_eq!(names, ["CC", "tag", "x-delay"]);
        assert_eq!(message.headers.get("CC"), Some(&Value::List(vec!["copy".into()])));
        assert_eq!(
            message.destination,
            Destination { exchange: "ex".to_owned(), address: "my/key".to_owned() }
        );
        let expiring = Properties { expiration: Some("300".to_owned()), ..Properties::default() };
        assert_eq!(message.properties.as_deref(), Some(&expiring));
        assert!(message.mark_lost);
    }

    #[test]
    fn a_routing_key_that_is_not_utf_8_is_told() {
        let mut message = dead("q", &[]);
        let Some(Value::List(deaths)) = message.headers.get(DEATH_HEADER).cloned() else {
            unreachable!()
        };
        let Value::Table(mut last) = deaths[0].clone() else { unreachable!() };
        let odd = || Value::Bytes(bytes::Bytes::from_static(b"\xff"));
        last.iter_mut()
            .filter(|(name, _)| name == "routing-keys")
            .for_each(|(_, keys)| *keys = Value::List(vec![odd()]));
        last.iter_mut()
            .filter(|(name, _)| name == "exchange")
            .for_each(|(_, exchange)| *exchange = odd());
        message.headers = Headers::from_iter([Header {
            name: DEATH_HEADER.to_owned(),
            value: Value::List(vec![Value::Table(last)]),
        }]);
        assert_eq!(restored(message).unreadable, ["the exchange", "the routing key"]);
    }

    #[test]
    fn deaths_before_that_stay() {
        let earlier = table(&[("queue", "first".into())]);
        let message = restored(dead("q", std::slice::from_ref(&earlier)));
        assert_eq!(message.headers.get(DEATH_HEADER), Some(&Value::List(vec![earlier])));
        assert_eq!(message.headers.text("x-first-death-queue"), Some("first"));
    }

    #[test]
    fn what_left_another_queue_last_stays_as_it_is() {
        for message in [
            dead("other", &[]),
            Message::new("none"),
            Message::new("odd").with_header(DEATH_HEADER, "x"),
        ] {
            assert_eq!(restored(message.clone()), message);
        }
    }
}
