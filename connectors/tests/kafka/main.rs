//! The Kafka connector on a real broker: the suite that every connector passes, and tests of
//! Kafka's specifics.

#![cfg(feature = "kafka")]
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests measure time, and wait for servers that run no runtime"
)]

#[path = "../support/freeze.rs"]
mod freeze;

mod commits;
mod first;
mod groups;
mod links;
mod login;
mod messages;
mod mocked;
mod raw;
mod server;
mod sinks;
mod starts;
mod suite;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use dwell_connectors::{
    BrokerConfig, Destination, Message, Outcome, Outcomes, Publication, Role, Source,
    SourceOptions, Token, kafka,
};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;

/// The deadline of every wait.
const TIMEOUT: Duration = Duration::from_secs(30);

fn at(server: &server::KafkaServer) -> BrokerConfig {
    BrokerConfig::Kafka(kafka::Config::at(server.address()))
}

/// The broker with these properties.
fn with(server: &server::KafkaServer, properties: &[(&str, &str)]) -> BrokerConfig {
    BrokerConfig::Kafka(kafka::Config {
        properties: properties.iter().copied().collect(),
        ..kafka::Config::at(server.address())
    })
}

/// A name that no other test uses.
fn fresh(name: &str) -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    format!("{name}-{}", NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// The group has the topic's name: tests share a broker.
fn options(topic: &str) -> SourceOptions {
    let group = format!("readers-of-{topic}");
    SourceOptions { group, ..dwell_connectors::conformance::options(topic) }
}

fn publication(token: Token, topic: &str, message: Message) -> Publication {
    Publication {
        token,
        to: Destination::new(topic),
        message,
        dedupe_id: String::new(),
        deadline: None,
    }
}

fn numbered(topic: &str, count: u64) -> Vec<Publication> {
    (1..=count).map(|number| publication(number, topic, Message::new(number.to_string()))).collect()
}

async fn declare(broker: &BrokerConfig, topic: &str) {
    broker.declare(&Destination::new(topic), Role::Ingest).await.unwrap();
}

/// Creates a topic with this many partitions and these settings, through a client besides the
/// connector.
async fn create(
    server: &server::KafkaServer,
    topic: &str,
    partitions: i32,
    settings: &[(&str, &str)],
) {
    let admin: AdminClient<DefaultClientContext> =
        ClientConfig::new().set("bootstrap.servers", server.address()).create().unwrap();
    let mut wanted = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
    for (name, value) in settings {
        wanted = wanted.set(name, value);
    }
    let made = admin
        .create_topics([&wanted], &AdminOptions::new().operation_timeout(Some(TIMEOUT)))
        .await
        .unwrap();
    made.into_iter().for_each(|result| drop(result.unwrap()));
    // The controller answers before the broker knows the topic.
    let (topic, count, deadline) =
        (topic.to_owned(), usize::try_from(partitions).unwrap(), Instant::now() + TIMEOUT);
    let known =
        move || {
            loop {
                let metadata = admin.inner().fetch_metadata(Some(&topic), TIMEOUT).unwrap();
                if metadata.topics().iter().any(|known| {
                    known.name() == topic.as_str() && known.partitions().len() == count
                }) {
                    return;
                }
                assert!(Instant::now() < deadline, "the broker never knows {topic}");
            }
        };
    tokio::task::spawn_blocking(known).await.unwrap();
}

/// The outcomes of this many publications, by token.
async fn collect(outcomes: &mut Outcomes, count: usize) -> Vec<Outcome> {
    let mut all = Vec::new();
    while all.len() < count {
        let batch = tokio::time::timeout(TIMEOUT, outcomes.recv()).await;
        all.extend(
            batch
                .unwrap_or_else(|_| panic!("{} of {count} came", all.len()))
                .expect("outcomes go on"),
        );
    }
    all.sort_by_key(|(token, _)| *token);
    all.into_iter().map(|(_, outcome)| outcome).collect()
}

/// Publishes through a new sink; returns the outcomes.
async fn publish(broker: &BrokerConfig, publications: Vec<Publication>) -> Vec<Outcome> {
    let (sink, mut outcomes) = broker.sink(Duration::from_secs(10)).await.unwrap();
    let count = publications.len();
    sink.publish(publications).await;
    collect(&mut outcomes, count).await
}

/// Publishes; everything must be confirmed.
async fn confirmed(broker: &BrokerConfig, publications: Vec<Publication>) {
    let outcomes = publish(broker, publications).await;
    assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Confirmed), "{outcomes:?}");
}

/// Reads and acks this many messages.
async fn read(source: &dyn Source, count: usize) -> Vec<Message> {
    let mut all = Vec::new();
    while all.len() < count {
        let batch = tokio::time::timeout(TIMEOUT, source.recv())
            .await
            .unwrap_or_else(|_| panic!("{} of {count} came", all.len()));
        let batch = batch.unwrap();
        source.ack(batch.id).await.unwrap();
        all.extend(batch.messages);
    }
    all
}

/// The numbers in bodies of `numbered`.
fn numbers(messages: &[Message]) -> Vec<u64> {
    messages
        .iter()
        .map(|message| std::str::from_utf8(&message.body).unwrap().parse().unwrap())
        .collect()
}
