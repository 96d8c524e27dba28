//! Reading queues, and returning messages.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use dwell_connectors::{ConsumerState, ErrorKind, SourceOptions};
use lapin::Channel;
use lapin::options::{QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::{AMQPValue, FieldTable};

use crate::server::shared;
use crate::{
    TIMEOUT, at, client, declared, fresh, make_queue, numbered, options, publish, read, refused, to,
};

#[tokio::test]
async fn what_a_closed_source_had_comes_again_and_says_so() {
    let server = shared().await;
    let broker = at(server.url());
    let queue = declared(&broker).await;
    publish(&broker, numbered(&to("", &queue), 20)).await;
    let first = broker.source(SourceOptions { max_batch: 5, ..options(&queue) }).await.unwrap();
    let batch = first.recv().await.unwrap();
    assert!(batch.messages.iter().all(|message| !message.redelivered
        && message.position.is_none()
        && message.timestamp_ms.is_none()));
    first.close().await.unwrap();
    let second = broker.source(options(&queue)).await.unwrap();
    let again = read(&*second, 20).await;
    assert!(again[..batch.messages.len()].iter().all(|message| message.redelivered));
}

#[tokio::test]
async fn batches_are_settled_in_any_order() {
    let server = shared().await;
    let broker = at(server.url());
    let queue = declared(&broker).await;
    publish(&broker, numbered(&to("", &queue), 100)).await;
    let source = broker.source(SourceOptions { max_batch: 7, ..options(&queue) }).await.unwrap();
    let (mut batches, mut count) = (Vec::new(), 0);
    while count < 100 {
        let batch = source.recv().await.unwrap();
        count += batch.messages.len();
        batches.push(batch);
    }
    // In reverse order, every third batch nacked: an ack for all earlier deliveries would settle
    // others.
    let mut given_back = Vec::new();
    for (number, batch) in batches.into_iter().enumerate().rev() {
        if number % 3 == 1 {
            source.nack(batch.id).await.unwrap();
            given_back.extend(batch.messages.into_iter().map(|message| message.body));
        } else {
            source.ack(batch.id).await.unwrap();
        }
    }
    let mut again: Vec<_> =
        read(&*source, given_back.len()).await.into_iter().map(|message| message.body).collect();
    again.sort();
    given_back.sort();
    assert_eq!(again, given_back);
    source.close().await.unwrap();
    let (_connection, channel) = client(server).await;
    let passive = QueueDeclareOptions { passive: true, ..Default::default() };
    assert_eq!(
        channel
            .queue_declare(queue.into(), passive, FieldTable::default())
            .await
            .unwrap()
            .message_count(),
        0
    );
}

#[tokio::test]
async fn a_paused_source_leaves_new_messages_to_others() {
    let server = shared().await;
    let broker = at(server.url());
    let queue = declared(&broker).await;
    publish(&broker, numbered(&to("", &queue), 3)).await;
    let paused = broker.source(options(&queue)).await.unwrap();
    let mut held = Vec::new();
    while held.len() < 3 {
        held.extend(paused.recv().await.unwrap().messages);
    }
    paused.pause(true).await.unwrap();
    let other = broker.source(options(&queue)).await.unwrap();
    // Until the broker has read it, both get messages.
    let mut seen = 0;
    while seen < 50 {
        publish(&broker, numbered(&to("", &queue), 50)).await;
        seen = 0;
        while let Ok(batch) =
            tokio::time::timeout(std::time::Duration::from_millis(300), other.recv()).await
        {
            let batch = batch.unwrap();
            seen += batch.messages.len();
            other.ack(batch.id).await.unwrap();
        }
    }
    paused.pause(false).await.unwrap();
    drop(other);
    publish(&broker, numbered(&to("", &queue), 3)).await;
    read(&*paused, 3).await;
}

#[tokio::test]
async fn a_deleted_queue_ends_the_source() {
    let server = shared().await;
    let broker = at(server.url());
    let (_connection, channel) = client(server).await;
    for kind in ["classic", "quorum"] {
        let queue = fresh();
        make_queue(&channel, &queue, &[("x-queue-type", AMQPValue::LongString(kind.into()))]).await;
        let source = broker.source(options(&queue)).await.unwrap();
        assert_eq!(broker.inspect(&options(&queue)).await.unwrap(), ConsumerState::Exists);
        channel.queue_delete(queue.as_str().into(), QueueDeleteOptions::default()).await.unwrap();
        let error = tokio::time::timeout(TIMEOUT, source.recv()).await.unwrap().unwrap_err();
        assert!(error.kind == ErrorKind::Disconnected && error.message.contains(&queue), "{error}");
        refused(&broker, &queue, ErrorKind::Missing).await;
        assert_eq!(broker.inspect(&options(&queue)).await.unwrap_err().kind, ErrorKind::Missing);
    }
}

#[tokio::test]
async fn an_exclusive_queue_of_others_is_denied() {
    let server = shared().await;
    let (_connection, channel) = client(server).await;
    let queue = fresh();
    let exclusive = QueueDeclareOptions { exclusive: true, ..Default::default() };
    channel.queue_declare(queue.as_str().into(), exclusive, FieldTable::default()).await.unwrap();
    let error = refused(&at(server.url()), &queue, ErrorKind::Denied).await;
    assert!(error.message.contains(&queue) && !error.hint.is_empty());
}

/// Pausing and resuming does not exceed the bound.
#[tokio::test]
async fn what_a_pause_left_unsettled_counts_towards_the_bound() {
    let broker = at(shared().await.url());
    let queue = fresh();
    let (_connection, channel) = client(shared().await).await;
    // A quorum queue counts a cancelled consumer as long as it holds messages.
    make_queue(&channel, &queue, &[]).await;
    publish(&broker, numbered(&to("", &queue), 100)).await;
    let source = broker
        .source(SourceOptions { max_unsettled: 10, max_batch: 4, ..options(&queue) })
        .await
        .unwrap();
    let mut held = VecDeque::new();
    let mut unsettled = 0;
    for _ in 0..3 {
        while let Ok(batch) = tokio::time::timeout(Duration::from_millis(500), source.recv()).await
        {
            let batch = batch.unwrap();
            unsettled += batch.messages.len();
            held.push_back(batch);
        }
        assert!(unsettled <= 10, "{unsettled} are unsettled");
        source.pause(true).await.unwrap();
        consumers(&channel, &queue, 0).await;
        source.pause(false).await.unwrap();
    }
    // Settled messages make room, up to the last.
    let mut settled = 0;
    while settled < 100 {
        let batch = match held.pop_front() {
            Some(batch) => batch,
            None => tokio::time::timeout(TIMEOUT, source.recv())
                .await
                .unwrap_or_else(|_| panic!("{settled} came"))
                .unwrap(),
        };
        settled += batch.messages.len();
        source.ack(batch.id).await.unwrap();
    }
}

/// Waits until the queue has this many consumers.
async fn consumers(channel: &Channel, queue: &str, count: u32) {
    let passive = QueueDeclareOptions { passive: true, ..Default::default() };
    let deadline = Instant::now() + TIMEOUT;
    while channel
        .queue_declare(queue.into(), passive, FieldTable::default())
        .await
        .unwrap()
        .consumer_count()
        != count
    {
        assert!(Instant::now() < deadline, "not {count} readers");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
