//! Every property and header type passes in both directions.

use bytes::Bytes;
use dwell_connectors::{Message, Outcome, Properties, Value};
use lapin::BasicProperties;
use lapin::options::BasicPublishOptions;
use lapin::types::{AMQPValue, FieldTable, LongString};

use crate::server::shared;
use crate::{at, client, declared, options, publication, publish, read, to};

fn all_properties() -> Properties {
    let text = |text: &str| Some(text.to_owned());
    Properties {
        content_type: text("application/x"),
        content_encoding: text("gzip"),
        delivery_mode: Some(2),
        priority: Some(7),
        correlation_id: text("c"),
        reply_to: text("replies"),
        expiration: text("600000"),
        message_id: text("producer's"),
        timestamp: Some(1_700_000_000),
        kind: text("kind"),
        user_id: text("guest"),
        app_id: text("app"),
        cluster_id: text("cluster"),
    }
}

#[tokio::test]
async fn every_type_comes_back_as_itself() {
    let server = shared().await;
    let broker = at(server.url());
    let queue = declared(&broker).await;
    let inner = vec![(
        "in".to_owned(),
        Value::List(vec![Value::Bool(true), Value::Null, Value::Table(vec![])]),
    )];
    let values = [
        Value::Null,
        Value::Bool(true),
        Value::I8(-8),
        Value::I16(-16),
        Value::I32(-32),
        Value::I64(i64::MIN),
        Value::U8(u8::MAX),
        Value::U16(u16::MAX),
        Value::U32(u32::MAX),
        Value::F32(0.1),
        Value::F64(0.1),
        Value::Decimal(2, 314),
        Value::Text("täxt".to_owned()),
        Value::Bytes(Bytes::from_static(b"\0\xff")),
        Value::Timestamp(1_700_000_000),
        Value::List(vec!["a".into(), Value::I32(1)]),
        Value::Table(inner),
    ];
    let mut message = Message {
        properties: Some(Box::new(all_properties())),
        ..Message::new(Bytes::from_iter(0..=255))
    };
    for (number, value) in values.into_iter().enumerate() {
        message.headers.push(format!("h{number:02}"), value);
    }
    assert_eq!(
        publish(&broker, vec![publication(0, to("", &queue), message.clone())]).await,
        [Outcome::Confirmed]
    );
    let source = broker.source(options(&queue)).await.unwrap();
    let came = read(&*source, 1).await.remove(0);
    assert_eq!(came, Message { destination: to("", &queue), ..message });
}

#[tokio::test]
async fn another_clients_message_is_read_as_it_is() {
    let server = shared().await;
    let broker = at(server.url());
    let queue = declared(&broker).await;
    let (_connection, channel) = client(server).await;
    let mut headers = FieldTable::default();
    headers.insert("not-text".into(), AMQPValue::LongString(LongString::from(b"\xff\0".to_vec())));
    headers.insert("x-delay".into(), AMQPValue::LongInt(5000));
    for properties in [BasicProperties::default(), BasicProperties::default().with_headers(headers)]
    {
        let exchange = "amq.topic".into();
        let bound = channel.queue_bind(
            queue.as_str().into(),
            "amq.topic".into(),
            "#".into(),
            Default::default(),
            FieldTable::default(),
        );
        bound.await.unwrap();
        channel
            .basic_publish(
                exchange,
                queue.as_str().into(),
                BasicPublishOptions::default(),
                b"",
                properties,
            )
            .await
            .unwrap();
    }
    let source = broker.source(options(&queue)).await.unwrap();
    let came = read(&*source, 2).await;
    let bare = Message {
        destination: to("amq.topic", &queue),
        properties: Some(Box::default()),
        ..Message::new("")
    };
    assert_eq!(came[0], bare);
    assert_eq!(came[1].headers.get("not-text"), Some(&Value::Bytes(Bytes::from_static(b"\xff\0"))));
    assert_eq!(came[1].headers.get("x-delay"), Some(&Value::I32(5000)));
}

#[tokio::test]
async fn a_repeated_header_goes_out_as_a_list() {
    let server = shared().await;
    let broker = at(server.url());
    let queue = declared(&broker).await;
    let message = Message::new("x")
        .with_header("twice", "1")
        .with_header("once", "x")
        .with_header("twice", "2");
    assert_eq!(
        publish(&broker, vec![publication(0, to("", &queue), message)]).await,
        [Outcome::Confirmed]
    );
    let source = broker.source(options(&queue)).await.unwrap();
    let came = read(&*source, 1).await.remove(0);
    assert_eq!(came.headers.get("twice"), Some(&Value::List(vec!["1".into(), "2".into()])));
    assert_eq!((came.headers.text("once"), came.headers.len()), (Some("x"), 2));
}
