//! A start with a server away: every working part works, the rest is waited for, and a mistake in
//! it ends the start all the same.

use std::time::Duration;

use dwell::config;
use dwell::readiness::{Readiness, Waiting};
use dwell::runtime::{Cause, Failure, StartError};
use dwell::store::reader::lookup::JobState;
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
    let broker = config::Broker {
        connector: BrokerConfig::Memory(memory::Config::from(&far)),
        ..main.clone()
    };
    let ingest = config::Ingest { broker: "far".to_owned(), ..env.settings.ingest["main"].clone() };
    env.settings.brokers.insert("far".to_owned(), broker);
    env.settings.ingest.insert("far".to_owned(), ingest);
    (env, far)
}

/// Why the start ends, at once or later.
async fn start_error(env: &mut Environment, patience: Option<Duration>) -> StartError {
    match env.begin(patience).await {
        Ok(_) => match env.failed().await {
            Failure::Start(error) => error,
            other => panic!("{other}"),
        },
        Err(error) => error,
    }
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
    let told = wait_until("the other is named", async || {
        Some(readiness.waiting()).filter(|waiting| waiting.len() == 2)
    })
    .await;
    assert_eq!(waits_for(&readiness), ["brokers.far", "ingest.far"]);
    assert!(
        told[0].0 == Waiting::Broker("far".to_owned()) && told[0].1.contains("told to refuse"),
        "{told:?}"
    );
    assert!(!readiness.is_ready());
    assert_eq!(env.metric(r#"dwell_broker_connected{broker="far"}"#), 0.0);
    assert_eq!(env.metric(r#"dwell_broker_connected{broker="main"}"#), 1.0);
    let waiting = env.until_state("to-far", JobState::Scheduled).await;
    assert!(waiting.state_record.is_none_or(|state| state.attempt == 0), "no attempt is counted");

    far.publish("delay.in", request("from-far", "0"));
    far.heal();
    assert_eq!(far.wait_published("orders.a", 2, DEADLINE).await.len(), 2);
    tokio::time::timeout(DEADLINE, readiness.all_reached()).await.expect("all is there");
    assert!(readiness.is_ready());
    assert!(env.stop(Duration::from_secs(5)).await);
}

#[tokio::test]
async fn a_dead_destination_that_is_missing_is_told_while_jobs_are_delivered() {
    let (mut env, far) = with_far(&["delay.in", "delay.rejected", "orders.a"]).await;
    far.heal();
    let readiness = env.begin(None).await.unwrap();
    far.publish("delay.in", request("far", "0"));
    assert_eq!(far.wait_published("orders.a", 1, DEADLINE).await.len(), 1);
    wait_until("all but the destination is there", async || {
        (waits_for(&readiness) == ["delivery.dead"]).then_some(())
    })
    .await;
    let told = &readiness.waiting()[0];
    assert!(told.1.contains("broker `far`") && told.1.contains("`delay.dead`"), "{told:?}");
    assert!(readiness.is_ready(), "every ingest reads");
    far.create("delay.dead");
    tokio::time::timeout(DEADLINE, readiness.all_reached()).await.expect("it is found");
    assert!(env.stop(Duration::from_secs(5)).await);
}

#[tokio::test]
async fn an_ingest_waits_for_all_that_it_needs_while_the_other_works() {
    let (mut env, far) = with_far(&["delay.dead", "orders.a"]).await;
    far.heal();
    let readiness = env.begin(None).await.unwrap();
    env.send(request("near", "0"));
    env.arrived("orders.a", 1).await;
    let told = wait_until("both are named", async || {
        let waiting = readiness.waiting();
        waiting.into_iter().find(|(what, why)| {
            *what == Waiting::Ingest("far".to_owned()) && why.contains("delay.in")
        })
    });
    let told = told.await.1;
    assert!(
        told.contains(
            "nothing takes messages at `delay.rejected`, which ingest.far.rejected names"
        ),
        "{told}"
    );
    assert!(!readiness.is_ready());
    // A dispatcher of this broker does the work that it can do.
    env.send(request("to-far", "0").with_header("delay-broker", "far"));
    assert_eq!(far.wait_published("orders.a", 1, DEADLINE).await.len(), 1);
    far.create("delay.in");
    wait_until("the other is still named", async || {
        readiness
            .waiting()
            .iter()
            .any(|(_, why)| why.contains("delay.rejected") && !why.contains("delay.in"))
            .then_some(())
    })
    .await;
    far.publish("delay.in", request("from-far", "0"));
    assert_eq!(far.unacked("delay.in", "dwell"), 1, "nothing is read that could not be rejected");
    far.create("delay.rejected");
    assert_eq!(far.wait_published("orders.a", 2, DEADLINE).await.len(), 2);
    tokio::time::timeout(DEADLINE, readiness.all_reached()).await.expect("all is there");
    assert!(env.stop(Duration::from_secs(5)).await);
}

#[tokio::test]
async fn what_a_broker_comes_back_without_is_told_and_found_again() {
    for declare in [false, true] {
        let mut env = Environment::idle(RedisOptions::default(), &[]).await;
        env.settings.ingest.get_mut("main").unwrap().declare = declare;
        let readiness = env.begin(None).await.unwrap();
        tokio::time::timeout(DEADLINE, readiness.all_reached()).await.expect("it starts");
        let lost = ["delay.in", "delay.rejected", "delay.dead"];
        lost.iter().for_each(|topic| env.broker.delete(topic));
        env.broker.cut();
        if !declare {
            let all = ["delivery.dead", "ingest.main.rejected", "ingest.main"];
            wait_until("each is named", async || (waits_for(&readiness) == all).then_some(()))
                .await;
            assert!(readiness.is_ready(), "an outage takes no application down");
            lost.iter().for_each(|topic| env.broker.create(topic));
        }
        tokio::time::timeout(DEADLINE, readiness.all_reached()).await.expect("all is found again");
        env.send(request("bad", "soon"));
        env.arrived("delay.rejected", 1).await;
        env.send(request("x", "0"));
        env.arrived("orders.a", 1).await;
        assert!(env.stop(Duration::from_secs(5)).await);
    }
}

#[tokio::test]
async fn what_refuses_us_is_not_waited_for() {
    for (kind, cause) in [(ErrorKind::Denied, Cause::Refused), (ErrorKind::Config, Cause::Settings)]
    {
        let (mut env, far) = with_far(&TOPICS).await;
        far.refuse_open(kind);
        assert_eq!(start_error(&mut env, None).await.cause, cause);
    }
}

#[tokio::test]
async fn a_redis_that_is_away_is_waited_for() {
    let mut env = Environment::idle(RedisOptions::default(), &[]).await;
    env.redis.kill().unwrap();
    let metrics = dwell::telemetry::Metrics::new(["main"], ["main"]);
    let readiness = Readiness::new(["main"]);
    let (settings, traces) = (env.settings.clone(), Default::default());
    let mut beginning = Box::pin(dwell::runtime::Runtime::begin(
        &settings, ALL, None, &metrics, &traces, &readiness,
    ));
    let paused = wait_until("redis is named", async || {
        readiness
            .waiting()
            .iter()
            .any(|(what, why)| *what == Waiting::Store && why.contains("redis://"))
            .then(|| metrics.encode())
    });
    let paused = tokio::select! {
        paused = paused => paused,
        begun = &mut beginning => panic!("it began without redis: {:?}", begun.err()),
    };
    assert_eq!(crate::support::metric(&paused, r#"dwell_ingest_paused{reason="redis"}"#), 1.0);
    assert!(crate::support::metric(&paused, r#"dwell_redis_errors_total{class="io"}"#) >= 1.0);
    env.send(request("while", "0"));
    env.redis.restart().await.unwrap();
    let runtime =
        tokio::time::timeout(DEADLINE, beginning).await.expect("it begins with redis").unwrap();
    env.arrived("orders.a", 1).await;
    assert_eq!(
        crate::support::metric(&metrics.encode(), r#"dwell_ingest_paused{reason="redis"}"#),
        0.0
    );
    assert!(runtime.stop(Duration::from_secs(5)).await);
}

#[tokio::test]
async fn an_ingest_reads_once_it_has_its_share() {
    let mut env = Environment::idle(RedisOptions::default(), &[]).await;
    env.broker.share_nothing_out();
    let readiness = env.begin(None).await.unwrap();
    env.send(request("x", "0"));
    wait_until("the link is open", async || {
        (waits_for(&readiness) == ["ingest.main"]).then_some(())
    })
    .await;
    // It is open as soon as the link is, or shortly after: an ingest that took this for reading
    // would have said so by then.
    assert!(
        tokio::time::timeout(Duration::from_millis(300), readiness.all_reached()).await.is_err()
    );
    assert!(!readiness.is_ready());
    env.broker.heal();
    tokio::time::timeout(DEADLINE, readiness.all_reached()).await.expect("it reads");
    env.arrived("orders.a", 1).await;
}

#[tokio::test]
async fn a_start_waits_no_longer_than_it_is_told() {
    let (mut env, _far) = with_far(&TOPICS).await;
    let patience = Some(Duration::from_secs(2));
    let error = start_error(&mut env, patience).await;
    assert!(error.cause == Cause::Unreachable && error.message.contains("refuse"), "{error}");
    for missing in &TOPICS[..3] {
        let (mut env, far) = with_far(&TOPICS).await;
        far.heal();
        far.delete(missing);
        let error = start_error(&mut env, patience).await;
        assert!(error.cause == Cause::Missing && error.message.contains(missing), "{error}");
    }
    env.redis.kill().unwrap();
    for patience in [0, 300] {
        let error = env.begin(Some(Duration::from_millis(patience))).await.err().unwrap();
        assert_eq!(error.cause, Cause::Unreachable, "{error}");
    }
}

#[tokio::test]
async fn an_ingest_that_loses_its_link_before_it_ever_read_is_not_ready() {
    let mut env = Environment::idle(RedisOptions::default(), &[]).await;
    env.broker.share_nothing_out();
    let readiness = env.begin(None).await.unwrap();
    let lost = async || {
        env.broker.cut();
        let waiting = readiness.waiting();
        waiting
            .iter()
            .any(|(what, why)| {
                *what == Waiting::Ingest("main".to_owned()) && why.contains("was cut")
            })
            .then_some(())
    };
    wait_until("the loss is told", lost).await;
    assert!(!readiness.is_ready(), "{:?}", readiness.waiting());
    env.broker.heal();
    tokio::time::timeout(DEADLINE, readiness.all_reached()).await.expect("it reads");
    assert!(readiness.is_ready());
}

#[tokio::test]
async fn a_start_that_finds_the_file_of_urls_half_written_waits_for_it() {
    let mut env = Environment::idle(RedisOptions::default(), &[]).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    env.settings.redis.urls_file = Some(file.path().to_owned());
    for (text, told) in [("", "is empty"), ("redis://dwell:sec", "no URL")] {
        std::fs::write(&file, text).unwrap();
        let error = start_error(&mut env, Some(Duration::ZERO)).await;
        assert!(
            error.cause == Cause::Unreachable && error.message.contains(told),
            "{:?} {error}",
            error.cause
        );
    }
    std::fs::write(&file, env.redis.url()).unwrap();
    let readiness = env.begin(Some(Duration::ZERO)).await.unwrap();
    tokio::time::timeout(DEADLINE, readiness.all_reached()).await.expect("it starts");
}
