//! One host: its requests that wait, and its connections.

use std::collections::VecDeque;
use std::sync::Arc;

use http::Uri;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Duration, Instant, sleep_until};

use super::hosts::Hosts;
use super::link::Http2;
use super::targets::Target;
use super::{outcome, worker};
use crate::{Message, Outcome, Token};

/// The most requests of one host at a time, and the most connections: on HTTP/1.1 each request needs
/// one of its own.
pub(super) const SLOTS: usize = 256;
/// The most requests of a host over HTTP/2, which has one connection: as many as servers commonly take,
/// and the least that RFC 9113 §6.5.2 recommends to them. The client would keep the others unsent, and
/// what waits there does not show that it was not sent.
pub(super) const STREAMS: usize = 100;
/// A connection without requests is closed after this time, before common servers close theirs (5 s
/// is Node's and uvicorn's default): a request on a connection that is being closed has no answer.
const IDLE: Duration = Duration::from_secs(4);
/// How often requests that wait are looked at, at least.
const LOOK: Duration = Duration::from_secs(1);

/// A publication without an outcome.
pub(super) struct Attempt {
    pub(super) token: Token,
    pub(super) target: Arc<Target>,
    pub(super) message: Message,
    pub(super) dedupe_id: String,
    pub(super) begun: Instant,
    /// Since when it waits for a connection, if it does.
    pub(super) queued: Instant,
    /// Without an answer by then the outcome is unknown.
    pub(super) until: Instant,
    /// A connection ended before any of it was sent.
    pub(super) was_given_back: bool,
}

impl Attempt {
    /// Until when it may wait for a slot. At least half of the attempt is the host's: a slow one would
    /// get requests whose time is nearly over, and each would burn an attempt.
    fn patience(&self) -> Instant {
        self.begun + self.until.saturating_duration_since(self.begun) / 2
    }
}

/// A host that has requests or connections.
pub(super) struct Host {
    pub(super) hosts: Arc<Hosts>,
    pub(super) origin: Arc<str>,
    /// What is connected to.
    pub(super) uri: Uri,
    state: Mutex<State>,
    /// An attempt waits whose time ends before the upkeep looks again.
    sooner: Notify,
}

#[derive(Default)]
struct State {
    /// Attempts that no link carries, in the order in which they came.
    queue: VecDeque<Box<Attempt>>,
    /// HTTP/1.1 connections without a request, the last used last.
    idle: Vec<Idle>,
    /// Workers with an HTTP/1.1 connection, and those that connect.
    workers: usize,
    connecting: usize,
    http2: Option<Http2>,
    /// Requests on the HTTP/2 connection, and the end of the last one.
    streams: usize,
    last_stream: Option<Instant>,
    /// When the upkeep looks again; `None`: it does not run.
    upkeep: Option<Instant>,
}

struct Idle {
    give: oneshot::Sender<Box<Attempt>>,
    since: Instant,
}

/// What a worker does next.
pub(super) enum Next {
    Attempt(Box<Attempt>),
    /// Wait for an attempt.
    Wait(oneshot::Receiver<Box<Attempt>>),
    Leave,
}

impl State {
    /// Connections that are up, and requests on the HTTP/2 connection: the host has at most one request
    /// for each.
    fn in_use(&self) -> usize {
        self.workers - self.connecting + self.streams
    }

    fn is_unused(&self) -> bool {
        self.queue.is_empty() && self.workers == 0 && self.streams == 0 && self.http2.is_none() && self.upkeep.is_none()
    }

    /// Whether the HTTP/2 connection takes requests. Forgets one that has ended.
    fn has_http2(&mut self) -> bool {
        self.http2.take_if(|link| link.is_closed());
        self.http2.is_some()
    }

    /// The HTTP/2 connection, if it takes requests.
    fn http2(&mut self) -> Option<Http2> {
        if self.has_http2() { self.http2.clone() } else { None }
    }
}

impl Host {
    pub(super) fn new(hosts: Arc<Hosts>, origin: Arc<str>, uri: Uri) -> Self {
        Host { hosts, origin, uri, state: Mutex::default(), sooner: Notify::new() }
    }

    /// Whether nothing happens here any more.
    pub(super) fn is_unused(&self) -> bool {
        self.state.lock().is_unused()
    }

    /// Closes the connections without requests; the others are closed after theirs.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.idle.clear();
        if state.streams == 0 {
            state.http2 = None;
        }
        self.sooner.notify_one();
    }

    /// Gives an attempt to a connection: the idle one that was used last, or a new one.
    pub(super) fn push(self: &Arc<Self>, mut attempt: Box<Attempt>) {
        let mut state = self.state.lock();
        let now = Instant::now();
        while let Some(Idle { give, .. }) = state.idle.pop_if(|idle| now < idle.since + IDLE) {
            match give.send(attempt) {
                Ok(()) => return,
                // This connection ended.
                Err(back) => attempt = back,
            }
        }
        let patience = attempt.patience();
        attempt.queued = now;
        state.queue.push_back(attempt);
        self.serve_queue(&mut state);
        if !state.queue.is_empty() {
            self.look_at(&mut state, patience);
        }
    }

    /// Starts workers for the queue, as far as the host has slots.
    fn serve_queue(self: &Arc<Self>, state: &mut MutexGuard<'_, State>) {
        while state.streams < STREAMS
            && state.in_use() < SLOTS
            && !state.queue.is_empty()
            && let Some(link) = state.http2()
            && let Some(attempt) = state.queue.pop_front()
        {
            state.streams += 1;
            tokio::spawn(Box::pin(worker::share(Arc::clone(self), link, attempt)));
        }
        while !state.has_http2() && state.connecting < state.queue.len() && state.workers + state.streams < SLOTS {
            state.workers += 1;
            state.connecting += 1;
            tokio::spawn(Box::pin(worker::work(Arc::clone(self))));
        }
    }

    /// The HTTP/1.1 connection of a worker is up.
    pub(super) fn connected(self: &Arc<Self>) -> Next {
        let mut state = self.state.lock();
        state.connecting -= 1;
        if state.in_use() > SLOTS {
            state.workers -= 1;
            return Next::Leave;
        }
        self.next_of(&mut state)
    }

    /// What a worker does with a free HTTP/1.1 connection.
    pub(super) fn next(self: &Arc<Self>) -> Next {
        self.next_of(&mut self.state.lock())
    }

    fn next_of(self: &Arc<Self>, state: &mut MutexGuard<'_, State>) -> Next {
        if let Some(attempt) = state.queue.pop_front() {
            return Next::Attempt(attempt);
        }
        if self.hosts.is_closing() {
            state.workers -= 1;
            return Next::Leave;
        }
        let (give, given) = oneshot::channel();
        let since = Instant::now();
        state.idle.push(Idle { give, since });
        self.look_at(state, since + IDLE);
        Next::Wait(given)
    }

    /// Whether a worker whose connection ended, or that could not connect, shall connect again; otherwise
    /// it is gone.
    pub(super) fn connects_again(self: &Arc<Self>) -> bool {
        let mut state = self.state.lock();
        // Beside an HTTP/2 connection no other is needed, and no attempt would pay for failures to connect.
        let is_wanted = !state.has_http2() && state.connecting < state.queue.len();
        if is_wanted {
            state.connecting += 1;
        } else {
            state.workers -= 1;
            self.serve_queue(&mut state);
        }
        is_wanted
    }

    /// A worker could not connect. Returns the attempt that fails for it: one that has waited since the
    /// worker `began`, and waits for no HTTP/2 connection.
    pub(super) fn not_connected(&self, began: Instant) -> Option<Box<Attempt>> {
        let mut state = self.state.lock();
        state.connecting -= 1;
        let has_waited = !state.has_http2() && state.queue.front().is_some_and(|attempt| attempt.queued <= began);
        if has_waited { state.queue.pop_front() } else { None }
    }

    /// A worker has an HTTP/2 connection, and ends. Returns whether the host uses this connection:
    /// otherwise it has one.
    pub(super) fn connected_by_http2(self: &Arc<Self>, link: Http2) -> bool {
        let mut state = self.state.lock();
        state.workers -= 1;
        state.connecting -= 1;
        let is_used = !(state.has_http2() || (self.hosts.is_closing() && state.queue.is_empty()));
        if is_used {
            state.http2 = Some(link);
        }
        self.ended_stream(&mut state);
        is_used
    }

    /// The HTTP/2 connection ended.
    pub(super) fn http2_ended(self: &Arc<Self>) {
        self.serve_queue(&mut self.state.lock());
    }

    /// What follows a request on the HTTP/2 connection: another attempt, or `None` for the end.
    pub(super) fn next_stream(self: &Arc<Self>) -> Option<(Http2, Box<Attempt>)> {
        let mut state = self.state.lock();
        if !state.queue.is_empty()
            && let Some(link) = state.http2()
        {
            return state.queue.pop_front().map(|attempt| (link, attempt));
        }
        state.streams -= 1;
        self.ended_stream(&mut state);
        None
    }

    fn ended_stream(self: &Arc<Self>, state: &mut MutexGuard<'_, State>) {
        self.serve_queue(state);
        let now = Instant::now();
        state.last_stream = Some(now);
        if state.http2.is_some() && state.streams == 0 {
            if self.hosts.is_closing() {
                state.http2 = None;
            } else {
                self.look_at(state, now + IDLE);
            }
        }
    }

    /// Makes the upkeep look at this time, or before.
    fn look_at(self: &Arc<Self>, state: &mut MutexGuard<'_, State>, at: Instant) {
        match state.upkeep {
            None => {
                state.upkeep = Some(at);
                tokio::spawn(upkeep(Arc::clone(self)));
            }
            Some(next) if at < next => {
                state.upkeep = Some(at);
                self.sooner.notify_one();
            }
            Some(_) => {}
        }
    }

    /// Ends what waited too long. Returns the outcomes of such attempts, and when to look again; `None`
    /// if nothing waits.
    fn look(&self, now: Instant) -> (Vec<(Token, Outcome)>, Option<Instant>) {
        let mut state = self.state.lock();
        let mut over = Vec::new();
        // What waits beside an HTTP/2 connection waits for that one.
        let connecting = if state.has_http2() { 0 } else { state.connecting };
        let (mut position, mut next) = (0, None);
        let mut look_at = |at: Instant| next = Some(next.map_or(at, |next: Instant| next.min(at)));
        state.queue.retain(|attempt| {
            // A connection is being made for each of the first.
            let is_connecting = position < connecting;
            let end = if is_connecting { attempt.until } else { attempt.patience() };
            position += 1;
            if end > now {
                look_at(end.min(now + LOOK));
                return true;
            }
            let outcome = match is_connecting {
                false => outcome::of_full_host(),
                // This process was suspended.
                true if now > attempt.until + LOOK => outcome::of_no_time(),
                true => outcome::of_unreachable(&format!("no connection within {:.3?}", now - attempt.begun)),
            };
            over.push((attempt.token, outcome));
            false
        });
        let old = state.idle.partition_point(|idle| idle.since + IDLE <= now);
        // Their workers close the connections.
        state.idle.drain(..old);
        if let Some(idle) = state.idle.first() {
            look_at(idle.since + IDLE);
        }
        if state.http2.is_some() && state.streams == 0 {
            match state.last_stream.map(|last| last + IDLE) {
                Some(at) if at > now => look_at(at),
                _ => state.http2 = None,
            }
        }
        state.upkeep = next;
        (over, next)
    }
}

/// Ends attempts and connections that have waited too long.
async fn upkeep(host: Arc<Host>) {
    loop {
        let (over, next) = host.look(Instant::now());
        host.hosts.report(over);
        let Some(at) = next else { break };
        tokio::select! {
            () = sleep_until(at) => {}
            () = host.sooner.notified() => {}
        }
    }
    host.hosts.forget(&host);
}
