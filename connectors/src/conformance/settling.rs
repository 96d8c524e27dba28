//! Tests of messages that are acked, nacked, held, or left unsettled.

use std::time::Duration;

use super::Harness;
use super::hand::{
    QUIET, bodies, expect_no_message_for, numbered, numbers, options, publish, read, recv, sorted,
    source, source_with, topic,
};
use crate::SourceOptions;

/// An acked message never comes again.
pub async fn acked_is_gone(harness: &dyn Harness) {
    let topic = topic(harness).await;
    publish(harness, numbered(&topic, 50)).await;
    let first = source(harness, &topic).await;
    let (ids, messages) = read(&*first, 50).await;
    assert_eq!(bodies(&messages), numbers(50));
    // In any order.
    for id in ids.into_iter().rev() {
        first.ack(id).await.unwrap();
    }
    harness.worked_off(&topic).await;
    first.close().await.unwrap();
    let second = source(harness, &topic).await;
    expect_no_message_for(&*second, harness.ack_timeout().unwrap_or_default() + QUIET).await;
}

/// A nacked message comes again, marked as redelivered.
pub async fn nacked_comes_again(harness: &dyn Harness) {
    let topic = topic(harness).await;
    publish(harness, numbered(&topic, 3)).await;
    let source = source(harness, &topic).await;
    let (ids, messages) = read(&*source, 3).await;
    assert!(!harness.can().first_deliveries || messages.iter().all(|message| !message.redelivered));
    for id in ids {
        source.nack(id).await.unwrap();
    }
    let (_, messages) = read(&*source, 3).await;
    assert_eq!(sorted(bodies(&messages)), numbers(3));
    assert!(messages.iter().all(|message| message.redelivered));
}

/// Messages that a dropped source had not settled come again to another.
pub async fn dropped_comes_again(harness: &dyn Harness) {
    let topic = topic(harness).await;
    publish(harness, numbered(&topic, 5)).await;
    let first = source_with(harness, SourceOptions { max_batch: 2, ..options(&topic) }).await;
    let batch = recv(&*first).await;
    let acked = batch.messages.len();
    read(&*first, 4 - acked).await;
    first.ack(batch.id).await.unwrap();
    drop(first);
    let second = source(harness, &topic).await;
    let (_, messages) = read(&*second, 5 - acked).await;
    assert_eq!(sorted(bodies(&messages)), numbers(5)[acked..]);
}

/// Messages that a closed source had not settled or had only buffered come to another at once.
pub async fn closed_comes_again_at_once(harness: &dyn Harness) {
    let topic = topic(harness).await;
    publish(harness, numbered(&topic, 100)).await;
    let first = source_with(harness, SourceOptions { max_batch: 10, ..options(&topic) }).await;
    let batch = recv(&*first).await;
    let acked = batch.messages.len();
    read(&*first, 10).await;
    first.ack(batch.id).await.unwrap();
    let second = source(harness, &topic).await;
    let closed = tokio::time::Instant::now();
    first.close().await.unwrap();
    let (_, messages) = read(&*second, 100 - acked).await;
    assert!(closed.elapsed() < Duration::from_secs(4), "it took {:?}", closed.elapsed());
    assert_eq!(sorted(bodies(&messages)), numbers(100)[acked..]);
}

/// Messages held longer than the broker's ack timeout are not redelivered while the source lives,
/// whether in batches or buffered.
pub async fn holds_what_is_unsettled(harness: &dyn Harness) {
    let Some(ack_timeout) = harness.ack_timeout() else { return };
    let topic = topic(harness).await;
    publish(harness, numbered(&topic, 20)).await;
    let first =
        source_with(harness, SourceOptions { max_batch: 5, max_unsettled: 20, ..options(&topic) })
            .await;
    // Two batches, if the first has less than 5.
    let (mut ids, begun) = read(&*first, 5).await;
    first.pause(true).await.unwrap();
    let second = source(harness, &topic).await;
    expect_no_message_for(&*second, ack_timeout * 3).await;
    ids.extend(read(&*first, 20 - begun.len()).await.0);
    for id in ids {
        first.ack(id).await.unwrap();
    }
    expect_no_message_for(&*second, ack_timeout * 2).await;
}
