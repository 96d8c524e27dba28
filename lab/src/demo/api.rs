//! The calls of the demo on the HTTP API of an instance, each over a connection of its own.

use dwell::clock;
use dwell_testkit::environment::{Failure, Result};
use http::Method;
use serde_json::Value;

use super::QUERY_INTERVAL;
use crate::client::Link;

/// The HTTP API of an instance on this machine.
#[derive(Debug, Clone, Copy)]
pub(super) struct Api {
    port: u16,
}

/// An answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) json: Value,
}

impl Answer {
    /// The failure where this answer ends the demo.
    pub(super) fn unexpected(&self, call: &str) -> Failure {
        Failure::Unexpected(format!("{call} answered {}: {}", self.status, self.json))
    }
}

impl Api {
    /// The API on this port. It answers 503 until it is open, which is a moment after `/readyz`.
    pub(super) async fn open(port: u16) -> Result<Api> {
        let api = Api { port };
        while api.get("/v1/stats").await?.status == 503 {
            clock::sleep(QUERY_INTERVAL).await;
        }
        Ok(api)
    }

    pub(super) async fn get(&self, path: &str) -> Result<Answer> {
        self.call(Method::GET, path, None).await
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<Answer> {
        self.call(Method::POST, path, Some(body)).await
    }

    pub(super) async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Answer> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let (status, answer) = Link::to(self.port).call(method, path, body).await?;
        let json = serde_json::from_slice(&answer)
            .map_err(|error| format!("{path} was answered {status}, with no JSON: {error}"))?;
        Ok(Answer { status, json })
    }
}
