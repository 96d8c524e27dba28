//! Queues that drop redelivered messages, and the cautions about them.

use dwell_connectors::{CautionKind, Destination, ErrorKind, Role};
use lapin::options::{
    BasicGetOptions, BasicNackOptions, BasicPublishOptions, ConfirmSelectOptions,
    QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel};

use crate::server::shared;
use crate::{TIMEOUT, at, client, declared, fresh, make_queue, options, options_of};

fn text(text: &str) -> AMQPValue {
    AMQPValue::LongString(text.into())
}

/// Whether a message survives this many redeliveries.
async fn survives(channel: &Channel, queue: &str, times: usize) -> bool {
    channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
    let published = channel
        .basic_publish(
            "".into(),
            queue.into(),
            BasicPublishOptions::default(),
            b"x",
            BasicProperties::default(),
        )
        .await;
    published.unwrap().await.unwrap();
    for _ in 0..times {
        let deadline = std::time::Instant::now() + TIMEOUT;
        let got = loop {
            if let Some(got) =
                channel.basic_get(queue.into(), BasicGetOptions::default()).await.unwrap()
            {
                break got;
            }
            let asked = QueueDeclareOptions { passive: true, ..Default::default() };
            let there =
                channel.queue_declare(queue.into(), asked, FieldTable::default()).await.unwrap();
            if there.message_count() == 0 || std::time::Instant::now() > deadline {
                return false;
            }
        };
        channel
            .basic_nack(
                got.delivery.delivery_tag,
                BasicNackOptions { requeue: true, ..Default::default() },
            )
            .await
            .unwrap();
    }
    true
}

#[tokio::test]
async fn a_queue_that_drops_what_comes_back_often_is_told() {
    let server = shared().await;
    let broker = at(server.url());
    let (_connection, channel) = client(server).await;
    let quorum = ("x-queue-type", text("quorum"));
    let letters = ("x-dead-letter-exchange", text("amq.fanout"));
    let limit = |limit: i64| ("x-delivery-limit", AMQPValue::LongLongInt(limit));
    let more = ("x-max-length", AMQPValue::LongInt(100));
    let is_3 = server.version().await < (4, 0);
    for (arguments, expected) in [
        (vec![quorum.clone()], Some("has no x-delivery-limit")),
        (
            vec![quorum.clone(), more.clone(), ("x-overflow", text("reject-publish"))],
            Some("has no x-delivery-limit"),
        ),
        (vec![quorum.clone(), limit(5), more.clone()], Some("has an x-delivery-limit of 5")),
        (
            vec![quorum.clone(), limit(-1)],
            is_3.then_some("has an x-delivery-limit of -1: before RabbitMQ 4"),
        ),
        (vec![quorum.clone(), limit(5), letters.clone()], None),
        (vec![quorum.clone(), letters.clone(), more.clone()], None),
        (vec![quorum.clone(), limit(i32::MAX.into())], None),
        (vec![("x-queue-type", text("classic")), more.clone()], None),
        (vec![], None),
    ] {
        let queue = fresh();
        make_queue(&channel, &queue, &arguments).await;
        let mut cautions = broker.cautions(&options(&queue)).await.unwrap();
        cautions.retain(|caution| caution.kind == CautionKind::Drops);
        match (&cautions[..], expected) {
            ([], None) => {}
            ([caution], Some(expected)) => {
                assert_eq!(caution.kind, CautionKind::Drops);
                assert!(
                    caution.message.contains(expected) && caution.hint.contains("2147483647"),
                    "{caution:?}"
                );
            }
            _ => panic!("{arguments:?}: {cautions:?}"),
        }
    }
    let queue = declared(&broker).await;
    assert_eq!(broker.cautions(&options_of(&queue)).await.unwrap(), []);
    // Asking creates nothing.
    let missing = fresh();
    assert_eq!(broker.cautions(&options(&missing)).await.unwrap_err().kind, ErrorKind::Missing);
    broker.declare(&Destination::new(&missing), Role::Ingest).await.unwrap();
}

/// The queue that `declare` creates keeps a message however often it is redelivered. So does a
/// limit of -1 from RabbitMQ 4 on. Without one, 4.0 to 4.2 drop what was returned 20 times.
#[tokio::test]
async fn the_limit_of_a_declared_queue_is_never_reached() {
    let server = shared().await;
    let broker = at(server.url());
    let (_connection, channel) = client(server).await;
    let queue = declared(&broker).await;
    assert!(survives(&channel, &queue, 25).await);
    let queue = fresh();
    let quorum = ("x-queue-type", text("quorum"));
    let version = server.version().await;
    make_queue(&channel, &queue, &[quorum.clone(), ("x-delivery-limit", AMQPValue::LongInt(-1))])
        .await;
    assert_eq!(survives(&channel, &queue, 25).await, version >= (4, 0));
    let queue = fresh();
    make_queue(&channel, &queue, &[quorum]).await;
    assert_eq!(survives(&channel, &queue, 25).await, !((4, 0)..(4, 3)).contains(&version));
}

#[tokio::test]
async fn who_may_not_declare_a_queue_is_told_that_its_limit_is_hidden() {
    let server = shared().await;
    let (_connection, channel) = client(server).await;
    let queue = format!("some-{}", fresh());
    make_queue(&channel, &queue, &[("x-queue-type", text("quorum"))]).await;
    let broker = at(format!("amqp://some:pa%3Ass%40w%25rd@{}", server.address()));
    let cautions = broker.cautions(&options(&queue)).await.unwrap();
    assert!(
        matches!(&cautions[..], [caution] if caution.message.contains("may not see whether")),
        "{cautions:?}"
    );
}
