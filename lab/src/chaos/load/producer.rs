//! Sends requests, whatever happened to earlier ones, and records the outcome of each.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use dwell::clock;
use dwell_connectors::{
    BrokerConfig, ConnectorError, Destination, Outcome, Outcomes, Publication, Sink, Token,
};
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tracing::debug;

use super::request::{Request, Way};
use super::{REQUEST_DESTINATION, whole, with_result};
use crate::chaos::history::{Op, Phase};
use crate::chaos::recorder::Recorder;

/// The timeout of a confirm.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause between two connection attempts.
const CONNECT_PAUSE: Duration = Duration::from_millis(200);
const PROCESS_NAME: &str = "producer";

/// Requests without an outcome, as in the history.
type Open = Mutex<HashMap<Token, Op>>;

/// A client of the instances: over HTTP, and over a link to the broker that reconnects.
pub(super) struct Producer {
    broker: BrokerConfig,
    /// `/v1` of each instance.
    http: Vec<SocketAddr>,
    recorder: Arc<Recorder>,
    link: Option<Box<dyn Sink>>,
    next: Token,
    /// Messages without an outcome.
    open: Arc<Open>,
    /// The tasks that receive the outcomes of each link.
    listeners: JoinSet<()>,
    /// The calls over HTTP.
    calls: JoinSet<()>,
}

impl Producer {
    pub(super) fn new(
        broker: BrokerConfig,
        http: Vec<SocketAddr>,
        recorder: Arc<Recorder>,
    ) -> Producer {
        let (open, listeners, calls) = Default::default();
        Producer { broker, http, recorder, link: None, next: 0, open, listeners, calls }
    }

    /// The number of instances.
    pub(super) fn instances(&self) -> usize {
        self.http.len()
    }

    /// Whether a link exists; tries once to connect.
    pub(super) async fn ready(&mut self) -> bool {
        while let Some(ended) = self.listeners.try_join_next() {
            whole(ended);
            // The only remaining task is that of the link.
            if self.listeners.is_empty() {
                self.link = None;
            }
        }
        if self.link.is_some() {
            return true;
        }
        match clock::timeout(CONNECT_TIMEOUT, self.broker.sink(CONFIRM_TIMEOUT)).await {
            Some(Ok((sink, outcomes))) => {
                self.link = Some(sink);
                let (open, recorder) = (Arc::clone(&self.open), Arc::clone(&self.recorder));
                self.listeners.spawn(listen(outcomes, open, recorder));
                true
            }
            failed => {
                let error =
                    failed.and_then(Result::err).map(|ConnectorError { message, .. }| message);
                debug!(error, "producer has no link");
                clock::sleep(CONNECT_PAUSE).await;
                false
            }
        }
    }

    /// Sends requests. Without a link to the broker, messages are never sent.
    pub(super) async fn send(&mut self, requests: impl IntoIterator<Item = Request>) {
        let mut batch = Vec::new();
        for Request { op, way } in requests {
            let (message, dedupe_id) = match way {
                Way::Message { message, dedupe_id } => (message, dedupe_id),
                Way::Http { instance, call } => {
                    let (at, recorder) = (self.http[instance], Arc::clone(&self.recorder));
                    self.calls.spawn(call.make(at, format!("http-{instance}"), op, recorder));
                    continue;
                }
            };
            self.recorder.record(PROCESS_NAME, Phase::Invoke, op.clone());
            if self.link.is_none() {
                let never = with_result(op, "never sent".to_owned());
                self.recorder.record(PROCESS_NAME, Phase::Fail, never);
                continue;
            }
            let (token, to) = (self.next, Destination::new(REQUEST_DESTINATION));
            self.next += 1;
            self.open.lock().insert(token, op);
            batch.push(Publication { token, to, message, dedupe_id, deadline: None });
        }
        if let Some(sink) = self.link.as_ref().filter(|_| !batch.is_empty()) {
            sink.publish(batch).await;
        }
        while let Some(ended) = self.calls.try_join_next() {
            whole(ended);
        }
    }

    /// Waits for the outcome of every request.
    pub(super) async fn finish(mut self) {
        if let Some(sink) = self.link.take() {
            // The outcomes report the same error.
            let _ = clock::timeout(CONFIRM_TIMEOUT, sink.close()).await;
        }
        let all = async {
            while let Some(ended) = self.listeners.join_next().await {
                whole(ended);
            }
        };
        let _ = clock::timeout(CONFIRM_TIMEOUT * 2, all).await;
        for (_, op) in self.open.lock().drain() {
            let unknown = with_result(op, "no word".to_owned());
            self.recorder.record(PROCESS_NAME, Phase::Info, unknown);
        }
        self.calls.join_all().await;
    }
}

async fn listen(mut outcomes: Outcomes, open: Arc<Open>, recorder: Arc<Recorder>) {
    while let Some(batch) = outcomes.recv().await {
        for (token, outcome) in batch {
            let Some(op) = open.lock().remove(&token) else { continue };
            let (phase, res) = match outcome {
                Outcome::Confirmed | Outcome::Finished => (Phase::Ok, String::new()),
                Outcome::Unroutable(why)
                | Outcome::Refused(why)
                | Outcome::Throttled { why, .. }
                | Outcome::Failed(why)
                | Outcome::Invalid(why) => (Phase::Fail, why),
                Outcome::Unknown(why) => (Phase::Info, why),
            };
            recorder.record(PROCESS_NAME, phase, with_result(op, res));
        }
    }
}
