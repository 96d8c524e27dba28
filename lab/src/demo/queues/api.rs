//! The calls of the demo on the admin API, each over a connection of its own.

use dwell_testkit::environment::Failure;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The admin API of an instance on this machine.
#[derive(Debug, Clone, Copy)]
pub struct Api {
    port: u16,
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The body.
    pub json: Value,
}

impl Answer {
    /// The failure where this answer ends the demo.
    #[must_use]
    pub fn unexpected(&self, call: &str) -> Failure {
        Failure::Unexpected(format!("{call} answered {}: {}", self.status, self.json))
    }
}

impl Api {
    /// The API on this port.
    #[must_use]
    pub fn new(port: u16) -> Api {
        Api { port }
    }

    /// A GET.
    pub async fn get(&self, path: &str) -> Result<Answer, Failure> {
        self.call("GET", path, None).await
    }

    /// A DELETE.
    pub async fn delete(&self, path: &str) -> Result<Answer, Failure> {
        self.call("DELETE", path, None).await
    }

    /// A POST with this body.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Answer, Failure> {
        self.call("POST", path, Some(body)).await
    }

    async fn call(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Answer, Failure> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let kind = if body.is_empty() { "" } else { "content-type: application/json\r\n" };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{kind}content-length: {}\r\n\r\n",
            body.len()
        );
        let mut link = TcpStream::connect(("127.0.0.1", self.port)).await?;
        link.write_all(format!("{head}{body}").as_bytes()).await?;
        let mut answer = String::new();
        link.read_to_string(&mut answer).await?;
        read(&answer).ok_or_else(|| {
            Failure::Unexpected(format!("{method} {path} was not answered: {answer:?}"))
        })
    }
}

fn read(answer: &str) -> Option<Answer> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Answer { status, json: serde_json::from_str(body).ok()? })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_whole_answer_is_read_and_half_of_one_is_not() {
        let answer =
            read("HTTP/1.1 404 Not Found\r\na: b\r\n\r\n{\"code\":\"unknown_queue\"}").unwrap();
        assert_eq!((answer.status, answer.json["code"].as_str()), (404, Some("unknown_queue")));
        for half in ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\n\r\n{\"jobs\":"] {
            assert!(read(half).is_none(), "{half}");
        }
    }
}
