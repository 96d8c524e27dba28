//! The AMQP connector on a real RabbitMQ: the suite that every connector passes, and tests of
//! AMQP's specifics.

#![cfg(feature = "amqp")]
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests measure time, and wait for servers that run no runtime"
)]

#[path = "../support/freeze.rs"]
mod freeze;

mod certificates;
mod expired;
mod fake;
mod faults;
mod limit;
mod links;
mod login;
mod losses;
mod messages;
mod poison;
mod returns;
mod server;
mod silent;
mod sinks;
mod sources;
mod suite;
mod wire;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use dwell_connectors::conformance::options;
use dwell_connectors::{
    BrokerConfig, ConnectorError, Destination, ErrorKind, Message, Outcome, Outcomes, Publication,
    Source, SourceOptions, Token, amqp,
};
use lapin::options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, Connection, ConnectionProperties, ExchangeKind};

use self::server::RabbitServer;

/// The deadline of every wait.
const TIMEOUT: Duration = Duration::from_secs(15);

fn at(url: impl Into<String>) -> BrokerConfig {
    BrokerConfig::Amqp(amqp::Config::at(url))
}

/// An unused name.
fn fresh() -> String {
    static NAME_COUNTER: AtomicU32 = AtomicU32::new(0);
    format!("test.{}", NAME_COUNTER.fetch_add(1, Ordering::Relaxed))
}

fn to(exchange: &str, key: &str) -> Destination {
    Destination { exchange: exchange.to_owned(), address: key.to_owned() }
}

fn publication(token: Token, to: Destination, message: Message) -> Publication {
    Publication { token, to, message, dedupe_id: format!("id-{token}"), deadline: None }
}

fn numbered(to: &Destination, count: u64) -> Vec<Publication> {
    (1..=count)
        .map(|number| publication(number, to.clone(), Message::new(number.to_string())))
        .collect()
}

/// A new queue with its expired queue, created by `declare_source`.
async fn declared(broker: &BrokerConfig) -> String {
    let queue = fresh();
    broker.declare_source(&options_of(&queue)).await.unwrap();
    queue
}

/// The options of a queue that [`declared`] created.
fn options_of(queue: &str) -> SourceOptions {
    SourceOptions { expired_queue: Some(format!("{queue}.expired")), ..options(queue) }
}

/// The outcomes of this many publications, by token.
async fn collect(outcomes: &mut Outcomes, count: usize) -> Vec<Outcome> {
    let mut all = Vec::new();
    while all.len() < count {
        let batch = tokio::time::timeout(TIMEOUT, outcomes.recv()).await;
        all.extend(
            batch
                .unwrap_or_else(|_| panic!("{} of {count} outcomes came", all.len()))
                .expect("outcomes go on"),
        );
    }
    all.sort_by_key(|(token, _)| *token);
    all.into_iter().map(|(_, outcome)| outcome).collect()
}

/// Publishes through a new sink; returns the outcomes.
async fn publish(broker: &BrokerConfig, publications: Vec<Publication>) -> Vec<Outcome> {
    let (sink, mut outcomes) = broker.sink(Duration::from_secs(5)).await.unwrap();
    let count = publications.len();
    sink.publish(publications).await;
    collect(&mut outcomes, count).await
}

/// Reads this many messages and acks them.
async fn read(source: &dyn Source, count: usize) -> Vec<Message> {
    let mut messages = Vec::new();
    while messages.len() < count {
        let batch = tokio::time::timeout(TIMEOUT, source.recv()).await;
        let batch = batch.unwrap_or_else(|_| panic!("{} of {count} came", messages.len())).unwrap();
        messages.extend(batch.messages);
        source.ack(batch.id).await.unwrap();
    }
    messages
}

async fn refused(broker: &BrokerConfig, queue: &str, kind: ErrorKind) -> ConnectorError {
    let Err(error) = broker.source(options(queue)).await else { panic!("the source opened") };
    assert_eq!(error.kind, kind, "{error}");
    error
}

/// A client besides the connector.
async fn client(server: &RabbitServer) -> (Connection, Channel) {
    let connection =
        Connection::connect(&format!("{}/%2f", server.url()), ConnectionProperties::default())
            .await
            .unwrap();
    let channel = connection.create_channel().await.unwrap();
    (connection, channel)
}

/// Creates a durable queue with these arguments.
async fn make_queue(channel: &Channel, queue: &str, arguments: &[(&str, AMQPValue)]) {
    let mut table = FieldTable::default();
    for (name, value) in arguments {
        table.insert((*name).into(), value.clone());
    }
    let options = QueueDeclareOptions { durable: true, ..Default::default() };
    channel.queue_declare(queue.into(), options, table).await.unwrap();
}

/// Creates an exchange, with these queues bound by these keys.
async fn make_exchange(
    channel: &Channel,
    exchange: &str,
    kind: ExchangeKind,
    bindings: &[(&str, &str)],
) {
    let options = ExchangeDeclareOptions { durable: true, ..Default::default() };
    channel.exchange_declare(exchange.into(), kind, options, FieldTable::default()).await.unwrap();
    for (queue, key) in bindings {
        channel
            .queue_bind(
                (*queue).into(),
                exchange.into(),
                (*key).into(),
                QueueBindOptions::default(),
                FieldTable::default(),
            )
            .await
            .unwrap();
    }
}
