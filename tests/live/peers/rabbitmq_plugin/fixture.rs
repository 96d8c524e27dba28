//! RabbitMQ with the topology of the suite, and a `dwell run` on it.

use std::sync::Arc;

use dwell_connectors::{Acks, BrokerConfig, Destination, Message, Properties, Value, amqp};
use dwell_testkit::environment::traffic::{Consumer, Producer};
use dwell_testkit::servers::{DwellServer, RabbitOptions, RabbitServer, RedisOptions, RedisServer};
use lapin::options::QueueDeclareOptions;
use lapin::types::FieldTable;
use lapin::{Connection, ConnectionProperties};
use parking_lot::Mutex;

use super::topology::{definitions, settings};
use crate::routes::environment::{program, text};
use crate::routes::migration::import;
use crate::support::wait_until;

pub(super) struct Fixture {
    pub(super) rabbit: RabbitServer,
    pub(super) redis: RedisServer,
    pub(super) dwell: DwellServer,
    broker: BrokerConfig,
    pub(super) settings: String,
}

/// A message as the suite publishes it: its body is its delay.
pub(super) fn delayed(delay: impl Into<Value>) -> Message {
    let delay = delay.into();
    let body = match &delay {
        Value::Text(text) => text.clone(),
        Value::I32(ms) => ms.to_string(),
        Value::F64(ms) => ms.to_string(),
        other => format!("{other:?}"),
    };
    let properties = Properties { delivery_mode: Some(2), ..Properties::default() };
    let mut message = Message { properties: Some(Box::new(properties)), ..Message::new(body) };
    message.headers.push("x-delay", delay);
    message
}

pub(super) fn with(mut message: Message, change: impl FnOnce(&mut Properties)) -> Message {
    change(message.properties.as_mut().unwrap());
    message
}

pub(super) fn bodies(messages: &[Message]) -> Vec<String> {
    messages.iter().map(|message| String::from_utf8(message.body.to_vec()).unwrap()).collect()
}

/// A queue that is read.
pub(super) struct Reader {
    _consumer: Consumer,
    queue: String,
    seen: Arc<Mutex<Vec<Message>>>,
}

impl Reader {
    /// Waits for this many messages.
    pub(super) async fn take(self, count: usize) -> Vec<Message> {
        let Reader { queue, seen, .. } = &self;
        wait_until(&format!("{count} messages in {queue}"), async || {
            (seen.lock().len() >= count).then_some(())
        })
        .await;
        let seen = seen.lock().clone();
        let headers: Vec<_> = seen.iter().map(|message| &message.headers).collect();
        assert_eq!(seen.len(), count, "{queue}: {:?}, {headers:?}", bodies(&seen));
        seen
    }
}

impl Fixture {
    pub(super) async fn start() -> Fixture {
        let (rabbit, redis) = tokio::join!(
            RabbitServer::start(RabbitOptions::default()),
            RedisServer::start(RedisOptions::default())
        );
        let (rabbit, redis) = (rabbit.unwrap(), redis.unwrap());
        std::fs::write(rabbit.dir().join("before.json"), definitions()).unwrap();
        import(&rabbit, rabbit.dir(), "before.json").await;
        let settings = settings(&rabbit.url(), &redis.url());
        let broker = BrokerConfig::Amqp(amqp::Config::at(rabbit.url()));
        let dwell = DwellServer::start(program(), &settings).await.unwrap();
        Fixture { rabbit, redis, dwell, broker, settings }
    }

    pub(super) async fn send(
        &self,
        exchange: &str,
        key: &str,
        messages: impl IntoIterator<Item = Message>,
    ) {
        let mut producer = Producer::open(&self.broker).await.unwrap();
        producer
            .send(&Destination { exchange: exchange.to_owned(), address: key.to_owned() }, messages)
            .await
            .unwrap();
        producer.flush().await.unwrap();
    }

    /// Reads this many messages from this queue, in their order.
    pub(super) async fn read(&self, queue: &str, count: usize) -> Vec<Message> {
        self.reader(queue).await.take(count).await
    }

    /// Reads this queue from now on: a message that expires soon is read before it does.
    pub(super) async fn reader(&self, queue: &str) -> Reader {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let into = seen.clone();
        let consumer = Consumer::open(&self.broker, queue, Acks::Explicit, move |_, messages| {
            into.lock().extend(messages)
        });
        Reader { _consumer: consumer.await.unwrap(), queue: queue.to_owned(), seen }
    }

    /// Waits for a loop with this body that was rejected.
    pub(super) async fn a_rejected_loop(&self, body: &str) -> Message {
        let is_it = |message: &&Message| {
            message.body == body && text(message, "delayed-error").as_deref() == Some("loop")
        };
        let seen = Arc::new(Mutex::new(Vec::new()));
        let into = seen.clone();
        let reading =
            Consumer::open(&self.broker, "delay.rejected", Acks::Explicit, move |_, messages| {
                into.lock().extend(messages)
            });
        let _reading = reading.await.unwrap();
        wait_until("a rejected loop", async || seen.lock().iter().find(is_it).cloned()).await
    }

    /// Waits until one message is ready in this queue, by the queue's own count. That of
    /// `rabbitmqctl list_queues` may be five seconds old for a quorum queue: it may count a message
    /// that was read since.
    pub(super) async fn until_one_is_ready(&self, queue: &str) {
        let connection =
            Connection::connect(&self.rabbit.url(), ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        wait_until(&format!("one message ready in {queue}"), async || {
            let there =
                channel.queue_declare(queue.into(), passive, FieldTable::default()).await.unwrap();
            (there.message_count() == 1).then_some(())
        })
        .await;
        connection.close(200, "".into()).await.unwrap();
    }

    /// Returns the number of waiting jobs in `dwell stats`.
    pub(super) async fn scheduled(&self) -> u64 {
        let file = self.dwell.dir().join("dwell.toml");
        let output = tokio::process::Command::new(program())
            .args(["stats", "-o", "json", "-c"])
            .arg(file)
            .output()
            .await
            .unwrap();
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()["scheduled"]
            .as_u64()
            .unwrap()
    }

    pub(super) async fn restart_dwell(&mut self) {
        self.dwell = DwellServer::start(program(), &self.settings).await.unwrap();
    }
}
