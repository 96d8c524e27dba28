//! Kafka's protocol over plain TCP, for what no client library offers: a topic without a leader on
//! a single node (a second broker is registered, gets the topic and leaves), and the committed
//! offsets of a group without joining it.

use std::io;
use std::time::Duration;

use dwell_testkit::servers::KafkaServer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::Error;
use crate::chaos::wait::within;

/// The longest wait for one answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The id of the absent broker.
const ABSENT_BROKER_ID: i32 = 99;
/// The features of the absent broker, each with a range that includes every version of the
/// controller.
const FEATURES: [&str; 7] = [
    "metadata.version",
    "kraft.version",
    "group.version",
    "transaction.version",
    "eligible.leader.replicas.version",
    "share.version",
    "streams.version",
];

/// An unclean election: a replica without data may become the leader.
const UNCLEAN_ELECTION: u8 = 1;

/// A request: its API key, its version, and whether its header has tags.
#[derive(Clone, Copy)]
struct Call(i16, i16, bool);

const LIST_OFFSETS: Call = Call(2, 1, false);
const OFFSET_FETCH: Call = Call(9, 1, false);
const CREATE_TOPICS: Call = Call(19, 4, false);
const CREATE_PARTITIONS: Call = Call(37, 1, false);
const ELECT: Call = Call(43, 1, false);
const REASSIGN: Call = Call(45, 0, true);
const REGISTER: Call = Call(62, 3, true);
const HEARTBEAT: Call = Call(63, 0, true);

/// Creates a topic whose only partition has no leader.
pub(crate) async fn make_leaderless(server: &KafkaServer, topic: &str) -> Result<(), Error> {
    let epoch = register(server).await?;
    heartbeat(server, epoch, false).await?;
    let made = create(server.port(), topic).await;
    // The controller must not assign anything else to the absent broker.
    heartbeat(server, epoch, true).await?;
    made
}

/// Moves the topic to the existing broker. The topic is empty, so nothing is lost.
pub(crate) async fn lead(server: &KafkaServer, topic: &str) -> Result<(), Error> {
    let one_topic = Body::default().int(10_000).bytes([2]).compact(topic);
    let body = one_topic.bytes([2]).int(0).bytes([2]).int(1).bytes([0, 0, 0]);
    let answer = call(server.port(), REASSIGN, body).await?;
    refused("move the topic", &answer, 4)?;
    let body = Body::default().bytes([UNCLEAN_ELECTION]).int(1).text(topic).int(1).int(0);
    let answer = call(server.port(), ELECT, body.int(10_000)).await?;
    refused("elect a leader", &answer, 4)?;
    // Throttle time, error, one topic, its name, one partition, its index, its error.
    refused("elect a leader", &answer, 4 + 2 + 4 + 2 + topic.len() + 4 + 4)
}

/// Makes the topic have this many partitions.
pub(crate) async fn grow(server: &KafkaServer, topic: &str, partitions: i32) -> Result<(), Error> {
    // The broker chooses the replicas.
    let body = Body::default().int(1).text(topic).int(partitions).int(-1).int(10_000).bytes([0]);
    let answer = call(server.port(), CREATE_PARTITIONS, body).await?;
    refused("add a partition", &answer, 4 + 4 + 2 + topic.len())
}

/// The number of records of the topic's partitions that this group has not committed.
pub(crate) async fn uncommitted(
    server: &KafkaServer,
    group: &str,
    topic: &str,
    partitions: i32,
) -> Result<u64, Error> {
    let mut sum = 0;
    for partition in 0..partitions {
        sum += uncommitted_in(server, group, topic, partition).await?;
    }
    Ok(sum)
}

async fn uncommitted_in(
    server: &KafkaServer,
    group: &str,
    topic: &str,
    partition: i32,
) -> Result<u64, Error> {
    // The end of the log.
    let body = Body::default().int(-1).int(1).text(topic).int(1).int(partition).long(-1);
    let answer = call(server.port(), LIST_OFFSETS, body).await?;
    // One topic, its name, one partition, its index; then error, time and offset.
    let at = 4 + 2 + topic.len() + 4 + 4;
    refused("tell the end of the log", &answer, at)?;
    let end = number(&answer, at + 2 + 8)?;
    let body = Body::default().text(group).int(1).text(topic).int(1).int(partition);
    let answer = call(server.port(), OFFSET_FETCH, body).await?;
    // As above; then offset, metadata and error. No committed offset is -1.
    let committed = number(&answer, at)?.max(0);
    Ok(u64::try_from(end - committed).unwrap_or(0))
}

fn number(answer: &[u8], at: usize) -> Result<i64, Error> {
    let bytes = answer.get(at..).and_then(|rest| rest.first_chunk());
    let number = bytes.map(|bytes| i64::from_be_bytes(*bytes));
    number.ok_or_else(|| Error::Unexpected(format!("kafka: no number in {answer:?}")))
}

/// Creates a topic with one partition on the absent broker.
async fn create(port: u16, topic: &str) -> Result<(), Error> {
    let body = Body::default().int(1).text(topic).int(-1).bytes((-1_i16).to_be_bytes());
    let body = body.int(1).int(0).int(1).int(ABSENT_BROKER_ID).int(0).int(10_000).bytes([0]);
    let answer = call(port, CREATE_TOPICS, body).await?;
    refused("create the topic", &answer, 4 + 4 + 2 + topic.len())
}

/// Registers the absent broker. Returns its epoch.
async fn register(server: &KafkaServer) -> Result<i64, Error> {
    let mut body = Body::default().int(ABSENT_BROKER_ID).compact(KafkaServer::CLUSTER);
    // No server listens on this port.
    body = body.bytes(rand::random::<[u8; 16]>()).bytes([3]);
    for listener in ["PLAINTEXT", "LINK"] {
        body = body.compact(listener).compact("127.0.0.1").bytes([0, 1, 0, 0, 0]);
    }
    body = body.bytes([u8::try_from(FEATURES.len() + 1).unwrap_or(u8::MAX)]);
    for feature in FEATURES {
        body = body.compact(feature).bytes([0, 0]).bytes(1000_i16.to_be_bytes()).bytes([0]);
    }
    // No rack; never on ZooKeeper; one log directory; no previous epoch.
    body = body.bytes([0, 0, 2]).bytes(rand::random::<[u8; 16]>()).long(-1).bytes([0]);
    let answer = call(server.controller_port(), REGISTER, body).await?;
    refused("register a broker", &answer, 4)?;
    number(&answer, 6)
}

/// Sends a heartbeat of the absent broker, which is caught up. `fenced`: whether the broker wants
/// to be fenced.
async fn heartbeat(server: &KafkaServer, epoch: i64, fenced: bool) -> Result<(), Error> {
    let body = Body::default().int(ABSENT_BROKER_ID).long(epoch).long(i64::MAX);
    let body = body.bytes([u8::from(fenced), 0, 0]);
    let answer = call(server.controller_port(), HEARTBEAT, body).await?;
    refused("accept the heartbeat", &answer, 4)?;
    // Throttle time, error, caught up, fenced.
    match answer.get(7) {
        Some(is) if *is == u8::from(fenced) => Ok(()),
        _ => Err(Error::Unexpected(format!("kafka did not accept the broker: {answer:?}"))),
    }
}

/// Fails if the answer has an error at this position.
fn refused(what: &str, answer: &[u8], at: usize) -> Result<(), Error> {
    match answer.get(at..at + 2) {
        Some([0, 0]) => Ok(()),
        Some(code) => Err(Error::Unexpected(format!(
            "kafka did not {what}: error {}",
            i16::from_be_bytes([code[0], code[1]])
        ))),
        None => Err(Error::Unexpected(format!("kafka did not {what}: {answer:?}"))),
    }
}

/// Sends a request. Returns the body of the answer.
async fn call(port: u16, call: Call, body: Body) -> Result<Vec<u8>, Error> {
    let asked =
        async { once(port, call, body).await.map_err(Error::io(format!("kafka on port {port}"))) };
    within(ANSWER_TIMEOUT, format!("kafka on port {port} did not answer"), asked).await
}

async fn once(port: u16, call: Call, body: Body) -> io::Result<Vec<u8>> {
    let Call(number, version, has_tags) = call;
    let head = Body::default().bytes(number.to_be_bytes()).bytes(version.to_be_bytes()).int(1);
    let tags: &[u8] = if has_tags { &[0] } else { &[] };
    let request = [&head.text("chaos").0[..], tags, &body.0].concat();
    let mut link = TcpStream::connect(("127.0.0.1", port)).await?;
    link.write_all(&i32::try_from(request.len()).unwrap_or(i32::MAX).to_be_bytes()).await?;
    link.write_all(&request).await?;
    let size = usize::try_from(link.read_i32().await?).unwrap_or(0);
    let mut answer = vec![0; size];
    link.read_exact(&mut answer).await?;
    let head = if has_tags { 5 } else { 4 };
    Ok(answer.split_off(head.min(size)))
}

/// The body of a request. An array begins with its length.
#[derive(Default)]
struct Body(Vec<u8>);

impl Body {
    fn bytes<const N: usize>(mut self, bytes: [u8; N]) -> Body {
        self.0.extend(bytes);
        self
    }

    fn int(self, number: i32) -> Body {
        self.bytes(number.to_be_bytes())
    }

    fn long(self, number: i64) -> Body {
        self.bytes(number.to_be_bytes())
    }

    fn text(self, text: &str) -> Body {
        let mut body = self.bytes(i16::try_from(text.len()).unwrap_or(i16::MAX).to_be_bytes());
        body.0.extend(text.as_bytes());
        body
    }

    /// A compact string, as in newer requests.
    fn compact(self, text: &str) -> Body {
        let mut body = self.bytes([u8::try_from(text.len() + 1).unwrap_or(u8::MAX)]);
        body.0.extend(text.as_bytes());
        body
    }
}
