//! Every error code of a rejected request, on every broker where it can occur.

use std::collections::{BTreeMap, HashMap};

use dwell::request::Code;
use dwell_connectors::Message;
use dwell_testkit::servers::BrokerKind;
use futures_util::future::join_all;

use super::environment::{Environment, request, text, texts};

/// A request, the mistake in it, and where it is sent.
fn mistakes(kind: BrokerKind) -> Vec<(Code, &'static str, Message)> {
    let hour = ("delay-for", "1h");
    let to = ("delay-target", "out.none");
    let mut all = vec![
        (Code::MissingDelay, vec![to]),
        (Code::BadDelay, vec![("delay-for", "soon"), to]),
        (Code::AmbiguousDelay, vec![hour, ("delay-until", "2030-01-01T00:00:00Z"), to]),
        (Code::DelayTooLong, vec![("delay-for", "400d"), to]),
        (Code::TargetNotAllowed, vec![hour, ("delay-target", "elsewhere")]),
        (Code::UnknownBroker, vec![hour, to, ("delay-broker", "nowhere")]),
        (Code::BadId, vec![hour, to, ("delay-id", "")]),
        (Code::BadRetry, vec![hour, to, ("delay-retry", "often")]),
        (Code::BadTtr, vec![hour, to, ("delay-ttr", "13h")]),
        (Code::BadHeader, vec![hour, to, ("delay-fro", "1h")]),
        (Code::BadAction, vec![("delay-action", "jump"), ("delay-id", "a")]),
        (Code::BadSchedule, vec![("delay-schedule", "often"), ("delay-id", "a"), to]),
        (Code::Loop, vec![hour, ("delay-target", "delay.in")]),
        (
            Code::Conflict,
            vec![
                ("delay-for", "2h"),
                to,
                ("delay-id", taken(kind)),
                ("delay-on-conflict", "reject"),
            ],
        ),
    ];
    // On AMQP the routing key that it came with stands in for a target.
    if kind != BrokerKind::Amqp {
        all.push((Code::MissingTarget, vec![hour]));
    }
    let mut all: Vec<(Code, &'static str, Message)> = all
        .into_iter()
        .map(|(code, headers)| (code, "delay.in", request("as it came", &headers)))
        .collect();
    all.push((Code::BodyTooLarge, "delay.in", request(&"x".repeat(64 * 1024 + 1), &[hour, to])));
    all.push((Code::BadEnvelope, "delay.envelope", request("{\"command\":", &[])));
    all
}

fn taken(kind: BrokerKind) -> &'static str {
    match kind {
        BrokerKind::Nats => "taken-nats",
        BrokerKind::Kafka => "taken-kafka",
        BrokerKind::Amqp => "taken-amqp",
    }
}

pub(super) async fn each_mistake_is_rejected_with_its_code(env: &Environment) {
    join_all(BrokerKind::ALL.map(|kind| async move {
        let rejected = env.read(kind, "delay.rejected").await;
        let first = [("delay-for", "1h"), ("delay-target", "out.none"), ("delay-id", taken(kind))];
        env.send(kind, [request("first", &first)]).await;
        let cases = mistakes(kind);
        let numbered = |topic: &str| -> Vec<Message> {
            let of_topic = cases.iter().enumerate().filter(|(_, (_, at, _))| *at == topic);
            of_topic
                .map(|(number, (_, _, message))| {
                    message.clone().with_header("case", number.to_string())
                })
                .collect()
        };
        env.send(kind, numbered("delay.in")).await;
        env.send_to(kind, "delay.envelope", numbered("delay.envelope")).await;
        let seen: HashMap<usize, Message> = rejected
            .until(cases.len())
            .await
            .into_iter()
            .map(|(_, message)| (text(&message, "case").unwrap().parse().unwrap(), message))
            .collect();
        assert_eq!(seen.len(), cases.len(), "{}: each once", kind.as_str());
        for (number, (code, _, sent)) in cases.iter().enumerate() {
            let what = format!("{}: {}", kind.as_str(), code.as_str());
            let message = &seen[&number];
            let mut left: BTreeMap<String, String> = texts(message);
            assert_eq!(
                left.remove("delayed-error").as_deref(),
                Some(code.as_str()),
                "{what}: {left:?}"
            );
            assert!(!left.remove("delayed-error-detail").unwrap().is_empty(), "{what}");
            assert_eq!(message.body, sent.body, "{what}");
            let as_they_came = texts(&sent.clone().with_header("case", number.to_string()));
            assert!(
                as_they_came.iter().all(|(name, value)| left.get(name) == Some(value)),
                "{what}: {left:?}"
            );
        }
    }))
    .await;
}
