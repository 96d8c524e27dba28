//! Requests of one id that debounce, from the broker.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dwell::clock;
use dwell::delayed_headers::{ATTEMPT, DUE};
use dwell_connectors::{Destination, Message};
use dwell_testkit::environment::Result;
use dwell_testkit::environment::traffic::Producer;
use dwell_testkit::servers::BrokerKind;
use parking_lot::Mutex;
use serde::Serialize;

use super::Options;
use super::receipts::number;
use crate::chaos::wait::grown;
use crate::checker::Wrongs;
use crate::checker::burst::{Delivery, Requests, Rule};
use crate::place::Place;

const REQUEST_DESTINATION: &str = "delay.in";
const TARGET: &str = "lab.debounced";
const ABSENT: &str = "lab.absent";
/// The interval at which the requests that are next are sent.
const SEND_INTERVAL: Duration = Duration::from_millis(5);
/// The longest time without a delivery, beside the longest wait.
const PATIENCE: Duration = Duration::from_secs(30);

/// The figures.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// Requests that were sent.
    pub requests: usize,
    /// How long sending took, ms.
    pub sent_in_ms: i64,
    /// Whether Dwell was stopped meanwhile.
    pub backlog: bool,
    /// The least and the most deliveries that the rule makes of them.
    pub right: [usize; 2],
    /// The deliveries. How many there are is the number to compare.
    pub deliveries: Vec<Delivery>,
    /// What was wrong.
    #[serde(flatten)]
    pub wrongs: Wrongs,
}

/// Runs the scenario; `say` prints progress.
///
/// # Errors
/// The servers failed.
pub async fn run(options: &Options, say: fn(&str)) -> Result<Summary> {
    let rule = Rule { wait_ms: options.wait, max_wait_ms: options.max_wait };
    if rule.wait_ms > rule.max_wait_ms {
        return Err("--wait is at most --max-wait".into());
    }
    // Two instances would read the requests in no order, and nobody could tell which is the latest.
    let starting = Place::with_broker(1, options.broker, &[TARGET], ABSENT, "");
    let mut place = Box::pin(starting).await?;
    let deliveries = Arc::new(Mutex::new(Vec::<Delivery>::new()));
    let seen = deliveries.clone();
    let note = move |at_us, message: &Message| {
        let text = std::str::from_utf8(&message.body).unwrap_or_default();
        seen.lock().push(Delivery {
            // A body that is none is no request either.
            request: text.parse().unwrap_or(usize::MAX),
            due_ms: number(message, DUE),
            attempt: number(message, ATTEMPT),
            at_us,
        });
    };
    place.read(TARGET, note).await?;
    let mut producer = place.producer().await?;
    if options.backlog {
        place.instances[0].stop().await?;
    }
    let sent_us = send(&mut producer, options).await?;
    let sent_in_ms = sent_us.last().zip(sent_us.first()).map_or(0, |(to, from)| (to - from) / 1000);
    say(&format!("{} requests were sent in {sent_in_ms} ms", sent_us.len()));
    let started_ms = clock::wall_ms();
    if options.backlog {
        place.instances[0].restart().await?;
    }
    let longest = Duration::from_millis(options.max_wait.unsigned_abs());
    let last = sent_us.len() - 1;
    let is_over = || usize::from(deliveries.lock().iter().any(|seen| seen.request == last));
    grown(1, PATIENCE + longest, is_over).await;
    // What comes after the last one is too much.
    clock::sleep(longest + Duration::from_secs(1)).await;
    place.stop().await?;

    let deliveries = deliveries.lock().clone();
    let requests = if options.backlog {
        Requests::Backlog { count: sent_us.len(), started_ms }
    } else {
        Requests::Live(&sent_us)
    };
    let mut wrongs = Wrongs::default();
    rule.judge(requests, &deliveries, &mut wrongs);
    Ok(Summary {
        requests: sent_us.len(),
        sent_in_ms,
        backlog: options.backlog,
        right: rule.bounds(requests),
        deliveries,
        wrongs,
    })
}

/// Sends the requests, spread evenly. Returns when each was sent, epoch µs.
async fn send(producer: &mut Producer, options: &Options) -> Result<Vec<i64>> {
    let Options { requests, over, wait, max_wait, .. } = *options;
    // On Kafka only messages of one key stay in their order.
    let has_key = options.broker == BrokerKind::Kafka;
    let request = |number: i64| {
        let mut message = Message::new(number.to_string())
            .with_header("delay-id", "storm")
            .with_header("delay-target", TARGET)
            .with_header("delay-for", wait.to_string())
            .with_header("delay-on-conflict", "debounce")
            .with_header("delay-max-wait", max_wait.to_string());
        message.key = has_key.then(|| Bytes::from_static(b"storm"));
        message
    };
    let to = Destination::new(REQUEST_DESTINATION);
    let (mut sent_us, mut sent, begin_us) = (Vec::new(), 0, clock::wall_us());
    while sent < requests {
        let now_us = clock::wall_us();
        let turn = ((now_us - begin_us) / 1000 * requests / over + 1).clamp(sent, requests);
        sent_us.extend((sent..turn).map(|_| now_us));
        producer.send(&to, (sent..turn).map(request)).await?;
        sent = turn;
        clock::sleep(SEND_INTERVAL).await;
    }
    producer.flush().await?;
    Ok(sent_us)
}
