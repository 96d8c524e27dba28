//! The link for publishing, on a broker in memory.

use std::time::Duration;

use dwell::clock;
use dwell::publisher::Publisher;
use dwell::readiness::Readiness;
use dwell_connectors::memory::{self, Broker, Fault};
use dwell_connectors::{BrokerConfig, Destination, Message, Outcome};
use tokio_util::sync::CancellationToken;

/// Of the broker's own, and paused: it costs no time.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(3);
/// More than a healthy client takes to give up.
const SILENCE: Duration = Duration::from_secs(16);

#[tokio::test(start_paused = true)]
async fn a_link_that_answers_nothing_is_reopened_and_one_that_owes_nothing_is_kept() {
    let broker = Broker::with_topics(["a"]);
    let (publisher, _reports) = Publisher::new(
        "main",
        BrokerConfig::Memory(memory::Config::from(&broker)),
        PUBLISH_TIMEOUT,
        None,
    );
    let (stop, running) = (CancellationToken::new(), publisher.clone());
    let ended = stop.clone();
    let running = tokio::spawn(async move { running.run(None, &Readiness::new([]), ended).await });
    publisher.until_back().await;
    let publish = async || {
        publisher.publish_all(vec![(Destination::new("a"), Message::new("x"))]).await.remove(0).0
    };
    assert_eq!(publish().await, Outcome::Confirmed);

    let mut connected = publisher.connected();
    connected.mark_unchanged();
    assert!(
        clock::timeout(PUBLISH_TIMEOUT * 20, connected.changed()).await.is_none(),
        "idle is not silent"
    );

    broker.fail_all(Fault::Silent { landed: false });
    for _ in 0..10 {
        assert!(matches!(publish().await, Outcome::Unknown(_)));
    }
    assert!(
        clock::timeout(PUBLISH_TIMEOUT * 20, connected.changed()).await.is_none(),
        "who gives up by its timeout is not silent"
    );

    broker.fail_all(Fault::Stuck);
    assert!(matches!(publish().await, Outcome::Unknown(_)));
    clock::timeout(SILENCE, connected.wait_for(|up| !*up))
        .await
        .expect("silent, it is reopened")
        .unwrap();
    broker.heal();
    publisher.until_back().await;
    assert_eq!(publish().await, Outcome::Confirmed);
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_handed_over_as_the_link_dies_is_refused() {
    let broker = Broker::with_topics(["a"]);
    let (publisher, _reports) = Publisher::new(
        "main",
        BrokerConfig::Memory(memory::Config::from(&broker)),
        PUBLISH_TIMEOUT,
        None,
    );
    let (stop, running) = (CancellationToken::new(), publisher.clone());
    let ended = stop.clone();
    let running = tokio::spawn(async move { running.run(None, &Readiness::new([]), ended).await });
    publisher.until_back().await;
    broker.stall();
    let publishing = publisher.publish_all(vec![(Destination::new("a"), Message::new("x"))]);
    let dying = async {
        clock::sleep(Duration::from_millis(10)).await;
        broker.cut();
    };
    let (outcomes, ()) = tokio::join!(publishing, dying);
    assert!(matches!(outcomes[..], [(Outcome::Refused(_), _)]), "{outcomes:?}");
    assert!(broker.published("a").is_empty());
    stop.cancel();
    running.await.unwrap();
}
