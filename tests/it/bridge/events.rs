//! The events of jobs: each kind once, and never in the way of a delivery.

use std::collections::BTreeSet;
use std::time::Duration;

use dwell::config;
use dwell::readiness::Waiting;
use dwell::runtime::{Cause, Failure};
use dwell::store::reader::lookup::JobState;
use dwell_connectors::memory::{self, Broker, Fault};
use dwell_connectors::{BrokerConfig, ErrorKind, Message};
use dwell_testkit::servers::RedisOptions;
use serde_json::Value;

use super::environment::{ALL, Environment, action, request, to};
use crate::support::{DEADLINE, wait_until};

const TOPIC: &str = "delay.events";

/// An instance whose events go to the broker of the jobs.
async fn told_on_main(set: &[(&str, &str)]) -> Environment {
    let set = [&[("events.broker", "main")], set].concat();
    let mut env = Environment::idle(RedisOptions::default(), &set).await;
    env.broker.create(TOPIC);
    env.run(ALL).await;
    env
}

/// The kind and the job of an event.
fn told(event: &Message) -> (String, String) {
    let text = |name| event.headers.text(name).unwrap().to_owned();
    let kind = text("ce-type");
    let kind = kind.strip_prefix("dwell.job.").and_then(|kind| kind.strip_suffix(".v1"));
    (kind.unwrap().to_owned(), text("ce-subject"))
}

fn all_told(events: &[Message]) -> Vec<(String, String)> {
    let mut all: Vec<_> = events.iter().map(told).collect();
    all.sort_unstable();
    all
}

/// The data of the only event of this kind of this job.
fn data(events: &[Message], kind: &str, id: &str) -> Value {
    let wanted = (kind.to_owned(), id.to_owned());
    let found: Vec<&Message> = events.iter().filter(|event| told(event) == wanted).collect();
    assert_eq!(found.len(), 1, "{kind} {id}");
    serde_json::from_slice(&found[0].body).unwrap()
}

#[tokio::test]
async fn each_kind_is_told_once() {
    let mut env = told_on_main(&[]).await;
    env.send(request("fine", "0"));
    env.arrived("orders.a", 1).await;
    env.broker.fail_times("orders.b", 1, Fault::Unroutable);
    env.send(to("orders.b", "again", "0").with_header("delay-retry", "50ms"));
    env.arrived("orders.b", 1).await;
    env.broker.fail("orders.b", Fault::Unroutable);
    env.send(to("orders.b", "dies", "0").with_header("delay-retry", "none"));
    env.until_state("dies", JobState::Dead).await;
    env.send(request("moved", "2h"));
    env.send(request("moved", "1h"));
    env.send(action("cancel", "moved"));
    let overdue = Message::new("")
        .with_header("delay-id", "late")
        .with_header("delay-until", "2020-01-01T00:00:00Z")
        .with_header("delay-target", "orders.a");
    env.send(overdue.with_header("delay-late", "drop").with_header("delay-max-late", "1s"));
    env.send(request("held", "0").with_header("delay-confirm", "consumer"));
    wait_until("it is held", async || {
        let state = env.until_state("held", JobState::Reserved).await.state_record;
        state.is_some_and(|state| state.held).then_some(())
    })
    .await;
    env.send(action("finish", "held"));
    env.until_over("held").await;
    env.send(action("finish", "held"));
    env.send(action("cancel", "nobody"));
    env.taken().await;

    let expected = [
        ("cancelled", "moved"),
        ("dead", "dies"),
        ("delivered", "again"),
        ("delivered", "fine"),
        ("delivered", "held"),
        ("dropped", "late"),
        ("retried", "again"),
        ("scheduled", "again"),
        ("scheduled", "dies"),
        ("scheduled", "fine"),
        ("scheduled", "held"),
        ("scheduled", "late"),
        ("scheduled", "moved"),
        ("scheduled", "moved"),
    ];
    env.arrived(TOPIC, expected.len()).await;
    // The last events are published within the drain.
    assert!(env.stop(Duration::from_secs(5)).await);
    let events = env.broker.published(TOPIC);
    let expected = expected.map(|(kind, id)| (kind.to_owned(), id.to_owned()));
    assert_eq!(all_told(&events), expected);
    assert_eq!(env.metric("dwell_events_dropped_total"), 0.0);

    let ids: BTreeSet<&str> =
        events.iter().map(|event| event.headers.text("ce-id").unwrap()).collect();
    assert_eq!(ids.len(), events.len(), "{ids:?}");
    for event in &events {
        let header = |name| event.headers.text(name);
        assert_eq!(header("ce-specversion"), Some("1.0"));
        assert_eq!(header("ce-source"), Some("/dwell/dwell"));
        assert_eq!(event.key.as_deref(), Some(told(event).1.as_bytes()));
    }
    let dead = data(&events, "dead", "dies");
    assert_eq!(dead["broker"], "main");
    assert_eq!(dead["target"], "orders.b");
    assert_eq!(dead["attempt"], 1);
    assert_eq!(dead["reason"], "retries_exhausted");
    assert!(dead["error"].is_string() && dead["due_ms"].is_i64(), "{dead}");
    assert!(dead["queue"].is_null() && dead["schedule"].is_null(), "{dead}");
    let retried = data(&events, "retried", "again");
    assert_eq!(retried["attempt"], 1);
    assert_eq!(retried["target"], "orders.b");
    assert_eq!(data(&events, "delivered", "again")["attempt"], 2);
    assert_eq!(data(&events, "cancelled", "moved")["reason"], "cancelled");
    assert_eq!(data(&events, "dropped", "late")["due_ms"], 1_577_836_800_000_i64);
}

#[tokio::test]
async fn a_schedule_is_told_by_its_occurrences() {
    let mut env = told_on_main(&[]).await;
    let schedule = Message::new("")
        .with_header("delay-id", "yearly")
        .with_header("delay-schedule", "@yearly")
        .with_header("delay-target", "orders.a");
    env.send(schedule);
    env.send(action("fire", "yearly"));
    // The occurrence was made and delivered.
    env.arrived(TOPIC, 2).await;
    env.send(action("cancel", "yearly"));
    env.arrived(TOPIC, 3).await;
    assert!(env.stop(Duration::from_secs(5)).await);
    let events = env.broker.published(TOPIC);
    let all = all_told(&events);
    let made = all.last().unwrap().1.clone();
    assert!(made.starts_with("yearly@"), "{made}");
    let expected =
        [("cancelled", "yearly"), ("delivered", made.as_str()), ("scheduled", made.as_str())];
    assert_eq!(all, expected.map(|(kind, id)| (kind.to_owned(), id.to_owned())));
    for kind in ["scheduled", "delivered"] {
        let data = data(&events, kind, &made);
        assert_eq!(data["schedule"], "yearly");
        assert_eq!(data["occurrence"], 1);
    }
    assert_eq!(data(&events, "scheduled", &made)["reason"], "made");
}

#[tokio::test]
async fn only_the_kinds_that_are_asked_for_are_told() {
    let env = told_on_main(&[("events.of", "dead,cancelled")]).await;
    env.send(request("fine", "0"));
    env.arrived("orders.a", 1).await;
    env.until_over("fine").await;
    env.send(request("gone", "1h"));
    env.send(action("cancel", "gone"));
    env.arrived(TOPIC, 1).await;
    let expected = [("cancelled".to_owned(), "gone".to_owned())];
    assert_eq!(all_told(&env.broker.published(TOPIC)), expected);
}

#[tokio::test]
async fn an_event_that_comes_in_is_rejected() {
    let env = told_on_main(&[]).await;
    env.send(request("fine", "0"));
    let event = env.arrived(TOPIC, 1).await.remove(0);
    env.send(Message { properties: None, key: None, ..event.with_header("delay-for", "0") });
    let rejected = env.arrived("delay.rejected", 1).await.remove(0);
    assert_eq!(rejected.headers.text("delayed-error"), Some("loop"));
}

#[tokio::test]
async fn an_event_that_comes_back_from_rejected_ends_there() {
    let env = told_on_main(&[]).await;
    env.send(request("fine", "0"));
    let event = env.arrived(TOPIC, 1).await.remove(0).with_header("delayed-error", "loop");
    env.send(Message { properties: None, key: None, ..event.with_header("delay-for", "0") });
    env.until_metric("dwell_events_dropped_total", 1.0).await;
    env.taken().await;
    assert_eq!(env.until_empty().await, 0, "no dead job makes another event");
}

/// A broker of its own for the events, which the instance cannot reach.
async fn told_on_far(topics: &[&str]) -> (Environment, Broker) {
    let mut env = Environment::idle(RedisOptions::default(), &[("events.broker", "main")]).await;
    let far = Broker::with_topics(topics.iter().copied());
    let broker = config::Broker {
        connector: BrokerConfig::Memory(memory::Config::from(&far)),
        ..env.settings.brokers["main"].clone()
    };
    env.settings.brokers.insert("far".to_owned(), broker);
    env.settings.events.broker = Some("far".to_owned()).into();
    (env, far)
}

#[tokio::test]
async fn a_broker_for_events_that_is_away_delays_no_delivery() {
    let (mut env, far) = told_on_far(&[TOPIC, "delay.dead"]).await;
    far.refuse_open(ErrorKind::Disconnected);
    let readiness = env.begin(None).await.unwrap();
    (0..50).for_each(|number| env.send(request(&format!("job-{number}"), "0")));
    env.arrived("orders.a", 50).await;
    env.taken().await;
    // Each was scheduled and delivered, and nobody was told.
    env.until_metric("dwell_events_dropped_total", 100.0).await;
    assert_eq!(far.published(TOPIC).len(), 0);
    assert!(readiness.is_ready());

    far.heal();
    wait_until("it is there", async || {
        let waits = readiness.waiting().into_iter();
        (!waits.map(|(what, _)| what).any(|what| what == Waiting::Broker("far".to_owned())))
            .then_some(())
    })
    .await;
    env.send(request("told", "1h"));
    let told_now = far.wait_published(TOPIC, 1, DEADLINE).await;
    assert_eq!(told(&told_now[0]), ("scheduled".to_owned(), "told".to_owned()));
    assert_eq!(env.metric("dwell_events_dropped_total"), 100.0);
}

#[tokio::test]
async fn a_destination_that_answers_nothing_delays_no_delivery() {
    let env = told_on_main(&[]).await;
    env.broker.fail(TOPIC, Fault::Silent { landed: false });
    for number in 0..400 {
        env.send(request(&format!("job-{number}"), "0"));
    }
    env.arrived("orders.a", 400).await;
    assert_eq!(env.until_empty().await, 0);
    // What was published has no outcome after `publish_timeout`.
    wait_until("some are counted", async || {
        (env.metric("dwell_events_dropped_total") > 0.0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_missing_destination_ends_a_start_that_does_not_wait() {
    let (mut env, _far) = told_on_far(&["delay.dead"]).await;
    let error = match env.begin(Some(Duration::ZERO)).await {
        Err(error) => error,
        Ok(_) => match env.failed().await {
            Failure::Start(error) => error,
            other => panic!("{other}"),
        },
    };
    assert_eq!(error.cause, Cause::Missing);
    assert!(error.message.contains("`delay.events`, which events.to names"), "{error}");
}
