//! JetStream's own interface, spoken by hand: streams and consumers as a test wants them, and what the server says of them.

use std::io;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::wait_until;

/// Makes a stream. `more` are fields of its configuration beside name and subjects.
pub(crate) async fn make_stream(port: u16, name: &str, subjects: &[&str], more: Value) {
    let mut config = json!({ "name": name, "subjects": subjects, "storage": "file" });
    merge(&mut config, more);
    ask(port, &format!("STREAM.CREATE.{name}"), config).await;
}

/// Makes a durable pull consumer with explicit acks that the server waits for so long.
pub(crate) async fn make_consumer(port: u16, stream: &str, name: &str, filter: &str, ack_wait: Duration) {
    let ack_wait = u64::try_from(ack_wait.as_nanos()).unwrap();
    let config = json!({
        "durable_name": name, "filter_subject": filter, "deliver_policy": "all", "ack_policy": "explicit",
        "ack_wait": ack_wait, "max_deliver": -1, "max_ack_pending": 65_536,
    });
    ask(port, &format!("CONSUMER.DURABLE.CREATE.{stream}.{name}"), json!({ "stream_name": stream, "config": config })).await;
}

/// How many messages a stream has.
pub(crate) async fn messages(port: u16, stream: &str) -> u64 {
    ask(port, &format!("STREAM.INFO.{stream}"), json!({})).await["state"]["messages"].as_u64().unwrap()
}

/// What the server says of a consumer (`num_redelivered`, `delivered`, …).
pub(crate) async fn consumer(port: u16, stream: &str, name: &str) -> Value {
    ask(port, &format!("CONSUMER.INFO.{stream}.{name}"), json!({})).await
}

fn merge(config: &mut Value, more: Value) {
    let (Value::Object(config), Value::Object(more)) = (config, more) else { panic!("not an object") };
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
    let exchange = async {
        let mut link = BufReader::new(TcpStream::connect(("127.0.0.1", port)).await?);
        let inbox = format!("_INBOX.{:016x}", rand::random::<u64>());
        let request = request.to_string();
        let words = format!(
            "CONNECT {{\"verbose\":false,\"pedantic\":false}}\r\nSUB {inbox} 1\r\nPUB $JS.API.{call} {inbox} {}\r\n{request}\r\n",
            request.len()
        );
        link.write_all(words.as_bytes()).await?;
        let mut line = String::new();
        loop {
            line.clear();
            if link.read_line(&mut line).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if line.starts_with("-ERR") {
                return Err(io::Error::other(line));
            }
            let size = line.strip_prefix("MSG ").and_then(|rest| rest.split_whitespace().last()?.parse::<usize>().ok());
            if let Some(size) = size {
                let mut payload = vec![0; size];
                link.read_exact(&mut payload).await?;
                return serde_json::from_slice(&payload).map_err(io::Error::other);
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(5), exchange).await?
}
