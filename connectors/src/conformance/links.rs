//! Tests of lost connections.

use std::time::Duration;

use super::Harness;
use super::hand::{
    TIMEOUT, bodies, collect, collect_to_the_end, numbered, numbers, options, publish, read, sink,
    sorted, source, topic,
};
use crate::{ErrorKind, Outcome};

/// A lost connection ends both source and sink, and nothing opens while the broker is away.
/// Afterwards both open again, and nothing acked or confirmed is undone.
pub async fn a_lost_link_is_reported_and_can_be_reopened(harness: &dyn Harness) {
    let topic = topic(harness).await;
    publish(harness, numbered(&topic, 4)).await;
    let reader = source(harness, &topic).await;
    let (_ids, messages) = read(&*reader, 4).await;
    assert_eq!(bodies(&messages), numbers(4));
    let (writer, mut outcomes) = sink(harness).await;

    harness.cut().await;
    let error = tokio::time::timeout(TIMEOUT, reader.recv())
        .await
        .expect("the source notices in time")
        .expect_err("the link is gone");
    assert_eq!(error.kind, ErrorKind::Disconnected, "{error}");
    assert!(collect_to_the_end(&mut outcomes).await.is_empty());
    drop((reader, writer));
    let opened =
        tokio::time::timeout(Duration::from_secs(6), harness.broker().source(options(&topic)))
            .await
            .expect("opening fails in time");
    let Err(error) = opened else { panic!("a source opened while the broker was away") };
    assert_eq!(error.kind, ErrorKind::Disconnected, "{error}");

    harness.heal().await;
    let reader = source(harness, &topic).await;
    // Not all are marked as redelivered: a server that crashed may have lost the delivery counts.
    let (_ids, messages) = read(&*reader, 4).await;
    assert_eq!(sorted(bodies(&messages)), numbers(4));
    let (writer, mut outcomes) = sink(harness).await;
    writer.publish(numbered(&topic, 6).split_off(4)).await;
    assert_eq!(collect(&mut outcomes, 2).await.len(), 2);
}

/// Publications in flight when the connection is lost each have one correct outcome; then the
/// outcomes end. Without a link, each publication has an outcome, and they end with the sink.
pub async fn an_open_outcome_is_reported_when_the_link_goes(harness: &dyn Harness) {
    let topic = topic(harness).await;
    let (sink, mut outcomes) = sink(harness).await;
    let sink: std::sync::Arc<dyn crate::Sink> = sink.into();
    let publishing = {
        let (sink, topic) = (sink.clone(), topic.clone());
        tokio::spawn(async move {
            for publication in numbered(&topic, 5000) {
                sink.publish(vec![publication]).await;
            }
        })
    };
    // Some are confirmed, some in flight, some not handed over yet.
    let mut first = tokio::time::timeout(TIMEOUT, outcomes.recv())
        .await
        .expect("the first outcome comes")
        .expect("the link lives");
    harness.cut().await;
    publishing.await.unwrap();
    let sink = harness.has_link().then_some(sink);
    let rest = collect_to_the_end(&mut outcomes).await;
    drop(sink);
    first.extend(rest);
    let taken = first.iter().filter(|(_, outcome)| *outcome == harness.taken()).count();
    for (token, outcome) in &first {
        let fits = match outcome {
            Outcome::Unknown(_) | Outcome::Refused(_) => true,
            Outcome::Failed(_) => !harness.has_link(),
            other => *other == harness.taken(),
        };
        assert!(fits, "token {token}: {outcome:?}");
    }
    let mut tokens: Vec<u64> = first.iter().map(|(token, _)| *token).collect();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), first.len(), "a token has two outcomes");
    assert!(harness.has_link() || tokens.len() == 5000, "{} of 5000 have an outcome", tokens.len());

    harness.heal().await;
    harness.arrived(&topic, taken).await;
}
