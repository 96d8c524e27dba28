//! Kafka's parts of a message besides the body, and its partition.

use std::time::Duration;

use bytes::Bytes;
use dwell_connectors::{Header, Headers, Message, Value};
use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

use crate::server::shared;
use crate::{at, confirmed, create, declare, fresh, options, publication, raw, read};

fn header(name: &str, value: Value) -> Header {
    Header { name: name.to_owned(), value }
}

#[tokio::test]
async fn tombstones_keys_and_headers_survive() {
    let (broker, topic) = (at(shared()), fresh("messages"));
    declare(&broker, &topic).await;
    let tombstone =
        Message { has_body: false, key: Some(Bytes::from_static(b"k")), ..Message::default() };
    let empty = Message { key: Some(Bytes::new()), ..Message::new("") };
    let headers = [
        header("b", Value::from("2")),
        header("a", Value::from("1")),
        header("b", Value::Null),
        header("b", Value::from("")),
        header("bytes", Value::Bytes(Bytes::from_static(b"\xff\xfe\0"))),
        header("", Value::from("no name")),
    ];
    let full = Message {
        headers: headers.into_iter().collect(),
        ..Message::new(Bytes::from_static(b"\0\xff"))
    };
    let sent = [tombstone, empty, full];
    confirmed(
        &broker,
        sent.iter()
            .zip(1..)
            .map(|(message, token)| publication(token, &topic, message.clone()))
            .collect(),
    )
    .await;

    let source = broker.source(options(&topic)).await.unwrap();
    let came = read(&*source, 3).await;
    for (offset, (came, sent)) in came.iter().zip(&sent).enumerate() {
        assert_eq!(
            (&came.body, came.has_body, &came.key, &came.headers),
            (&sent.body, sent.has_body, &sent.key, &sent.headers)
        );
        let position = came.position.as_ref().unwrap();
        assert_eq!(
            (position.log.as_str(), position.partition, position.offset),
            (topic.as_str(), 0, offset as u64)
        );
        assert!(came.redelivered && came.properties.is_none());
    }
    source.close().await.unwrap();
}

#[tokio::test]
async fn a_header_whose_name_is_not_utf_8_is_told_by_its_position_and_left_out() {
    let (broker, topic) = (at(shared()), fresh("names"));
    declare(&broker, &topic).await;
    let headers: [(&[u8], &[u8]); 4] =
        [(b"a", b"1"), (b"delay-i\xff", b"job1"), (b"b", b"2"), (b"x-\xfe", b"3")];
    raw::publish(&shared().address(), &topic, b"not whole", &headers);
    raw::publish(&shared().address(), &topic, b"whole", &[("täxt".as_bytes(), b"4")]);
    let source = broker.source(options(&topic)).await.unwrap();
    let came = read(&*source, 2).await;
    source.close().await.unwrap();
    assert_eq!((&came[0].body[..], &came[1].body[..]), (&b"not whole"[..], &b"whole"[..]));
    assert_eq!(came[0].unreadable, ["the name of header 2", "the name of header 4"]);
    let left = [header("a", Value::from("1")), header("b", Value::from("2"))];
    assert_eq!(came[0].headers, Headers::from_iter(left));
    assert_eq!((came[1].headers.text("täxt"), came[1].unreadable.len()), (Some("4"), 0));
}

#[tokio::test]
async fn the_timestamp_is_the_producers_or_the_logs() {
    let broker = at(shared());
    for (kind, expected) in [("CreateTime", Some(1_600_000_000_123)), ("LogAppendTime", None)] {
        let topic = fresh("times");
        create(shared(), &topic, 1, &[("message.timestamp.type", kind)]).await;
        let address = shared().address();
        let to = topic.clone();
        tokio::task::spawn_blocking(move || {
            let producer: BaseProducer =
                ClientConfig::new().set("bootstrap.servers", address).create().unwrap();
            producer
                .send(BaseRecord::<(), str>::to(&to).payload("x").timestamp(1_600_000_000_123))
                .unwrap();
            producer.flush(Duration::from_secs(10)).unwrap();
        })
        .await
        .unwrap();
        let source = broker.source(options(&topic)).await.unwrap();
        let came = read(&*source, 1).await[0].timestamp_ms.unwrap();
        let now =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis()
                as i64;
        match expected {
            Some(time) => assert_eq!(came, time),
            None => assert!((0..60_000).contains(&(now - came)), "{came}"),
        }
    }
}

/// Keys and their partitions of seven, by `Utils.toPositive(Utils.murmur2(key)) % 7` of Apache
/// Kafka 4.1.1.
const JAVA: [(&[u8], i32); 7] = [
    (b"21", 3),
    (b"foobar", 0),
    (b"a-little-bit-long-string", 1),
    (b"order-17", 6),
    ("täxt".as_bytes(), 4),
    (b"\x00\xff\x80\x07", 5),
    (b"", 2),
];

#[tokio::test]
async fn keys_go_to_the_partition_that_java_clients_choose() {
    let (broker, topic) = (at(shared()), fresh("keys"));
    create(shared(), &topic, 7, &[]).await;
    let publications = JAVA.iter().zip(1..).map(|((key, _), token)| {
        let message = Message { key: Some(Bytes::from_static(key)), ..Message::new("x") };
        publication(token, &topic, message)
    });
    confirmed(&broker, publications.collect()).await;
    let source = broker.source(options(&topic)).await.unwrap();
    let mut came: Vec<_> = read(&*source, JAVA.len())
        .await
        .into_iter()
        .map(|message| (message.key.unwrap(), message.position.unwrap().partition))
        .collect();
    let mut expected = JAVA.map(|(key, partition)| (Bytes::from_static(key), partition));
    came.sort();
    expected.sort();
    assert_eq!(came, expected);
}
