//! The publications of a sink that have no outcome yet.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use crate::{Outcome, Token};

/// Outcomes by the caller's tokens.
type Given = Vec<(Token, Outcome)>;

/// The publications of a sink that have no outcome yet. A task sends collected outcomes together.
pub(super) struct PublishWindow {
    state: Mutex<WindowState>,
    given: Notify,
}

#[derive(Default)]
struct WindowState {
    open: HashMap<Token, Open>,
    given: Given,
    closing: bool,
    /// The outcomes have ended.
    ended: bool,
    /// The topics of open publications: producers choose them, so there may be many over time.
    topics: HashMap<Arc<str>, Topic>,
}

#[derive(Default)]
struct Topic {
    /// The number of open publications.
    open: usize,
    /// The time of the last outcome.
    reported: Option<Instant>,
}

/// One publication.
#[derive(Clone)]
pub(super) struct Open {
    pub(super) since: Instant,
    /// The time limit of its outcome.
    pub(super) deadline: Instant,
    topic: Arc<str>,
    /// librdkafka has it, and will report it.
    handed: bool,
}

/// Publications past their deadline that librdkafka has.
pub(super) struct Late {
    pub(super) publications: Vec<(Token, Open)>,
    /// The oldest hand-over time of the publications that librdkafka has and that are not late.
    pub(super) others: Option<Instant>,
}

impl Late {
    /// Whether a topic had no outcome since one of these was handed over: its partition may accept
    /// nothing.
    pub(super) fn stands_still(&self, window: &PublishWindow) -> bool {
        let state = window.state.lock();
        let reported = |open: &Open| state.topics.get(&open.topic).and_then(|topic| topic.reported);
        self.publications
            .iter()
            .any(|(_, open)| reported(open).is_none_or(|last| last < open.since))
    }
}

impl PublishWindow {
    /// A window that sends its outcomes to the receiver.
    pub(super) fn start() -> (std::sync::Arc<Self>, mpsc::UnboundedReceiver<Given>) {
        let (out, outcomes) = mpsc::unbounded_channel();
        let window =
            std::sync::Arc::new(PublishWindow { state: Mutex::default(), given: Notify::new() });
        let of = std::sync::Arc::clone(&window);
        tokio::spawn(async move {
            loop {
                of.given.notified().await;
                let (given, ended) = of.take_given();
                // A caller that dropped the receiver needs no outcomes.
                if (!given.is_empty() && out.send(given).is_err()) || ended {
                    return;
                }
            }
        });
        (window, outcomes)
    }

    fn take_given(&self) -> (Given, bool) {
        let mut state = self.state.lock();
        (std::mem::take(&mut state.given), state.ended)
    }

    /// Records publications that are about to be handed over, each with its topic and deadline;
    /// false if the connection is lost.
    pub(super) fn open<'a>(
        &self,
        publications: impl Iterator<Item = (Token, &'a str, Instant)>,
    ) -> bool {
        let mut state = self.state.lock();
        if !state.ended {
            let since = Instant::now();
            for (token, name, deadline) in publications {
                let topic = state.enter(name);
                state.open.insert(token, Open { since, deadline, topic, handed: false });
            }
        }
        !state.ended
    }

    /// Refuses late publications that were not handed over, and returns those that librdkafka has.
    pub(super) fn late(&self, now: Instant) -> Late {
        let mut state = self.state.lock();
        let (mut refused, mut late) = (Vec::new(), Late { publications: Vec::new(), others: None });
        for (token, open) in &state.open {
            match (open.deadline <= now, open.handed) {
                (true, true) => late.publications.push((*token, open.clone())),
                (true, false) => refused.push(*token),
                (false, true) => {
                    late.others =
                        Some(late.others.map_or(open.since, |oldest| oldest.min(open.since)))
                }
                (false, false) => {}
            }
        }
        for token in refused {
            state.give(token, |_| Outcome::Refused("it was not sent in time".to_owned()));
        }
        if !state.given.is_empty() {
            self.given.notify_one();
        }
        late
    }

    /// Marks a publication as handed over; `None` if it has its outcome.
    pub(super) fn hand_over(&self, token: Token) -> Option<Open> {
        let mut state = self.state.lock();
        let open = state.open.get_mut(&token)?;
        open.handed = true;
        Some(open.clone())
    }

    /// Marks a publication as not handed over; `None` if it has its outcome.
    pub(super) fn not_taken(&self, token: Token) -> Option<Open> {
        let mut state = self.state.lock();
        let open = state.open.get_mut(&token)?;
        open.handed = false;
        Some(open.clone())
    }

    /// Sends the outcome of a publication, unless it has one.
    pub(super) fn give(&self, token: Token, outcome: impl FnOnce(Open) -> Outcome) {
        let mut state = self.state.lock();
        state.give(token, outcome);
        // The task takes all at once.
        if state.given.len() == 1 {
            self.given.notify_one();
        }
    }

    /// Records that nothing more will be published.
    pub(super) fn close(&self) {
        self.state.lock().closing = true;
    }

    /// Whether the sink is closed; `None` if it is and every outcome was sent.
    pub(super) fn status(&self) -> Option<bool> {
        let state = self.state.lock();
        (!(state.closing && state.open.is_empty())).then_some(state.closing)
    }

    /// Ends the outcomes after the connection is lost: publications that librdkafka had are
    /// unknown, others refused.
    pub(super) fn end(&self, why: &str) {
        let mut state = self.state.lock();
        for (token, open) in std::mem::take(&mut state.open) {
            let outcome = if open.handed {
                Outcome::Unknown(why.to_owned())
            } else {
                Outcome::Refused(why.to_owned())
            };
            state.given.push((token, outcome));
        }
        state.topics.clear();
        state.ended = true;
        self.given.notify_one();
    }
}

impl WindowState {
    /// Counts an open publication of this topic.
    fn enter(&mut self, name: &str) -> Arc<str> {
        let name = self
            .topics
            .get_key_value(name)
            .map_or_else(|| Arc::from(name), |(name, _)| Arc::clone(name));
        self.topics.entry(Arc::clone(&name)).or_default().open += 1;
        name
    }

    fn give(&mut self, token: Token, outcome: impl FnOnce(Open) -> Outcome) {
        if let Some(open) = self.open.remove(&token) {
            if let Some(topic) = self.topics.get_mut(&open.topic) {
                topic.open = topic.open.saturating_sub(1);
                topic.reported = Some(Instant::now());
                if topic.open == 0 {
                    self.topics.remove(&open.topic);
                }
            }
            let outcome = outcome(open);
            self.given.push((token, outcome));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_topic_is_known_as_long_as_something_of_it_is_open() {
        let (window, _outcomes) = PublishWindow::start();
        let until = Instant::now();
        for token in 0..100 {
            let name = format!("topic-{token}");
            assert!(
                window
                    .open([(token * 2, &*name, until), (token * 2 + 1, &*name, until)].into_iter())
            );
            window.give(token * 2, |_| Outcome::Confirmed);
        }
        assert_eq!(window.state.lock().topics.len(), 100);
        (0..100).for_each(|token| window.give(token * 2 + 1, |_| Outcome::Confirmed));
        assert!(window.state.lock().topics.is_empty());
    }
}
