//! The NATS connector on real servers: the suite that every connector passes, and tests of NATS's
//! specifics.

#![cfg(feature = "nats")]
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests measure time, and wait for servers that run no runtime"
)]

#[path = "../support/freeze.rs"]
mod freeze;

mod cluster;
mod first;
mod links;
mod login;
mod loops;
mod losses;
mod raw;
mod server;
mod sinks;
mod sources;
mod suite;
mod unreadable;

use std::time::Duration;

use dwell_connectors::conformance::options;
use dwell_connectors::{
    BrokerConfig, Destination, Message, Outcome, Outcomes, Publication, Role, Token, nats,
};

/// The deadline of every wait.
const TIMEOUT: Duration = Duration::from_secs(15);

fn at(url: impl Into<String>) -> BrokerConfig {
    BrokerConfig::Nats(nats::Config::at(url))
}

fn publication(token: Token, subject: &str, message: Message) -> Publication {
    Publication {
        token,
        to: Destination::new(subject),
        message,
        dedupe_id: String::new(),
        deadline: None,
    }
}

fn numbered(subject: &str, count: u64) -> Vec<Publication> {
    (1..=count)
        .map(|number| publication(number, subject, Message::new(number.to_string())))
        .collect()
}

async fn declare(broker: &BrokerConfig, subject: &str) {
    broker.declare(&Destination::new(subject), Role::Ingest).await.unwrap();
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

/// A client besides the connector.
async fn context(server: &server::NatsServer) -> async_nats::jetstream::Context {
    let patient = async_nats::ConnectOptions::new().connection_timeout(TIMEOUT);
    async_nats::jetstream::new(patient.connect(server.url()).await.unwrap())
}
