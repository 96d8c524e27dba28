//! The reader of a source: requests messages while there is room, extends the `ack_wait` of
//! unsettled messages, and returns them at the end.

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
use super::fetch_budget::{REQUEST_TTL, Request};
use super::quirks::delivery_connection::DeliveryConnection;
use super::quirks::lost_deliveries::NAK_WITH_DELAY;
use super::quirks::unreadable_message::UnreadableSearch;
use crate::{ConnectorError, ErrorKind};

/// After this time without an answer JetStream is gone: any request has ended, and any election is
/// over (followers of a lost leader wait up to 9 s).
const SILENCE_TIMEOUT: Duration = Duration::from_secs(12);
/// After such a late wake-up this process itself was suspended: the server's answers are still
/// unread.
const SUSPENSION_THRESHOLD: Duration = Duration::from_secs(1);
/// The pause between requests while the consumer has no leader.
const ELECTION_RETRY_INTERVAL: Duration = Duration::from_millis(250);
/// The longest time to return messages after an error.
const RETURN_TIMEOUT: Duration = Duration::from_secs(1);
/// The shortest interval of in-progress acks, whatever the consumer's `ack_wait`.
const MIN_KEEP_ALIVE_INTERVAL: Duration = Duration::from_millis(50);
/// The number of delivery connections in a row that may end alone, without a message and without a
/// known reason, before the source ends.
const MAX_LOST_CONNECTIONS: u32 = 5;
/// The time that requests stay small after a message ended a delivery connection.
const CAUTION_TTL: Duration = Duration::from_secs(60);

/// The end of the server's status text (after `Message Size`) if the next message exceeds the
/// remaining bytes of a request.
const TOO_LARGE_STATUS: &str = "Exceeds MaxBytes";

/// The status text of a request that delivered everything it asked for.
const COMPLETED_STATUS: &str = "Batch Completed";

/// The task between the server and the buffer.
pub(super) struct ReaderTask {
    config: Config,
    /// The connection for acks, which outlives a delivery connection.
    connection: Arc<BrokerConnection>,
    buffer: Arc<DeliveryBuffer>,
    consumer: Consumer,
    server_errors: mpsc::UnboundedReceiver<String>,
    incoming: DeliveryConnection,
    search: UnreadableSearch,
    /// The number of delivery connections in a row that ended without a known reason.
    ended: u32,
    cautious_until: Option<Instant>,
    /// The subject of fetch requests.
    next: Subject,
    keep_alive: Interval,
    /// When the server last answered well, or got its first request after an idle time.
    heard: Instant,
    /// No request is open, and there is no room for more. A request that expired and is repeated at
    /// once does not count as idle: the server is still silent.
    idle: bool,
    /// The server's error, and when to request again.
    trouble: Option<(String, Instant)>,
}

impl ReaderTask {
    /// Opens a delivery connection and starts the reader. The receiver answers once the reader has
    /// ended and returned everything.
    pub(super) async fn start(
        config: Config,
        connection: Arc<BrokerConnection>,
        buffer: Arc<DeliveryBuffer>,
        consumer: Consumer,
        server_errors: mpsc::UnboundedReceiver<String>,
    ) -> Result<oneshot::Receiver<Result<(), ConnectorError>>, ConnectorError> {
        let incoming = DeliveryConnection::open(&config).await?;
        let search = UnreadableSearch::new(Arc::clone(&connection), &consumer);
        let next =
            connection.api(&format!("CONSUMER.MSG.NEXT.{}.{}", consumer.stream, consumer.name));
        let mut keep_alive = interval((consumer.ack_wait / 3).max(MIN_KEEP_ALIVE_INTERVAL));
        keep_alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (ended, cautious_until, heard, idle, trouble) = (0, None, Instant::now(), true, None);
        let mut reader = ReaderTask {
            config,
            connection,
            buffer,
            consumer,
            server_errors,
            incoming,
            search,
            ended,
            cautious_until,
            next,
            keep_alive,
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
                        let _ = tokio::time::timeout(RETURN_TIMEOUT, reader.give_back()).await;
                    }
                    Err(error)
                }
            };
            // After a drop nobody waits.
            let _ = done.send(result);
        });
        Ok(closed)
    }

    /// Runs until the source closes and every open request has ended.
    async fn run(&mut self) -> Result<(), ConnectorError> {
        let mut closing_since = None;
        loop {
            if self.cautious_until.is_some_and(|until| Instant::now() >= until) {
                self.cautious_until = None;
                self.buffer.set_cautious(false);
            }
            if self.trouble.as_ref().is_none_or(|(_, until)| Instant::now() >= *until) {
                while !self.incoming.connection.is_lost()
                    && let Some(request) = self.buffer.ask()
                {
                    self.request(request).await?;
                }
                if self.buffer.status().1 == 0 {
                    // An error about requests that nobody repeats is no reason to end.
                    (self.idle, self.trouble) = (true, None);
                }
            }
            let (closing, asked, stale) = self.buffer.status();
            if closing {
                let since = *closing_since.get_or_insert_with(Instant::now);
                if asked == 0 || since.elapsed() > REQUEST_TTL * 2 {
                    return Ok(());
                }
            }
            let silent_at = self.heard + SILENCE_TIMEOUT;
            let deadline = match &self.trouble {
                _ if closing => Instant::now() + REQUEST_TTL,
                Some((_, until)) if *until > Instant::now() => *until,
                // Nothing is requested on a lost connection; its end is about to be read.
                _ => stale
                    .filter(|_| !self.incoming.connection.is_lost())
                    .map_or(silent_at, |stale| stale.min(silent_at)),
            };
            tokio::select! {
                biased;
                () = self.connection.lost() => return Err(self.connection.error()),
                chunk = self.incoming.messages.next(&self.incoming.connection) => match chunk {
                    Some(chunk) => self.take(chunk)?,
                    None => self.incoming_ended().await?,
                },
                () = self.buffer.wake.notified() => {}
                _ = self.keep_alive.tick() => keep_alive(&self.connection, &self.buffer).await?,
                Some(complaint) = self.server_errors.recv() => denied(&complaint).map_or(Ok(()), Err)?,
                Some(complaint) = self.incoming.server_errors.recv() => denied(&complaint).map_or(Ok(()), Err)?,
                () = sleep_until(deadline), if asked > 0 || self.trouble.is_some() => {
                    let now = Instant::now();
                    if now > deadline + SUSPENSION_THRESHOLD {
                        self.heard = now;
                    } else if !closing && now >= silent_at {
                        let why = self.trouble.take().map_or_else(|| "JetStream does not answer any more".to_owned(), |(why, _)| why);
                        let Consumer { stream, name, .. } = &self.consumer;
                        let hint = format!("look at `nats consumer info {stream} {name}`");
                        return Err(self.connection.fail(ErrorKind::Disconnected, &why).hint(hint));
                    }
                }
            }
            if self.connection.is_lost() {
                return Err(self.connection.error());
            }
        }
    }

    async fn request(&mut self, Request { count, bytes }: Request) -> Result<(), ConnectorError> {
        let body = format!(
            r#"{{"batch":{count},"max_bytes":{bytes},"expires":{}}}"#,
            REQUEST_TTL.as_nanos()
        );
        let mut request = reply_with(self.next.clone(), &Bytes::from(body));
        request.reply = Some(self.incoming.inbox.clone());
        if std::mem::take(&mut self.idle) {
            self.heard = Instant::now();
        }
        // If the connection is lost, its messages end, and the reader handles that.
        let _ = self.incoming.connection.send(request).await;
        Ok(())
    }

    /// Handles the end of the delivery connection. If the other connection to the same server
    /// lives, a message that async-nats cannot parse may be the cause: fetches such messages in
    /// another way, naks the messages that were lost with the connection, and opens the next one.
    async fn incoming_ended(&mut self) -> Result<(), ConnectorError> {
        let (room, asked) = self.buffer.cancel_requests();
        if self.buffer.status().0 {
            return Ok(());
        }
        let held = self.buffer.unsettled().iter().filter_map(|reply| sequence(reply)).collect();
        let (found, incoming) = {
            let (search, config) = (&mut self.search, &self.config);
            // The search comes last: by then the server has noticed the end of the old connection,
            // and sends nothing more to it.
            let again = async {
                let incoming = DeliveryConnection::open(config).await?;
                Ok((search.run(&held, room, asked).await?, incoming))
            };
            tokio::pin!(again);
            loop {
                tokio::select! {
                    biased;
                    () = self.connection.lost() => return Err(self.connection.error()),
                    again = &mut again => break again?,
                    _ = self.keep_alive.tick() => keep_alive(&self.connection, &self.buffer).await?,
                    Some(complaint) = self.server_errors.recv() => denied(&complaint).map_or(Ok(()), Err)?,
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
                "the client library ended a connection because of messages that it cannot parse; they were fetched in another way"
            );
            self.ended = 0;
            self.cautious_until = Some(Instant::now() + CAUTION_TTL);
            self.buffer.set_cautious(true);
        } else {
            self.ended += 1;
            if self.ended >= MAX_LOST_CONNECTIONS {
                return Err(self.incoming.connection.error());
            }
            warn!(
                stream,
                consumer = name,
                why = self.incoming.connection.error().message,
                "a delivery connection was lost alone, opened another"
            );
        }
        self.connection
            .send_all(found.lost.into_iter().map(|reply| reply_with(reply, &NAK_WITH_DELAY)))
            .await?;
        self.buffer.put(found.deliveries, 0);
        self.incoming = incoming;
        (self.heard, self.trouble) = (Instant::now(), None);
        Ok(())
    }

    /// Takes over messages, and the ends of requests.
    fn take(&mut self, chunk: Vec<async_nats::Message>) -> Result<(), ConnectorError> {
        let (mut deliveries, mut ended) = (Vec::with_capacity(chunk.len()), 0_usize);
        for message in chunk {
            match delivery(message) {
                Ok(delivery) => {
                    self.mark_alive();
                    self.search.came(&delivery);
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

    fn mark_alive(&mut self) {
        self.heard = Instant::now();
        self.trouble = None;
    }

    /// Handles a status message about a request; returns the number of its messages that will not
    /// come.
    fn status(&mut self, message: &async_nats::Message) -> Result<usize, ConnectorError> {
        let said = message.description.as_deref().unwrap_or_default();
        let number = |name: &str| message.headers.as_ref()?.get(name)?.as_str().parse().ok();
        let open = number("Nats-Pending-Messages");
        // Servers before 2.9.25 do not send it.
        let bytes = number("Nats-Pending-Bytes").unwrap_or(0);
        let Consumer { stream, name, .. } = &self.consumer;
        if said.eq_ignore_ascii_case("Consumer Deleted") {
            return Err(self.connection.fail(
                ErrorKind::Missing,
                &format!("the consumer `{name}` of `{stream}` was deleted"),
            ));
        }
        match message.status {
            Some(StatusCode::IDLE_HEARTBEAT) => {
                self.mark_alive();
                return Ok(0);
            }
            Some(StatusCode::TIMEOUT | StatusCode::NOT_FOUND) => self.mark_alive(),
            _ if said.ends_with(TOO_LARGE_STATUS) => {
                self.mark_alive();
                self.buffer.too_large(bytes);
            }
            // Sent for requests with a bound in bytes when everything requested has come.
            _ if said == COMPLETED_STATUS => {
                self.mark_alive();
                return Ok(open.unwrap_or(0));
            }
            // An election, a server that shuts down, too many requests: may pass. Unsettled
            // messages stay here meanwhile.
            status => {
                let code = status.map(|status| status.as_u16()).unwrap_or_default();
                let why =
                    format!("the consumer `{name}` of `{stream}` does not deliver: {code} {said}");
                debug!(
                    stream,
                    consumer = name,
                    code,
                    said,
                    "a request for messages was refused, requesting again"
                );
                self.trouble = Some((why, Instant::now() + ELECTION_RETRY_INTERVAL));
            }
        }
        // All of them, if the server does not say how many.
        Ok(open.unwrap_or(usize::MAX))
    }

    /// Naks all unsettled messages, and waits until the server has read the naks and all earlier
    /// acks.
    async fn give_back(&self) -> Result<(), ConnectorError> {
        self.connection
            .send_all(self.buffer.unsettled().into_iter().map(|reply| reply_with(reply, &NAK)))
            .await?;
        // The server reads a connection in order: it answers this after everything sent before.
        let barrier = self
            .connection
            .api(&format!("CONSUMER.INFO.{}.{}", self.consumer.stream, self.consumer.name));
        let answer =
            self.connection.ask(self.connection.client.request(barrier, Bytes::new())).await?;
        answer.map(drop).map_err(|error| {
            self.connection
                .fail(ErrorKind::Disconnected, "the server did not confirm the last acks")
                .because(error)
        })
    }
}

/// Sends in-progress acks for all unsettled messages.
async fn keep_alive(
    connection: &BrokerConnection,
    buffer: &DeliveryBuffer,
) -> Result<(), ConnectorError> {
    connection
        .send_all(buffer.unsettled().into_iter().map(|reply| reply_with(reply, &IN_PROGRESS)))
        .await
}
