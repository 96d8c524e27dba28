//! Messages that async-nats cannot parse: they arrive nevertheless, and delay nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use async_nats::jetstream::consumer::pull;
use async_nats::jetstream::stream::Config as StreamConfig;
use bytes::Bytes;
use dwell_connectors::{BrokerConfig, ErrorKind, Message, Source, SourceOptions, Value, nats};

use crate::raw::Raw;
use crate::server::NatsServer;
use crate::{TIMEOUT, at, context, declare, options};

const GOOD: &[u8] = b"NATS/1.0\r\ngood: yes\r\n\r\n";
const BAD: &[u8] = b"NATS/1.0\r\nbad: \xff\xfe\r\n\r\n";
const MALFORMED: &[u8] = b"NATS/1.0\r\nno colon\r\n\r\n";

/// The `ack_wait` of the consumer.
const ACK_WAIT: Duration = Duration::from_millis(900);
/// Well below the default `ack_wait` of 30 s.
const SOON_TIMEOUT: Duration = Duration::from_secs(10);

fn broker(server: &NatsServer) -> BrokerConfig {
    BrokerConfig::Nats(nats::Config { ack_wait: Some(ACK_WAIT), ..nats::Config::at(server.url()) })
}

/// A server with a work queue for the subject `a`.
async fn bench() -> (NatsServer, BrokerConfig, Raw) {
    let server = NatsServer::start("");
    let broker = broker(&server);
    declare(&broker, "a").await;
    let raw = Raw::connect(&server.url()).await;
    (server, broker, raw)
}

async fn recv(source: &dyn Source) -> dwell_connectors::Batch {
    tokio::time::timeout(TIMEOUT, source.recv()).await.expect("messages come").unwrap()
}

/// Reads and acks until this many different positions came.
async fn read(source: &dyn Source, count: usize) -> BTreeMap<u64, Message> {
    let mut seen = BTreeMap::new();
    while seen.len() < count {
        let batch = recv(source).await;
        seen.extend(
            batch
                .messages
                .into_iter()
                .map(|message| (message.position.as_ref().unwrap().offset, message)),
        );
        source.ack(batch.id).await.unwrap();
    }
    seen
}

/// Waits until nothing is left in the stream.
async fn until_empty(server: &NatsServer, name: &str) {
    let stream = context(server).await.get_stream(name).await.unwrap();
    let empty = async {
        while stream.get_info().await.unwrap().state.messages > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, empty).await.expect("every message is acked");
}

#[tokio::test]
async fn each_comes_with_body_headers_and_position() {
    let (server, broker, mut raw) = bench().await;
    let text = |name: &str, value: &str| (name.to_owned(), Value::from(value));
    let cases = [
        (
            &b"NATS/1.0\r\nx: \xff\xfe\r\ndelay-id: 7\r\n\r\n"[..],
            vec![
                text("delay-id", "7"),
                ("x".to_owned(), Value::Bytes(Bytes::from_static(b"\xff\xfe"))),
            ],
        ),
        (b"NATS/1.0\r\nno colon\r\na: b\r\n\r\n", vec![text("", "no colon"), text("a", "b")]),
        (b"NATS/1.0 503\r\na: b\r\n\r\n", vec![text("a", "b")]),
        (b"garbage", vec![text("", "garbage")]),
        // async-nats panics on this.
        (b"NATS/1.0\r\nx: a\rb\r\n\r\n", vec![text("x", "a\rb")]),
        (b"NATS/1.0\r\nx y: z\r\n\r\n", vec![text("x y", "z")]),
        ("NATS/1.0\r\n\u{e4}: z\r\n\r\n".as_bytes(), vec![text("\u{e4}", "z")]),
        (b"NATS/1.0\r\n folded: z\r\n\r\n", vec![text(" folded", "z")]),
        (b"NATS/1.0\r\nx: a\r\n  b\r\n\r\n", vec![text("x", "a  b")]),
        (b"\r\n", vec![]),
        (b"NATS/1.0", vec![]),
    ];
    let body: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    for (block, _) in &cases {
        raw.publish("a", block, &body).await;
    }
    raw.publish("a", GOOD, &body).await;
    let source = broker.source(options("a")).await.unwrap();
    let seen = read(&*source, cases.len() + 1).await;
    for (sequence, (block, expected)) in (1..).zip(&cases) {
        let message = &seen[&sequence];
        let headers: Vec<(String, Value)> = message
            .headers
            .iter()
            .map(|header| (header.name.clone(), header.value.clone()))
            .collect();
        assert_eq!(&headers, expected, "{}", block.escape_ascii());
        assert!(message.body == body && message.has_body);
        assert_eq!(
            (message.destination.address.as_str(), message.position.as_ref().unwrap().log.as_str()),
            ("a", "DWELL_a")
        );
        let age =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis()
                as i64;
        assert!(
            (0..60_000).contains(&(age - message.timestamp_ms.unwrap())),
            "{:?}",
            message.timestamp_ms
        );
    }
    until_empty(&server, "DWELL_a").await;
    source.close().await.unwrap();
}

/// First, last and in between, for two readers at once, one of which is killed and restarted in the
/// middle.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn good_ones_around_them_come_too_to_several_readers_over_a_restart() {
    let (server, broker, mut raw) = bench().await;
    const MESSAGE_COUNT: u64 = 600;
    let unreadable =
        |number: u64| number == 1 || number == MESSAGE_COUNT || number.is_multiple_of(97);
    for number in 1..=MESSAGE_COUNT {
        let block = if !unreadable(number) {
            GOOD
        } else if number.is_multiple_of(2) {
            MALFORMED
        } else {
            BAD
        };
        raw.publish("a", block, number.to_string().as_bytes()).await;
    }
    let options = SourceOptions { max_batch: 10, max_unsettled: 200, ..options("a") };
    let reader = |most: usize| {
        let (broker, options) = (broker.clone(), options.clone());
        // A runtime of its own, which ends as a killed process does: no message is returned.
        tokio::task::spawn_blocking(move || {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            let seen = runtime.block_on(read_some(&broker, options, most));
            runtime.shutdown_background();
            seen
        })
    };
    let (one, other) = tokio::join!(reader(100), reader(usize::MAX));
    let again = reader(usize::MAX).await.unwrap();
    let seen: BTreeMap<u64, Message> =
        one.unwrap().into_iter().chain(other.unwrap()).chain(again).collect();
    assert_eq!(seen.keys().copied().collect::<Vec<_>>(), (1..=MESSAGE_COUNT).collect::<Vec<_>>());
    for (number, message) in seen {
        assert_eq!(message.body, number.to_string());
        assert_eq!(
            message.headers.get("good").is_none(),
            unreadable(number),
            "{number}: {:?}",
            message.headers
        );
    }
    until_empty(&server, "DWELL_a").await;
}

/// Reads and acks this many messages, or until none comes any more; leaves a batch unsettled.
async fn read_some(
    broker: &BrokerConfig,
    options: SourceOptions,
    most: usize,
) -> BTreeMap<u64, Message> {
    let source = broker.source(options).await.unwrap();
    let (mut seen, mut count) = (BTreeMap::new(), 0);
    while count < most
        && let Ok(batch) = tokio::time::timeout(ACK_WAIT * 4, source.recv()).await
    {
        let batch = batch.unwrap();
        count += batch.messages.len();
        seen.extend(
            batch
                .messages
                .into_iter()
                .map(|message| (message.position.as_ref().unwrap().offset, message)),
        );
        source.ack(batch.id).await.unwrap();
    }
    std::mem::forget(source);
    seen
}

#[tokio::test]
async fn one_that_was_delivered_before_the_source_opened_holds_nothing_up() {
    let (server, broker, mut raw) = bench().await;
    broker.source(options("a")).await.unwrap().close().await.unwrap();
    raw.publish("a", BAD, b"bad").await;
    raw.publish("a", GOOD, b"good").await;
    let mut gone = Raw::connect(&server.url()).await;
    gone.take("DWELL_a", "readers", 2).await;
    drop(gone);
    let source = broker.source(options("a")).await.unwrap();
    let seen = read(&*source, 2).await;
    assert_eq!((seen[&1].body.as_ref(), seen[&2].body.as_ref()), (&b"bad"[..], &b"good"[..]));
    until_empty(&server, "DWELL_a").await;
}

#[tokio::test]
async fn one_is_held_and_given_back_as_any_other() {
    let (server, broker, mut raw) = bench().await;
    raw.publish("a", BAD, b"bad").await;
    let source = broker.source(options("a")).await.unwrap();
    let held = recv(&*source).await;
    // Longer than `ack_wait`: nothing comes again, and new messages come.
    assert!(
        tokio::time::timeout(ACK_WAIT * 2, source.recv()).await.is_err(),
        "what is held came again"
    );
    raw.publish("a", GOOD, b"good").await;
    let good = recv(&*source).await;
    assert_eq!(good.messages[0].body, "good");
    assert_eq!(good.messages.len(), 1);
    source.ack(good.id).await.unwrap();

    source.nack(held.id).await.unwrap();
    let again = recv(&*source).await;
    assert_eq!(again.messages[0].body, "bad");
    // Closing returns it too: another reader gets it at once.
    source.close().await.unwrap();
    let source = broker.source(options("a")).await.unwrap();
    assert_eq!(read(&*source, 1).await[&1].body, "bad");
    until_empty(&server, "DWELL_a").await;
}

/// With the usual `ack_wait`, messages behind an unreadable one do not wait for it.
#[tokio::test]
async fn those_behind_one_come_long_before_ack_wait() {
    let server = NatsServer::start("");
    let broker = at(server.url());
    declare(&broker, "a").await;
    let mut raw = Raw::connect(&server.url()).await;
    let source = broker.source(options("a")).await.unwrap();
    const MESSAGE_COUNT: u64 = 300;
    for number in 1..=MESSAGE_COUNT {
        let block = if number == 1 || number.is_multiple_of(37) { BAD } else { GOOD };
        raw.publish("a", block, number.to_string().as_bytes()).await;
    }
    let seen = tokio::time::timeout(SOON_TIMEOUT, read(&*source, MESSAGE_COUNT as usize))
        .await
        .expect("all come soon");
    assert_eq!(seen.keys().copied().collect::<Vec<_>>(), (1..=MESSAGE_COUNT).collect::<Vec<_>>());
    until_empty(&server, "DWELL_a").await;
}

/// A reader closes and returns an unreadable message and others: the next one gets them all.
#[tokio::test]
async fn those_returned_behind_one_come_long_before_ack_wait() {
    let server = NatsServer::start("");
    let broker = at(server.url());
    declare(&broker, "a").await;
    let mut raw = Raw::connect(&server.url()).await;
    const MESSAGE_COUNT: u64 = 50;
    for number in 1..=MESSAGE_COUNT {
        raw.publish("a", if number == 7 { BAD } else { GOOD }, number.to_string().as_bytes()).await;
    }
    let source = broker.source(options("a")).await.unwrap();
    let hold_all = async {
        let mut held = 0;
        while held < MESSAGE_COUNT as usize {
            held += recv(&*source).await.messages.len();
        }
    };
    tokio::time::timeout(SOON_TIMEOUT, hold_all).await.expect("all come soon");
    source.close().await.unwrap();
    let source = broker.source(options("a")).await.unwrap();
    tokio::time::timeout(SOON_TIMEOUT, read(&*source, MESSAGE_COUNT as usize))
        .await
        .expect("all come again soon");
    until_empty(&server, "DWELL_a").await;
}

/// On a stream of many subjects that keeps settled messages.
#[tokio::test]
async fn what_others_hold_and_other_subjects_are_left_alone() {
    let server = NatsServer::start("");
    let broker = broker(&server);
    let stream =
        StreamConfig { name: "S".into(), subjects: vec!["s.>".into()], ..StreamConfig::default() };
    let mut stream = context(&server).await.create_stream(stream).await.unwrap();
    let mut raw = Raw::connect(&server.url()).await;
    raw.publish("s.a", GOOD, b"held").await;
    let first = broker.source(options("s.a")).await.unwrap();
    let held = recv(&*first).await;
    assert_eq!(held.messages[0].body, "held");
    // It reads no more, and keeps what it has.
    first.pause(true).await.unwrap();
    let asks = async {
        while stream.consumer_info("readers").await.unwrap().num_waiting > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, asks).await.expect("its requests end");

    for number in 0..40 {
        raw.publish("s.b", BAD, number.to_string().as_bytes()).await;
    }
    raw.publish("s.a", BAD, b"bad").await;
    let second = broker.source(options("s.a")).await.unwrap();
    let seen = read(&*second, 1).await;
    assert_eq!(seen.values().next().unwrap().body, "bad");
    let info = || async { stream.consumer_info("readers").await.unwrap() };
    let settled = async {
        while info().await.num_ack_pending != 1 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, settled).await.expect("one is acked, the other is held");
    assert!(
        tokio::time::timeout(ACK_WAIT * 2, second.recv()).await.is_err(),
        "what is held came to another"
    );
    first.ack(held.id).await.unwrap();
    let settled = async {
        while info().await.num_ack_pending != 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, settled).await.expect("both are acked");
    assert_eq!(stream.info().await.unwrap().state.messages, 42);
}

/// With a pattern as topic, a subject may be unparsable for async-nats.
#[tokio::test]
async fn a_subject_that_is_not_utf_8_or_has_white_space_comes() {
    let server = NatsServer::start("");
    let broker = broker(&server);
    let stream =
        StreamConfig { name: "S".into(), subjects: vec!["s.>".into()], ..StreamConfig::default() };
    let stream = context(&server).await.create_stream(stream).await.unwrap();
    let with = pull::Config {
        durable_name: Some("readers".into()),
        filter_subject: "s.>".into(),
        ack_wait: ACK_WAIT,
        ..Default::default()
    };
    stream.create_consumer(with).await.unwrap();
    let mut raw = Raw::connect(&server.url()).await;
    raw.publish(b"s.\xff", GOOD, b"1").await;
    raw.publish("s.\u{a0}x", GOOD, b"2").await;
    raw.publish("s.y", GOOD, b"3").await;
    let source = broker.source(options("s.>")).await.unwrap();
    let seen = read(&*source, 3).await;
    let subjects: Vec<&str> =
        seen.values().map(|message| message.destination.address.as_str()).collect();
    assert_eq!(subjects, ["s.\u{fffd}", "s.\u{a0}x", "s.y"]);
    assert!(seen.values().all(|message| message.headers.text("good") == Some("yes")));
}

#[tokio::test]
async fn without_the_permission_to_fetch_them_the_source_says_so() {
    let server = NatsServer::start(concat!(
        "authorization { users: [\n",
        "  { user: all, password: p }\n",
        "  { user: few, password: p, permissions: { publish: { allow: [\"$JS.ACK.>\", \"$JS.API.STREAM.NAMES\", ",
        "\"$JS.API.STREAM.INFO.*\", \"$JS.API.CONSUMER.>\"] }, subscribe: \"_INBOX.>\" } }\n] }\n",
    ));
    let url = |user: &str| server.url().replace("nats://", &format!("nats://{user}:p@"));
    let of = |user: &str| {
        BrokerConfig::Nats(nats::Config { ack_wait: Some(ACK_WAIT), ..nats::Config::at(url(user)) })
    };
    declare(&of("all"), "a").await;
    let mut raw = Raw::connect_as(&server.url(), r#""user":"all","pass":"p","#).await;
    raw.publish("a", GOOD, b"good").await;
    let source = of("few").source(options("a")).await.unwrap();
    assert_eq!(read(&*source, 1).await[&1].body, "good");

    raw.publish("a", BAD, b"bad").await;
    let error = tokio::time::timeout(TIMEOUT, source.recv()).await.unwrap().unwrap_err();
    assert!(
        error.kind == ErrorKind::Denied
            && error.message.contains("STREAM.MSG.GET")
            && error.hint.contains("$JS.API.>"),
        "{error}"
    );
}
