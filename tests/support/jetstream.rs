//! JetStream for tests: streams, consumers and their state.

use std::io;
use std::time::Duration;

use dwell_testkit::jetstream;
use serde_json::{Value, json};
use tokio::io::AsyncBufReadExt;

use super::wait_until;

/// Makes a stream. `more` are fields of its configuration beside name and subjects.
pub(crate) async fn make_stream(port: u16, name: &str, subjects: &[&str], more: Value) {
    let mut config = json!({ "name": name, "subjects": subjects, "storage": "file" });
    merge(&mut config, more);
    ask(port, &format!("STREAM.CREATE.{name}"), config).await;
}

/// Makes a durable pull consumer with explicit acks that the server waits for so long.
pub(crate) async fn make_consumer(
    port: u16,
    stream: &str,
    name: &str,
    filter: &str,
    ack_wait: Duration,
) {
    make_bounded_consumer(port, stream, name, filter, ack_wait, 65_536).await;
}

async fn make_bounded_consumer(
    port: u16,
    stream: &str,
    name: &str,
    filter: &str,
    ack_wait: Duration,
    most: u32,
) {
    let ack_wait = u64::try_from(ack_wait.as_nanos()).unwrap();
    let config = json!({
        "durable_name": name, "filter_subject": filter, "deliver_policy": "all", "ack_policy": "explicit",
        "ack_wait": ack_wait, "max_deliver": -1, "max_ack_pending": most,
    });
    ask(
        port,
        &format!("CONSUMER.DURABLE.CREATE.{stream}.{name}"),
        json!({ "stream_name": stream, "config": config }),
    )
    .await;
}

/// Takes a message of this stream (which must have one), gives no sign of life, and returns when
/// the server has lost its patience and delivers it again: a consumer that took one before this
/// call and was as silent has lost it too.
pub(crate) async fn until_patience_ends(port: u16, stream: &str, filter: &str, ack_wait: Duration) {
    make_bounded_consumer(port, stream, "silent", filter, ack_wait, 1).await;
    wait_until("a message is taken", async || {
        delivery(port, stream, "silent").await.ok().flatten()
    })
    .await;
    // It takes one at a time, so that the next delivery is that of the same message.
    wait_until("it is delivered again", async || {
        delivery(port, stream, "silent").await.ok().flatten().filter(|times| *times > 1)
    })
    .await;
}

/// Asks for one message: how many times it was delivered so far; `None` where there is none within
/// a second.
async fn delivery(port: u16, stream: &str, consumer: &str) -> io::Result<Option<u64>> {
    let call = format!("CONSUMER.MSG.NEXT.{stream}.{consumer}");
    let mut link = jetstream::call(
        port,
        None,
        &call,
        &json!({ "batch": 1, "expires": 1_000_000_000 }).to_string(),
    )
    .await?;
    let mut line = String::new();
    let arrival = async {
        loop {
            line.clear();
            if link.read_line(&mut line).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            // $JS.ACK.<stream>.<consumer>.<deliveries>.…: the subject on which a delivery is
            // acknowledged.
            if let Some((_, acks)) = line.split_once("$JS.ACK.") {
                return Ok(acks.split('.').nth(2).and_then(|times| times.parse().ok()));
            }
            if line.starts_with("HMSG ") {
                return Ok(None);
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(5), arrival).await?
}

/// Returns the number of messages in a stream.
pub(crate) async fn messages(port: u16, stream: &str) -> u64 {
    ask(port, &format!("STREAM.INFO.{stream}"), json!({})).await["state"]["messages"]
        .as_u64()
        .unwrap()
}

/// Returns the server's report on a consumer (`num_redelivered`, `delivered`, …).
pub(crate) async fn consumer(port: u16, stream: &str, name: &str) -> Value {
    ask(port, &format!("CONSUMER.INFO.{stream}.{name}"), json!({})).await
}

fn merge(config: &mut Value, more: Value) {
    let (Value::Object(config), Value::Object(more)) = (config, more) else {
        panic!("not an object")
    };
    config.extend(more);
}

/// Asks the interface, again while the server is away; panics where it refuses.
async fn ask(port: u16, call: &str, request: Value) -> Value {
    let answer = wait_until(&format!("an answer to {call}"), async || {
        // A server that just came back may be asked before its streams are there.
        once(port, call, &request).await.ok().filter(|answer| answer["error"]["code"] != 503)
    })
    .await;
    assert!(answer["error"].is_null(), "{call}: {answer}");
    answer
}

async fn once(port: u16, call: &str, request: &Value) -> io::Result<Value> {
    jetstream::answer(jetstream::call(port, None, call, &request.to_string())).await
}

/// Publishes a message with these headers, as they stand here, and gives what the stream answers:
/// an ack, or `error`.
pub(crate) async fn publish(
    port: u16,
    subject: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Value {
    let headers: String =
        headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let head = format!("NATS/1.0\r\n{headers}\r\n");
    let (size, whole) = (head.len(), head.len() + body.len());
    jetstream::answer(jetstream::open(port, None, |inbox| {
        format!("HPUB {subject} {inbox} {size} {whole}\r\n{head}{body}\r\n")
    }))
    .await
    .unwrap()
}
