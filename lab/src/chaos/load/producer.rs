//! Sends at a set rate, whatever became of what was sent before, and records what the broker says
//! of each message.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use dwell::clock;
use dwell_connectors::{BrokerConfig, ConnectorError, Destination, Message, Outcome, Outcomes, Publication, Sink, Token};
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tracing::debug;

use crate::chaos::history::{ControlRequest, Op, Phase, Schedule};
use crate::chaos::recorder::Recorder;

use super::draw::Action;
use super::whole;

/// How long a confirm may take.
const CONFIRM: Duration = Duration::from_secs(5);
/// How long one try to connect may take.
const CONNECT: Duration = Duration::from_secs(5);
/// Between two tries to connect.
const PAUSE: Duration = Duration::from_millis(200);
/// Where requests go.
const IN: &str = "delay.in";
const PROC: &str = "producer";

/// A link to the broker that is opened anew when it is gone.
pub(super) struct Producer {
    broker: BrokerConfig,
    recorder: Arc<Recorder>,
    link: Option<Box<dyn Sink>>,
    next: Token,
    /// What has no word of the broker yet.
    open: Arc<Mutex<HashMap<Token, Sent>>>,
    /// Listens to the words of each link until its end.
    listeners: JoinSet<()>,
}

/// What a message asks for.
pub(super) enum Sent {
    Job(String),
    /// Another schedule for the same id.
    Again(String),
    ControlRequest(String, Action, Option<i64>),
}

impl Sent {
    /// What the history calls it.
    pub(super) fn op(&self, res: String) -> Op {
        match self {
            Sent::Job(id) | Sent::Again(id) => Op::Schedule(Schedule { id: id.clone(), job: None, res }),
            Sent::ControlRequest(id, action, due_ms) => asked(*action, ControlRequest { id: id.clone(), due_ms: *due_ms, res }),
        }
    }
}

/// As the history calls it.
pub(super) fn asked(action: Action, ask: ControlRequest) -> Op {
    match action {
        Action::Cancel => Op::Cancel(ask),
        Action::Reschedule => Op::Reschedule(ask),
        Action::Fire => Op::Fire(ask),
    }
}

impl Producer {
    pub(super) fn new(broker: BrokerConfig, recorder: Arc<Recorder>) -> Producer {
        Producer { broker, recorder, link: None, next: 0, open: Arc::default(), listeners: JoinSet::new() }
    }

    /// Whether there is a link; without one it tries once.
    pub(super) async fn ready(&mut self) -> bool {
        while let Some(ended) = self.listeners.try_join_next() {
            whole(ended);
            // The only one that still listens is that of the link.
            if self.listeners.is_empty() {
                self.link = None;
            }
        }
        if self.link.is_some() {
            return true;
        }
        match clock::timeout(CONNECT, self.broker.sink(CONFIRM)).await {
            Some(Ok((sink, outcomes))) => {
                self.link = Some(sink);
                self.listeners.spawn(listen(outcomes, Arc::clone(&self.open), Arc::clone(&self.recorder)));
                true
            }
            failed => {
                let error = failed.and_then(Result::err).map(|ConnectorError { message, .. }| message);
                debug!(error, "producer has no link");
                clock::sleep(PAUSE).await;
                false
            }
        }
    }

    /// Sends these. Each was recorded as asked for.
    pub(super) async fn send(&mut self, messages: Vec<(Sent, Message)>) {
        let Some(sink) = &self.link else {
            for (sent, _) in messages {
                self.recorder.record(PROC, Phase::Fail, sent.op("never sent".to_owned()));
            }
            return;
        };
        let mut batch = Vec::with_capacity(messages.len());
        for (sent, message) in messages {
            let token = self.next;
            self.next += 1;
            // A name for the request: where the broker has no positions, redelivery is told by it.
            let dedupe_id = match &sent {
                Sent::Job(id) => format!("s-{id}"),
                Sent::Again(id) => format!("r-{id}"),
                Sent::ControlRequest(id, action, _) => format!("{}-{id}", action.as_str()),
            };
            self.open.lock().insert(token, sent);
            batch.push(Publication { token, to: Destination::new(IN), message, dedupe_id, deadline: None });
        }
        sink.publish(batch).await;
    }

    /// Waits until everything that was sent has its word.
    pub(super) async fn finish(mut self) {
        if let Some(sink) = self.link.take() {
            // What it says, the outcomes say too.
            let _ = clock::timeout(CONFIRM, sink.close()).await;
        }
        let all = async {
            while let Some(ended) = self.listeners.join_next().await {
                whole(ended);
            }
        };
        let _ = clock::timeout(CONFIRM * 2, all).await;
        for sent in self.open.lock().drain().map(|(_, sent)| sent) {
            self.recorder.record(PROC, Phase::Info, sent.op("no word".to_owned()));
        }
    }
}

async fn listen(mut outcomes: Outcomes, open: Arc<Mutex<HashMap<Token, Sent>>>, recorder: Arc<Recorder>) {
    while let Some(batch) = outcomes.recv().await {
        for (token, outcome) in batch {
            let Some(sent) = open.lock().remove(&token) else { continue };
            let (phase, res) = match outcome {
                Outcome::Confirmed => (Phase::Ok, String::new()),
                Outcome::Unroutable(why) | Outcome::Refused(why) | Outcome::Invalid(why) => (Phase::Fail, why),
                Outcome::Unknown(why) => (Phase::Info, why),
            };
            recorder.record(PROC, phase, sent.op(res));
        }
    }
}
