//! The publications of a sink that have no outcome yet.

use async_nats::Subject;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use crate::{Outcome, Token};

/// Outcomes by the caller's tokens.
pub(super) type Given = Vec<(Token, Outcome)>;

/// The publications of a sink that have no outcome yet, by number. Numbers increase over time, so
/// the first is the oldest.
pub(super) struct PublishWindow {
    state: Mutex<WindowState>,
    closed: Notify,
}

struct WindowState {
    /// `None` once every outcome is sent and none can come.
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
        PublishWindow {
            state: Mutex::new(WindowState {
                out: Some(out),
                open: BTreeMap::new(),
                next: 0,
                closing: false,
            }),
            closed: Notify::new(),
        }
    }

    /// Records publications that are about to be written, and sends the outcomes of publications
    /// that are never written. Returns the first number, the others follow; `None` if the
    /// connection is lost.
    pub(super) fn open(
        &self,
        publications: impl Iterator<Item = (Token, Subject, Instant)>,
        outcomes: Given,
    ) -> Option<u64> {
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

    /// Marks a publication as written; false if it has its outcome.
    pub(super) fn written(&self, number: u64) -> bool {
        self.state.lock().open.get_mut(&number).map(|open| open.written = true).is_some()
    }

    /// Marks a publication as not written.
    pub(super) fn not_written(&self, number: u64) {
        if let Some(open) = self.state.lock().open.get_mut(&number) {
            open.written = false;
        }
    }

    /// Records that nothing more will be published.
    pub(super) fn close(&self) {
        self.state.lock().closing = true;
        self.closed.notify_one();
    }

    /// Whether the sink is closed and every outcome is sent.
    pub(super) fn is_done(&self) -> bool {
        let state = self.state.lock();
        state.closing && state.open.is_empty()
    }

    /// Removes these publications; publications with an outcome are skipped.
    pub(super) fn take<T>(&self, answers: impl Iterator<Item = (u64, T)>) -> Vec<(Open, T)> {
        let mut state = self.state.lock();
        answers.filter_map(|(number, answer)| Some((state.open.remove(&number)?, answer))).collect()
    }

    /// Sends the outcomes of removed publications.
    pub(super) fn give(&self, outcomes: Given) {
        self.state.lock().give(outcomes);
    }

    /// Waits for `close`.
    pub(super) async fn closed(&self) {
        self.closed.notified().await;
    }

    /// Reports late publications: unknown if written, otherwise refused.
    pub(super) fn expire(&self) {
        let mut state = self.state.lock();
        let (mut outcomes, now) = (Vec::new(), Instant::now());
        state.open.retain(|_, open| {
            let late = open.until <= now;
            if late {
                outcomes.push(
                    open.without_answer(&format!("no answer for `{}` in time", open.subject)),
                );
            }
            !late
        });
        state.give(outcomes);
    }

    /// Reports all written publications to this subject as unroutable.
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

    /// Ends the outcomes after the connection is lost: written publications are unknown, others
    /// refused.
    pub(super) fn end(&self, why: &str) {
        let mut state = self.state.lock();
        let outcomes = std::mem::take(&mut state.open)
            .into_values()
            .map(|open| open.without_answer(why))
            .collect();
        state.give(outcomes);
        state.out = None;
    }
}

impl Open {
    fn without_answer(&self, why: &str) -> (Token, Outcome) {
        (
            self.token,
            if self.written {
                Outcome::Unknown(why.to_owned())
            } else {
                Outcome::Refused(why.to_owned())
            },
        )
    }
}

impl WindowState {
    fn give(&self, outcomes: Given) {
        if let Some(out) = &self.out
            && !outcomes.is_empty()
        {
            // A caller that dropped the receiver needs no outcomes.
            let _ = out.send(outcomes);
        }
    }
}
