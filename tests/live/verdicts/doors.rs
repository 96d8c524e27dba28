//! Who cancels: producers on each broker, and whoever has a link to the store.

use std::collections::VecDeque;
use std::time::Duration;

use dwell::clock;
use dwell::job::{Action, JobId};
use dwell::request::{Act, Origin};
use dwell::servers::BrokerKind;
use dwell::stage::traffic::Producer;
use dwell_connectors::{Destination, Message};
use futures_util::future::join_all;
use parking_lot::Mutex;

use crate::routes::trio::{Trio, request};
use crate::support::verdicts::Verdicts;

/// By what way a cancel goes in.
#[derive(Debug, Clone, Copy)]
pub(super) enum Door {
    /// A message to the ingest on this broker.
    Message(BrokerKind),
    /// Straight on Redis, as a command does.
    Store,
}

/// The clients of a race.
pub(super) const DOORS: [Door; 4] =
    [Door::Message(BrokerKind::Nats), Door::Message(BrokerKind::Kafka), Door::Message(BrokerKind::Amqp), Door::Store];

/// When to ask for the end of which job: epoch ms, in order.
pub(super) type Asks = VecDeque<(i64, String)>;

/// Where the answers to messages go.
pub(super) fn replies(race: &str) -> String {
    format!("out.replies-{race}")
}

impl Door {
    /// Asks for each when its time has come. Answers to messages arrive at [`replies`], others are entered.
    pub(super) async fn cancel(self, trio: &Trio, race: &str, mut asks: Asks, book: &Mutex<Verdicts>) {
        let mut producer = match self {
            Door::Message(kind) => Some(Producer::open(trio.broker(kind)).await.unwrap()),
            Door::Store => None,
        };
        while let Some(ids) = next(&mut asks).await {
            match &mut producer {
                Some(producer) => {
                    producer.send(&Destination::new("delay.in"), ids.iter().map(|id| cancel(id, race))).await.unwrap();
                }
                None => {
                    join_all(ids.iter().map(async |id| {
                        let answer = trio.store().act(&act(id), &[]).await.unwrap();
                        book.lock().told(id, answer.verdict.as_str());
                    }))
                    .await;
                }
            }
        }
        if let Some(mut producer) = producer {
            producer.flush().await.unwrap();
        }
    }
}

/// Waits for the next time, and gives all whose time has come.
async fn next(asks: &mut Asks) -> Option<Vec<String>> {
    let wait_ms = asks.front()?.0 - clock::wall_ms();
    clock::sleep(Duration::from_millis(wait_ms.try_into().unwrap_or(0))).await;
    let now_ms = clock::wall_ms();
    let ripe = asks.iter().take_while(|(at_ms, _)| *at_ms <= now_ms).count().max(1);
    Some(asks.drain(..ripe).map(|(_, id)| id).collect())
}

fn cancel(id: &str, race: &str) -> Message {
    request("", &[("delay-action", "cancel"), ("delay-id", id), ("delay-reply-to", &replies(race))])
}

fn act(id: &str) -> Act {
    let origin = Origin { fingerprint: rand::random(), check: false };
    Act { action: Action::Cancel, id: JobId::new(id).unwrap(), due: None, seen_due: None, seen_attempt: None, origin, reply_to: None }
}
