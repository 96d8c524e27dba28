//! JetStream's answers, as outcomes.

use std::time::Duration;

use async_nats::jetstream::stream::{Config, DiscardPolicy};
use dwell_connectors::{Message, Outcome, Value};
use futures_util::StreamExt;

use crate::server::NatsServer;
use crate::{at, collect, context, declare, publication, publish};

#[tokio::test]
async fn a_full_stream_refuses() {
    let server = NatsServer::start("");
    let stream = Config {
        name: "S".into(),
        subjects: vec!["s.>".into()],
        max_messages: 3,
        discard: DiscardPolicy::New,
        max_message_size: 1000,
        ..Config::default()
    };
    context(&server).await.create_stream(stream).await.unwrap();
    let large = publication(0, "s.a", Message::new(vec![0; 2000]));
    let outcomes =
        publish(&at(server.url()), [vec![large], crate::numbered("s.a", 5)].concat_owned()).await;
    assert!(matches!(&outcomes[0], Outcome::Invalid(why) if why.contains("size")), "{outcomes:?}");
    assert!(outcomes[1..4].iter().all(|outcome| *outcome == Outcome::Confirmed), "{outcomes:?}");
    assert!(
        matches!(&outcomes[4..], [Outcome::Refused(one), Outcome::Refused(_)] if one.contains("maximum messages")),
        "{outcomes:?}"
    );
}

#[tokio::test]
async fn what_can_never_pass_is_invalid_and_not_sent() {
    let server = NatsServer::start("");
    let broker = at(server.url());
    declare(&broker, "a").await;
    let mut table = Message::new("x");
    table.headers.push("t", Value::Table(vec![]));
    let outcomes = publish(
        &broker,
        vec![
            publication(0, "a", Message::new(vec![0; 5 << 20])),
            publication(1, "a", Message::new("x").with_header("two", "lines\r\nNats-TTL: 1s")),
            publication(2, "a", table),
            publication(3, "a.*", Message::new("x")),
            publication(4, "a b", Message::new("x")),
            publication(5, "", Message::new("x")),
            publication(6, "a", Message::new("x")),
        ],
    )
    .await;
    assert!(
        outcomes[..6].iter().all(|outcome| matches!(outcome, Outcome::Invalid(_))),
        "{outcomes:?}"
    );
    assert_eq!(outcomes[6], Outcome::Confirmed);
}

#[tokio::test]
async fn a_repeated_dedupe_id_is_confirmed_and_stored_once() {
    let server = NatsServer::start("");
    let broker = at(server.url());
    declare(&broker, "a").await;
    // The producer's own id, and expectations that do not hold, are dropped.
    let message = || {
        Message::new("x")
            .with_header("Nats-Msg-Id", "producer")
            .with_header("Nats-Expected-Stream", "other")
            .with_header("kept", "1")
    };
    let repeated = (0..3).map(|token| dwell_connectors::Publication {
        dedupe_id: "once".into(),
        ..publication(token, "a", message())
    });
    assert_eq!(publish(&broker, repeated.collect()).await, vec![Outcome::Confirmed; 3]);
    let mut stream = context(&server).await.get_stream("DWELL_a").await.unwrap();
    assert_eq!(stream.info().await.unwrap().state.messages, 1);
    let stored = stream.get_raw_message(1).await.unwrap();
    let names: Vec<_> = stored
        .headers
        .iter()
        .map(|(name, values)| format!("{name}={}", values[0].as_str()))
        .collect();
    assert!(
        names.len() == 2
            && names.contains(&"Nats-Msg-Id=once".to_owned())
            && names.contains(&"kept=1".to_owned()),
        "{names:?}"
    );
}

#[tokio::test]
async fn a_time_to_live_is_invalid_where_the_stream_refuses_it() {
    let server = NatsServer::start("");
    let context = context(&server).await;
    for (subject, allow_message_ttl) in [("plain", false), ("ttl", true)] {
        let (name, subjects) = (subject.to_uppercase(), vec![subject.to_owned()]);
        let stream = Config { name, subjects, allow_message_ttl, ..Config::default() };
        context.create_stream(stream).await.unwrap();
    }
    let message = || Message::new("x").with_header("Nats-TTL", "5m");
    let publications = vec![publication(0, "plain", message()), publication(1, "ttl", message())];
    let outcomes = publish(&at(server.url()), publications).await;
    assert!(
        matches!(&outcomes[0], Outcome::Invalid(why) if why.contains("TTL") && why.contains("10166")),
        "{outcomes:?}"
    );
    assert_eq!(outcomes[1], Outcome::Confirmed);
    let stored = context.get_stream("TTL").await.unwrap().get_raw_message(1).await.unwrap();
    let ttl = stored.headers.get("Nats-TTL").map(async_nats::HeaderValue::as_str);
    assert_eq!(ttl, Some("5m"));
}

#[tokio::test]
async fn no_trace_of_a_message_goes_where_its_producer_says() {
    let server = NatsServer::start("");
    let broker = at(server.url());
    declare(&broker, "a").await;
    let client = async_nats::connect(server.url()).await.unwrap();
    let mut traces = client.subscribe("traces").await.unwrap();
    client.flush().await.unwrap();
    let message = Message::new("x")
        .with_header("Nats-Trace-Dest", "traces")
        .with_header("nats-trace-only", "true");
    assert_eq!(publish(&broker, vec![publication(0, "a", message)]).await, [Outcome::Confirmed]);
    client.publish("traces", "nothing before".into()).await.unwrap();
    let first = tokio::time::timeout(crate::TIMEOUT, traces.next()).await.unwrap().unwrap();
    assert_eq!(first.payload, "nothing before");
}

#[tokio::test]
async fn what_is_not_jetstream_is_unknown() {
    let server = NatsServer::start("");
    let client = async_nats::connect(server.url()).await.unwrap();
    let mut answering = client.subscribe("garbage").await.unwrap();
    let _silent = client.subscribe("silent").await.unwrap();
    client.flush().await.unwrap();
    let responder = client.clone();
    tokio::spawn(async move {
        while let Some(message) = answering.next().await {
            responder.publish(message.reply.unwrap(), "hello".into()).await.unwrap();
        }
    });
    let (sink, mut outcomes) = at(server.url()).sink(Duration::from_millis(400)).await.unwrap();
    let start = std::time::Instant::now();
    sink.publish(vec![
        publication(0, "garbage", Message::new("x")),
        publication(1, "silent", Message::new("x")),
    ])
    .await;
    let outcomes = collect(&mut outcomes, 2).await;
    assert!(
        matches!(&outcomes[0], Outcome::Unknown(why) if why.contains("not JetStream")),
        "{outcomes:?}"
    );
    assert!(
        matches!(&outcomes[1], Outcome::Unknown(why) if why.contains("silent")),
        "{outcomes:?}"
    );
    assert!(start.elapsed() > Duration::from_millis(390));
}

/// `concat` for values that are not `Clone`.
trait ConcatOwned<T> {
    fn concat_owned(self) -> Vec<T>;
}

impl<T, const N: usize> ConcatOwned<T> for [Vec<T>; N] {
    fn concat_owned(self) -> Vec<T> {
        self.into_iter().flatten().collect()
    }
}
