//! A quorum queue without a majority: it accepts messages and confirms nothing.

use std::time::{Duration, Instant};

use dwell_connectors::{Message, Outcome};

use crate::server::shared;
use crate::{TIMEOUT, at, collect, declared, publication, to};

/// Adds an absent member to the queue: one of two members is no majority.
async fn silence(queue: &str) {
    let add = format!(
        "ra:add_member({{'%2F_{queue}', node()}}, {{'%2F_{queue}', 'nobody@localhost'}}, 1000)."
    );
    shared().await.ctl(&["eval", &add]).await;
}

/// A silent queue delays neither other destinations of its exchange nor the end of the sink.
#[tokio::test]
async fn a_silent_queue_holds_up_nobody() {
    let broker = at(shared().await.url());
    let (silent, speaks) = (declared(&broker).await, declared(&broker).await);
    silence(&silent).await;
    let publish_timeout = Duration::from_secs(8);
    let (sink, mut outcomes) = broker.sink(publish_timeout).await.unwrap();
    let start = Instant::now();
    // The silent queue first: its message goes alone.
    let window = (0..50).map(|token| {
        publication(
            token,
            to("", if token % 10 == 0 { &silent } else { &speaks }),
            Message::new("x"),
        )
    });
    sink.publish(window.collect()).await;
    let confirmed = collect(&mut outcomes, 45).await;
    assert_eq!(confirmed, vec![Outcome::Confirmed; 45], "after {:?}", start.elapsed());
    assert!(start.elapsed() < publish_timeout, "it took {:?}", start.elapsed());
    let of_silent = collect(&mut outcomes, 5).await;
    assert!(
        matches!(&of_silent[0], Outcome::Unknown(why) if why.contains(&silent)),
        "{of_silent:?}"
    );

    // From now on its messages wait separately, with at most one attempt at a time.
    let mut unknown = 0;
    let start = Instant::now();
    for round in 0..3 {
        let window = (0..50).map(|token| {
            publication(
                token,
                to("", if token < 25 { &silent } else { &speaks }),
                Message::new("x"),
            )
        });
        sink.publish(window.collect()).await;
        for (token, outcome) in (0..).zip(collect(&mut outcomes, 50).await) {
            match outcome {
                Outcome::Confirmed => assert!(token >= 25),
                Outcome::Refused(why) => {
                    assert!(token < 25 && why.contains(&silent), "{token}: {why}")
                }
                Outcome::Unknown(why) => {
                    assert!(token < 25 && why.contains(&silent), "{round}, {token}: {why}");
                    unknown += 1;
                }
                other => panic!("{token}: {other:?}"),
            }
        }
    }
    assert!(
        unknown <= 2 + start.elapsed().as_secs() / publish_timeout.as_secs(),
        "{unknown} in {:?}",
        start.elapsed()
    );

    // Its confirms are still outstanding.
    let start = Instant::now();
    sink.close().await.unwrap();
    assert!(tokio::time::timeout(TIMEOUT, outcomes.recv()).await.unwrap().is_none());
    assert!(start.elapsed() < publish_timeout / 2, "it took {:?}", start.elapsed());
}

/// Publications in flight when the sink closes get their outcome by their deadline, and the
/// outcomes end.
#[tokio::test]
async fn a_missing_confirm_does_not_keep_a_closed_sink() {
    let broker = at(shared().await.url());
    let silent = declared(&broker).await;
    silence(&silent).await;
    let publish_timeout = Duration::from_secs(2);
    let (sink, mut outcomes) = broker.sink(publish_timeout).await.unwrap();
    sink.publish(
        (0..20).map(|token| publication(token, to("", &silent), Message::new("x"))).collect(),
    )
    .await;
    let start = Instant::now();
    sink.close().await.unwrap();
    let unknown = collect(&mut outcomes, 20).await;
    assert!(tokio::time::timeout(TIMEOUT, outcomes.recv()).await.unwrap().is_none());
    assert!(
        start.elapsed() < publish_timeout + Duration::from_secs(15),
        "it took {:?}",
        start.elapsed()
    );
    assert!(
        unknown.iter().all(|outcome| matches!(outcome, Outcome::Unknown(_) | Outcome::Refused(_))),
        "{unknown:?}"
    );
}
