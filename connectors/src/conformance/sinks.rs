//! Tests of every sink.

use super::Harness;
use super::hand::{
    bodies, collect, collect_to_the_end, numbered, numbers, publication, sink, sorted, topic,
};
use crate::Message;

/// A publication to a missing destination is reported as such; others in the same batch are taken.
pub async fn an_unroutable_publication_is_reported(harness: &dyn Harness) {
    let (here, nowhere) = (topic(harness).await, harness.fresh_name());
    let (sink, mut outcomes) = sink(harness).await;
    let batch = (0..20)
        .map(|token| {
            publication(token, if token % 2 == 0 { &here } else { &nowhere }, Message::new("x"))
        })
        .collect();
    sink.publish(batch).await;
    for (token, outcome) in collect(&mut outcomes, 20).await {
        if token % 2 == 0 {
            assert_eq!(outcome, harness.taken(), "token {token}");
        } else {
            assert!(
                harness.is_missing(&outcome) && outcome.error().unwrap().contains(&nowhere),
                "token {token}: {outcome:?}"
            );
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
    assert_eq!(outcomes.values().find(|outcome| **outcome != harness.taken()), None);
    assert_eq!((outcomes.keys().min(), outcomes.keys().max()), (Some(&1), Some(&20_000)));
    assert_eq!(sorted(bodies(&harness.arrived(&topic, 20_000).await)), numbers(20_000));
}

/// After `close` the outcomes of all publications still arrive; then they end.
pub async fn outcomes_end_after_close(harness: &dyn Harness) {
    let topic = topic(harness).await;
    let (sink, mut outcomes) = sink(harness).await;
    sink.publish(numbered(&topic, 500)).await;
    sink.close().await.unwrap();
    let outcomes = collect_to_the_end(&mut outcomes).await;
    assert_eq!(outcomes.len(), 500);
    assert_eq!(outcomes.values().find(|outcome| **outcome != harness.taken()), None);
}
