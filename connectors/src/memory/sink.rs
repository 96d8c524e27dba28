//! The sink of the memory broker.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::{Broker, Config, Fault};
use crate::{ConnectorError, Destination, ErrorKind, Outcome, Outcomes, Publication, Sink, Token};

pub(crate) fn open(
    config: &Config,
    publish_timeout: Duration,
) -> Result<(impl Sink + use<>, Outcomes), ConnectorError> {
    let (out, outcomes) = mpsc::unbounded_channel();
    let window = Arc::new(PublishWindow {
        state: Mutex::new(WindowState { out: Some(out), open: BTreeMap::new(), closing: false }),
    });
    let broker = config.broker.clone();
    let mut state = broker.shared.state.lock();
    state.may_open()?;
    state.sinks.retain(|window| window.strong_count() > 0);
    state.sinks.push(Arc::downgrade(&window));
    drop(state);
    Ok((MemorySink { broker, window, publish_timeout }, outcomes))
}

struct MemorySink {
    broker: Broker,
    window: Arc<PublishWindow>,
    publish_timeout: Duration,
}

/// The unanswered publications of a sink, and the channel of its outcomes.
pub(super) struct PublishWindow {
    state: Mutex<WindowState>,
}

struct WindowState {
    /// `None` once the connection is lost.
    out: Option<mpsc::UnboundedSender<Vec<(Token, Outcome)>>>,
    /// Tokens without an answer, and whether `release` answers each.
    open: BTreeMap<Token, bool>,
    closing: bool,
}

impl PublishWindow {
    /// Sends the answers of tokens that have none yet.
    fn answer(&self, answers: Vec<(Token, Outcome)>) {
        let mut state = self.state.lock();
        let answers: Vec<_> =
            answers.into_iter().filter(|(token, _)| state.open.remove(token).is_some()).collect();
        state.send(answers);
    }

    pub(super) fn release(&self) -> usize {
        let mut state = self.state.lock();
        let answers: Vec<_> = state
            .open
            .iter()
            .filter(|(_, held)| **held)
            .map(|(token, _)| (*token, Outcome::Confirmed))
            .collect();
        state.open.retain(|_, held| !*held);
        let count = answers.len();
        state.send(answers);
        count
    }

    pub(super) fn unanswered(&self) -> usize {
        self.state.lock().open.len()
    }

    pub(super) fn end(&self, why: &str) {
        let mut state = self.state.lock();
        let answers = std::mem::take(&mut state.open)
            .into_keys()
            .map(|token| (token, Outcome::Unknown(why.to_owned())))
            .collect();
        state.send(answers);
        state.out = None;
    }

    fn close(&self) {
        let mut state = self.state.lock();
        state.closing = true;
        state.send(Vec::new());
    }
}

impl WindowState {
    fn send(&mut self, answers: Vec<(Token, Outcome)>) {
        if let Some(out) = &self.out
            && !answers.is_empty()
        {
            // A dropped receiver needs no answers.
            let _ = out.send(answers);
        }
        if self.closing && self.open.is_empty() {
            self.out = None;
        }
    }
}

impl MemorySink {
    /// Applies one publication; `None` if the answer comes later.
    fn apply(
        &self,
        publication: Publication,
        later: &mut BTreeMap<Duration, Vec<(Token, Outcome)>>,
    ) -> Option<Outcome> {
        let Publication { token, to, message, dedupe_id, deadline } = publication;
        let timestamp_ms = self.broker.now_ms();
        let mut state = self.broker.shared.state.lock();
        let fault = match state.faults.strike(&to.address) {
            Some(Fault::TooLarge(most)) => (message.size() > most).then_some(Fault::Invalid),
            fault => fault,
        };
        let Some(topic) = state.topics.get_mut(&to.address) else {
            return Some(Outcome::Unroutable(format!("no topic `{to}`")));
        };
        let lands = match fault {
            Some(
                Fault::Unroutable
                | Fault::Refused
                | Fault::Invalid
                | Fault::TooLarge(_)
                | Fault::Stuck,
            ) => false,
            Some(Fault::Unknown { landed } | Fault::Silent { landed }) => landed,
            Some(Fault::Hold | Fault::Delay(_)) | None => true,
        };
        if lands {
            topic.push(&to.address, message, &dedupe_id, timestamp_ms);
        }
        drop(state);
        let timeout = deadline.map_or(self.publish_timeout, |at| {
            self.publish_timeout.min(at.saturating_duration_since(Instant::now()))
        });
        let mut no_answer = || {
            later
                .entry(timeout)
                .or_default()
                .push((token, Outcome::Unknown("no answer in time".to_owned())));
            None
        };
        match fault {
            None => Some(Outcome::Confirmed),
            Some(Fault::Unroutable) => Some(Outcome::Unroutable(format!("no topic `{to}`"))),
            Some(Fault::Refused) => Some(Outcome::Refused(format!("`{to}` is full"))),
            Some(Fault::Invalid | Fault::TooLarge(_)) => {
                Some(Outcome::Invalid(format!("`{to}` takes no such message")))
            }
            Some(Fault::Unknown { .. }) => Some(Outcome::Unknown("the answer was lost".to_owned())),
            Some(Fault::Stuck) => None,
            Some(Fault::Silent { .. }) => no_answer(),
            Some(Fault::Hold) => {
                self.window.state.lock().open.insert(token, true);
                no_answer()
            }
            Some(Fault::Delay(by)) if by >= timeout => no_answer(),
            Some(Fault::Delay(by)) => {
                later.entry(by).or_default().push((token, Outcome::Confirmed));
                None
            }
        }
    }
}

#[async_trait]
impl Sink for MemorySink {
    async fn publish(&self, batch: Vec<Publication>) {
        self.broker.until_taken(|| self.window.state.lock().out.is_none()).await;
        let mut state = self.window.state.lock();
        if state.out.is_none() {
            return;
        }
        state.open.extend(batch.iter().map(|publication| (publication.token, false)));
        drop(state);
        let (mut now, mut later) = (Vec::with_capacity(batch.len()), BTreeMap::new());
        for publication in batch {
            let token = publication.token;
            now.extend(self.apply(publication, &mut later).map(|outcome| (token, outcome)));
        }
        self.window.answer(now);
        self.broker.touch();
        for (wait, answers) in later {
            let window = Arc::clone(&self.window);
            tokio::spawn(async move {
                tokio::time::sleep(wait).await;
                window.answer(answers);
            });
        }
    }

    async fn exists(&self, to: &Destination) -> Result<bool, ConnectorError> {
        if self.window.state.lock().out.is_none() {
            return Err(ConnectorError::new(
                ErrorKind::Disconnected,
                "the connection to the memory broker was cut",
            ));
        }
        let state = self.broker.shared.state.lock();
        state.may_open()?;
        Ok(state.topics.contains_key(&to.address))
    }

    async fn close(self: Box<Self>) -> Result<(), ConnectorError> {
        self.window.close();
        Ok(())
    }
}

impl Drop for MemorySink {
    fn drop(&mut self) {
        self.window.close();
    }
}
