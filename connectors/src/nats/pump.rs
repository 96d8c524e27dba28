//! The pump of a source: asks the server for messages while there is room, holds what is unsettled, gives it back at the end.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_nats::{StatusCode, Subject, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::ReadyChunks;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep_until};

use super::consumer::Consumer;
use super::headers;
use super::link::{Link, denied};
use super::source::{IN_PROGRESS, NAK, answer};
use crate::{Batch, BatchId, ConnectorError, Destination, ErrorKind, Message, Position, SourceOptions};

/// How long one request for messages stands at the server. Short, because closing waits for its end: a request cannot be taken back, and what the
/// server sends to a reader that is gone is stuck until `ack_wait` is over.
const EXPIRES: Duration = Duration::from_secs(1);
/// A request has ended, or JetStream is not there any more.
const SILENCE: Duration = Duration::from_secs(6);
/// The most messages of one request.
const REQUEST: usize = 4096;
/// The most messages that are taken over at once.
const CHUNK: usize = 512;

/// What the source and its pump share.
pub(super) struct Shared {
    state: Mutex<State>,
    /// For `recv`: something arrived, or the end.
    arrived: Notify,
    /// For the pump: there is room, or it shall close.
    wake: Notify,
    max_unsettled: usize,
}

#[derive(Default)]
struct State {
    buffer: VecDeque<Delivery>,
    batches: HashMap<BatchId, Vec<Subject>>,
    last: u64,
    /// Delivered and not settled: in `buffer` and in `batches`.
    unsettled: usize,
    /// Asked for and not delivered.
    asked: usize,
    paused: bool,
    closing: bool,
    ended: Option<(ErrorKind, String)>,
}

struct Delivery {
    message: Message,
    reply: Subject,
}

impl Shared {
    pub(super) fn new(options: &SourceOptions) -> Self {
        Shared { state: Mutex::default(), arrived: Notify::new(), wake: Notify::new(), max_unsettled: options.max_unsettled }
    }

    /// A batch of what is there, within the bounds.
    pub(super) fn take(&self, count: usize, bytes: usize) -> Result<Option<Batch>, ConnectorError> {
        let mut state = self.state.lock();
        if let Some((kind, why)) = &state.ended {
            return Err(ConnectorError::new(*kind, why.clone()));
        }
        let (mut messages, mut replies, mut size) = (Vec::new(), Vec::new(), 0);
        while messages.len() < count.max(1) {
            let Some(next) = state.buffer.front() else { break };
            size += next.message.body.len();
            if size > bytes && !messages.is_empty() {
                break;
            }
            let Some(Delivery { message, reply }) = state.buffer.pop_front() else { break };
            messages.push(message);
            replies.push(reply);
        }
        if messages.is_empty() {
            return Ok(None);
        }
        state.last += 1;
        let id = BatchId(state.last);
        state.batches.insert(id, replies);
        Ok(Some(Batch { id, messages }))
    }

    /// Where to answer for the messages of a batch that is settled now.
    pub(super) fn settle(&self, batch: BatchId) -> Vec<Subject> {
        let mut state = self.state.lock();
        let replies = state.batches.remove(&batch).unwrap_or_default();
        state.unsettled -= replies.len();
        replies
    }

    pub(super) async fn arrived(&self) {
        self.arrived.notified().await;
    }

    pub(super) fn wake_pump(&self) {
        self.wake.notify_one();
    }

    pub(super) fn pause(&self, paused: bool) {
        self.state.lock().paused = paused;
        self.wake.notify_one();
    }

    pub(super) fn close(&self) {
        self.state.lock().closing = true;
        self.wake.notify_one();
    }

    /// How many messages to ask for now. Small requests are saved up, unless nothing is asked for.
    fn ask(&self) -> Option<usize> {
        let mut state = self.state.lock();
        if state.paused || state.closing {
            return None;
        }
        let room = self.max_unsettled.saturating_sub(state.unsettled + state.asked).min(REQUEST);
        let worth = state.asked == 0 || room >= REQUEST.min(self.max_unsettled / 4);
        if room == 0 || !worth {
            return None;
        }
        state.asked += room;
        Some(room)
    }

    fn end(&self, error: &ConnectorError) {
        self.state.lock().ended = Some((error.kind, error.message.clone()));
        self.arrived.notify_one();
    }
}

pub(super) struct Pump {
    link: Arc<Link>,
    shared: Arc<Shared>,
    consumer: Consumer,
    complaints: mpsc::UnboundedReceiver<String>,
    inbox: Subject,
    /// Where requests go.
    next: Subject,
    messages: ReadyChunks<Subscriber>,
    hold: Interval,
    /// When the server last said anything on the inbox, or was asked while nothing was open.
    heard: Instant,
}

impl Pump {
    /// Starts the pump; the receiver answers once it has ended and given everything back.
    pub(super) async fn start(
        link: Arc<Link>,
        shared: Arc<Shared>,
        consumer: Consumer,
        complaints: mpsc::UnboundedReceiver<String>,
    ) -> Result<oneshot::Receiver<Result<(), ConnectorError>>, ConnectorError> {
        let inbox = Subject::from(link.client.new_inbox());
        let subscriber = link.ask(link.client.subscribe(inbox.clone())).await?.map_err(|error| link.error().because(error))?;
        let next = Subject::from(format!("$JS.API.CONSUMER.MSG.NEXT.{}.{}", consumer.stream, consumer.name));
        let mut hold = interval(consumer.ack_wait / 3);
        hold.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let messages = subscriber.ready_chunks(CHUNK);
        let mut pump = Pump { link, shared, consumer, complaints, inbox, next, messages, hold, heard: Instant::now() };
        let (done, closed) = oneshot::channel();
        tokio::spawn(async move {
            let mut result = pump.run().await;
            if result.is_ok() {
                result = pump.give_back().await;
            }
            if let Err(error) = &result {
                pump.shared.end(error);
            }
            // Nobody waits after a drop.
            let _ = done.send(result);
        });
        Ok(closed)
    }

    /// Works until the source closes, and every request of ours has ended.
    async fn run(&mut self) -> Result<(), ConnectorError> {
        let mut closing_since = None;
        loop {
            while let Some(count) = self.shared.ask() {
                self.request(count).await?;
            }
            let (closing, asked) = {
                let state = self.shared.state.lock();
                (state.closing, state.asked)
            };
            if closing {
                let since = *closing_since.get_or_insert_with(Instant::now);
                if asked == 0 || since.elapsed() > EXPIRES * 2 {
                    return Ok(());
                }
            }
            let deadline = if closing { Instant::now() + EXPIRES } else { self.heard + SILENCE };
            tokio::select! {
                biased;
                () = self.link.lost() => return Err(self.link.error()),
                chunk = self.messages.next() => self.take(chunk.ok_or_else(|| self.link.error())?)?,
                () = self.shared.wake.notified() => {}
                _ = self.hold.tick() => self.hold().await?,
                Some(complaint) = self.complaints.recv() => denied(&complaint).map_or(Ok(()), Err)?,
                () = sleep_until(deadline), if asked > 0 => {
                    if !closing {
                        return Err(self.link.fail(ErrorKind::Disconnected, "JetStream does not answer any more"));
                    }
                }
            }
            if self.link.is_lost() {
                return Err(self.link.error());
            }
        }
    }

    async fn request(&mut self, count: usize) -> Result<(), ConnectorError> {
        let body = format!(r#"{{"batch":{count},"expires":{}}}"#, EXPIRES.as_nanos());
        let mut request = answer(self.next.clone(), &Bytes::from(body));
        request.reply = Some(self.inbox.clone());
        self.heard = Instant::now();
        self.link.send(request).await
    }

    /// Takes over what arrived: messages, and the ends of requests.
    fn take(&mut self, chunk: Vec<async_nats::Message>) -> Result<(), ConnectorError> {
        self.heard = Instant::now();
        let (mut deliveries, mut ended) = (Vec::with_capacity(chunk.len()), 0);
        for message in chunk {
            match delivery(message) {
                Ok(delivery) => deliveries.push(delivery),
                Err(status) => ended += self.status(&status)?,
            }
        }
        let mut state = self.shared.state.lock();
        state.asked = state.asked.saturating_sub(deliveries.len().saturating_add(ended));
        state.unsettled += deliveries.len();
        state.buffer.extend(deliveries);
        drop(state);
        self.shared.arrived.notify_one();
        Ok(())
    }

    /// A word of the server about a request: how many messages of it will not come, or that there is no going on.
    fn status(&self, message: &async_nats::Message) -> Result<usize, ConnectorError> {
        let said = message.description.as_deref().unwrap_or_default();
        let open =
            message.headers.as_ref().and_then(|headers| headers.get("Nats-Pending-Messages")).and_then(|open| open.as_str().parse().ok());
        match message.status {
            Some(StatusCode::IDLE_HEARTBEAT) => Ok(0),
            // All of them, where an old server does not say how many.
            Some(StatusCode::TIMEOUT | StatusCode::NOT_FOUND) => Ok(open.unwrap_or(usize::MAX)),
            Some(StatusCode::NO_RESPONDERS) => {
                let what = format!("nobody serves the consumer `{}` of `{}`", self.consumer.name, self.consumer.stream);
                Err(self.link.fail(ErrorKind::Disconnected, &what))
            }
            _ if said.eq_ignore_ascii_case("Consumer Deleted") => {
                let what = format!("the consumer `{}` of `{}` was deleted", self.consumer.name, self.consumer.stream);
                Err(self.link.fail(ErrorKind::Missing, &what))
            }
            // A new leader, a server that shuts down, too many requests: another link after a pause is the way.
            status => {
                let code = status.map(|status| status.as_u16()).unwrap_or_default();
                Err(self.link.fail(ErrorKind::Disconnected, &format!("the server ended a request: {code} {said}")))
            }
        }
    }

    /// Shows the server a sign of life for all that is unsettled.
    async fn hold(&self) -> Result<(), ConnectorError> {
        for reply in self.unsettled() {
            self.link.send(answer(reply, &IN_PROGRESS)).await?;
        }
        Ok(())
    }

    fn unsettled(&self) -> Vec<Subject> {
        let state = self.shared.state.lock();
        state.batches.values().flatten().chain(state.buffer.iter().map(|delivery| &delivery.reply)).cloned().collect()
    }

    /// Gives back what is unsettled, and waits until the server has read this and every ack before it.
    async fn give_back(&self) -> Result<(), ConnectorError> {
        for reply in self.unsettled() {
            self.link.send(answer(reply, &NAK)).await?;
        }
        // The server reads a connection in order: its answer to this comes after all that was sent before.
        let barrier = format!("$JS.API.CONSUMER.INFO.{}.{}", self.consumer.stream, self.consumer.name);
        let answer = self.link.ask(self.link.client.request(barrier, Bytes::new())).await?;
        answer.map(drop).map_err(|error| self.link.fail(ErrorKind::Disconnected, "the server did not confirm the last acks").because(error))
    }
}

/// The message that was delivered, or what it is instead: a status.
fn delivery(message: async_nats::Message) -> Result<Delivery, Box<async_nats::Message>> {
    let Some(info) = message.reply.as_ref().and_then(|reply| Info::parse(reply)) else { return Err(Box::new(message)) };
    let async_nats::Message { subject, reply: Some(reply), payload, headers, .. } = message else { return Err(Box::new(message)) };
    let message = Message {
        body: payload,
        has_body: true,
        headers: headers::from_nats(headers),
        destination: Destination::new(subject.into_string()),
        position: Some(Position { log: info.stream, partition: 0, offset: info.sequence }),
        timestamp_ms: Some(info.timestamp_ms),
        redelivered: info.delivered > 1,
        ..Message::default()
    };
    Ok(Delivery { message, reply })
}

/// What the reply subject of a delivered message says.
#[derive(Debug, PartialEq)]
struct Info {
    stream: String,
    delivered: u64,
    sequence: u64,
    timestamp_ms: i64,
}

impl Info {
    /// `$JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time, ns>.<pending>`; newer servers put a domain and an account hash in
    /// front of the stream, and may add tokens at the end.
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
        Some(Info { stream, delivered, sequence, timestamp_ms: nanos / 1_000_000 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reply_subjects_of_both_kinds_are_read() {
        let info = Info { stream: "S".to_owned(), delivered: 2, sequence: 7, timestamp_ms: 1_700_000_000_123 };
        assert_eq!(Info::parse("$JS.ACK.S.C.2.7.9.1700000000123456789.4"), Some(info));
        let info = Info::parse("$JS.ACK._.HASH.S.C.1.7.9.1700000000123456789.4.rnd");
        assert_eq!(info.map(|info| (info.stream, info.delivered, info.sequence)), Some(("S".to_owned(), 1, 7)));
        for other in ["_INBOX.x", "$JS.ACK.S", "$JS.ACK.S.C.x.7.9.17.4", ""] {
            assert_eq!(Info::parse(other), None);
        }
    }
}
