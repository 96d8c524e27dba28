//! Recurring schedules that come as messages, on each broker.

use dwell_connectors::{Message, Value};
use dwell_testkit::servers::BrokerKind;
use futures_util::future::join_all;

use super::environment::{Environment, request, text};
use super::outcomes::verdicts;

/// A number in a header: an integer on AMQP, text elsewhere.
fn number(kind: BrokerKind, message: &Message, name: &str) -> Option<i64> {
    let value = message.headers.get(name)?;
    let is_text = matches!(value, Value::Text(_) | Value::Bytes(_));
    assert_eq!(is_text, kind != BrokerKind::Amqp, "{}: {name} is {value:?}", kind.as_str());
    text(message, name)?.parse().ok()
}

pub(super) async fn a_schedule_makes_its_occurrences(env: &Environment) {
    join_all(BrokerKind::ALL.map(|kind| async move {
        let name = kind.as_str();
        let (id, target) = (format!("recurs-{name}"), format!("out.recurs-{name}"));
        let replies = format!("out.recurs-words-{name}");
        env.declare(kind, &target).await;
        env.declare(kind, &replies).await;
        let (arrivals, answers) = (env.read(kind, &target).await, env.read(kind, &replies).await);
        let headers = [
            ("delay-schedule", "@every 1s"),
            ("delay-id", id.as_str()),
            ("delay-target", target.as_str()),
            ("delay-count", "2"),
            ("delay-reply-to", replies.as_str()),
            ("tag", "kept"),
        ];
        env.send(kind, [request("tick", &headers)]).await;
        let mut seen = arrivals.until(2).await;
        seen.sort_by_key(|(_, message)| number(kind, message, "delayed-occurrence"));
        let mut times = Vec::new();
        for (place, (_, message)) in seen.iter().enumerate() {
            let due_ms = number(kind, message, "delayed-due").unwrap();
            assert_eq!(message.body, "tick", "{name}");
            assert_eq!(text(message, "tag").as_deref(), Some("kept"), "{name}");
            assert_eq!(text(message, "delayed-schedule"), Some(id.clone()), "{name}");
            assert_eq!(text(message, "delayed-id"), Some(format!("{id}@{due_ms:013}")), "{name}");
            let number = number(kind, message, "delayed-occurrence");
            assert_eq!(number, Some(place as i64 + 1), "{name}: without gaps");
            times.push(due_ms);
        }
        let next = seen.iter().map(|(_, message)| number(kind, message, "delayed-next"));
        let next: Vec<Option<i64>> = next.collect();
        // A slow machine misses some between them.
        assert!(times[1] > times[0] && (times[1] - times[0]) % 1000 == 0, "{name}: {times:?}");
        assert!(
            next[0].is_some_and(|ms| ms > times[0] && ms <= times[1]) && next[1].is_none(),
            "{name}: {next:?}, and the last has none"
        );
        assert_eq!(verdicts(&answers, 1).await, ["added"], "{name}");

        // After its last occurrence the id is free; a schedule of a year can be cancelled.
        let replied = [("delay-id", id.as_str()), ("delay-reply-to", replies.as_str())];
        let yearly = [("delay-schedule", "@yearly"), ("delay-target", target.as_str())];
        let schedule = request("tick", &[&yearly[..], &replied].concat());
        let cancel = request("", &[&[("delay-action", "cancel")][..], &replied].concat());
        env.send(kind, [schedule.clone(), schedule, cancel]).await;
        let words = verdicts(&answers, 4).await;
        assert_eq!(words, ["added", "added", "duplicate", "cancelled"], "{name}");
        if kind != BrokerKind::Nats {
            of_nats(env, kind).await;
        }
    }))
    .await;
}

/// A schedule in the spelling of NATS, which a NATS server of today would keep for itself.
async fn of_nats(env: &Environment, kind: BrokerKind) {
    let (name, target) = (kind.as_str(), format!("out.of-nats-{}", kind.as_str()));
    env.declare(kind, &target).await;
    let arrivals = env.read(kind, &target).await;
    let id = format!("of-nats-{name}");
    let mut message = request(
        "tock",
        &[
            ("Nats-Schedule", "@every 1s"),
            ("Nats-Schedule-Target", target.as_str()),
            ("delay-count", "1"),
        ],
    );
    match kind {
        BrokerKind::Kafka => message.key = Some(id.clone().into()),
        _ => message.headers.push("delay-id", id.as_str().into()),
    }
    env.send(kind, [message]).await;
    let (_, message) = arrivals.until(1).await.remove(0);
    assert_eq!(text(&message, "delayed-schedule"), Some(id), "{name}");
}
