//! JetStream's API over plain TCP: a client library would hide details that the tests check.

use std::io;
use std::time::Duration;

use dwell::clock;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// The longest wait for one answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Connects, logs in if the server has users, subscribes to a fresh inbox and sends the protocol
/// lines that `lines` makes for it.
///
/// # Errors
/// The server cannot be reached.
pub async fn open(
    port: u16,
    login: Option<(&str, &str)>,
    lines: impl FnOnce(&str) -> String,
) -> io::Result<BufReader<TcpStream>> {
    let mut link = BufReader::new(TcpStream::connect(("127.0.0.1", port)).await?);
    let inbox = format!("_INBOX.{:016x}", rand::random::<u64>());
    let mut hello = json!({ "verbose": false, "pedantic": false, "headers": true });
    if let Some((user, password)) = login {
        (hello["user"], hello["pass"]) = (user.into(), password.into());
    }
    link.write_all(format!("CONNECT {hello}\r\nSUB {inbox} 1\r\n{}", lines(&inbox)).as_bytes())
        .await?;
    Ok(link)
}

/// Connects and sends this call of the API. The answer arrives in the inbox.
///
/// # Errors
/// The server cannot be reached.
pub async fn call(
    port: u16,
    login: Option<(&str, &str)>,
    api: &str,
    request: &str,
) -> io::Result<BufReader<TcpStream>> {
    open(port, login, |inbox| {
        format!("PUB $JS.API.{api} {inbox} {}\r\n{request}\r\n", request.len())
    })
    .await
}

/// The first message on a connection, as JSON.
///
/// # Errors
/// The server refuses, closes the connection or does not answer in time.
pub async fn answer(
    link: impl Future<Output = io::Result<BufReader<TcpStream>>>,
) -> io::Result<Value> {
    let exchange = async {
        let mut link = link.await?;
        let mut line = String::new();
        loop {
            line.clear();
            if link.read_line(&mut line).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if line.starts_with("-ERR") {
                return Err(io::Error::other(line));
            }
            let size = line
                .strip_prefix("MSG ")
                .and_then(|rest| rest.split_whitespace().last()?.parse::<usize>().ok());
            if let Some(size) = size {
                let mut payload = vec![0; size];
                link.read_exact(&mut payload).await?;
                return serde_json::from_slice(&payload).map_err(io::Error::other);
            }
        }
    };
    clock::timeout(ANSWER_TIMEOUT, exchange)
        .await
        .unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
}
