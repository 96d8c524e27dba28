//! For any input: no panic, and an accepted schedule has these properties.

use bytes::Bytes;
use dwell_connectors::{Destination, Message, Position, Properties, Value};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::job::{Due, Target};
use crate::request::control::queue_name;
use crate::request::known_headers::NAMES;

const GOOD: [&str; 34] = [
    "1s",
    "0",
    "5000",
    "PT15M",
    "366d",
    "1769860860000",
    "2026-02-01T12:00:00.0001Z",
    "orders.close",
    "orders",
    "close.a",
    "shop",
    "nats",
    "kafka",
    "amqp",
    "id-1",
    "broker",
    "consumer",
    "none",
    "2m,10m",
    "fire",
    "keep",
    "debounce",
    "cancel",
    "reschedule",
    "@at 2026-02-01T12:00:00Z",
    "2026-02-01T12:00:00",
    "Europe/Berlin",
    "0 9 * * MON-FRI",
    "*/5 * * * * *",
    "@every 1h30m0s",
    "@daily",
    "all",
    "skip",
    "3",
];

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => proptest::sample::select(NAMES.to_vec()).prop_map(str::to_owned),
        1 => proptest::sample::select(NAMES.to_vec()).prop_map(str::to_uppercase),
        1 => "[dD]elay(ed)?-[a-z\u{e9}-]{0,8}",
        1 => any::<String>(),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        8 => proptest::sample::select(GOOD.to_vec()).prop_map(Value::from),
        2 => any::<String>().prop_map(Value::Text),
        1 => vec(any::<u8>(), 0..20).prop_map(|bytes| Value::Bytes(bytes.into())),
        1 => any::<i64>().prop_map(Value::I64),
        1 => any::<u32>().prop_map(Value::U32),
        1 => any::<f64>().prop_map(Value::F64),
        1 => Just(Value::Null),
        1 => any::<String>().prop_map(|text| Value::List(vec![Value::Text(text)])),
    ]
}

fn body() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        vec(any::<u8>(), 0..1_100).prop_map(Bytes::from),
        (proptest::sample::select(vec!["add", "delete", "finish", "x"]), any::<String>(), any::<f64>(), any::<i64>()).prop_map(|(command, text, delay, ttr)| {
            serde_json::json!({"command": command, "topic": "orders.close", "id": text, "delay": delay.abs() % 1e9, "TTR": ttr % 100_000, "body": {"a": text}})
                .to_string()
                .into()
        }),
    ]
}

prop_compose! {
    fn messages()(
        base in vec(prop_oneof![Just(("delay-for", "1s")), Just(("delay-target", "orders.close")), Just(("delay-target", "orders")), Just(("delay-id", "a"))], 0..3),
        headers in vec((name(), value()), 0..4),
        body in body(),
        (has_body, redelivered) in any::<(bool, bool)>(),
        key in option::of(vec(any::<u8>(), 0..4)),
        address in prop_oneof![Just("orders".to_owned()), any::<String>()],
        offset in option::of(any::<u64>()),
        timestamp_ms in option::of(prop_oneof![NOW - 10_000..NOW + 10_000, any::<i64>()]),
        message_id in option::of(any::<String>()),
    ) -> Message {
        let mut message = Message {
            body,
            has_body,
            key: key.map(Bytes::from),
            properties: message_id.map(|id| Box::new(Properties { message_id: Some(id), ..Properties::default() })),
            destination: Destination::new(address),
            position: offset.map(|offset| Position { log: "LOG".to_owned(), partition: 0, offset }),
            timestamp_ms,
            redelivered,
            ..Message::default()
        };
        for (name, value) in base {
            message.headers.push(name, value.into());
        }
        for (name, value) in headers {
            message.headers.push(name, value);
        }
        message
    }
}

/// The properties of an accepted schedule.
fn keeps_its_promises(
    new_job: &NewJob,
    message: &Message,
    rules: &RequestRules,
    now_ms: i64,
) -> Result<(), TestCaseError> {
    let job = &new_job.job;
    prop_assert!(crate::job::JobId::new(new_job.id.as_str()).is_ok());
    for header in job.headers.iter() {
        let name = header.name.to_ascii_lowercase();
        prop_assert!(
            !name.starts_with("delay-")
                && !name.starts_with("delayed-")
                && name != "x-delay"
                && !name.starts_with("nats-schedule"),
            "{name}"
        );
    }
    match &job.target {
        Target::Broker { broker, to } => {
            let broker = &rules.brokers[broker];
            prop_assert!(
                broker.allows(to) && !broker.reads(to) && broker.connector.forbidden(to).is_none()
            );
        }
        Target::Queue { queue } => {
            prop_assert_eq!(queue_name(queue), Ok(queue.clone()));
        }
    }
    prop_assert!(job.body.len() as u64 <= rules.limits.max_body.bytes());
    prop_assert!((1..=rules.limits.max_ttr.ms()).contains(&u64::from(job.ttr_ms)));
    prop_assert!(job.retry.as_ref().is_none_or(|waits| waits.len() <= rules.limits.max_retries));
    let max_ms = rules.limits.max_delay.ms();
    match new_job.due {
        Due::In(ms) | Due::Earlier { in_ms: ms, .. } => prop_assert!(ms <= max_ms),
        Due::At(at_ms) => {
            prop_assert!(at_ms >= 0 && i128::from(at_ms) - i128::from(now_ms) <= i128::from(max_ms))
        }
    }
    if let Some(asked_ms) = message
        .headers
        .text("delay-for")
        .and_then(|text| crate::units::parse_duration_ms(text).ok())
    {
        let expected = match message
            .timestamp_ms
            .filter(|ms| *ms >= 100_000_000_000 && rules.origin() != "amqp")
        {
            Some(from) if from <= now_ms => Due::At(from.saturating_add_unsigned(asked_ms)),
            Some(from) => {
                Due::Earlier { at_ms: from.saturating_add_unsigned(asked_ms), in_ms: asked_ms }
            }
            None => Due::In(asked_ms),
        };
        prop_assert_eq!(new_job.due, moved(expected, new_job, message));
    } else if let Some(asked_ms) =
        message.headers.text("delay-until").and_then(|text| crate::units::parse_time_ms(text).ok())
    {
        prop_assert_eq!(new_job.due, moved(Due::At(asked_ms.max(0)), new_job, message));
    }
    Ok(())
}

/// The due time as the spread of the request moves it.
fn moved(due: Due, new_job: &NewJob, message: &Message) -> Due {
    let spread =
        message.headers.iter().find(|header| header.name.eq_ignore_ascii_case("delay-spread"));
    let spread = spread.and_then(|header| header.value.written());
    let spread = spread.and_then(|text| crate::units::parse_duration_ms(&text).ok()).unwrap_or(0);
    let by_ms = dwell_schedule::spread_ms(new_job.id.as_str(), spread);
    match due {
        Due::At(at_ms) => Due::At(at_ms.saturating_add_unsigned(by_ms)),
        Due::In(ms) => Due::In(ms.saturating_add(by_ms)),
        Due::Earlier { at_ms, in_ms } => Due::Earlier {
            at_ms: at_ms.saturating_add_unsigned(by_ms),
            in_ms: in_ms.saturating_add(by_ms),
        },
    }
}

/// The properties of an accepted recurring schedule.
fn recurs_as_promised(new: &NewSchedule, now_ms: i64) -> Result<(), TestCaseError> {
    let id = new.id.as_str();
    prop_assert!(id.len() <= 240 && dwell_schedule::split_occurrence_id(id).is_none());
    let read = dwell_schedule::Expression::parse(&new.timing.text);
    prop_assert_eq!(read.as_ref(), Ok(&new.timing.expression));
    let first = new.timing.timetable(now_ms).ok().and_then(|times| times.first(now_ms));
    prop_assert!(first.is_some_and(|first| first >= now_ms));
    prop_assert!(new.timing.count.is_none_or(|count| (1..=1_000_000_000).contains(&count)));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_message_panics_and_what_is_accepted_keeps_its_promises(
        message in messages(),
        kind in proptest::sample::select(vec![Kind::Nats, Kind::Kafka, Kind::Amqp, Kind::Memory]),
        (envelope, immediate, id_from_key) in any::<(bool, bool, bool)>(),
        now_ms in prop_oneof![4 => Just(NOW), 1 => any::<i64>()],
    ) {
        let mut rules = rules(kind);
        rules.ingest.format = if envelope { Format::Envelope } else { Format::Headers };
        rules.ingest.missing_delay =
            if immediate { MissingDelay::Immediate } else { MissingDelay::Reject };
        rules.ingest.id_from = if id_from_key { IdFrom::Key } else { IdFrom::Made };
        match parse(&message, &rules, now_ms) {
            Ok(Request::NewJob(new_job)) => keeps_its_promises(&new_job, &message, &rules, now_ms)?,
            Ok(Request::NewSchedule(new)) => recurs_as_promised(&new, now_ms)?,
            Ok(Request::Act(act)) => prop_assert!(act.action != crate::job::Action::Add),
            Err(rejection) => prop_assert!(rejection.detail.len() < 1_500 && !rejection.detail.chars().any(char::is_control), "{:?}", rejection.detail),
        }
    }
}
