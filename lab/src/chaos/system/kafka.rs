//! Kafka's protocol over plain TCP, for a topic without a leader on a single node: a second broker
//! is registered, gets the topic and leaves.

use std::io;
use std::time::Duration;

use dwell::clock;
use dwell_testkit::servers::KafkaServer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::Error;

/// How long one answer may take.
const ANSWER: Duration = Duration::from_secs(10);
/// The number of the broker that is not there.
const AWAY: i32 = 99;
/// Whatever the controller asks for is within these.
const FEATURES: [&str; 7] = [
    "metadata.version",
    "kraft.version",
    "group.version",
    "transaction.version",
    "eligible.leader.replicas.version",
    "share.version",
    "streams.version",
];

/// An election in which who has nothing may lead.
const UNCLEAN: u8 = 1;

/// What a request is, and in which version.
#[derive(Clone, Copy)]
enum Call {
    CreateTopics,
    Elect,
    Reassign,
    Register,
    Heartbeat,
}

impl Call {
    /// Its number, its version, and whether its head has tags.
    fn head(self) -> (i16, i16, bool) {
        match self {
            Call::CreateTopics => (19, 4, false),
            Call::Elect => (43, 1, false),
            Call::Reassign => (45, 0, true),
            Call::Register => (62, 3, true),
            Call::Heartbeat => (63, 0, true),
        }
    }
}

/// Makes a topic of one partition that has no leader.
pub(crate) async fn make_leaderless(server: &KafkaServer, topic: &str) -> Result<(), Error> {
    let epoch = register(server).await?;
    heartbeat(server, epoch, false).await?;
    let made = create(server.port(), topic).await;
    // Nothing else shall be given to it.
    heartbeat(server, epoch, true).await?;
    made
}

/// Gives the topic to the broker that is there. Nothing is in it that could be lost.
pub(crate) async fn lead(server: &KafkaServer, topic: &str) -> Result<(), Error> {
    let mut body = Vec::new();
    body.extend(10_000_i32.to_be_bytes());
    body.push(2);
    short(&mut body, topic);
    body.push(2);
    body.extend(0_i32.to_be_bytes());
    body.push(2);
    body.extend(1_i32.to_be_bytes());
    body.extend([0, 0, 0]);
    let answer = call(server.port(), Call::Reassign, &body).await?;
    refused("move the topic", &answer, 4)?;
    let mut body = vec![UNCLEAN];
    array(&mut body, 1);
    text(&mut body, topic);
    array(&mut body, 1);
    body.extend(0_i32.to_be_bytes());
    body.extend(10_000_i32.to_be_bytes());
    let answer = call(server.port(), Call::Elect, &body).await?;
    refused("elect a leader", &answer, 4)?;
    // Throttle, error, one topic, its name, one partition, its number, its error.
    refused("elect a leader", &answer, 4 + 2 + 4 + 2 + topic.len() + 4 + 4)
}

/// A topic of one partition, on the broker that is not there.
async fn create(port: u16, topic: &str) -> Result<(), Error> {
    let mut body = Vec::new();
    array(&mut body, 1);
    text(&mut body, topic);
    body.extend((-1_i32).to_be_bytes());
    body.extend((-1_i16).to_be_bytes());
    array(&mut body, 1);
    body.extend(0_i32.to_be_bytes());
    array(&mut body, 1);
    body.extend(AWAY.to_be_bytes());
    array(&mut body, 0);
    body.extend(10_000_i32.to_be_bytes());
    body.push(0);
    let answer = call(port, Call::CreateTopics, &body).await?;
    refused("make the topic", &answer, 4 + 4 + 2 + topic.len())
}

/// The epoch under which the controller knows the broker.
async fn register(server: &KafkaServer) -> Result<i64, Error> {
    let mut body = Vec::new();
    body.extend(AWAY.to_be_bytes());
    short(&mut body, KafkaServer::CLUSTER);
    body.extend(rand::random::<[u8; 16]>());
    // Nothing listens there.
    body.push(3);
    for listener in ["PLAINTEXT", "LINK"] {
        short(&mut body, listener);
        short(&mut body, "127.0.0.1");
        body.extend(1_u16.to_be_bytes());
        body.extend(0_i16.to_be_bytes());
        body.push(0);
    }
    body.push(u8::try_from(FEATURES.len() + 1).unwrap_or(u8::MAX));
    for feature in FEATURES {
        short(&mut body, feature);
        body.extend(0_i16.to_be_bytes());
        body.extend(1000_i16.to_be_bytes());
        body.push(0);
    }
    // No rack; it never was on ZooKeeper; one folder; no epoch before.
    body.extend([0, 0, 2]);
    body.extend(rand::random::<[u8; 16]>());
    body.extend((-1_i64).to_be_bytes());
    body.push(0);
    let answer = call(server.controller_port(), Call::Register, &body).await?;
    refused("register a broker", &answer, 4)?;
    let epoch = answer.get(6..14).and_then(|bytes| bytes.try_into().ok()).map(i64::from_be_bytes);
    epoch.ok_or_else(|| Error::Unexpected("kafka gave the broker no epoch".to_owned()))
}

/// It lives, and has read everything; or is to be left alone.
async fn heartbeat(server: &KafkaServer, epoch: i64, fenced: bool) -> Result<(), Error> {
    let mut body = Vec::new();
    body.extend(AWAY.to_be_bytes());
    body.extend(epoch.to_be_bytes());
    body.extend(i64::MAX.to_be_bytes());
    body.extend([u8::from(fenced), 0, 0]);
    let answer = call(server.controller_port(), Call::Heartbeat, &body).await?;
    refused("hear from a broker", &answer, 4)?;
    // Throttle, error, whether it has read everything, whether it is fenced.
    match answer.get(7) {
        Some(is) if *is == u8::from(fenced) => Ok(()),
        _ => Err(Error::Unexpected(format!("kafka did not take the broker as it is: {answer:?}"))),
    }
}

/// Whether an answer has an error at this place.
fn refused(what: &str, answer: &[u8], at: usize) -> Result<(), Error> {
    match answer.get(at..at + 2) {
        Some([0, 0]) => Ok(()),
        Some(code) => Err(Error::Unexpected(format!("kafka would not {what}: error {}", i16::from_be_bytes([code[0], code[1]])))),
        None => Err(Error::Unexpected(format!("kafka would not {what}: {answer:?}"))),
    }
}

/// What is behind the head of the answer.
async fn call(port: u16, call: Call, body: &[u8]) -> Result<Vec<u8>, Error> {
    let asked = clock::timeout(ANSWER, once(port, call, body)).await;
    asked.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into())).map_err(Error::io(format!("kafka on port {port}")))
}

async fn once(port: u16, call: Call, body: &[u8]) -> io::Result<Vec<u8>> {
    let (number, version, has_tags) = call.head();
    let mut request = Vec::new();
    request.extend(number.to_be_bytes());
    request.extend(version.to_be_bytes());
    request.extend(1_i32.to_be_bytes());
    text(&mut request, "chaos");
    if has_tags {
        request.push(0);
    }
    request.extend(body);
    let mut link = TcpStream::connect(("127.0.0.1", port)).await?;
    link.write_all(&i32::try_from(request.len()).unwrap_or(i32::MAX).to_be_bytes()).await?;
    link.write_all(&request).await?;
    let size = usize::try_from(link.read_i32().await?).unwrap_or(0);
    let mut answer = vec![0; size];
    link.read_exact(&mut answer).await?;
    let head = if has_tags { 5 } else { 4 };
    Ok(answer.split_off(head.min(size)))
}

fn array(bytes: &mut Vec<u8>, length: usize) {
    bytes.extend(i32::try_from(length).unwrap_or(i32::MAX).to_be_bytes());
}

fn text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend(i16::try_from(text.len()).unwrap_or(i16::MAX).to_be_bytes());
    bytes.extend(text.as_bytes());
}

/// As newer requests have it.
fn short(bytes: &mut Vec<u8>, text: &str) {
    bytes.push(u8::try_from(text.len() + 1).unwrap_or(u8::MAX));
    bytes.extend(text.as_bytes());
}
