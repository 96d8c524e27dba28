//! The events of jobs on each broker: a scripted set of jobs, each kind of event once.

use std::collections::BTreeMap;

use dwell_connectors::Message;
use dwell_testkit::servers::BrokerKind;

use super::environment::{Environment, request, text};
use crate::support::{metric, wait_until};

const TOPIC: &str = "delay.events";

/// The prefix of the attributes on each broker.
fn prefix(kind: BrokerKind) -> &'static str {
    match kind {
        BrokerKind::Nats => "ce-",
        BrokerKind::Kafka => "ce_",
        BrokerKind::Amqp => "cloudEvents_",
    }
}

/// The attributes of an event, without the prefix.
fn attributes(kind: BrokerKind, event: &Message) -> BTreeMap<String, String> {
    let own = event.headers.iter().filter_map(|header| {
        let name = header.name.strip_prefix(prefix(kind))?;
        Some((name.to_owned(), text(event, &header.name)?))
    });
    own.collect()
}

/// How a broker writes the id of a job in the subject of an event.
fn subject(kind: BrokerKind, id: &str) -> String {
    match kind {
        BrokerKind::Nats => id.replace('ë', "%C3%AB"),
        BrokerKind::Kafka | BrokerKind::Amqp => id.to_owned(),
    }
}

pub(super) async fn each_kind_of_event_arrives_once(env: &mut Environment) {
    for kind in BrokerKind::ALL {
        let name = kind.as_str();
        let of_events = format!("[events]\nbroker = \"{name}\"\n\n[delivery]\n");
        let settings = env.text_with("publish_timeout = \"20s\"\n");
        env.run_instead(&settings.replace("[delivery]\n", &of_events)).await;
        story(env, kind).await;
    }
}

async fn story(env: &mut Environment, kind: BrokerKind) {
    let name = kind.as_str();
    let id = |what: &str| format!("zoë-{what}-{name}");
    let target = format!("out.audit-{name}");
    env.declare(kind, &target).await;
    let (arrivals, events) = (env.read(kind, &target).await, env.read(kind, TOPIC).await);
    let job = |what: &str, target: &str, more: &[(&str, &str)]| {
        let id = id(what);
        let own = [("delay-id", id.as_str()), ("delay-target", target)];
        request("body", &[more, &own].concat())
    };
    let word = |action: &str, what: &str| {
        request("", &[("delay-action", action), ("delay-id", id(what).as_str())])
    };
    let overdue =
        [("delay-until", "2020-01-01T00:00:00Z"), ("delay-late", "drop"), ("delay-max-late", "1s")];
    let held = [("delay-for", "0"), ("delay-confirm", "consumer"), ("delay-ttr", "10m")];
    let scripted = [
        job("done", &target, &[("delay-for", "0")]),
        job("dies", "out.none", &[("delay-for", "0"), ("delay-retry", "100ms")]),
        job("gone", "out.none", &[("delay-for", "1h")]),
        word("cancel", "gone"),
        job("late", &target, &overdue),
        job("held", &target, &held),
    ];
    env.send(kind, scripted).await;
    arrivals.job(&id("held")).await;
    env.send(kind, [word("finish", "held")]).await;

    let mut expected: Vec<(String, String)> = [
        ("scheduled", "done"),
        ("delivered", "done"),
        ("scheduled", "dies"),
        ("retried", "dies"),
        ("dead", "dies"),
        ("scheduled", "gone"),
        ("cancelled", "gone"),
        ("scheduled", "late"),
        ("dropped", "late"),
        ("scheduled", "held"),
        ("delivered", "held"),
    ]
    .iter()
    .map(|(word, what)| (format!("dwell.job.{word}.v1"), subject(kind, &id(what))))
    .collect();
    expected.sort_unstable();
    events.until(expected.len()).await;
    // What an instance still has to tell it tells within its drain.
    let scrape = env.dwells[0].metrics().await.unwrap();
    assert_eq!(metric(&scrape, "dwell_events_dropped_total"), 0.0, "{name}");
    env.stop().await;

    let arrived: Vec<Message> = events.now().into_iter().map(|(_, message)| message).collect();
    let mut told: Vec<(String, String)> = arrived
        .iter()
        .map(|event| attributes(kind, event))
        .map(|attributes| (attributes["type"].clone(), attributes["subject"].clone()))
        .collect();
    told.sort_unstable();
    assert_eq!(told, expected, "{name}");
    for event in &arrived {
        let attributes = attributes(kind, event);
        assert_eq!(attributes["specversion"], "1.0", "{name}");
        assert!(attributes["source"].starts_with("/dwell/"), "{name}: {attributes:?}");
        assert!(attributes["time"].ends_with('Z'), "{name}: {attributes:?}");
        let data: serde_json::Value = serde_json::from_slice(&event.body).unwrap();
        let subject = subject(kind, data["id"].as_str().unwrap());
        assert_eq!(attributes["subject"], subject, "{name}");
        let content_type = match &event.properties {
            Some(properties) => {
                assert_eq!(properties.delivery_mode, Some(2), "{name}: it outlives a restart");
                properties.content_type.clone()
            }
            None => text(event, "content-type"),
        };
        assert_eq!(content_type.as_deref(), Some("application/json"), "{name}");
        if kind == BrokerKind::Kafka {
            assert_eq!(event.key.as_deref(), Some(subject.as_bytes()), "{name}");
        }
    }
}

/// The broker of the events is away, and the jobs are for another one.
pub(super) async fn a_broker_that_is_away_costs_events_alone(env: &mut Environment) {
    let (kind, target) = (BrokerKind::Nats, "out.audit-away");
    env.declare(kind, target).await;
    let arrivals = env.read(kind, target).await;
    // Nobody listens on port 1.
    let away = "[brokers.away]\ntype = \"amqp\"\nurl = \"amqp://guest:guest@127.0.0.1:1\"\nallow = []\n\n\
                [events]\nbroker = \"away\"\n\n[delivery]\n";
    let settings = env.text_with("publish_timeout = \"20s\"\n").replace("[delivery]\n", away);
    env.run_instead(&settings).await;
    let job = |number: usize| {
        let id = format!("away-{number}");
        let own = [("delay-id", id.as_str()), ("delay-target", target), ("delay-for", "0")];
        request("body", &own)
    };
    env.send(kind, (0..20).map(job)).await;
    arrivals.until(20).await;
    wait_until("each event is counted", async || {
        let scrape = env.dwells[0].metrics().await.ok()?;
        (metric(&scrape, "dwell_events_dropped_total") == 40.0).then_some(())
    })
    .await;
}
