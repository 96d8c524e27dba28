//! The nine routes, from each broker to each: every job arrives once, not early, and unchanged.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use dwell::clock;
use dwell_connectors::{Message, Value};
use dwell_testkit::servers::BrokerKind;
use futures_util::future::join_all;

use super::environment::{Environment, Reading, text};

/// Jobs a route; `DWELL_ROUTE_JOBS` names another number.
const JOBS: usize = 300;
const BODY: usize = 200;
/// When the jobs are due, from now on, ms: spread, and not before the last was sent on a quick
/// machine.
const SPREAD_MS: std::ops::Range<i64> = 500..4000;

/// The message that is sent on one route.
struct Job {
    message: Message,
    due_ms: i64,
}

/// A body that is no text, with its number in front.
fn body(number: usize) -> Bytes {
    let mut bytes = format!("{number:08}").into_bytes();
    bytes.extend((bytes.len()..BODY).map(|at| (at * 7 + number * 13) as u8));
    bytes.into()
}

fn number(message: &Message) -> usize {
    std::str::from_utf8(&message.body[..8]).unwrap().parse().unwrap()
}

fn job(from: BrokerKind, to: BrokerKind, number: usize, now_ms: i64) -> Job {
    let due_ms = now_ms + rand::random_range(SPREAD_MS);
    let mut message = Message::new(body(number))
        .with_header("delay-until", due_ms.to_string())
        .with_header("delay-target", target(from))
        .with_header("delay-broker", to.as_str())
        .with_header("tag", format!("tag {number}"));
    if from == BrokerKind::Kafka {
        message.key = Some(format!("key {number}").into());
    }
    if from == BrokerKind::Amqp {
        message.headers.push("count", Value::I64(number as i64));
        message.properties.get_or_insert_default().correlation_id =
            Some(format!("correlation {number}"));
    }
    Job { message, due_ms }
}

fn target(from: BrokerKind) -> String {
    format!("out.from-{}", from.as_str())
}

pub(super) async fn each_job_arrives_once_in_time_and_equal(env: &Environment) {
    let jobs = std::env::var("DWELL_ROUTE_JOBS")
        .map_or(JOBS, |text| text.parse().expect("DWELL_ROUTE_JOBS is a number"));
    let routes: Vec<(BrokerKind, BrokerKind)> =
        BrokerKind::ALL.iter().flat_map(|from| BrokerKind::ALL.map(|to| (*from, to))).collect();
    let mut readings: HashMap<(BrokerKind, BrokerKind), Reading> = HashMap::new();
    for (from, to) in &routes {
        env.declare(*to, &target(*from)).await;
        readings.insert((*from, *to), env.read(*to, &target(*from)).await);
    }
    let now_ms = clock::wall_ms();
    let planned: BTreeMap<(usize, usize), Vec<Job>> = routes
        .iter()
        .enumerate()
        .map(|(place, (from, to))| {
            ((place, 0), (0..jobs).map(|number| job(*from, *to, number, now_ms)).collect())
        })
        .collect();
    join_all(BrokerKind::ALL.map(|from| {
        let messages: Vec<Message> = planned
            .iter()
            .filter(|((place, _), _)| routes[*place].0 == from)
            .flat_map(|(_, jobs)| jobs.iter().map(|job| job.message.clone()))
            .collect();
        env.send(from, messages)
    }))
    .await;
    for ((place, _), sent) in &planned {
        let (from, to) = routes[*place];
        let seen = readings[&(from, to)].until(jobs).await;
        let route = format!("{} to {}", from.as_str(), to.as_str());
        assert_eq!(seen.len(), jobs, "{route}: each once");
        let by_number: HashMap<usize, &(i64, Message)> =
            seen.iter().map(|seen| (number(&seen.1), seen)).collect();
        assert_eq!(by_number.len(), jobs, "{route}: each once");
        for (number, job) in sent.iter().enumerate() {
            let (at_us, message) = by_number[&number];
            assert!(*at_us >= job.due_ms * 1000, "{route}: job {number} is early");
            assert_eq!(message.body, body(number), "{route}");
            assert_eq!(text(message, "tag"), Some(format!("tag {number}")), "{route}");
            assert_eq!(text(message, "delayed-due"), Some(job.due_ms.to_string()), "{route}");
            assert_eq!(text(message, "delayed-attempt").as_deref(), Some("1"), "{route}");
            assert!(
                message.headers.iter().all(|header| !header.name.starts_with("delay-")),
                "{route}: {message:?}"
            );
            own_of_kind(from, to, number, message);
        }
    }
}

/// Keys and properties: as they came on the same kind of broker, headers on another.
fn own_of_kind(from: BrokerKind, to: BrokerKind, number: usize, message: &Message) {
    if from == BrokerKind::Kafka {
        let key = format!("key {number}");
        match to {
            BrokerKind::Kafka => assert_eq!(message.key.as_deref(), Some(key.as_bytes())),
            BrokerKind::Nats | BrokerKind::Amqp => {
                assert_eq!(text(message, "kafka-key"), Some(key))
            }
        }
    }
    if from == BrokerKind::Amqp {
        let correlation = Some(format!("correlation {number}"));
        assert_eq!(text(message, "count"), Some(number.to_string()));
        match to {
            BrokerKind::Amqp => {
                assert_eq!(message.properties.as_ref().unwrap().correlation_id, correlation)
            }
            BrokerKind::Nats | BrokerKind::Kafka => {
                assert_eq!(text(message, "amqp-correlation-id"), correlation)
            }
        }
    }
    if to == BrokerKind::Amqp && from != BrokerKind::Amqp {
        assert_eq!(message.properties.as_ref().unwrap().delivery_mode, Some(2), "persistent");
    }
}
