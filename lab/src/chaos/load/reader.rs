//! Reads one destination, over restarts of the broker, and records each message before
//! the acknowledgement.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dwell::clock;
use dwell::delayed_headers::{ATTEMPT, DEAD_REASON, DUE, ERROR, ID, OCCURRENCE};
use dwell_connectors::{BrokerConfig, Header, Message, Position, Source, SourceOptions};
use dwell_testkit::environment::traffic::reading;
use tokio::sync::mpsc::UnboundedSender;
use tracing::debug;

use super::consumers::Received;
use super::draw::{CONSUMER_HEADER, NOTE_HEADER};
use crate::chaos::history::{Arrival, HOST, Op, Phase, Place, Reply, digest};
use crate::chaos::recorder::Recorder;
use crate::chaos::system::DEAD_PATH;
use crate::http::receiver;

/// The pause between two connection attempts.
const CONNECT_PAUSE: Duration = Duration::from_millis(200);
/// The timeout of an attempt: a frozen server answers nothing.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The contents of a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Target,
    Dead,
    Rejected,
    Replies,
    /// The log of the ingest, beside it.
    Inbound,
}

/// Reads until dropped.
pub(super) async fn read(
    broker: BrokerConfig,
    topic: String,
    role: Role,
    recorder: Arc<Recorder>,
    consumers: Option<UnboundedSender<Received>>,
) {
    let proc = format!("reader {topic}");
    loop {
        let options = SourceOptions {
            max_batch: 256,
            max_unsettled: 4096,
            ..reading(&topic, &format!("chaos-{topic}"))
        };
        match clock::timeout(CONNECT_TIMEOUT, broker.source(options)).await {
            Some(Ok(source)) => {
                let see = |message: &Message| {
                    recorder.record(&proc, Phase::Ok, entry(message, &topic, role));
                    pass_on(message, consumers.as_ref());
                };
                drain(source, see).await;
            }
            // The destination may not exist yet.
            Some(Err(error)) => debug!(topic, %error, "reader has no link"),
            None => debug!(topic, "reader has no link in time"),
        }
        clock::sleep(CONNECT_PAUSE).await;
    }
}

/// Reads until the link fails. A message is seen before it is acknowledged.
async fn drain(source: Box<dyn Source>, see: impl Fn(&Message)) {
    while let Ok(batch) = source.recv().await {
        batch.messages.iter().for_each(&see);
        if source.ack(batch.id).await.is_err() {
            return;
        }
    }
}

/// Passes a message on to the consumer that confirms it, if there is one.
fn pass_on(message: &Message, consumers: Option<&UnboundedSender<Received>>) {
    if let Some((consumers, received)) = consumers.zip(Received::of(message)) {
        // After the end of the load nobody confirms any more.
        let _ = consumers.send(received);
    }
}

/// Records each request that the host of the URLs takes, before the answer.
pub(super) fn take(
    recorder: Arc<Recorder>,
    consumers: UnboundedSender<Received>,
) -> impl Fn(receiver::Arrival) + Send + Sync {
    let count = AtomicU64::new(0);
    move |request| {
        let mut message = Message::new(request.body);
        for (name, value) in &request.headers {
            message = message.with_header(name.as_str(), String::from_utf8_lossy(value.as_bytes()));
        }
        message.timestamp_ms = Some(request.at_us / 1000);
        message.position = Some(Position {
            log: "urls".to_owned(),
            partition: 0,
            offset: count.fetch_add(1, Ordering::Relaxed),
        });
        let role = if request.path == DEAD_PATH { Role::Dead } else { Role::Target };
        let url = format!("http://{}{}", request.host, request.path);
        recorder.record(HOST, Phase::Ok, entry(&message, &url, role));
        pass_on(&message, Some(&consumers).filter(|_| role == Role::Target));
    }
}

fn entry(message: &Message, topic: &str, role: Role) -> Op {
    match role {
        Role::Target => Op::Deliver(arrival(message, topic, ID, "")),
        Role::Dead => Op::Dead(arrival(message, topic, ID, DEAD_REASON)),
        Role::Rejected => Op::Reject(arrival(message, topic, "delay-id", ERROR)),
        Role::Inbound => Op::Inbound(arrival(message, topic, "delay-id", "")),
        Role::Replies => Op::Reply(reply(&message.body)),
    }
}

fn text(message: &Message, name: &str) -> Option<String> {
    message.headers.get(name)?.plain().map(std::borrow::Cow::into_owned)
}

fn arrival(message: &Message, topic: &str, id: &str, reason: &str) -> Arrival {
    let text = |name| text(message, name);
    let notes =
        message.headers.iter().filter(|Header { name, .. }| name.eq_ignore_ascii_case(NOTE_HEADER));
    let notes: Vec<_> = notes.filter_map(|Header { value, .. }| value.plain()).collect();
    Arrival {
        id: text(id).unwrap_or_default(),
        topic: topic.to_owned(),
        due_ms: text(DUE).and_then(|due| due.parse().ok()),
        attempt: text(ATTEMPT).and_then(|attempt| attempt.parse().ok()),
        occurrence: text(OCCURRENCE).and_then(|number| number.parse().ok()),
        digest: digest(&message.body, notes.iter().map(|note| (NOTE_HEADER, &**note))),
        place: message.position.as_ref().map(|position| Place {
            log: position.log.clone(),
            partition: position.partition,
            offset: position.offset,
        }),
        redelivered: message.redelivered,
        taken_ms: message.timestamp_ms,
        reason: text(reason).unwrap_or_default(),
        action: text("delay-action").unwrap_or_default(),
    }
}

/// An unreadable reply is recorded as an unknown one, which the checker reports.
fn reply(body: &[u8]) -> Reply {
    let said: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let text = |name: &str| said[name].as_str().unwrap_or_default().to_owned();
    Reply { id: text("id"), action: text("action"), res: text("verdict"), number: None }
}

impl Received {
    /// The data that the consumer of this message needs; `None` if nobody confirms it.
    fn of(message: &Message) -> Option<Received> {
        let text = |name| text(message, name);
        let consumer = serde_json::from_str(&text(CONSUMER_HEADER)?).ok()?;
        Some(Received {
            id: text(ID)?,
            due_ms: text(DUE)?.parse().ok()?,
            attempt: text(ATTEMPT)?.parse().ok()?,
            consumer,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_entered_with_what_it_is_judged_by() {
        let message = Message::new("body")
            .with_header("delayed-id", "a")
            .with_header("delayed-attempt", "2")
            .with_header(NOTE_HEADER, "n");
        let Op::Deliver(arrival) =
            entry(&message.with_header("delayed-due", "77"), "t", Role::Target)
        else {
            panic!("not delivered")
        };
        assert_eq!(
            (&*arrival.id, arrival.attempt, arrival.due_ms, &*arrival.topic),
            ("a", Some(2), Some(77), "t")
        );
        assert_eq!(arrival.digest, digest(b"body", [(NOTE_HEADER, "n")]));
        let Op::Reply(reply) = entry(
            &Message::new(r#"{"id":"a","action":"cancel","verdict":"fired"}"#),
            "r",
            Role::Replies,
        ) else {
            panic!("no reply")
        };
        assert_eq!(
            reply,
            Reply {
                id: "a".to_owned(),
                action: "cancel".to_owned(),
                res: "fired".to_owned(),
                number: None
            }
        );
        let confirmed = Message::new("")
            .with_header("delayed-id", "a")
            .with_header("delayed-attempt", "2")
            .with_header("delayed-due", "77");
        assert!(Received::of(&confirmed).is_none());
        let received = Received::of(
            &confirmed.with_header(CONSUMER_HEADER, r#"{"ttr_ms":9,"words":["fail"]}"#),
        )
        .unwrap();
        assert_eq!(
            (&*received.id, received.due_ms, received.attempt, received.consumer.ttr_ms),
            ("a", 77, 2, 9)
        );
    }
}
