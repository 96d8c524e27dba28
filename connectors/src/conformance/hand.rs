//! Helpers of the suite: open, publish, read, wait.

use std::collections::HashMap;
use std::time::Duration;

use super::Harness;
use crate::{
    Acks, Batch, BatchId, Destination, Message, Outcome, Outcomes, Publication, Sink, Source,
    SourceOptions, Start, Token,
};

/// The deadline of every wait.
pub(super) const TIMEOUT: Duration = Duration::from_secs(15);
/// The time that a test waits to establish that nothing arrives.
pub(super) const QUIET: Duration = Duration::from_millis(400);

pub(super) async fn topic(harness: &dyn Harness) -> String {
    let name = harness.fresh_name();
    harness.create(&name).await;
    name
}

/// The default options of a reader of this topic: 100 messages or 16 MiB a batch, 1000 unsettled.
#[must_use]
pub fn options(topic: &str) -> SourceOptions {
    SourceOptions {
        topic: topic.to_owned(),
        group: "readers".to_owned(),
        max_batch: 100,
        max_batch_bytes: 16 << 20,
        max_unsettled: 1000,
        max_unsettled_bytes: 64 << 20,
        acks: Acks::Explicit,
        start: Start::Earliest,
        publishes_to: Vec::new(),
        expired_queue: None,
    }
}

pub(super) async fn source(harness: &dyn Harness, topic: &str) -> Box<dyn Source> {
    source_with(harness, options(topic)).await
}

pub(super) async fn source_with<H: Harness + ?Sized>(
    harness: &H,
    options: SourceOptions,
) -> Box<dyn Source> {
    harness.broker().source(options).await.unwrap()
}

pub(super) async fn sink(harness: &dyn Harness) -> (Box<dyn Sink>, Outcomes) {
    harness.broker().sink(harness.publish_timeout()).await.unwrap()
}

pub(super) fn publication(token: Token, topic: &str, message: Message) -> Publication {
    Publication {
        token,
        to: Destination::new(topic),
        message,
        dedupe_id: format!("{topic}-{token}"),
        deadline: None,
    }
}

/// Numbered messages: the body is the number.
pub(super) fn numbered(topic: &str, count: u64) -> Vec<Publication> {
    (1..=count).map(|number| publication(number, topic, Message::new(number.to_string()))).collect()
}

/// Publishes through a new sink; each publication must be confirmed.
pub(super) async fn publish(harness: &dyn Harness, publications: Vec<Publication>) {
    let (sink, mut outcomes) = sink(harness).await;
    let tokens: Vec<Token> = publications.iter().map(|publication| publication.token).collect();
    sink.publish(publications).await;
    let outcomes = collect(&mut outcomes, tokens.len()).await;
    for token in tokens {
        assert_eq!(outcomes.get(&token), Some(&Outcome::Confirmed), "token {token}");
    }
    sink.close().await.unwrap();
}

/// Waits for this many outcomes. Panics if a token has two.
pub(super) async fn collect(outcomes: &mut Outcomes, count: usize) -> HashMap<Token, Outcome> {
    let mut all = HashMap::new();
    while all.len() < count {
        let batch = tokio::time::timeout(TIMEOUT, outcomes.recv()).await;
        let batch =
            batch.unwrap_or_else(|_| panic!("{} of {count} outcomes came in time", all.len()));
        let batch =
            batch.unwrap_or_else(|| panic!("outcomes ended after {} of {count}", all.len()));
        add(&mut all, batch);
    }
    all
}

/// Waits until the outcomes end. Panics if a token has two.
pub(super) async fn collect_to_the_end(outcomes: &mut Outcomes) -> HashMap<Token, Outcome> {
    let mut all = HashMap::new();
    while let Some(batch) =
        tokio::time::timeout(TIMEOUT, outcomes.recv()).await.expect("outcomes end in time")
    {
        add(&mut all, batch);
    }
    all
}

fn add(all: &mut HashMap<Token, Outcome>, batch: Vec<(Token, Outcome)>) {
    for (token, outcome) in batch {
        if let Some(first) = all.insert(token, outcome.clone()) {
            panic!("token {token} has two outcomes: {first:?} and {outcome:?}");
        }
    }
}

pub(super) async fn recv(source: &dyn Source) -> Batch {
    tokio::time::timeout(TIMEOUT, source.recv()).await.expect("a batch comes in time").unwrap()
}

/// Reads this many messages without settling them.
pub(super) async fn read(source: &dyn Source, count: usize) -> (Vec<BatchId>, Vec<Message>) {
    let (mut ids, mut messages) = (Vec::new(), Vec::new());
    while messages.len() < count {
        let batch = recv(source).await;
        assert!(!batch.messages.is_empty(), "a batch is never empty");
        ids.push(batch.id);
        messages.extend(batch.messages);
    }
    (ids, messages)
}

/// Panics if a message arrives within [`QUIET`].
pub(super) async fn expect_no_message(source: &dyn Source) {
    expect_no_message_for(source, QUIET).await;
}

pub(super) async fn expect_no_message_for(source: &dyn Source, time: Duration) {
    if let Ok(batch) = tokio::time::timeout(time, source.recv()).await {
        panic!("nothing should come, but {:?} did", batch.map(|batch| bodies(&batch.messages)));
    }
}

pub(super) fn bodies(messages: &[Message]) -> Vec<String> {
    messages.iter().map(|message| String::from_utf8_lossy(&message.body).into_owned()).collect()
}

/// The bodies of `numbered`, as text.
pub(super) fn numbers(count: u64) -> Vec<String> {
    (1..=count).map(|number| number.to_string()).collect()
}

pub(super) fn sorted(mut bodies: Vec<String>) -> Vec<String> {
    bodies.sort_by_key(|body| body.parse::<u64>().unwrap_or(0));
    bodies
}
