//! Three brokers, a Redis and one or more `dwell run`, with an ingest on each broker.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use dwell::config::{self, Overrides, Settings};
use dwell::job::JobId;
use dwell::store::Store;
use dwell_connectors::{Acks, BrokerConfig, Destination, Message, Role};
use dwell_testkit::environment::traffic::{Consumer, Producer};
use dwell_testkit::servers::{BrokerKind, BrokerServer, DwellServer, RedisOptions, RedisServer};
use futures_util::future::join_all;
use parking_lot::Mutex;

use crate::support::wait_until;

/// Of `[delivery]`, where a test says nothing else.
const DELIVERY: &str = "publish_timeout = \"20s\"\n";

/// A message as it arrived: when (epoch µs), and what.
pub(crate) type Seen = (i64, Message);

pub(crate) struct Environment {
    brokers: Vec<BrokerServer>,
    redis: RedisServer,
    /// The instances: of one namespace, with the same settings.
    pub(crate) dwells: Vec<DwellServer>,
    text: String,
    settings: Settings,
    store: Store,
}

impl Environment {
    pub(crate) async fn start() -> Environment {
        let starting =
            BrokerKind::ALL.map(|kind| async move { BrokerServer::start(kind).await.unwrap() });
        let (brokers, redis) =
            tokio::join!(join_all(starting), RedisServer::start(RedisOptions::default()));
        let redis = redis.unwrap();
        let mut text = format!(
            "[redis]\nurls = [\"{}\"]\n\n[delivery]\n{DELIVERY}\n[limits]\nmax_body = \"64KiB\"\n",
            redis.url()
        );
        for broker in &brokers {
            let (name, kind) = (broker.kind().as_str(), broker.kind());
            // `out.none` is allowed and never there; `CC` and replies are allowed as targets are.
            let any = if kind == BrokerKind::Nats { "out.>" } else { "out.*" };
            text += &format!(
                "\n[brokers.{name}]\n{}allow = [\"{}\"]\n",
                broker.settings(),
                kind.pattern(any)
            );
            text += &format!("\n[ingest.{name}]\nbroker = \"{name}\"\ndeclare = true\n");
            text += &format!(
                "\n[ingest.{name}-envelope]\nbroker = \"{name}\"\ntopic = \"delay.envelope\"\nformat = \"envelope\"\ndeclare = true\n"
            );
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("dwell.toml");
        std::fs::write(&file, &text).unwrap();
        let settings = config::load_from(Some(&file), &[], &Overrides::default()).unwrap();
        let dwell = DwellServer::start(program(), &text).await.unwrap();
        let store = Store::attach(&settings.redis).await.unwrap();
        Environment { brokers, redis, dwells: vec![dwell], text, settings, store }
    }

    /// The settings file that the instances began with, but for `[delivery]`.
    pub(crate) fn text_with(&self, delivery: &str) -> String {
        assert!(self.text.contains(DELIVERY));
        self.text.replace(DELIVERY, delivery)
    }

    /// The store, beside the instances.
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// The settings of `[brokers.NAME]` of this kind, for producers and consumers.
    pub(crate) fn broker(&self, kind: BrokerKind) -> &BrokerConfig {
        &self.settings.brokers[kind.as_str()].connector
    }

    /// The address of a broker, as its own clients take it.
    pub(crate) fn address(&self, kind: BrokerKind) -> String {
        self.brokers.iter().find(|broker| broker.kind() == kind).unwrap().address()
    }

    /// Makes a destination, as its consumers would.
    pub(crate) async fn declare(&self, kind: BrokerKind, destination: &str) {
        self.broker(kind).declare(&Destination::new(destination), Role::Letters).await.unwrap();
    }

    /// Sends requests to `delay.in`, and returns once they are confirmed.
    pub(crate) async fn send(&self, kind: BrokerKind, messages: impl IntoIterator<Item = Message>) {
        self.send_to(kind, "delay.in", messages).await;
    }

    /// Sends requests to the source of another ingest, and returns once they are confirmed.
    pub(crate) async fn send_to(
        &self,
        kind: BrokerKind,
        topic: &str,
        messages: impl IntoIterator<Item = Message>,
    ) {
        let mut producer = Producer::open(self.broker(kind)).await.unwrap();
        producer.send(&Destination::new(topic), messages).await.unwrap();
        producer.flush().await.unwrap();
    }

    /// Runs Dwell with other settings, in place of the former instances.
    pub(crate) async fn run_instead(&mut self, settings: &str) {
        self.run_many_instead(settings, 1).await;
    }

    /// As [`Environment::run_instead`], with this many instances.
    pub(crate) async fn run_many_instead(&mut self, settings: &str, instances: usize) {
        self.stop().await;
        self.dwells = join_all(
            (0..instances).map(async |_| DwellServer::start(program(), settings).await.unwrap()),
        )
        .await;
    }

    /// The warnings and errors in the logs of the instances, for a test that fails.
    pub(crate) fn complaints(&self) -> String {
        let logs = self
            .dwells
            .iter()
            .map(|dwell| std::fs::read_to_string(dwell.dir().join("log")).unwrap_or_default());
        let is_bad = |line: &&str| {
            ["WARN", "ERROR"].iter().any(|level| line.contains(&format!("\"level\":\"{level}\"")))
        };
        logs.flat_map(|log| {
            log.lines().filter(is_bad).map(|line| format!("{line}\n")).collect::<Vec<_>>()
        })
        .collect()
    }

    /// Stops all instances in order: the jobs that they have out are confirmed or given back.
    pub(crate) async fn stop(&mut self) {
        for dwell in &mut self.dwells {
            dwell.stop().await.unwrap();
        }
    }

    /// The URL of the Redis.
    pub(crate) fn redis(&self) -> String {
        self.redis.url()
    }

    /// Waits until this job has made this many attempts.
    pub(crate) async fn attempted(&self, id: &str, attempts: u32) {
        let id = JobId::new(id).unwrap();
        let what = format!("attempt {attempts} of {id}");
        wait_until(&what, async || {
            let state = self.store.reader.find(&id).await.unwrap()?.state_record?;
            (state.attempt >= attempts && state.step > 0).then_some(())
        })
        .await;
    }

    /// Reads a destination that is there.
    pub(crate) async fn read(&self, kind: BrokerKind, destination: &str) -> Reading {
        Reading::open(self.broker(kind), destination).await
    }

    /// Ends what runs: `dwell run` first, with its exit code.
    pub(crate) async fn end(mut self) {
        self.stop().await;
        for broker in &mut self.brokers {
            // RabbitMQ takes seconds to end in order, and nothing is asked of it any more.
            broker.kill().unwrap();
        }
        self.redis.stop().await.unwrap();
    }
}

/// The program under test.
pub(crate) fn program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_dwell"))
}

/// The messages that arrive somewhere.
pub(crate) struct Reading {
    what: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    _consumer: Consumer,
}

impl Reading {
    /// Reads a destination that is there.
    pub(crate) async fn open(broker: &BrokerConfig, destination: &str) -> Reading {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let into = seen.clone();
        let consumer =
            Consumer::open(broker, destination, Acks::Explicit, move |at_us, messages| {
                into.lock().extend(messages.into_iter().map(|message| (at_us, message)));
            });
        Reading {
            what: format!("{destination} on {}", broker.kind()),
            seen,
            _consumer: consumer.await.unwrap(),
        }
    }

    /// Waits until this many arrived, and gives all.
    pub(crate) async fn until(&self, count: usize) -> Vec<Seen> {
        wait_until(&format!("{count} messages at {}", self.what), async || {
            (self.seen.lock().len() >= count).then_some(())
        })
        .await;
        self.now()
    }

    pub(crate) fn now(&self) -> Vec<Seen> {
        self.seen.lock().clone()
    }

    /// Waits until the message of this job came.
    pub(crate) async fn job(&self, id: &str) -> Message {
        wait_until(&format!("job {id} at {}", self.what), async || {
            self.seen
                .lock()
                .iter()
                .find(|(_, message)| text(message, "delayed-id").as_deref() == Some(id))
                .map(|(_, message)| message.clone())
        })
        .await
    }

    /// When the first message of this job came, epoch ms.
    pub(crate) fn first_ms(&self, id: &str) -> Option<i64> {
        let seen = self.seen.lock();
        seen.iter()
            .find(|(_, message)| text(message, "delayed-id").as_deref() == Some(id))
            .map(|(at_us, _)| at_us / 1000)
    }

    /// Returns the number of messages of this job.
    pub(crate) fn count(&self, id: &str) -> usize {
        self.seen
            .lock()
            .iter()
            .filter(|(_, message)| text(message, "delayed-id").as_deref() == Some(id))
            .count()
    }
}

/// A header as text: AMQP has numbers too, Kafka bytes.
pub(crate) fn text(message: &Message, name: &str) -> Option<String> {
    message.headers.get(name)?.written().map(Cow::into_owned)
}

/// A request with these headers.
pub(crate) fn request(body: &str, headers: &[(&str, &str)]) -> Message {
    headers.iter().fold(Message::new(body.to_owned()), |message, (name, value)| {
        message.with_header(*name, *value)
    })
}

/// All headers as text, by name.
pub(crate) fn texts(message: &Message) -> BTreeMap<String, String> {
    message
        .headers
        .iter()
        .filter_map(|header| Some((header.name.clone(), text(message, &header.name)?)))
        .collect()
}
