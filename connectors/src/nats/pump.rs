//! The pump of a source: asks the server for messages while there is room, holds what is unsettled, gives it back at the end.

use std::sync::Arc;
use std::time::Duration;

use async_nats::{StatusCode, Subject, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::ReadyChunks;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep_until};
use tracing::debug;

use super::consumer::Consumer;
use super::delivery::delivery;
use super::link::{Link, denied};
use super::shelf::Shelf;
use super::source::{IN_PROGRESS, NAK, answer};
use crate::{ConnectorError, ErrorKind};

/// How long one request for messages stands at the server. Short, because closing waits for its end: a request cannot be taken back, and what the
/// server sends to a reader that is gone is stuck until `ack_wait` is over.
const EXPIRES: Duration = Duration::from_secs(1);
/// By then a request has ended, and an election is over; else JetStream is not there any more.
const SILENCE: Duration = Duration::from_secs(6);
/// Between requests while the consumer has no leader.
const ELECTION: Duration = Duration::from_millis(250);
/// How long the end of a broken source may take to give back what it can.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Signs of life are not given more often than this, whatever the consumer's `ack_wait`.
const HOLD: Duration = Duration::from_millis(50);
/// The most messages that are taken over at once.
const CHUNK: usize = 512;

/// The task between the server and the shelf.
pub(super) struct Pump {
    link: Arc<Link>,
    shelf: Arc<Shelf>,
    consumer: Consumer,
    complaints: mpsc::UnboundedReceiver<String>,
    inbox: Subject,
    /// Where requests go.
    next: Subject,
    messages: ReadyChunks<Subscriber>,
    hold: Interval,
    /// When the server last said anything good, or was asked while nothing was open.
    heard: Instant,
    /// What it said instead, and when to ask again.
    trouble: Option<(String, Instant)>,
}

impl Pump {
    /// Starts the pump; the receiver answers once it has ended and given everything back.
    pub(super) async fn start(
        link: Arc<Link>,
        shelf: Arc<Shelf>,
        consumer: Consumer,
        complaints: mpsc::UnboundedReceiver<String>,
    ) -> Result<oneshot::Receiver<Result<(), ConnectorError>>, ConnectorError> {
        let inbox = Subject::from(link.client.new_inbox());
        let subscriber = link.ask(link.client.subscribe(inbox.clone())).await?.map_err(|error| link.error().because(error))?;
        let next = Subject::from(format!("$JS.API.CONSUMER.MSG.NEXT.{}.{}", consumer.stream, consumer.name));
        let mut hold = interval((consumer.ack_wait / 3).max(HOLD));
        hold.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let messages = subscriber.ready_chunks(CHUNK);
        let mut pump = Pump { link, shelf, consumer, complaints, inbox, next, messages, hold, heard: Instant::now(), trouble: None };
        let (done, closed) = oneshot::channel();
        tokio::spawn(async move {
            let result = match pump.run().await {
                Ok(()) => pump.give_back().await,
                Err(error) => {
                    pump.shelf.end(&error);
                    if !pump.link.is_lost() {
                        let _ = tokio::time::timeout(LAST_WORDS, pump.give_back()).await;
                    }
                    Err(error)
                }
            };
            // Nobody waits after a drop.
            let _ = done.send(result);
        });
        Ok(closed)
    }

    /// Works until the source closes, and every request of ours has ended.
    async fn run(&mut self) -> Result<(), ConnectorError> {
        let mut closing_since = None;
        loop {
            if self.trouble.as_ref().is_none_or(|(_, until)| Instant::now() >= *until) {
                while let Some(count) = self.shelf.ask() {
                    self.request(count).await?;
                }
            }
            let (closing, asked) = self.shelf.outlook();
            if closing {
                let since = *closing_since.get_or_insert_with(Instant::now);
                if asked == 0 || since.elapsed() > EXPIRES * 2 {
                    return Ok(());
                }
            }
            let patience = self.heard + SILENCE;
            let deadline = match &self.trouble {
                _ if closing => Instant::now() + EXPIRES,
                Some((_, until)) if *until > Instant::now() => *until,
                _ => patience,
            };
            tokio::select! {
                biased;
                () = self.link.lost() => return Err(self.link.error()),
                chunk = self.messages.next() => self.take(chunk.ok_or_else(|| self.link.error())?)?,
                () = self.shelf.wake.notified() => {}
                _ = self.hold.tick() => self.hold().await?,
                Some(complaint) = self.complaints.recv() => denied(&complaint).map_or(Ok(()), Err)?,
                () = sleep_until(deadline), if asked > 0 || self.trouble.is_some() => {
                    if !closing && Instant::now() >= patience {
                        let why = self.trouble.take().map_or_else(|| "JetStream does not answer any more".to_owned(), |(why, _)| why);
                        return Err(self.link.fail(ErrorKind::Disconnected, &why));
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
        if self.trouble.is_none() {
            self.heard = Instant::now();
        }
        self.link.send(request).await
    }

    /// Takes over what arrived: messages, and the ends of requests.
    fn take(&mut self, chunk: Vec<async_nats::Message>) -> Result<(), ConnectorError> {
        let (mut deliveries, mut ended) = (Vec::with_capacity(chunk.len()), 0_usize);
        for message in chunk {
            match delivery(message) {
                Ok(delivery) => {
                    self.well();
                    deliveries.push(delivery);
                }
                Err(status) => ended = ended.saturating_add(self.status(&status)?),
            }
        }
        self.shelf.put(deliveries, ended);
        Ok(())
    }

    fn well(&mut self) {
        self.heard = Instant::now();
        self.trouble = None;
    }

    /// A word of the server about a request: how many messages of it will not come.
    fn status(&mut self, message: &async_nats::Message) -> Result<usize, ConnectorError> {
        let said = message.description.as_deref().unwrap_or_default();
        let open =
            message.headers.as_ref().and_then(|headers| headers.get("Nats-Pending-Messages")).and_then(|open| open.as_str().parse().ok());
        let Consumer { stream, name, .. } = &self.consumer;
        if said.eq_ignore_ascii_case("Consumer Deleted") {
            return Err(self.link.fail(ErrorKind::Missing, &format!("the consumer `{name}` of `{stream}` was deleted")));
        }
        match message.status {
            Some(StatusCode::IDLE_HEARTBEAT) => {
                self.well();
                return Ok(0);
            }
            Some(StatusCode::TIMEOUT | StatusCode::NOT_FOUND) => self.well(),
            // An election, a server that shuts down, too many requests: it may pass, and what is unsettled stays with us meanwhile.
            status => {
                let code = status.map(|status| status.as_u16()).unwrap_or_default();
                let why = format!("the consumer `{name}` of `{stream}` does not deliver: {code} {said}");
                debug!(stream, consumer = name, code, said, "request for messages was refused, will ask again");
                self.trouble = Some((why, Instant::now() + ELECTION));
            }
        }
        // All of them, where the server does not say how many.
        Ok(open.unwrap_or(usize::MAX))
    }

    /// Shows the server a sign of life for all that is unsettled.
    async fn hold(&self) -> Result<(), ConnectorError> {
        for reply in self.shelf.unsettled() {
            self.link.send(answer(reply, &IN_PROGRESS)).await?;
        }
        Ok(())
    }

    /// Gives back what is unsettled, and waits until the server has read this and every ack before it.
    async fn give_back(&self) -> Result<(), ConnectorError> {
        for reply in self.shelf.unsettled() {
            self.link.send(answer(reply, &NAK)).await?;
        }
        // The server reads a connection in order: its answer to this comes after all that was sent before.
        let barrier = format!("$JS.API.CONSUMER.INFO.{}.{}", self.consumer.stream, self.consumer.name);
        let answer = self.link.ask(self.link.client.request(barrier, Bytes::new())).await?;
        answer.map(drop).map_err(|error| self.link.fail(ErrorKind::Disconnected, "the server did not confirm the last acks").because(error))
    }
}
