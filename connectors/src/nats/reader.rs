//! The reader of a source: asks the server for messages while there is room, holds what is unsettled, gives it back at the end.

use std::sync::Arc;
use std::time::Duration;

use async_nats::{StatusCode, Subject};
use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep_until};
use tracing::{debug, warn};

use super::ack::{IN_PROGRESS, NAK, reply_with};
use super::buffer::DeliveryBuffer;
use super::config::Config;
use super::connection::{BrokerConnection, denied};
use super::consumer::Consumer;
use super::delivery::{delivery, sequence};
use super::fetch_budget::{EXPIRES, Request};
use super::quirks::delivery_connection::DeliveryConnection;
use super::quirks::unreadable_message::UnreadableSearch;
use crate::{ConnectorError, ErrorKind};

/// By then a request has ended, and an election is over (the followers of a leader that is gone wait up to nine seconds for it); else JetStream is not
/// there any more.
const SILENCE: Duration = Duration::from_secs(12);
/// Who wakes up so late stood still itself: what was said meanwhile is still to be read.
const OVERSLEPT: Duration = Duration::from_secs(1);
/// Between requests while the consumer has no leader.
const ELECTION: Duration = Duration::from_millis(250);
/// How long the end of a broken source may take to give back what it can.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Signs of life are not given more often than this, whatever the consumer's `ack_wait`.
const HOLD: Duration = Duration::from_millis(50);
/// After this many lines in a row that ended alone, brought nothing, and for no reason that was found, the source ends.
const MOST_LOST: u32 = 5;
/// How long little is asked for at once after a line ended on a message.
const CAREFUL: Duration = Duration::from_secs(60);

/// What the server says, after `Message Size`, where the next message does not fit into what is left of a request.
const TOO_LARGE: &str = "Exceeds MaxBytes";

/// What it says where a request brought all that it asked for.
const COMPLETED: &str = "Batch Completed";

/// The task between the server and the buffer.
pub(super) struct ReaderTask {
    config: Config,
    /// Where words on messages go. It outlives a line.
    connection: Arc<BrokerConnection>,
    buffer: Arc<DeliveryBuffer>,
    consumer: Consumer,
    complaints: mpsc::UnboundedReceiver<String>,
    incoming: DeliveryConnection,
    search: UnreadableSearch,
    /// Lines in a row that ended for no reason that was found.
    ended: u32,
    careful_until: Option<Instant>,
    /// Where requests go.
    next: Subject,
    hold: Interval,
    /// When the server last said anything good, or was asked for the first time after nothing had been wanted of it.
    heard: Instant,
    /// Nothing is open, and there is no room for more. A request that was given up and asked again at once does not come here: its silence goes on.
    idle: bool,
    /// What it said instead, and when to ask again.
    trouble: Option<(String, Instant)>,
}

impl ReaderTask {
    /// Starts the reader on a line; the receiver answers once it has ended and given everything back.
    pub(super) async fn start(
        config: Config,
        connection: Arc<BrokerConnection>,
        buffer: Arc<DeliveryBuffer>,
        consumer: Consumer,
        complaints: mpsc::UnboundedReceiver<String>,
    ) -> Result<oneshot::Receiver<Result<(), ConnectorError>>, ConnectorError> {
        let incoming = DeliveryConnection::open(&config).await?;
        let search = UnreadableSearch::new(Arc::clone(&connection), &consumer);
        let next = Subject::from(format!("$JS.API.CONSUMER.MSG.NEXT.{}.{}", consumer.stream, consumer.name));
        let mut hold = interval((consumer.ack_wait / 3).max(HOLD));
        hold.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (ended, careful_until, heard, idle, trouble) = (0, None, Instant::now(), true, None);
        let mut reader = ReaderTask {
            config,
            connection,
            buffer,
            consumer,
            complaints,
            incoming,
            search,
            ended,
            careful_until,
            next,
            hold,
            heard,
            idle,
            trouble,
        };
        let (done, closed) = oneshot::channel();
        tokio::spawn(async move {
            let result = match reader.run().await {
                Ok(()) => reader.give_back().await,
                Err(error) => {
                    reader.buffer.end(&error);
                    if !reader.connection.is_lost() {
                        let _ = tokio::time::timeout(LAST_WORDS, reader.give_back()).await;
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
            if self.careful_until.is_some_and(|until| Instant::now() >= until) {
                self.careful_until = None;
                self.buffer.be_careful(false);
            }
            if self.trouble.as_ref().is_none_or(|(_, until)| Instant::now() >= *until) {
                while !self.incoming.connection.is_lost()
                    && let Some(request) = self.buffer.ask()
                {
                    self.request(request).await?;
                }
                if self.buffer.outlook().1 == 0 {
                    // What it said against requests that nobody makes any more is no reason to end.
                    (self.idle, self.trouble) = (true, None);
                }
            }
            let (closing, asked, stale) = self.buffer.outlook();
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
                // On a line that is gone nothing is asked for; its end is about to be read.
                _ => stale.filter(|_| !self.incoming.connection.is_lost()).map_or(patience, |stale| stale.min(patience)),
            };
            tokio::select! {
                biased;
                () = self.connection.lost() => return Err(self.connection.error()),
                chunk = self.incoming.messages.next(&self.incoming.connection) => match chunk {
                    Some(chunk) => self.take(chunk)?,
                    None => self.incoming_ended().await?,
                },
                () = self.buffer.wake.notified() => {}
                _ = self.hold.tick() => hold(&self.connection, &self.buffer).await?,
                Some(complaint) = self.complaints.recv() => denied(&complaint).map_or(Ok(()), Err)?,
                Some(complaint) = self.incoming.complaints.recv() => denied(&complaint).map_or(Ok(()), Err)?,
                () = sleep_until(deadline), if asked > 0 || self.trouble.is_some() => {
                    let now = Instant::now();
                    if now > deadline + OVERSLEPT {
                        self.heard = now;
                    } else if !closing && now >= patience {
                        let why = self.trouble.take().map_or_else(|| "JetStream does not answer any more".to_owned(), |(why, _)| why);
                        return Err(self.connection.fail(ErrorKind::Disconnected, &why));
                    }
                }
            }
            if self.connection.is_lost() {
                return Err(self.connection.error());
            }
        }
    }

    async fn request(&mut self, Request { count, bytes }: Request) -> Result<(), ConnectorError> {
        let body = format!(r#"{{"batch":{count},"max_bytes":{bytes},"expires":{}}}"#, EXPIRES.as_nanos());
        let mut request = reply_with(self.next.clone(), &Bytes::from(body));
        request.reply = Some(self.incoming.inbox.clone());
        if std::mem::take(&mut self.idle) {
            self.heard = Instant::now();
        }
        // Where the line is gone, its messages end, and that is seen to.
        let _ = self.incoming.connection.send(request).await;
        Ok(())
    }

    /// The line is gone. Where the other connection to the same server lives, this is how a message ends that the client cannot read: it is fetched in
    /// another way, and the next line begins.
    async fn incoming_ended(&mut self) -> Result<(), ConnectorError> {
        let budget = self.buffer.nothing_comes();
        if self.buffer.outlook().0 {
            return Ok(());
        }
        let held = self.buffer.unsettled().iter().filter_map(|reply| sequence(reply)).collect();
        let (found, incoming) = {
            let (search, config) = (&mut self.search, &self.config);
            // The look comes last: by then the server has seen the end of the line before, and sends nothing more into it.
            let again = async {
                let incoming = DeliveryConnection::open(config).await?;
                Ok((search.run(&held, budget).await?, incoming))
            };
            tokio::pin!(again);
            loop {
                tokio::select! {
                    biased;
                    () = self.connection.lost() => return Err(self.connection.error()),
                    again = &mut again => break again?,
                    _ = self.hold.tick() => hold(&self.connection, &self.buffer).await?,
                    Some(complaint) = self.complaints.recv() => denied(&complaint).map_or(Ok(()), Err)?,
                }
            }
        };
        let Consumer { stream, name, .. } = &self.consumer;
        let messages = found.deliveries.len();
        if messages > 0 || found.held {
            warn!(
                stream,
                consumer = name,
                messages,
                "the client library ended a connection on a message that it cannot read, fetched such messages"
            );
            self.ended = 0;
            self.careful_until = Some(Instant::now() + CAREFUL);
            self.buffer.be_careful(true);
        } else {
            self.ended += 1;
            if self.ended >= MOST_LOST {
                return Err(self.incoming.connection.error());
            }
            warn!(
                stream,
                consumer = name,
                why = self.incoming.connection.error().message,
                "a connection for messages was lost alone, opened another"
            );
        }
        self.buffer.put(found.deliveries, 0);
        self.incoming = incoming;
        (self.heard, self.trouble) = (Instant::now(), None);
        Ok(())
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
        if !deliveries.is_empty() {
            self.ended = 0;
        }
        self.buffer.put(deliveries, ended);
        Ok(())
    }

    fn well(&mut self) {
        self.heard = Instant::now();
        self.trouble = None;
    }

    /// A word of the server about a request: how many messages of it will not come.
    fn status(&mut self, message: &async_nats::Message) -> Result<usize, ConnectorError> {
        let said = message.description.as_deref().unwrap_or_default();
        let number = |name: &str| message.headers.as_ref()?.get(name)?.as_str().parse().ok();
        let open = number("Nats-Pending-Messages");
        // Servers before 2.9.25 do not say.
        let bytes = number("Nats-Pending-Bytes").unwrap_or(0);
        let Consumer { stream, name, .. } = &self.consumer;
        if said.eq_ignore_ascii_case("Consumer Deleted") {
            return Err(self.connection.fail(ErrorKind::Missing, &format!("the consumer `{name}` of `{stream}` was deleted")));
        }
        match message.status {
            Some(StatusCode::IDLE_HEARTBEAT) => {
                self.well();
                return Ok(0);
            }
            Some(StatusCode::TIMEOUT | StatusCode::NOT_FOUND) => self.well(),
            _ if said.ends_with(TOO_LARGE) => {
                self.well();
                self.buffer.too_large(bytes);
            }
            // It is said of requests that have a bound in bytes; all that was asked for has come.
            _ if said == COMPLETED => {
                self.well();
                return Ok(open.unwrap_or(0));
            }
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

    /// Gives back what is unsettled, and waits until the server has read this and every ack before it.
    async fn give_back(&self) -> Result<(), ConnectorError> {
        for reply in self.buffer.unsettled() {
            self.connection.send(reply_with(reply, &NAK)).await?;
        }
        // The server reads a connection in order: its answer to this comes after all that was sent before.
        let barrier = format!("$JS.API.CONSUMER.INFO.{}.{}", self.consumer.stream, self.consumer.name);
        let answer = self.connection.ask(self.connection.client.request(barrier, Bytes::new())).await?;
        answer
            .map(drop)
            .map_err(|error| self.connection.fail(ErrorKind::Disconnected, "the server did not confirm the last acks").because(error))
    }
}

/// Shows the server a sign of life for all that is unsettled.
async fn hold(connection: &BrokerConnection, buffer: &DeliveryBuffer) -> Result<(), ConnectorError> {
    for reply in buffer.unsettled() {
        connection.send(reply_with(reply, &IN_PROGRESS)).await?;
    }
    Ok(())
}
