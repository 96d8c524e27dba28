//! The start of a new durable consumer, and what `inspect` reports about it.

use async_nats::jetstream::stream::Config;
use dwell_connectors::{BrokerConfig, ConsumerState, ErrorKind, Message, SourceOptions, Start};

use crate::server::NatsServer;
use crate::{TIMEOUT, at, context, declare, numbered, options, publication, publish};

fn from(start: Start) -> SourceOptions {
    SourceOptions { start, ..options("s.a") }
}

async fn first(broker: &BrokerConfig, start: Start) -> dwell_connectors::FirstRead {
    match broker.inspect(&from(start)).await.unwrap() {
        ConsumerState::Made(Some(first)) => first,
        other => panic!("{other:?}"),
    }
}

/// The body of the next message, read by a consumer of this group.
async fn next(broker: &BrokerConfig, group: &str, start: Start) -> Message {
    let source =
        broker.source(SourceOptions { group: group.to_owned(), ..from(start) }).await.unwrap();
    let batch = tokio::time::timeout(TIMEOUT, source.recv()).await.unwrap().unwrap();
    source.close().await.unwrap();
    batch.messages.into_iter().next().unwrap()
}

#[tokio::test]
async fn a_new_consumer_begins_where_it_is_told_and_one_that_is_known_goes_on() {
    let server = NatsServer::start("");
    let broker = at(server.url());
    let stream = Config { name: "S".into(), subjects: vec!["s.>".into()], ..Default::default() };
    context(&server).await.create_stream(stream).await.unwrap();
    assert_eq!(first(&broker, Start::Earliest).await.messages, 0);
    publish(&broker, numbered("s.b", 5)).await;
    publish(&broker, numbered("s.a", 200)).await;
    let all = first(&broker, Start::Earliest).await;
    assert_eq!(all.messages, 200, "of its subject alone");
    let oldest = next(&broker, "all", Start::Earliest).await;
    assert_eq!((all.oldest_ms.is_some(), &oldest.body[..]), (true, &b"1"[..]));
    assert_eq!(first(&broker, Start::Latest).await.messages, 0);

    broker.source(from(Start::Latest)).await.unwrap().close().await.unwrap();
    assert_eq!(broker.inspect(&from(Start::Earliest)).await.unwrap(), ConsumerState::Exists);
    publish(&broker, vec![publication(1, "s.a", Message::new("new"))]).await;
    assert_eq!(next(&broker, "readers", Start::Earliest).await.body, "new");

    // Later than everything sent before.
    let since = next(&broker, "readers", Start::Latest).await.timestamp_ms.unwrap() + 1;
    assert_eq!(first_of(&broker, since).await.oldest_ms, Some(since));
    publish(&broker, vec![publication(1, "s.a", Message::new("later"))]).await;
    assert_eq!(next(&broker, "since", Start::At(since)).await.body, "later");
}

async fn first_of(broker: &BrokerConfig, since: i64) -> dwell_connectors::FirstRead {
    match broker
        .inspect(&SourceOptions { group: "since".to_owned(), ..from(Start::At(since)) })
        .await
        .unwrap()
    {
        ConsumerState::Made(Some(first)) => first,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_work_queue_has_no_other_beginning_than_the_earliest() {
    let server = NatsServer::start("");
    let broker = at(server.url());
    declare(&broker, "s.a").await;
    for start in [Start::Latest, Start::At(0)] {
        let Err(error) = broker.source(from(start)).await else { panic!("the source opened") };
        assert!(
            error.kind == ErrorKind::Config && error.message.contains("is a work queue"),
            "{error}"
        );
        assert_eq!(broker.inspect(&from(start)).await.unwrap_err().kind, ErrorKind::Config);
    }
    broker.source(from(Start::Earliest)).await.unwrap();
    // The consumer exists now.
    broker.source(from(Start::Latest)).await.unwrap();
}
