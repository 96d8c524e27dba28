//! The writer of a sink: the thread that polls the producer for what became of each message, and notices when the link is lost.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use rdkafka::producer::{BaseProducer, DeliveryResult, Producer, ProducerContext, PurgeConfig};
use rdkafka::{ClientConfig, Message as _};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::debug;

use super::headers;
use super::link::{Context, caught};
use super::outcome::{Failed, outcome};
use super::window::Window;
use crate::{Outcome, Token};

/// librdkafka's `batch.size`, where there is none in the settings.
const BATCH: usize = 1_000_000;
/// How long one poll takes.
const POLL: Duration = Duration::from_millis(50);
/// The longest wait for what was purged.
const PURGE: Duration = Duration::from_secs(2);

pub(super) type Writes = BaseProducer<Context<Reports>>;

/// Takes what the producer says of each message.
pub(super) struct Reports {
    pub(super) window: Arc<Window>,
    /// `batch.size`, in bytes.
    pub(super) batch: usize,
}

impl Reports {
    /// For the producer that is made by this.
    pub(super) fn new(window: Arc<Window>, client: &ClientConfig) -> Context<Self> {
        let batch = client.get("batch.size").and_then(|size| size.trim().parse().ok()).unwrap_or(BATCH);
        Context::new(Reports { window, batch })
    }
}

/// The thread between the producer and the window.
pub(super) struct Writer {
    pub(super) producer: Arc<Writes>,
    pub(super) window: Arc<Window>,
    /// Whether the producer may be handed messages. Held for writing while that ends.
    pub(super) open: Arc<RwLock<bool>>,
    pub(super) publish_timeout: Duration,
}

impl Writer {
    /// Starts the thread; the receiver ends once every outcome was given.
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
            // The last one waits for the client's threads: never a task.
            drop(Arc::into_inner(self.producer));
        };
        std::thread::Builder::new().name("kafka-writer".to_owned()).spawn(work).map(|_| ended)
    }

    /// Works until the sink closed and every message is answered, or the link is lost: why.
    fn run(&self) -> String {
        let mut closing_since = None;
        loop {
            self.producer.poll(POLL);
            let Some(closing) = self.window.outlook() else { return "the sink was closed".to_owned() };
            let client = self.producer.client();
            if let Some((_, why)) = client.fatal_error() {
                return format!("the producer failed for good: {why}");
            }
            if client.context().ear.is_spent() {
                self.drain();
                return "the producer's epochs are used up".to_owned();
            }
            if let Some(why) = client.context().ear.lost(client) {
                return format!("the connection was lost: {why}");
            }
            // librdkafka gives every message up by its own timeout: this is for one that does not.
            if closing && closing_since.get_or_insert_with(Instant::now).elapsed() > self.publish_timeout + PURGE {
                return "the last messages were not answered".to_owned();
            }
        }
    }

    /// Takes nothing more, and waits for what is out: it is well, and what is purged on its way is unknown. Not for long: what is published meanwhile
    /// waits too.
    fn drain(&self) {
        *self.open.write() = false;
        let begun = Instant::now();
        while self.producer.in_flight_count() > 0 && begun.elapsed() < self.publish_timeout / 2 {
            self.producer.poll(POLL);
        }
    }

    /// Gives every outcome that is still out: first what librdkafka says of what it had, then what it never got.
    fn end(&self, why: &str) {
        debug!(why, "a sink ends");
        *self.open.write() = false;
        self.producer.purge(PurgeConfig::default().queue().inflight());
        let begun = Instant::now();
        while self.producer.in_flight_count() > 0 && begun.elapsed() < PURGE {
            self.producer.poll(Duration::from_millis(5));
        }
        self.producer.poll(Duration::ZERO);
        self.window.end(why);
    }
}

impl ProducerContext for Context<Reports> {
    type DeliveryOpaque = Box<Token>;

    fn delivery(&self, result: &DeliveryResult<'_>, token: Box<Token>) {
        self.of.window.give(*token, |open| match result {
            // Only a broker gives an offset. Of what has none librdkafka concludes that it was stored, from a later batch that was, or from
            // what a broker calls a repeat (docs/decisions/0014).
            Ok(message) if message.offset() >= 0 && !self.ear.repeated_since(open.since) => Outcome::Confirmed,
            Ok(message) => Outcome::Unknown(format!("`{}`: the client calls it delivered, but no broker said where to", message.topic())),
            Err((error, message)) => {
                self.ear.message_failed(error.rdkafka_error_code());
                outcome(&Failed {
                    error,
                    topic: message.topic(),
                    size: message.payload_len() + message.key_len() + headers::size(message.headers()),
                    has_key: message.key().is_some(),
                    batch: self.of.batch,
                    way: self.ear.way_since(open.since),
                })
            }
        });
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::kafka::config::{Config, Role};

    #[tokio::test]
    async fn a_panic_answers_every_token_and_ends_the_sink() {
        let (window, mut outcomes) = Window::start();
        let publish_timeout = Duration::from_secs(5);
        let client = Config::at("127.0.0.1:1").client(Role::Writer { timeout: publish_timeout }).unwrap();
        let producer = Arc::new(client.create_with_context(Reports::new(Arc::clone(&window), &client)).unwrap());
        let open = Arc::new(RwLock::new(true));
        let writer = Writer { producer, window: Arc::clone(&window), open: Arc::clone(&open), publish_timeout };
        assert!(window.open([1, 2].into_iter()) && window.hand_over(1).is_some());
        let ended = writer.spawn(|_| panic!("of the test")).unwrap();
        let mut said = outcomes.recv().await.unwrap();
        said.sort_by_key(|(token, _)| *token);
        assert!(matches!(&said[..], [(1, Outcome::Unknown(_)), (2, Outcome::Refused(_))]), "{said:?}");
        assert!(outcomes.recv().await.is_none() && ended.await.is_err() && !*open.read());
    }
}
