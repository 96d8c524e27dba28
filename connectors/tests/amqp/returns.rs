//! Verdicts are right although lapin attaches returned messages to the wrong confirms.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use dwell_connectors::{Message, Outcome, Properties, Sink};
use lapin::ExchangeKind;

use crate::server::shared;
use crate::{
    at, client, collect, fresh, make_exchange, make_queue, options, publication, read, to,
};

const PUBLICATION_COUNT: u64 = 20_000;

/// 20 000 messages from several tasks, a third of them without a queue: on the default exchange and
/// on another. Some have no message id, some share one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_third_is_unroutable_and_each_verdict_is_right() {
    let server = shared().await;
    let (_connection, channel) = client(server).await;
    let (queue, exchange, nowhere) = (fresh(), fresh(), fresh());
    make_queue(&channel, &queue, &[]).await;
    make_exchange(&channel, &exchange, ExchangeKind::Direct, &[(&queue, "here")]).await;
    let (sink, mut outcomes) = at(server.url()).sink(Duration::from_secs(30)).await.unwrap();
    let sink: Arc<dyn Sink> = sink.into();

    let lost = |token: u64| token.is_multiple_of(3);
    let mut all: Vec<_> = (1..=PUBLICATION_COUNT)
        .map(|token| {
            let to = match (token % 2 == 0, lost(token)) {
                (true, false) => to("", &queue),
                (true, true) => to("", &nowhere),
                (false, false) => to(&exchange, "here"),
                (false, true) => to(&exchange, "nowhere"),
            };
            let message_id = token.is_multiple_of(5).then(|| "the same".to_owned());
            let properties = Some(Box::new(Properties { message_id, ..Properties::default() }));
            let mut publication =
                publication(token, to, Message { properties, ..Message::new(token.to_string()) });
            if token.is_multiple_of(7) {
                publication.dedupe_id = String::new();
            }
            publication
        })
        .collect();
    while !all.is_empty() {
        let (sink, batch) = (Arc::clone(&sink), all.split_off(all.len().saturating_sub(250)));
        tokio::spawn(async move { sink.publish(batch).await });
    }
    let verdicts = collect(&mut outcomes, usize::try_from(PUBLICATION_COUNT).unwrap()).await;
    let wrong: Vec<_> = (1..=PUBLICATION_COUNT)
        .zip(&verdicts)
        .filter(|(token, outcome)| {
            if lost(*token) {
                !matches!(outcome, Outcome::Unroutable(_))
            } else {
                **outcome != Outcome::Confirmed
            }
        })
        .collect();
    assert!(wrong.is_empty(), "{} wrong verdicts: {:?}", wrong.len(), &wrong[..wrong.len().min(9)]);

    // Exactly the confirmed messages exist.
    let source = at(server.url()).source(options(&queue)).await.unwrap();
    let expected: HashSet<u64> = (1..=PUBLICATION_COUNT).filter(|token| !lost(*token)).collect();
    let came: HashSet<u64> = read(&*source, expected.len())
        .await
        .iter()
        .map(|message| std::str::from_utf8(&message.body).unwrap().parse().unwrap())
        .collect();
    assert_eq!(came, expected);
}
