//! The clients that cancel: producers on each broker, a client of the admin API, and the store
//! itself.

use std::collections::VecDeque;
use std::time::Duration;

use dwell::clock;
use dwell::job::{Action, JobId};
use dwell::request::{Act, Origin};
use dwell_connectors::{Destination, Message, Properties};
use dwell_testkit::environment::traffic::Producer;
use dwell_testkit::servers::{BrokerKind, DwellServer};
use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::routes::environment::{Environment, request};
use crate::support::verdicts::Verdicts;

/// The interface that a cancel goes in by.
#[derive(Debug, Clone, Copy)]
pub(super) enum Interface {
    /// A message to the ingest on this broker.
    Message(BrokerKind),
    /// A call to the admin API of the first instance.
    Http,
    /// Straight on Redis, as a command does.
    Store,
}

/// The clients of a race.
pub(super) const INTERFACES: [Interface; 5] = [
    Interface::Message(BrokerKind::Nats),
    Interface::Message(BrokerKind::Kafka),
    Interface::Message(BrokerKind::Amqp),
    Interface::Http,
    Interface::Store,
];

/// When to ask for the end of which job: epoch ms, in order.
pub(super) type Asks = VecDeque<(i64, String)>;

/// Where the answers to messages go.
pub(super) fn replies(race: &str) -> String {
    format!("out.replies-{race}")
}

impl Interface {
    /// Asks for each when its time has come. Answers to messages arrive at [`replies`], others are
    /// entered.
    pub(super) async fn cancel(
        self,
        env: &Environment,
        race: &str,
        mut asks: Asks,
        verdicts: &Mutex<Verdicts>,
    ) {
        let mut producer = match self {
            Interface::Message(kind) => Some(Producer::open(env.broker(kind)).await.unwrap()),
            Interface::Http | Interface::Store => None,
        };
        let api = admin_api(&env.dwells[0]);
        while let Some(ids) = next(&mut asks).await {
            match &mut producer {
                Some(producer) => {
                    producer
                        .send(
                            &Destination::new("delay.in"),
                            ids.iter().map(|id| cancel(self, id, race)),
                        )
                        .await
                        .unwrap();
                }
                None => {
                    join_all(ids.iter().map(async |id| {
                        let verdict = match self {
                            Interface::Http => delete(&api, id).await,
                            _ => env
                                .store()
                                .jobs
                                .act(&act(id), &[])
                                .await
                                .unwrap()
                                .verdict
                                .as_str()
                                .to_owned(),
                        };
                        verdicts.lock().told(id, &verdict);
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

/// On RabbitMQ a request without a `message_id` is not known when it comes again, as after a kill
/// between its answer and its ack.
fn cancel(interface: Interface, id: &str, race: &str) -> Message {
    let properties = matches!(interface, Interface::Message(BrokerKind::Amqp)).then(|| {
        Box::new(Properties { message_id: Some(format!("cancel-{id}")), ..Properties::default() })
    });
    Message {
        properties,
        ..request(
            "",
            &[("delay-action", "cancel"), ("delay-id", id), ("delay-reply-to", &replies(race))],
        )
    }
}

/// The address of its admin API, as its log names it.
fn admin_api(dwell: &DwellServer) -> String {
    let log = std::fs::read_to_string(dwell.dir().join("log")).unwrap();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let mut said = lines.filter(|line| line["message"] == "admin api");
    said.next().unwrap()["address"].as_str().unwrap().to_owned()
}

/// The verdict of a cancel by HTTP, where the status is the one that belongs to it.
async fn delete(api: &str, id: &str) -> String {
    let mut link = TcpStream::connect(api).await.unwrap();
    let request =
        format!("DELETE /v1/jobs/{id} HTTP/1.1\r\nhost: {api}\r\nconnection: close\r\n\r\n");
    link.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    link.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let verdict: serde_json::Value = serde_json::from_str(body).unwrap();
    let verdict = verdict["verdict"].as_str().unwrap();
    let status = match verdict {
        "cancelled" | "cancelled_after_attempt" => 200,
        "not_found" => 404,
        _ => 409,
    };
    assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    verdict.to_owned()
}

fn act(id: &str) -> Act {
    let origin =
        Origin { fingerprint: rand::random(), maybe_redelivered: false, is_message: false };
    Act { origin, ..Act::new(Action::Cancel, JobId::new(id).unwrap()) }
}
