//! Sends at a fixed rate, whatever happened to earlier messages, and records the broker's outcome
//! of each message.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use dwell::clock;
use dwell_connectors::{
    BrokerConfig, ConnectorError, Destination, Message, Outcome, Outcomes, Publication, Sink, Token,
};
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tracing::debug;

use crate::chaos::history::{ControlRequest, Op, Phase, Schedule};
use crate::chaos::recorder::Recorder;

use super::draw::{Action, Plan, request};
use super::{REQUEST_DESTINATION, whole};

/// The timeout of a confirm.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause between two connection attempts.
const CONNECT_PAUSE: Duration = Duration::from_millis(200);
const PROCESS_NAME: &str = "producer";

/// A link to the broker that reconnects.
pub(super) struct Producer {
    broker: BrokerConfig,
    recorder: Arc<Recorder>,
    link: Option<Box<dyn Sink>>,
    next: Token,
    /// Messages without an outcome.
    open: Arc<Mutex<HashMap<Token, Sent>>>,
    /// The tasks that receive the outcomes of each link.
    listeners: JoinSet<()>,
}

/// The kinds of messages.
pub(super) enum Sent {
    Job(String),
    /// Another schedule for the same id.
    Again(String),
    /// A control request, or a consumer's word with its number.
    Control(Action, ControlRequest),
}

impl Sent {
    /// The name in the history.
    pub(super) fn op(&self, res: String) -> Op {
        match self {
            Sent::Job(id) | Sent::Again(id) => {
                Op::Schedule(Schedule { id: id.clone(), job: None, res })
            }
            Sent::Control(action, ask) => asked(*action, ControlRequest { res, ..ask.clone() }),
        }
    }
}

/// The control request in the history.
pub(super) fn ask(id: &str, plan: &Plan) -> ControlRequest {
    let number = plan.seen.map(|seen| seen.number);
    ControlRequest { id: id.to_owned(), due_ms: plan.due_ms, res: String::new(), number }
}

/// A control request as a message, recorded as invoked.
pub(super) fn control(
    recorder: &Recorder,
    id: &str,
    plan: &Plan,
    replies: &str,
) -> (Sent, Message) {
    let ask = ask(id, plan);
    recorder.record(PROCESS_NAME, Phase::Invoke, asked(plan.action, ask.clone()));
    (Sent::Control(plan.action, ask), request(id, plan, replies))
}

/// The operation in the history.
pub(super) fn asked(action: Action, ask: ControlRequest) -> Op {
    match action {
        Action::Cancel => Op::Cancel(ask),
        Action::Reschedule => Op::Reschedule(ask),
        Action::Fire => Op::Fire(ask),
        Action::Finish => Op::Finish(ask),
        Action::Fail => Op::Fail(ask),
    }
}

impl Producer {
    pub(super) fn new(broker: BrokerConfig, recorder: Arc<Recorder>) -> Producer {
        Producer {
            broker,
            recorder,
            link: None,
            next: 0,
            open: Arc::default(),
            listeners: JoinSet::new(),
        }
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
                self.listeners.spawn(listen(
                    outcomes,
                    Arc::clone(&self.open),
                    Arc::clone(&self.recorder),
                ));
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

    /// Sends messages that are already recorded as invoked.
    pub(super) async fn send(&mut self, messages: Vec<(Sent, Message)>) {
        let Some(sink) = &self.link else {
            for (sent, _) in messages {
                self.recorder.record(PROCESS_NAME, Phase::Fail, sent.op("never sent".to_owned()));
            }
            return;
        };
        let mut batch = Vec::with_capacity(messages.len());
        for (sent, message) in messages {
            let token = self.next;
            self.next += 1;
            // An id of the request: without log positions it identifies redeliveries.
            let dedupe_id = match &sent {
                Sent::Job(id) => format!("s-{id}"),
                Sent::Again(id) => format!("r-{id}"),
                Sent::Control(action, ControlRequest { id, number, .. }) => {
                    let number = number.map_or_else(String::new, |number| format!("-{number}"));
                    format!("{}-{id}{number}", action.as_str())
                }
            };
            self.open.lock().insert(token, sent);
            batch.push(Publication {
                token,
                to: Destination::new(REQUEST_DESTINATION),
                message,
                dedupe_id,
                deadline: None,
            });
        }
        sink.publish(batch).await;
    }

    /// Waits for the outcome of every message.
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
        for sent in self.open.lock().drain().map(|(_, sent)| sent) {
            self.recorder.record(PROCESS_NAME, Phase::Info, sent.op("no word".to_owned()));
        }
    }
}

async fn listen(
    mut outcomes: Outcomes,
    open: Arc<Mutex<HashMap<Token, Sent>>>,
    recorder: Arc<Recorder>,
) {
    while let Some(batch) = outcomes.recv().await {
        for (token, outcome) in batch {
            let Some(sent) = open.lock().remove(&token) else { continue };
            let (phase, res) = match outcome {
                Outcome::Confirmed | Outcome::Finished => (Phase::Ok, String::new()),
                Outcome::Unroutable(why)
                | Outcome::Refused(why)
                | Outcome::Throttled { why, .. }
                | Outcome::Failed(why)
                | Outcome::Invalid(why) => (Phase::Fail, why),
                Outcome::Unknown(why) => (Phase::Info, why),
            };
            recorder.record(PROCESS_NAME, phase, sent.op(res));
        }
    }
}
