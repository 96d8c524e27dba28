//! Streams and consumers of a campaign on NATS.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use dwell::clock;
use dwell_testkit::jetstream;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};

use super::Error;
use crate::chaos::wait::within;

/// The longest time until the streams of a starting server are available.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The user of the load.
const LOGIN: Option<(&str, &str)> = Some(("load", "load"));

/// The stream of a target.
pub(crate) fn stream_of(target: &str) -> String {
    format!("TARGET_{}", target.replace('.', "_"))
}

/// Creates the stream of a target, which deduplicates for a tenth of a second only.
pub(crate) async fn make_target(port: u16, target: &str) -> Result<(), Error> {
    let name = stream_of(target);
    let call = format!("STREAM.CREATE.{name}");
    let config = json!({
        "name": name, "subjects": [target], "storage": "file", "duplicate_window": 100_000_000,
    });
    ask(port, &call, config).await.map(drop)
}

/// Calls the API; repeats the call while the server is down or its streams are not available.
pub(crate) async fn ask(port: u16, call: &str, request: Value) -> Result<Value, Error> {
    let text = request.to_string();
    let asked = Box::pin(async {
        loop {
            match jetstream::answer(jetstream::call(port, LOGIN, call, &text)).await {
                Ok(answer) if answer["error"].is_null() => return Ok(answer),
                Ok(answer) if answer["error"]["code"] != 503 => {
                    return Err(Error::Unexpected(format!("nats: {call}: {}", answer["error"])));
                }
                _ => clock::sleep(Duration::from_millis(50)).await,
            }
        }
    });
    within(TIMEOUT, format!("nats: no answer to {call}"), asked).await
}

/// Subscribes to a subject without a stream, and counts the messages by id. Returns the error that
/// ended it.
pub(crate) async fn listen(
    port: u16,
    subject: &str,
    heard: &Mutex<HashMap<String, u64>>,
) -> io::Error {
    let listening = async {
        let subscribe = |_: &str| format!("SUB {subject} 2\r\nPING\r\n");
        let mut link = jetstream::open(port, LOGIN, subscribe).await?;
        let mut line = String::new();
        loop {
            line.clear();
            if link.read_line(&mut line).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if line.starts_with("PING") {
                link.write_all(b"PONG\r\n").await?;
            }
            if let Some(size) = line
                .strip_prefix("HMSG ")
                .and_then(|rest| rest.split_whitespace().last()?.parse::<usize>().ok())
            {
                let mut message = vec![0; size + 2];
                link.read_exact(&mut message).await?;
                let message = String::from_utf8_lossy(&message);
                let id = message.lines().find_map(|line| line.strip_prefix("delayed-id:"));
                let id = id.unwrap_or_default().trim().to_owned();
                *heard.lock().entry(id).or_default() += 1;
            }
        }
    };
    let ended: io::Result<std::convert::Infallible> = listening.await;
    match ended {
        Err(why) => why,
    }
}
