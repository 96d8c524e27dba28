//! The calls of the demo on the admin API, each over a connection of its own.

use dwell_testkit::environment::Failure;
use http::Method;
use serde_json::Value;

use crate::client::Link;

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
    pub fn unexpected(&self, call: &str) -> Failure {
        Failure::Unexpected(format!("{call} answered {}: {}", self.status, self.json))
    }
}

impl Api {
    /// The API on this port.
    pub fn new(port: u16) -> Api {
        Api { port }
    }

    /// A GET.
    pub async fn get(&self, path: &str) -> Result<Answer, Failure> {
        self.call(Method::GET, path, None).await
    }

    /// A DELETE.
    pub async fn delete(&self, path: &str) -> Result<Answer, Failure> {
        self.call(Method::DELETE, path, None).await
    }

    /// A POST with this body.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Answer, Failure> {
        self.call(Method::POST, path, Some(body)).await
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Answer, Failure> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let (status, answer) = Link::to(self.port).call(method, path, body).await?;
        let json = serde_json::from_slice(&answer).map_err(|error| {
            Failure::Unexpected(format!("{path} was answered {status}, with no JSON: {error}"))
        })?;
        Ok(Answer { status, json })
    }
}
