//! A minimal Redis client, one command a connection.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use super::ServerError;
use dwell::clock;

/// The longest time of a command.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The address of a server without TLS.
#[derive(Debug, Clone)]
pub(super) enum At {
    Port(u16),
    Socket(std::path::PathBuf),
}

/// Runs a command and returns the lines of its answer, without protocol marks; a refusal is an
/// error.
pub(super) async fn ask(
    at: &At,
    password: Option<&str>,
    words: &[&str],
) -> io::Result<Vec<String>> {
    let mut request = String::new();
    for words in [&["AUTH", password.unwrap_or_default()][..], words, &["PING"]] {
        if words != ["AUTH", ""] {
            request += &format!("*{}\r\n", words.len());
            words.iter().for_each(|word| request += &format!("${}\r\n{word}\r\n", word.len()));
        }
    }
    let exchange = async {
        match at {
            At::Port(port) => {
                exchange(TcpStream::connect(("127.0.0.1", *port)).await?, &request).await
            }
            At::Socket(path) => exchange(UnixStream::connect(path).await?, &request).await,
        }
    };
    let answer = clock::timeout(TIMEOUT, exchange)
        .await
        .unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))?;
    let mut lines: Vec<&str> = answer.lines().collect();
    // The answers to PING and AUTH.
    lines.pop();
    if password.is_some() && !lines.is_empty() {
        lines.remove(0);
    }
    match lines.first() {
        None => Err(io::ErrorKind::UnexpectedEof.into()),
        Some(refusal) if refusal.starts_with('-') => Err(io::Error::other(refusal[1..].to_owned())),
        Some(_) => Ok(lines
            .into_iter()
            .filter(|line| !line.starts_with(['*', '$']))
            .map(|line| line.trim_start_matches(['+', ':']).to_owned())
            .collect()),
    }
}

/// As [`ask`]; a refusal is a [`ServerError`].
pub(super) async fn order(
    at: &At,
    password: Option<&str>,
    words: &[&str],
) -> Result<Vec<String>, ServerError> {
    ask(at, password, words)
        .await
        .map_err(ServerError::prepare(format!("{} at {at:?}", words.join(" "))))
}

async fn exchange(
    mut link: impl AsyncRead + AsyncWrite + Unpin,
    request: &str,
) -> io::Result<String> {
    link.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    // A sentinel has no QUIT: the answer to the last command ends the exchange.
    while !(answer.ends_with(b"+PONG\r\n")
        || answer.ends_with(b"-NOAUTH Authentication required.\r\n"))
    {
        if link.read_buf(&mut answer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
