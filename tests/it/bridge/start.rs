//! A start with a server away: what can work works, the rest is waited for, and what is wrong with
//! it ends the start all the same.

use std::time::Duration;

use dwell::bridge::{Cause, Failure};
use dwell::config;
use dwell::readiness::{Readiness, Waiting};
use dwell::store::reader::lookup::Place;
use dwell_connectors::memory::{self, Broker};
use dwell_connectors::{BrokerConfig, ErrorKind};
use dwell_testkit::servers::RedisOptions;

use super::environment::{ALL, Environment, request};
use crate::support::{DEADLINE, wait_until};

const TOPICS: [&str; 5] = ["delay.in", "delay.rejected", "delay.dead", "orders.a", "replies"];

/// An environment, and an unreachable second broker `far` with an ingest of its own.
async fn with_far(topics: &[&str]) -> (Environment, Broker) {
    let mut env = Environment::idle(RedisOptions::default(), &[]).await;
    let far = Broker::with_topics(topics.iter().copied());
    far.refuse_open(ErrorKind::Disconnected);
    let main = &env.settings.brokers["main"];
    let broker = config::Broker { connector: BrokerConfig::Memory(memory::Config::from(&far)), ..main.clone() };
    let ingest = config::Ingest { broker: "far".to_owned(), ..env.settings.ingest["main"].clone() };
    env.settings.brokers.insert("far".to_owned(), broker);
    env.settings.ingest.insert("far".to_owned(), ingest);
    (env, far)
}

fn waits_for(readiness: &Readiness) -> Vec<String> {
    readiness.waiting().into_iter().map(|(what, _)| what.to_string()).collect()
}

#[tokio::test]
async fn a_broker_that_is_away_is_waited_for_while_the_other_works() {
    let (mut env, far) = with_far(&TOPICS).await;
    let readiness = env.begin(None).await.unwrap();
    env.send(request("near", "0"));
    env.send(request("to-far", "0").with_header("delay-broker", "far"));
    env.arrived("orders.a", 1).await;
    env.taken().await;
    let told = wait_until("the other is named", async || Some(readiness.waiting()).filter(|waiting| waiting.len() == 2)).await;
    assert_eq!(waits_for(&readiness), ["brokers.far", "ingest.far"]);
    assert!(told[0].0 == Waiting::Broker("far".to_owned()) && told[0].1.contains("told to refuse"), "{told:?}");
    assert!(!readiness.is_ready());
    assert_eq!(env.metric(r#"dwell_broker_connected{broker="far"}"#), 0.0);
    assert_eq!(env.metric(r#"dwell_broker_connected{broker="main"}"#), 1.0);
    let waiting = env.until_place("to-far", Place::Scheduled).await;
    assert!(waiting.state.is_none_or(|state| state.attempt == 0), "no attempt is counted");

    far.publish("delay.in", request("from-far", "0"));
    far.heal();
    assert_eq!(far.wait_published("orders.a", 2, DEADLINE).await.len(), 2);
    tokio::time::timeout(DEADLINE, readiness.all_reached()).await.expect("all is there");
    assert!(readiness.is_ready());
    assert!(env.stop(Duration::from_secs(5)).await);
}

#[tokio::test]
async fn what_a_broker_lacks_that_comes_later_ends_the_instance() {
    let (mut env, far) = with_far(&["delay.in", "delay.rejected"]).await;
    let readiness = env.begin(None).await.unwrap();
    env.send(request("near", "0"));
    env.arrived("orders.a", 1).await;
    far.heal();
    match env.failed().await {
        Failure::Start(error) => {
            assert_eq!(error.cause, Cause::Refused);
            assert!(error.message.contains("broker `far`") && error.message.contains("delay.dead"), "{error}");
        }
        other => panic!("{other}"),
    }
    assert!(waits_for(&readiness).contains(&"ingest.far".to_owned()), "nothing of it is read");
    assert!(env.stop(Duration::from_secs(5)).await, "the other is drained");
}

#[tokio::test]
async fn what_refuses_us_is_not_waited_for() {
    for (kind, cause) in [(ErrorKind::Denied, Cause::Refused), (ErrorKind::Missing, Cause::Refused), (ErrorKind::Config, Cause::Settings)] {
        let (mut env, far) = with_far(&TOPICS).await;
        far.refuse_open(kind);
        let error = match env.begin(None).await {
            Ok(_) => match env.failed().await {
                Failure::Start(error) => error,
                other => panic!("{other}"),
            },
            Err(error) => error,
        };
        assert_eq!(error.cause, cause);
    }
}

#[tokio::test]
async fn a_redis_that_is_away_is_waited_for() {
    let mut env = Environment::idle(RedisOptions::default(), &[]).await;
    env.redis.kill().unwrap();
    let metrics = dwell::telemetry::Metrics::new(["main"], ["main"]);
    let readiness = Readiness::new(["main"]);
    let (settings, traces) = (env.settings.clone(), Default::default());
    let mut beginning = Box::pin(dwell::bridge::Bridge::begin(&settings, ALL, None, &metrics, &traces, &readiness));
    let paused = wait_until("redis is named", async || {
        readiness.waiting().iter().any(|(what, why)| *what == Waiting::Store && why.contains("redis://")).then(|| metrics.encode())
    });
    let paused = tokio::select! {
        paused = paused => paused,
        begun = &mut beginning => panic!("it began without redis: {:?}", begun.err()),
    };
    assert_eq!(crate::support::metric(&paused, r#"dwell_ingest_paused{reason="redis"}"#), 1.0);
    assert!(crate::support::metric(&paused, r#"dwell_redis_errors_total{class="io"}"#) >= 1.0);
    env.send(request("while", "0"));
    env.redis.restart().await.unwrap();
    let bridge = tokio::time::timeout(DEADLINE, beginning).await.expect("it begins with redis").unwrap();
    env.arrived("orders.a", 1).await;
    assert_eq!(crate::support::metric(&metrics.encode(), r#"dwell_ingest_paused{reason="redis"}"#), 0.0);
    assert!(bridge.stop(Duration::from_secs(5)).await);
}

#[tokio::test]
async fn an_ingest_reads_once_it_has_its_share() {
    let mut env = Environment::idle(RedisOptions::default(), &[]).await;
    env.broker.share_nothing_out();
    let readiness = env.begin(None).await.unwrap();
    env.send(request("x", "0"));
    wait_until("the link is open", async || (waits_for(&readiness) == ["ingest.main"]).then_some(())).await;
    // It is open as soon as the link is, or shortly after: an ingest that took this for reading
    // would have said so by then.
    assert!(tokio::time::timeout(Duration::from_millis(300), readiness.all_reached()).await.is_err());
    assert!(!readiness.is_ready());
    env.broker.heal();
    tokio::time::timeout(DEADLINE, readiness.all_reached()).await.expect("it reads");
    env.arrived("orders.a", 1).await;
}

#[tokio::test]
async fn a_start_waits_no_longer_than_it_is_told() {
    let (mut env, _far) = with_far(&TOPICS).await;
    env.begin(Some(Duration::from_millis(300))).await.unwrap();
    assert!(matches!(env.failed().await, Failure::Start(error) if error.cause == Cause::Unreachable && error.message.contains("refuse")));
    env.redis.kill().unwrap();
    for patience in [0, 300] {
        let error = env.begin(Some(Duration::from_millis(patience))).await.err().unwrap();
        assert_eq!(error.cause, Cause::Unreachable, "{error}");
    }
}
