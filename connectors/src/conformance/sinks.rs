//! Tests of every sink.

use super::Harness;
use super::hand::{bodies, collect, collect_to_the_end, numbered, numbers, publication, read, sink, sorted, source_with, topic};
use crate::{Message, Outcome, SourceOptions};

/// A publication to a missing destination is unroutable; others in the same batch are confirmed.
pub async fn an_unroutable_publication_is_reported(harness: &dyn Harness) {
    let (here, nowhere) = (topic(harness).await, harness.fresh_name());
    let (sink, mut outcomes) = sink(harness).await;
    let batch = (0..20).map(|token| publication(token, if token % 2 == 0 { &here } else { &nowhere }, Message::new("x"))).collect();
    sink.publish(batch).await;
    for (token, outcome) in collect(&mut outcomes, 20).await {
        match outcome {
            Outcome::Confirmed => assert_eq!(token % 2, 0),
            Outcome::Unroutable(why) => assert!(token % 2 == 1 && why.contains(&nowhere), "{why}"),
            other => panic!("token {token}: {other:?}"),
        }
    }
}

/// 20 000 publications from several tasks: each token has one outcome, and each message is stored
/// once.
pub async fn each_token_has_one_outcome(harness: &dyn Harness) {
    let topic = topic(harness).await;
    let (sink, mut outcomes) = sink(harness).await;
    let sink: std::sync::Arc<dyn crate::Sink> = sink.into();
    let mut all = numbered(&topic, 20_000);
    while !all.is_empty() {
        let (sink, batch) = (sink.clone(), all.split_off(all.len().saturating_sub(500)));
        tokio::spawn(async move { sink.publish(batch).await });
    }
    let outcomes = collect(&mut outcomes, 20_000).await;
    assert!(outcomes.values().all(|outcome| *outcome == Outcome::Confirmed));
    assert_eq!((outcomes.keys().min(), outcomes.keys().max()), (Some(&1), Some(&20_000)));

    let options = SourceOptions { max_batch: 1000, max_unsettled: 50_000, ..super::hand::options(&topic) };
    let source = source_with(harness, options).await;
    let (_, messages) = read(&*source, 20_000).await;
    assert_eq!(sorted(bodies(&messages)), numbers(20_000));
}

/// After `close` the outcomes of all publications still arrive; then they end.
pub async fn outcomes_end_after_close(harness: &dyn Harness) {
    let topic = topic(harness).await;
    let (sink, mut outcomes) = sink(harness).await;
    sink.publish(numbered(&topic, 500)).await;
    sink.close().await.unwrap();
    let outcomes = collect_to_the_end(&mut outcomes).await;
    assert_eq!(outcomes.len(), 500);
    assert!(outcomes.values().all(|outcome| *outcome == Outcome::Confirmed));
}
