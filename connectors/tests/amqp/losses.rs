//! Queues that lose what was confirmed to its producer, and streams.

use dwell_connectors::{Caution, CautionKind, ErrorKind};
use lapin::options::QueueDeclareOptions;
use lapin::types::{AMQPValue, FieldTable};

use crate::server::shared;
use crate::{at, client, fresh, options};

/// Flags and arguments of a queue, and what is told of it.
type Case = (QueueDeclareOptions, Vec<(&'static str, AMQPValue)>, &'static [&'static str]);

fn text(text: &str) -> AMQPValue {
    AMQPValue::LongString(text.into())
}

/// Creates a queue; classic unless the arguments say otherwise.
async fn made(
    channel: &lapin::Channel,
    flags: QueueDeclareOptions,
    arguments: &[(&'static str, AMQPValue)],
) -> String {
    let queue = fresh();
    let mut table = FieldTable::default();
    for (name, value) in arguments {
        table.insert((*name).into(), value.clone());
    }
    channel.queue_declare(queue.as_str().into(), flags, table).await.unwrap();
    queue
}

#[tokio::test]
async fn a_queue_that_loses_requests_by_its_arguments_is_told() {
    let server = shared().await;
    let broker = at(server.url());
    let (_connection, channel) = client(server).await;
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    let number = AMQPValue::LongInt;
    let cases: [Case; 9] = [
        (QueueDeclareOptions { auto_delete: true, ..durable }, vec![], &["(auto-delete)"]),
        (QueueDeclareOptions::default(), vec![], &["(not durable)"]),
        (durable, vec![("x-expires", number(86_400_000))], &["x-expires of 86400000 ms"]),
        (durable, vec![("x-message-ttl", number(60_000))], &["x-message-ttl of 60000 ms"]),
        (durable, vec![("x-max-length", number(100))], &["x-max-length of 100"]),
        (
            durable,
            vec![("x-max-length-bytes", number(1000)), ("x-overflow", text("drop-head"))],
            &["x-max-length-bytes of 1000"],
        ),
        (durable, vec![("x-max-length", number(100)), ("x-overflow", text("reject-publish"))], &[]),
        (
            durable,
            vec![
                ("x-queue-type", text("quorum")),
                ("x-max-length", number(7)),
                ("x-expires", number(9_000_000)),
            ],
            &["x-expires of 9000000 ms", "x-max-length of 7"],
        ),
        (durable, vec![], &[]),
    ];
    for (flags, arguments, expected) in cases {
        let queue = made(&channel, flags, &arguments).await;
        let cautions = broker.cautions(&options(&queue)).await.unwrap();
        let losses: Vec<&Caution> =
            cautions.iter().filter(|caution| caution.kind == CautionKind::Loses).collect();
        assert_eq!(losses.len(), expected.len(), "{flags:?} {arguments:?}: {losses:?}");
        for (loss, expected) in losses.iter().zip(expected) {
            assert!(
                loss.message.contains(expected) && loss.hint.contains("create it again"),
                "{loss:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_stream_is_refused() {
    let server = shared().await;
    let broker = at(server.url());
    let (_connection, channel) = client(server).await;
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    for more in [vec![], vec![("x-max-age", text("1D"))]] {
        let queue =
            made(&channel, durable, &[vec![("x-queue-type", text("stream"))], more].concat()).await;
        for error in [
            broker.inspect(&options(&queue)).await.unwrap_err(),
            broker.source(options(&queue)).await.err().unwrap(),
        ] {
            assert!(
                error.kind == ErrorKind::Config
                    && error.message.contains("is a stream")
                    && error.hint.contains("quorum"),
                "{error:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_stream_is_refused_to_a_user_who_may_only_read() {
    let server = shared().await;
    let broker = at(format!("amqp://some:pa%3Ass%40w%25rd@{}", server.address()));
    let (_connection, channel) = client(server).await;
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    for (kind, is_stream) in [("stream", true), ("quorum", false), ("classic", false)] {
        let queue = format!("some-{}", fresh());
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), text(kind));
        channel.queue_declare(queue.as_str().into(), durable, arguments).await.unwrap();
        let found = [
            broker.inspect(&options(&queue)).await.err(),
            broker.source(options(&queue)).await.err(),
        ];
        for error in found {
            let is_told = error.as_ref().is_some_and(|error| {
                error.kind == ErrorKind::Config && error.message.contains("is a stream")
            });
            assert_eq!((error.is_some(), is_told), (is_stream, is_stream), "{kind}: {error:?}");
        }
    }
}
