//! Existing consumers, and messages that must not get stuck.

use std::time::{Duration, Instant};

use async_nats::jetstream::consumer::{AckPolicy, FromConsumer, pull, push};
use dwell_connectors::{
    Acks, BrokerConfig, Destination, ErrorKind, Message, Role, Source, SourceOptions,
};
use futures_util::StreamExt;

use crate::server::NatsServer;
use crate::{TIMEOUT, at, context, declare, numbered, options, publication, publish};

async fn refused(broker: &BrokerConfig, topic: &str) -> dwell_connectors::ConnectorError {
    match broker.source(options(topic)).await {
        Ok(_) => panic!("the source opened"),
        Err(error) => error,
    }
}

async fn read(source: &dyn Source, count: usize) -> usize {
    let mut seen = 0;
    while seen < count {
        let batch = tokio::time::timeout(TIMEOUT, source.recv())
            .await
            .unwrap_or_else(|_| panic!("{seen} of {count} came"))
            .unwrap();
        seen += batch.messages.len();
        source.ack(batch.id).await.unwrap();
    }
    seen
}

#[tokio::test]
async fn a_consumer_that_loses_messages_is_put_right_or_refused() {
    let server = NatsServer::start("");
    let broker = at(server.url());
    let js = context(&server).await;
    let stream = js.create_stream(async_nats::jetstream::stream::Config {
        name: "S".into(),
        subjects: vec!["s.>".into()],
        ..Default::default()
    });
    let stream = stream.await.unwrap();
    let with = |name: &str| pull::Config {
        durable_name: Some(name.into()),
        ack_policy: AckPolicy::Explicit,
        filter_subject: "s.a".into(),
        ..Default::default()
    };

    let short = Duration::from_millis(100);
    stream
        .create_consumer(pull::Config {
            max_deliver: 3,
            max_ack_pending: 10,
            max_expires: short,
            ..with("readers")
        })
        .await
        .unwrap();
    broker.source(options("s.a")).await.unwrap().close().await.unwrap();
    let config = stream.consumer_info("readers").await.unwrap().config;
    assert_eq!(
        (config.max_deliver, config.max_ack_pending, config.max_expires),
        (-1, 1000, Duration::ZERO)
    );

    let error = refused(&broker, "s.b").await;
    assert_eq!(error.kind, ErrorKind::Config);
    assert!(error.message.contains("`s.b`") && error.message.contains("`s.a`"), "{error}");

    stream.delete_consumer("readers").await.unwrap();
    stream
        .create_consumer(pull::Config { ack_policy: AckPolicy::None, ..with("readers") })
        .await
        .unwrap();
    let error = refused(&broker, "s.a").await;
    assert!(
        error.kind == ErrorKind::Config
            && error.message.contains("ack policy")
            && !error.hint.is_empty(),
        "{error}"
    );

    stream.delete_consumer("readers").await.unwrap();
    let pushed = push::Config {
        durable_name: Some("readers".into()),
        deliver_subject: "d".into(),
        filter_subject: "s.a".into(),
        ..Default::default()
    };
    stream.create_consumer(pushed).await.unwrap();
    assert!(refused(&broker, "s.a").await.message.contains("push"));
}

#[tokio::test]
async fn a_second_group_on_a_work_queue_is_refused_with_its_hint() {
    let server = NatsServer::start("");
    let broker = at(server.url());
    declare(&broker, "a").await;
    let _first = broker.source(options("a")).await.unwrap();
    let Err(error) = broker.source(SourceOptions { group: "others".into(), ..options("a") }).await
    else {
        panic!("the source opened")
    };
    assert!(
        error.kind == ErrorKind::Denied && error.hint.contains("work-queue"),
        "{error}: {}",
        error.hint
    );
}

#[tokio::test]
async fn without_acks_what_was_sent_is_forgotten_and_room_is_made_all_the_same() {
    let server = NatsServer::start("");
    let broker = at(server.url());
    broker.declare(&Destination::new("a"), Role::Letters).await.unwrap();
    publish(&broker, numbered("a", 100)).await;
    let without =
        SourceOptions { acks: Acks::None, max_batch: 3, max_unsettled: 7, ..options("a") };
    let source = broker.source(without.clone()).await.unwrap();
    read(&*source, 90).await;
    let offsets = |batch: dwell_connectors::Batch| {
        batch
            .messages
            .into_iter()
            .map(|message| message.position.unwrap().offset)
            .collect::<Vec<_>>()
    };
    // Sent, and never acked.
    let last = offsets(tokio::time::timeout(TIMEOUT, source.recv()).await.unwrap().unwrap())
        .into_iter()
        .max();
    source.close().await.unwrap();
    publish(&broker, numbered("a", 1)).await;
    let source = broker.source(without).await.unwrap();
    let first = offsets(tokio::time::timeout(TIMEOUT, source.recv()).await.unwrap().unwrap())
        .into_iter()
        .min();
    assert!(first > last, "{first:?} after {last:?}");
    // An ingest would lose jobs with it.
    assert!(refused(&broker, "a").await.message.contains("ack policy"));
}

#[tokio::test]
async fn a_deleted_consumer_is_missing() {
    let server = NatsServer::start("");
    let broker = at(server.url());
    declare(&broker, "a").await;
    let source = broker.source(options("a")).await.unwrap();
    let stream = context(&server).await.get_stream("DWELL_a").await.unwrap();
    stream.delete_consumer("readers").await.unwrap();
    let error = tokio::time::timeout(TIMEOUT, source.recv()).await.unwrap().unwrap_err();
    assert!(matches!(error.kind, ErrorKind::Missing | ErrorKind::Disconnected), "{error}");
    // Opening creates it again.
    broker.source(options("a")).await.unwrap();
}

/// `ack_wait` is 30 s here: a stuck message would not come in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_stuck_after_close_or_drop_under_load() {
    let server = NatsServer::start("");
    let broker = at(server.url());
    declare(&broker, "a").await;
    let publishing = tokio::spawn({
        let broker = broker.clone();
        async move { publish(&broker, numbered("a", 20_000)).await.len() }
    });
    let mut acked = 0;
    for round in 0..4 {
        let source = broker
            .source(SourceOptions { max_batch: 50, max_unsettled: 3000, ..options("a") })
            .await
            .unwrap();
        acked += read(&*source, 500).await;
        // One batch stays unsettled.
        source.recv().await.unwrap();
        if round % 2 == 0 { source.close().await.unwrap() } else { drop(source) }
    }
    assert_eq!(publishing.await.unwrap(), 20_000);
    let start = Instant::now();
    let source = broker
        .source(SourceOptions { max_batch: 1000, max_unsettled: 10_000, ..options("a") })
        .await
        .unwrap();
    // The end of a dropped source may overtake an ack: only missing messages matter.
    read(&*source, 20_000 - acked).await;
    assert!(start.elapsed() < Duration::from_secs(30), "it took {:?}", start.elapsed());
    source.close().await.unwrap();
    let mut stream = context(&server).await.get_stream("DWELL_a").await.unwrap();
    assert_eq!(stream.info().await.unwrap().state.messages, 0);
}

#[tokio::test]
async fn a_source_that_is_never_answered_ends_although_its_connection_lives() {
    // Fetch requests go to a subject that nobody answers.
    let server =
        NatsServer::start("mappings { \"$JS.API.CONSUMER.MSG.NEXT.*.*\": \"void.$1.$2\" }\n");
    let client = async_nats::connect(server.url()).await.unwrap();
    let mut heard = client.subscribe("void.>").await.unwrap();
    client.flush().await.unwrap();
    let broker = at(server.url());
    declare(&broker, "a").await;
    let source = broker.source(options("a")).await.unwrap();
    let error = tokio::time::timeout(TIMEOUT * 2, source.recv()).await.unwrap().unwrap_err();
    assert!(
        error.kind == ErrorKind::Disconnected && error.message.contains("does not answer any more"),
        "{error}"
    );
    assert!(heard.next().await.is_some(), "it asked");
}

#[tokio::test]
async fn a_refusal_is_forgotten_once_nothing_is_wanted() {
    let server = NatsServer::start("");
    let broker = at(server.url());
    declare(&broker, "a").await;
    broker.source(options("a")).await.unwrap().close().await.unwrap();
    // The request of another client, open for longer than a source waits for an answer, is all that
    // the consumer accepts.
    let js = context(&server).await;
    let stream = js.get_stream("DWELL_a").await.unwrap();
    let config = stream.consumer_info("readers").await.unwrap().config;
    stream.delete_consumer("readers").await.unwrap();
    let config =
        pull::Config { max_waiting: 1, ..pull::Config::try_from_consumer_config(config).unwrap() };
    let consumer = stream.create_consumer(config).await.unwrap();
    let mut other =
        consumer.batch().max_messages(1).expires(Duration::from_secs(14)).messages().await.unwrap();
    let deadline = std::time::Instant::now() + TIMEOUT;
    while stream.consumer_info("readers").await.unwrap().num_waiting == 0 {
        assert!(std::time::Instant::now() < deadline, "the other's request does not arrive");
    }
    let client = async_nats::connect(server.url()).await.unwrap();
    let mut answers = client.subscribe("_INBOX.>").await.unwrap();
    client.flush().await.unwrap();
    let source = broker.source(options("a")).await.unwrap();
    let refusal = async {
        while answers.next().await.unwrap().status.is_none_or(|status| status.as_u16() != 409) {}
    };
    tokio::time::timeout(TIMEOUT, refusal).await.expect("it is refused");
    source.pause(true).await.unwrap();
    tokio::select! {
        nothing = other.next() => assert!(nothing.is_none(), "its request is over"),
        ended = source.recv() => panic!("{ended:?}"),
    }
    source.pause(false).await.unwrap();
    publish(&broker, numbered("a", 3)).await;
    assert_eq!(read(&*source, 3).await, 3);
    source.close().await.unwrap();
}

#[tokio::test]
async fn large_messages_are_read_ahead_by_their_bytes() {
    const LARGE_MESSAGES: usize = 24;
    let server = NatsServer::start("");
    let broker = at(server.url());
    declare(&broker, "a").await;
    let large = |token| publication(token, "a", Message::new(vec![b'x'; 1_000_000]));
    publish(&broker, (0..LARGE_MESSAGES as u64).map(large).collect()).await;
    // Less than the largest message, 4 MiB on this server: two of those may be unsettled, and as
    // much in flight.
    let source = broker
        .source(SourceOptions { max_unsettled_bytes: 1 << 20, ..options("a") })
        .await
        .unwrap();
    let js = context(&server).await;
    let stream = js.get_stream("DWELL_a").await.unwrap();
    let mut seen = 0;
    while seen < LARGE_MESSAGES {
        let batch = tokio::time::timeout(TIMEOUT, source.recv())
            .await
            .unwrap_or_else(|_| panic!("{seen} of {LARGE_MESSAGES} came"))
            .unwrap();
        seen += batch.messages.len();
        source.ack(batch.id).await.unwrap();
        // Once the server has all acks, only untaken messages are outstanding.
        let settled = async {
            loop {
                let info = stream.consumer_info("readers").await.unwrap();
                if info.ack_floor.stream_sequence >= seen as u64 {
                    return info.num_ack_pending;
                }
            }
        };
        let out = tokio::time::timeout(TIMEOUT, settled).await.unwrap();
        assert!(out <= 16, "{out} messages of a megabyte are out");
    }
    source.close().await.unwrap();
}
