//! The memory connector passes the suite, and shows each injected fault.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use dwell_connectors::conformance::{Capabilities, Harness};
use dwell_connectors::memory::{Broker, Config, Fault};
use dwell_connectors::{
    BrokerConfig, Destination, ErrorKind, Message, Outcome, Publication, conformance_tests,
};

struct Memory {
    broker: Broker,
    names: AtomicU32,
}

async fn memory() -> Memory {
    Memory { broker: Broker::new(), names: AtomicU32::new(0) }
}

#[async_trait::async_trait]
impl Harness for Memory {
    fn broker(&self) -> BrokerConfig {
        BrokerConfig::Memory(Config::from(&self.broker))
    }
    fn can(&self) -> Capabilities {
        Capabilities {
            ordered_headers: true,
            repeated_headers: true,
            keys: true,
            positions: true,
            timestamps: true,
            first_deliveries: true,
        }
    }
    fn fresh_name(&self) -> String {
        format!("topic-{}", self.names.fetch_add(1, Ordering::Relaxed))
    }
    async fn create(&self, topic: &str) {
        self.broker.create(topic);
    }
    async fn cut(&self) {
        self.broker.refuse_open(ErrorKind::Disconnected);
        self.broker.cut();
    }
    async fn heal(&self) {
        self.broker.heal();
    }
    fn ack_timeout(&self) -> Option<Duration> {
        None
    }
}

conformance_tests!(memory());

fn publication(token: u64) -> Publication {
    Publication {
        token,
        to: Destination::new("t"),
        message: Message::new(token.to_string()),
        dedupe_id: format!("d{token}"),
        deadline: None,
    }
}

type Expected = fn(&Outcome) -> bool;

#[tokio::test(start_paused = true)]
async fn each_fault_shows_as_told() {
    let broker = Broker::with_topics(["t"]);
    let (sink, mut outcomes) =
        BrokerConfig::Memory(Config::from(&broker)).sink(Duration::from_secs(15)).await.unwrap();
    let cases: [(Fault, Expected, u64, usize); 8] = [
        (Fault::Unroutable, |outcome| matches!(outcome, Outcome::Unroutable(_)), 0, 0),
        (Fault::Refused, |outcome| matches!(outcome, Outcome::Refused(_)), 0, 0),
        (Fault::Invalid, |outcome| matches!(outcome, Outcome::Invalid(_)), 0, 0),
        (Fault::Unknown { landed: false }, |outcome| matches!(outcome, Outcome::Unknown(_)), 0, 0),
        (Fault::Unknown { landed: true }, |outcome| matches!(outcome, Outcome::Unknown(_)), 0, 1),
        (Fault::Silent { landed: true }, |outcome| matches!(outcome, Outcome::Unknown(_)), 15, 1),
        (Fault::Hold, |outcome| matches!(outcome, Outcome::Unknown(_)), 15, 1),
        (Fault::Delay(Duration::from_secs(3)), |outcome| *outcome == Outcome::Confirmed, 3, 1),
    ];
    for (fault, expected, seconds, landed) in cases {
        let (before, start) = (broker.published("t").len(), tokio::time::Instant::now());
        broker.fail_times("t", 1, fault);
        sink.publish(vec![publication(1)]).await;
        let answers = outcomes.recv().await.unwrap();
        assert!(
            matches!(&answers[..], [(1, outcome)] if expected(outcome)),
            "{fault:?}: {answers:?}"
        );
        assert_eq!(start.elapsed().as_secs(), seconds, "{fault:?}");
        assert_eq!(broker.published("t").len() - before, landed, "{fault:?}");
    }
    sink.publish(vec![publication(2)]).await;
    assert_eq!(outcomes.recv().await.unwrap(), [(2, Outcome::Confirmed)]);
    assert_eq!(broker.dedupe_ids("t").last().unwrap(), "d2");
}

#[tokio::test(start_paused = true)]
async fn held_answers_wait_for_release_or_the_cut() {
    let broker = Broker::with_topics(["t"]);
    let (sink, mut outcomes) =
        BrokerConfig::Memory(Config::from(&broker)).sink(Duration::from_secs(15)).await.unwrap();
    broker.fail_all(Fault::Hold);
    sink.publish(vec![publication(1), publication(2)]).await;
    assert_eq!((broker.unanswered(), broker.release()), (2, 2));
    assert_eq!(outcomes.recv().await.unwrap(), [(1, Outcome::Confirmed), (2, Outcome::Confirmed)]);

    sink.publish(vec![publication(3)]).await;
    broker.cut();
    assert!(matches!(&outcomes.recv().await.unwrap()[..], [(3, Outcome::Unknown(_))]));
    assert!(outcomes.recv().await.is_none());
    assert_eq!(broker.published("t").len(), 3);
    assert_eq!(
        sink.exists(&Destination::new("t")).await.unwrap_err().kind,
        ErrorKind::Disconnected
    );
}

#[test]
fn a_pattern_is_exact_or_ends_in_a_star() {
    let config = BrokerConfig::Memory(Config::from(&Broker::new()));
    let allows = |pattern: &str, address: &str| config.allows(pattern, &Destination::new(address));
    assert!(allows("orders", "orders") && !allows("orders", "orders.eu"));
    assert!(allows("orders.*", "orders.eu.close") && !allows("orders.*", "orders"));
    assert!(
        config.forbidden(&Destination::new("orders.*")).is_some()
            && config.forbidden(&Destination::new("orders")).is_none()
    );
}
