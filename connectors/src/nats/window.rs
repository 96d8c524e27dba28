//! The publications of a sink that have no outcome yet.

use async_nats::Subject;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use crate::{Outcome, Token};

/// Given, by the caller's tokens.
pub(super) type Given = Vec<(Token, Outcome)>;

/// The publications of one sink that have no outcome yet, by number. Numbers rise with time, so the first is the oldest.
pub(super) struct PublishWindow {
    state: Mutex<State>,
    closed: Notify,
}

struct State {
    /// `None` once every outcome was given and none can come.
    out: Option<mpsc::UnboundedSender<Given>>,
    open: BTreeMap<u64, Open>,
    next: u64,
    closing: bool,
}

/// One publication.
pub(super) struct Open {
    pub(super) token: Token,
    pub(super) subject: Subject,
    until: Instant,
    written: bool,
}

impl PublishWindow {
    pub(super) fn new(out: mpsc::UnboundedSender<Given>) -> Self {
        PublishWindow { state: Mutex::new(State { out: Some(out), open: BTreeMap::new(), next: 0, closing: false }), closed: Notify::new() }
    }

    /// Takes in publications that are about to be written, and gives the outcomes of those that never will be. The number of the first, the others
    /// follow; `None` when the connection is gone.
    pub(super) fn open(&self, publications: impl Iterator<Item = (Token, Subject, Instant)>, outcomes: Given) -> Option<u64> {
        let mut state = self.state.lock();
        state.out.as_ref()?;
        let first = state.next;
        for (token, subject, until) in publications {
            let number = state.next;
            state.next += 1;
            state.open.insert(number, Open { token, subject, until, written: false });
        }
        state.give(outcomes);
        Some(first)
    }

    /// This one is written now; false when it has its outcome already.
    pub(super) fn written(&self, number: u64) -> bool {
        self.state.lock().open.get_mut(&number).map(|open| open.written = true).is_some()
    }

    /// This one was not written after all.
    pub(super) fn not_written(&self, number: u64) {
        if let Some(open) = self.state.lock().open.get_mut(&number) {
            open.written = false;
        }
    }

    /// Nothing more will be published.
    pub(super) fn close(&self) {
        self.state.lock().closing = true;
        self.closed.notify_one();
    }

    /// Whether all is done: closed, and every outcome given.
    pub(super) fn is_done(&self) -> bool {
        let state = self.state.lock();
        state.closing && state.open.is_empty()
    }

    /// Takes these publications out; those that have their outcome already are not there.
    pub(super) fn take<T>(&self, answers: impl Iterator<Item = (u64, T)>) -> Vec<(Open, T)> {
        let mut state = self.state.lock();
        answers.filter_map(|(number, answer)| Some((state.open.remove(&number)?, answer))).collect()
    }

    /// Gives the outcomes of publications that were taken out.
    pub(super) fn give(&self, outcomes: Given) {
        self.state.lock().give(outcomes);
    }

    /// Waits until `close` was called.
    pub(super) async fn closed(&self) {
        self.closed.notified().await;
    }

    /// The publications whose time is over are unknown, or refused where they were never written.
    pub(super) fn expire(&self) {
        let mut state = self.state.lock();
        let (mut outcomes, now) = (Vec::new(), Instant::now());
        state.open.retain(|_, open| {
            let late = open.until <= now;
            if late {
                outcomes.push(open.without_answer(&format!("no answer for `{}` in time", open.subject)));
            }
            !late
        });
        state.give(outcomes);
    }

    /// Everything that waits for this subject has this outcome.
    pub(super) fn deny(&self, subject: &str, why: &str) {
        let mut state = self.state.lock();
        let mut outcomes = Vec::new();
        state.open.retain(|_, open| {
            let denied = open.written && open.subject.as_str() == subject;
            if denied {
                outcomes.push((open.token, Outcome::Unroutable(why.to_owned())));
            }
            !denied
        });
        state.give(outcomes);
    }

    /// The connection is gone: what was written is unknown, what was not is refused. Then outcomes end.
    pub(super) fn end(&self, why: &str) {
        let mut state = self.state.lock();
        let outcomes = std::mem::take(&mut state.open).into_values().map(|open| open.without_answer(why)).collect();
        state.give(outcomes);
        state.out = None;
    }
}

impl Open {
    fn without_answer(&self, why: &str) -> (Token, Outcome) {
        (self.token, if self.written { Outcome::Unknown(why.to_owned()) } else { Outcome::Refused(why.to_owned()) })
    }
}

impl State {
    fn give(&self, outcomes: Given) {
        if let Some(out) = &self.out
            && !outcomes.is_empty()
        {
            // A caller that dropped the receiver wants none.
            let _ = out.send(outcomes);
        }
    }
}
