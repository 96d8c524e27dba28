//! The writer of a sink: the thread that polls the producer for delivery reports, and detects a
//! lost connection.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use rdkafka::error::RDKafkaErrorCode as Code;
use rdkafka::message::BorrowedMessage;
use rdkafka::producer::{BaseProducer, DeliveryResult, Producer, ProducerContext, PurgeConfig};
use rdkafka::{ClientConfig, Message as _};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::debug;

use super::connection::{Context, caught};
use super::headers;
use super::outcome::{Failed, SendState, outcome};
use super::quirks::refused_batch::{BatchPeers, MAX_GROUP_BYTES, ResendQueue};
use super::window::PublishWindow;
use crate::{Outcome, Token};

/// librdkafka's default `batch.size`.
const DEFAULT_BATCH_BYTES: usize = 1_000_000;
/// The longest wait of one poll. rdkafka (0.39) waits for the whole milliseconds left until the
/// deadline and then polls without a pause. Without the odd 20 µs, a little less than the round
/// number would be left at the start, so each poll without events would end with a busy
/// millisecond. The operating system's timer is later than these 20 µs.
const POLL_TIMEOUT: Duration = Duration::from_micros(50_020);
/// The same while messages wait to be resent.
const RESEND_POLL_TIMEOUT: Duration = Duration::from_micros(5_020);
/// The interval of checks for late publications.
const LATE_CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// The shortest time between two purges: each costs a round trip for all partitions with queued
/// messages.
const MIN_PURGE_INTERVAL: Duration = Duration::from_secs(1);
/// After this time librdkafka has reported the timeout of an unsent message: it checks once a
/// second.
const TIMEOUT_REPORT_DELAY: Duration = Duration::from_millis(1500);
/// The longest wait for the reports of purged messages.
const PURGE_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) type ReportingProducer = BaseProducer<Context<Reports>>;

/// Handles the delivery reports of a producer.
pub(super) struct Reports {
    pub(super) window: Arc<PublishWindow>,
    resend: Arc<ResendQueue>,
    /// `batch.size`, in bytes.
    pub(super) batch: usize,
}

impl Reports {
    /// The reports of the producer that this client configuration creates.
    pub(super) fn new(
        window: Arc<PublishWindow>,
        resend: Arc<ResendQueue>,
        client: &ClientConfig,
    ) -> Self {
        let batch = client
            .get("batch.size")
            .and_then(|size| size.trim().parse().ok())
            .unwrap_or(DEFAULT_BATCH_BYTES);
        Reports { window, resend, batch }
    }
}

/// The thread between the producer and the window.
pub(super) struct Writer {
    producer: Arc<ReportingProducer>,
    window: Arc<PublishWindow>,
    resend: Arc<ResendQueue>,
    /// Whether the producer accepts messages. Locked for writing when that ends.
    open: Arc<RwLock<bool>>,
    publish_timeout: Duration,
}

/// When a writer last checked for late publications, and last purged.
#[derive(Default)]
struct LateChecks {
    looked: Option<Instant>,
    taken_back: Option<Instant>,
}

impl Writer {
    pub(super) fn new(
        producer: &Arc<ReportingProducer>,
        window: &Arc<PublishWindow>,
        resend: &Arc<ResendQueue>,
        open: &Arc<RwLock<bool>>,
        publish_timeout: Duration,
    ) -> Self {
        let (producer, window, resend, open) =
            (Arc::clone(producer), Arc::clone(window), Arc::clone(resend), Arc::clone(open));
        Writer { producer, window, resend, open, publish_timeout }
    }

    /// Starts the thread. The receiver ends once every outcome is sent.
    pub(super) fn start(self) -> std::io::Result<oneshot::Receiver<()>> {
        self.spawn(Self::run)
    }

    fn spawn(self, run: fn(&Writer) -> String) -> std::io::Result<oneshot::Receiver<()>> {
        let (done, ended) = oneshot::channel();
        let work = move || {
            let why = caught(|| run(&self)).unwrap_or_else(|| "the writer panicked".to_owned());
            if caught(|| self.end(&why)).is_none() {
                self.window.end(&why);
            }
            drop(done);
            // The last drop waits for librdkafka's threads, so it must not be on a task.
            drop(Arc::into_inner(self.producer));
        };
        std::thread::Builder::new().name("kafka-writer".to_owned()).spawn(work).map(|_| ended)
    }

    /// Works until the sink is closed and every message is reported, or the connection is lost;
    /// returns the reason.
    fn run(&self) -> String {
        let (mut closing_since, mut looks, mut waits) = (None, LateChecks::default(), false);
        loop {
            self.producer.poll(if waits { RESEND_POLL_TIMEOUT } else { POLL_TIMEOUT });
            waits = self.resend.send_ready(&self.producer, &self.window);
            self.give_up_late(&mut looks);
            let Some(closing) = self.window.status() else {
                return "the sink was closed".to_owned();
            };
            let client = self.producer.client();
            if let Some((_, why)) = client.fatal_error() {
                return format!("the producer failed for good: {why}");
            }
            if client.context().events.is_spent() {
                self.drain();
                return "the producer's epochs are used up".to_owned();
            }
            if let Some(why) = client.context().events.lost(client) {
                return format!("the connection was lost: {why}");
            }
            // librdkafka times out every message itself: this is for one that it does not.
            if closing
                && closing_since.get_or_insert_with(Instant::now).elapsed()
                    > self.publish_timeout + PURGE_TIMEOUT
            {
                return "the last messages were not reported".to_owned();
            }
        }
    }

    /// Ends late publications. Refused if never sent, which only a purge shows. Other messages that
    /// the purge returns are sent again.
    fn give_up_late(&self, looks: &mut LateChecks) {
        let now = Instant::now();
        if looks.looked.is_some_and(|looked| now < looked + LATE_CHECK_INTERVAL) {
            return;
        }
        looks.looked = Some(now);
        let late = self.window.late(now);
        if late.publications.is_empty() {
            return;
        }
        let events = &self.producer.client().context().events;
        let is_clear = |since: &Instant| events.send_state_since(*since) == SendState::Clear;
        // A message that was sent before, and may be sent again, would get another sequence number
        // after a purge: it could be stored twice.
        let may_take_back =
            late.others.as_ref().is_none_or(is_clear) && late.stands_still(&self.window);
        let is_due = looks.taken_back.is_none_or(|last| now >= last + MIN_PURGE_INTERVAL);
        if may_take_back && is_due {
            debug!(
                late = late.publications.len(),
                "messages are past their deadline, taking unsent messages back from the client"
            );
            looks.taken_back = Some(now);
            self.producer.purge(PurgeConfig::default().queue());
            // The gap in the sequence increases the producer's epoch, as a failed message does.
            events.message_failed(None);
            return;
        }
        for (token, open) in late.publications {
            let was_asked = looks
                .taken_back
                .is_some_and(|last| open.deadline <= last && now >= last + LATE_CHECK_INTERVAL);
            let is_told = !may_take_back && now >= open.deadline + TIMEOUT_REPORT_DELAY;
            if was_asked || is_told || !is_clear(&open.since) {
                self.window.give(token, |_| Outcome::Unknown("no answer in time".to_owned()));
            }
        }
    }

    /// Stops accepting messages, and waits for those in flight: the connection works, and purged
    /// messages would be unknown. Not for long: new publications wait meanwhile.
    fn drain(&self) {
        *self.open.write() = false;
        let begun = Instant::now();
        while self.producer.in_flight_count() > 0 && begun.elapsed() < self.publish_timeout / 2 {
            self.producer.poll(POLL_TIMEOUT);
        }
    }

    /// Sends every missing outcome: first by librdkafka's reports, then of messages that it never
    /// got.
    fn end(&self, why: &str) {
        debug!(why, "a sink ends");
        *self.open.write() = false;
        self.resend.close();
        self.producer.purge(PurgeConfig::default().queue().inflight());
        let begun = Instant::now();
        while self.producer.in_flight_count() > 0 && begun.elapsed() < PURGE_TIMEOUT {
            self.producer.poll(Duration::from_millis(5));
        }
        self.producer.poll(Duration::ZERO);
        self.window.end(why);
    }
}

impl ProducerContext for Context<Reports> {
    type DeliveryOpaque = Box<Token>;

    fn delivery(&self, result: &DeliveryResult<'_>, token: Box<Token>) {
        let (token, Reports { window, resend, batch }) = (*token, &self.of);
        let message = match result {
            Ok(message) | Err((_, message)) => message,
        };
        let company = resend.reported(message.topic(), token);
        let batch = match company {
            BatchPeers::Any => *batch,
            BatchPeers::Group => MAX_GROUP_BYTES,
            BatchPeers::Alone => 0,
        };
        let size = message.payload_len() + message.key_len() + headers::size(message.headers());
        if let Err((error, _)) = result
            && let Some(code) = error.rdkafka_error_code()
        {
            if self.goes_again(token, message, size, (company, batch), code) {
                return;
            }
            if code != Code::PurgeQueue {
                self.events.message_failed(Some(code));
            }
        }
        window.give(token, |open| match result {
            // Only a broker gives an offset. A message without one was concluded to be stored by
            // librdkafka, from a later batch or from a reported duplicate (docs/decisions/0014).
            Ok(message) if message.offset() >= 0 && !self.events.repeated_since(open.since) => {
                Outcome::Confirmed
            }
            Ok(message) => Outcome::Unknown(format!(
                "`{}`: the client reports it as delivered, but no broker gave an offset",
                message.topic()
            )),
            Err((error, message)) => {
                let (topic, has_key, send_state) = (
                    message.topic(),
                    message.key().is_some(),
                    self.events.send_state_since(open.since),
                );
                outcome(&Failed { error, topic, size, has_key, batch, send_state })
            }
        });
    }
}

impl Context<Reports> {
    /// Whether a message is sent again because its failure says nothing about the message itself.
    fn goes_again(
        &self,
        token: Token,
        message: &BorrowedMessage<'_>,
        size: usize,
        (company, batch): (BatchPeers, usize),
        code: Code,
    ) -> bool {
        let Reports { window, resend, .. } = &self.of;
        match code {
            Code::MessageSizeTooLarge
            | Code::MessageBatchTooLarge
            | Code::InvalidRecord
            | Code::InvalidDifferentRecord
                if size < batch =>
            {
                let first = window
                    .not_taken(token)
                    .and_then(|_| resend.refused(token, message.detach(), size, company, code));
                if first == Some(true) {
                    self.events.message_failed(Some(code));
                }
                first.is_some()
            }
            Code::PurgeQueue => {
                let Some(open) = window.not_taken(token) else { return true };
                let goes = open.deadline > Instant::now()
                    && self.events.send_state_since(open.since) == SendState::Clear
                    && resend.taken_back(token, message.detach(), size);
                if !goes {
                    // As before: its outcome follows.
                    let _ = window.hand_over(token);
                }
                goes
            }
            _ => false,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::kafka::config::{ClientRole, Config};

    #[tokio::test]
    async fn a_panic_answers_every_token_and_ends_the_sink() {
        let (window, mut outcomes) = PublishWindow::start();
        let publish_timeout = Duration::from_secs(5);
        let config = Config::at("127.0.0.1:1");
        let role = ClientRole::Writer { timeout: publish_timeout };
        let client = config.client(role).unwrap();
        let reports = Reports::new(Arc::clone(&window), Arc::default(), &client);
        let context = Context::new(&config, role, reports);
        let producer = Arc::new(client.create_with_context(context).unwrap());
        let open = Arc::new(RwLock::new(true));
        let writer = Writer::new(&producer, &window, &Arc::default(), &open, publish_timeout);
        drop(producer);
        let until = Instant::now() + publish_timeout;
        assert!(
            window.open([(1, "a", until), (2, "a", until)].into_iter())
                && window.hand_over(1).is_some()
        );
        let ended = writer.spawn(|_| panic!("of the test")).unwrap();
        let mut said = outcomes.recv().await.unwrap();
        said.sort_by_key(|(token, _)| *token);
        assert!(
            matches!(&said[..], [(1, Outcome::Unknown(_)), (2, Outcome::Refused(_))]),
            "{said:?}"
        );
        assert!(outcomes.recv().await.is_none() && ended.await.is_err() && !*open.read());
    }
}
