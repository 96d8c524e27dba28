//! Messages that lapin's parser cannot read, among good ones: all arrive, and the source continues.

use bytes::Bytes;
use dwell_connectors::{Message, Outcome, Value};
use lapin::options::QueueBindOptions;
use lapin::types::FieldTable;

use crate::server::shared;
use crate::wire::{Wire, long, short};
use crate::{at, client, declared, options, publication, publish, read, to};

const HEADERS: u16 = 1 << 13;
const MESSAGE_ID: u16 = 1 << 7;

/// Publishes raw bytes, to a queue or through `amq.fanout`, between two good messages; returns what
/// a source reads.
async fn among_good_ones(
    queue: &str,
    exchange: &'static str,
    key: &[u8],
    flags: u16,
    properties: Vec<u8>,
) -> Message {
    let server = shared().await;
    let broker = at(server.url());
    let (url, key) = (server.url().to_owned(), key.to_vec());
    let source = broker.source(options(queue)).await.unwrap();
    let good = || publish(&broker, vec![publication(1, to("", queue), Message::new("good"))]);
    assert_eq!(good().await, [Outcome::Confirmed]);
    let publishing = tokio::task::spawn_blocking(move || {
        let mut wire = Wire::connect(&url);
        wire.publish(exchange, &key, flags, &properties, b"poison");
        wire.finish();
    });
    publishing.await.unwrap();
    assert_eq!(good().await, [Outcome::Confirmed]);
    let mut came = read(&*source, 3).await;
    assert_eq!(
        came.iter().map(|message| &message.body[..]).collect::<Vec<_>>(),
        [&b"good"[..], b"poison", b"good"]
    );
    assert!(came.iter().all(|message| !message.redelivered), "the connection was lost");
    came.remove(1)
}

#[tokio::test]
async fn what_is_nested_too_deep_comes_as_bytes_and_goes_out_again() {
    let broker = at(shared().await.url());
    let queue = declared(&broker).await;
    let deep = (0..1000).fold(b"V".to_vec(), |inner, _| [b"A", &long(&inner)[..]].concat());
    let table = long(&[short(b"deep"), deep, short(b"flat"), b"t\x01".to_vec()].concat());
    let came = among_good_ones(&queue, "", queue.as_bytes(), HEADERS, table).await;
    assert_eq!(came.headers.get("flat"), Some(&Value::Bool(true)));
    let (mut value, mut depth) = (came.headers.get("deep").unwrap(), 0);
    while let Value::List(values) = value {
        (value, depth) = (&values[0], depth + 1);
    }
    let Value::Bytes(bytes) = value else { panic!("{value:?}") };
    assert_eq!((depth, bytes.len()), (32, (1000 - 33) * 5 + 1));
    assert_eq!(
        publish(&broker, vec![publication(2, to("", &queue), came.clone())]).await,
        [Outcome::Confirmed]
    );
    let source = broker.source(options(&queue)).await.unwrap();
    assert_eq!(read(&*source, 1).await.remove(0).headers.get("deep"), came.headers.get("deep"));
}

#[tokio::test]
async fn names_and_properties_that_are_no_text_are_named_and_left_out() {
    let queue = declared(&at(shared().await.url())).await;
    let inner = long(&[short(b"\xff"), b"V".to_vec()].concat());
    let table = [
        short(b"na\xffme"),
        b"S".to_vec(),
        long(b"\xff"),
        short(b"deep"),
        b"F".to_vec(),
        inner,
        short(b"good"),
        b"S".to_vec(),
        long(b"\xff"),
    ];
    let table = long(&table.concat());
    let came = among_good_ones(
        &queue,
        "",
        queue.as_bytes(),
        HEADERS | MESSAGE_ID,
        [table, short(b"\xc3\xa4\xc3")].concat(),
    )
    .await;
    assert_eq!(
        (came.headers.len(), came.headers.get("good")),
        (1, Some(&Value::Bytes(Bytes::from_static(b"\xff"))))
    );
    assert_eq!(came.properties.unwrap().message_id, None);
    let named = [
        "the property message_id",
        "a name in the header `deep`",
        "the name of the header `na\u{fffd}me`",
    ];
    assert_eq!(came.unreadable, named);
}

#[tokio::test]
async fn a_key_that_is_no_text_is_named() {
    let server = shared().await;
    let queue = declared(&at(server.url())).await;
    let (_connection, channel) = client(server).await;
    let bound = channel.queue_bind(
        queue.as_str().into(),
        "amq.fanout".into(),
        "".into(),
        QueueBindOptions::default(),
        FieldTable::default(),
    );
    bound.await.unwrap();
    let came = among_good_ones(&queue, "amq.fanout", b"k\xff", 0, vec![]).await;
    assert_eq!(
        (came.destination.exchange.as_str(), came.unreadable),
        ("amq.fanout", vec!["the routing key".to_owned()])
    );
}
