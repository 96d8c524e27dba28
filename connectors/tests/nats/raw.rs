//! A client that writes any bytes as headers, as no library does.

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::TIMEOUT;

/// A connection that writes the NATS protocol directly.
pub(crate) struct Raw(BufReader<TcpStream>);

impl Raw {
    pub(crate) async fn connect(url: &str) -> Self {
        Self::connect_as(url, "").await
    }

    /// `login`: members of the JSON of CONNECT, each with its comma.
    pub(crate) async fn connect_as(url: &str, login: &str) -> Self {
        let mut raw = Raw(BufReader::new(
            TcpStream::connect(url.trim_start_matches("nats://")).await.unwrap(),
        ));
        assert!(raw.line().await.starts_with(b"INFO "));
        let hello = format!(
            "CONNECT {{{login}\"headers\":true,\"verbose\":false,\"no_responders\":true}}\r\n"
        );
        raw.write(hello.as_bytes()).await;
        raw.write(b"SUB _INBOX.raw 1\r\nPING\r\n").await;
        assert_eq!(raw.line().await, b"PONG\r\n");
        raw
    }

    /// Publishes to a stream, and waits until it is stored.
    pub(crate) async fn publish(&mut self, subject: impl AsRef<[u8]>, headers: &[u8], body: &[u8]) {
        let sizes = format!(" _INBOX.raw {} {}\r\n", headers.len(), headers.len() + body.len());
        self.write(
            &[b"HPUB ", subject.as_ref(), sizes.as_bytes(), headers, body, b"\r\n"].concat(),
        )
        .await;
        let answer = self.message().await;
        assert!(answer.starts_with(b"{\"stream\""), "{}", answer.escape_ascii());
    }

    /// Requests messages of a consumer, receives this many and leaves them unsettled.
    pub(crate) async fn take(&mut self, stream: &str, consumer: &str, count: usize) {
        let body = format!(r#"{{"batch":{count}}}"#);
        self.write(
            format!(
                "PUB $JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer} _INBOX.raw {}\r\n{body}\r\n",
                body.len()
            )
            .as_bytes(),
        )
        .await;
        for _ in 0..count {
            self.message().await;
        }
    }

    /// The next message, headers and body.
    async fn message(&mut self) -> Vec<u8> {
        loop {
            let line = self.line().await;
            if line == b"PING\r\n" {
                self.write(b"PONG\r\n").await;
                continue;
            }
            let size = std::str::from_utf8(line.rsplit(|byte| *byte == b' ').next().unwrap())
                .unwrap()
                .trim()
                .parse()
                .unwrap_or_else(|_| {
                    panic!("the server said {}", line.escape_ascii());
                });
            let mut message = vec![0; size];
            self.0.read_exact(&mut message).await.unwrap();
            assert_eq!(self.line().await, b"\r\n");
            return message;
        }
    }

    async fn line(&mut self) -> Vec<u8> {
        let mut line = Vec::new();
        tokio::time::timeout(TIMEOUT, self.0.read_until(b'\n', &mut line))
            .await
            .expect("the server answers")
            .unwrap();
        line
    }

    async fn write(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).await.unwrap();
    }
}
