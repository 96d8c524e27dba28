//! The publications of a sink that have no outcome yet.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use crate::{Outcome, Token};

/// Given, by the caller's tokens.
type Given = Vec<(Token, Outcome)>;

/// The publications of one sink that have no outcome yet. Outcomes are gathered here and leave together, by a task.
pub(super) struct Window {
    state: Mutex<State>,
    given: Notify,
}

#[derive(Default)]
struct State {
    open: HashMap<Token, Open>,
    given: Given,
    closing: bool,
    /// No outcome can come any more.
    ended: bool,
}

/// One publication.
#[derive(Clone, Copy)]
pub(super) struct Open {
    pub(super) since: Instant,
    /// librdkafka has it, and answers for it.
    handed: bool,
}

impl Window {
    /// A window whose outcomes go to the receiver, for as long as they come.
    pub(super) fn start() -> (std::sync::Arc<Self>, mpsc::UnboundedReceiver<Given>) {
        let (out, outcomes) = mpsc::unbounded_channel();
        let window = std::sync::Arc::new(Window { state: Mutex::default(), given: Notify::new() });
        let of = std::sync::Arc::clone(&window);
        tokio::spawn(async move {
            loop {
                of.given.notified().await;
                let (given, ended) = of.take_given();
                // A caller that dropped the receiver wants none.
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

    /// Takes in publications that are about to be handed over; false when the link is gone.
    pub(super) fn open(&self, tokens: impl Iterator<Item = Token>) -> bool {
        let mut state = self.state.lock();
        if !state.ended {
            let since = Instant::now();
            state.open.extend(tokens.map(|token| (token, Open { since, handed: false })));
        }
        !state.ended
    }

    /// This one is handed over now; `None` when it has its outcome already.
    pub(super) fn hand_over(&self, token: Token) -> Option<Open> {
        let mut state = self.state.lock();
        let open = state.open.get_mut(&token)?;
        open.handed = true;
        Some(*open)
    }

    /// This one was not taken after all.
    pub(super) fn not_taken(&self, token: Token) {
        if let Some(open) = self.state.lock().open.get_mut(&token) {
            open.handed = false;
        }
    }

    /// Gives the outcome of this one, unless it has one.
    pub(super) fn give(&self, token: Token, outcome: impl FnOnce(Open) -> Outcome) {
        let mut state = self.state.lock();
        if let Some(open) = state.open.remove(&token) {
            let outcome = outcome(open);
            state.given.push((token, outcome));
            // Whoever takes them takes all.
            if state.given.len() == 1 {
                self.given.notify_one();
            }
        }
    }

    /// Nothing more will be published.
    pub(super) fn close(&self) {
        self.state.lock().closing = true;
    }

    /// Whether the sink was closed; `None` where that is so and every outcome was given.
    pub(super) fn outlook(&self) -> Option<bool> {
        let state = self.state.lock();
        (!(state.closing && state.open.is_empty())).then_some(state.closing)
    }

    /// The link is gone: what librdkafka had is unknown, what it never got is refused. Then outcomes end.
    pub(super) fn end(&self, why: &str) {
        let mut state = self.state.lock();
        for (token, open) in std::mem::take(&mut state.open) {
            let outcome = if open.handed { Outcome::Unknown(why.to_owned()) } else { Outcome::Refused(why.to_owned()) };
            state.given.push((token, outcome));
        }
        state.ended = true;
        self.given.notify_one();
    }
}
