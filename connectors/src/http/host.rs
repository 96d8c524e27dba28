//! One host: its requests that wait, and its connections.

use std::collections::VecDeque;
use std::sync::Arc;

use http::Uri;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Duration, Instant, sleep_until};

use super::hosts::Hosts;
use super::http2::Http2;
use super::targets::Target;
use super::{outcome, worker};
use crate::{Message, Outcome, Token};

/// The most requests of one host at a time, and the most connections: on HTTP/1.1 each request needs
/// one of its own.
pub(super) const MAX_REQUESTS_PER_HOST: usize = 256;
/// The most requests of a host over HTTP/2, which has one connection: as many as servers commonly take,
/// and the least that RFC 9113 §6.5.2 recommends to them.
pub(super) const MAX_STREAMS_PER_HOST: usize = 100;
/// A connection without requests is closed after this time, before common servers close theirs (5 s
/// is Node's and uvicorn's default): a request on a connection that is being closed has no answer.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);
/// The longest interval between two looks at the waiting requests.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// A connection that takes longer to be made may never be: another is made beside it.
const SLOW_CONNECT_TIME: Duration = CHECK_INTERVAL;

/// A publication without an outcome.
pub(super) struct PendingRequest {
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

impl PendingRequest {
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
    /// The URI to connect to.
    pub(super) uri: Uri,
    state: Mutex<State>,
    /// An attempt waits whose time ends before the upkeep looks again.
    sooner: Notify,
}

#[derive(Default)]
struct State {
    /// Attempts that no link carries, in the order in which they came.
    queue: VecDeque<Box<PendingRequest>>,
    /// HTTP/1.1 connections without a request, the last used last.
    idle: Vec<Idle>,
    /// Workers with an HTTP/1.1 connection, and those that connect.
    workers: usize,
    /// Since when each worker connects that does.
    connecting: Vec<Instant>,
    /// Each connection carries one request: as many are made as requests wait. Else one connection is made
    /// for all, which is HTTP/2, or tells that the host has HTTP/1.1 alone; and one more when those before
    /// are [`SLOW_CONNECT_TIME`].
    is_http1: bool,
    http2: Option<Http2>,
    /// Requests on the HTTP/2 connection, and the end of the last one.
    streams: usize,
    last_stream: Option<Instant>,
    /// When the upkeep looks again; `None`: it does not run.
    upkeep: Option<Instant>,
}

struct Idle {
    give: oneshot::Sender<Box<PendingRequest>>,
    since: Instant,
}

/// The next step of a worker.
pub(super) enum Next {
    Request(Box<PendingRequest>),
    /// Wait for an attempt.
    Wait(oneshot::Receiver<Box<PendingRequest>>),
    Leave,
}

impl State {
    /// Connections that are up, and requests on the HTTP/2 connection: the host has at most one request
    /// for each.
    fn in_use(&self) -> usize {
        self.workers - self.connecting.len() + self.streams
    }

    /// Whether the attempts that wait are worth another connection.
    fn wants_connection(&mut self, now: Instant) -> bool {
        // Beside an HTTP/2 connection no other is needed, and no attempt would pay for failures to connect.
        !self.has_http2()
            && self.connecting.len() < self.queue.len()
            && (self.is_http1 || self.connecting.iter().all(|began| *began + SLOW_CONNECT_TIME <= now))
    }

    /// The worker that `began` to connect then does so no more.
    fn ended_connecting(&mut self, began: Instant) {
        if let Some(position) = self.connecting.iter().position(|other| *other == began) {
            self.connecting.swap_remove(position);
        }
    }

    fn is_unused(&self) -> bool {
        self.queue.is_empty() && self.workers == 0 && self.streams == 0 && self.http2.is_none() && self.upkeep.is_none()
    }

    /// Whether the HTTP/2 connection takes requests. Forgets one that has ended.
    fn has_http2(&mut self) -> bool {
        self.http2.take_if(|link| link.is_closed());
        self.http2.is_some()
    }

    /// The HTTP/2 connection, if it takes this many requests at a time.
    fn http2_for(&mut self, streams: usize) -> Option<Http2> {
        let has_room = self.has_http2() && self.http2.as_ref().is_some_and(|link| streams <= link.room());
        if has_room { self.http2.clone() } else { None }
    }
}

impl Host {
    /// `is_http1`: the host is known to have HTTP/1.1 alone.
    pub(super) fn new(hosts: Arc<Hosts>, origin: Arc<str>, uri: Uri, is_http1: bool) -> Self {
        let state = Mutex::new(State { is_http1, ..State::default() });
        Host { hosts, origin, uri, state, sooner: Notify::new() }
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
    pub(super) fn push(self: &Arc<Self>, mut attempt: Box<PendingRequest>) {
        let mut state = self.state.lock();
        let now = Instant::now();
        while let Some(Idle { give, .. }) = state.idle.pop_if(|idle| now < idle.since + IDLE_TIMEOUT) {
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
            self.look_at(&mut state, patience.min(Instant::now() + SLOW_CONNECT_TIME));
        }
    }

    /// Starts workers for the queue, as far as the host has slots.
    fn serve_queue(self: &Arc<Self>, state: &mut MutexGuard<'_, State>) {
        while state.in_use() < MAX_REQUESTS_PER_HOST
            && !state.queue.is_empty()
            && let streams = state.streams + 1
            && let Some(link) = state.http2_for(streams)
            && let Some(attempt) = state.queue.pop_front()
        {
            state.streams += 1;
            tokio::spawn(Box::pin(worker::share(Arc::clone(self), link, attempt)));
        }
        let now = Instant::now();
        while state.workers + state.streams < MAX_REQUESTS_PER_HOST && state.wants_connection(now) {
            state.workers += 1;
            state.connecting.push(now);
            tokio::spawn(Box::pin(worker::work(Arc::clone(self), now)));
        }
    }

    /// The HTTP/1.1 connection of a worker is up, which `began` to connect then.
    pub(super) fn connected(self: &Arc<Self>, began: Instant) -> Next {
        let mut state = self.state.lock();
        state.ended_connecting(began);
        if !state.is_http1 {
            state.is_http1 = true;
            self.hosts.has_http1(&self.origin, true);
        }
        if state.in_use() > MAX_REQUESTS_PER_HOST {
            state.workers -= 1;
            return Next::Leave;
        }
        let next = self.next_of(&mut state);
        self.serve_queue(&mut state);
        next
    }

    /// The next step of a worker with a free HTTP/1.1 connection.
    pub(super) fn next(self: &Arc<Self>) -> Next {
        self.next_of(&mut self.state.lock())
    }

    fn next_of(self: &Arc<Self>, state: &mut MutexGuard<'_, State>) -> Next {
        if let Some(attempt) = state.queue.pop_front() {
            return Next::Request(attempt);
        }
        if self.hosts.is_closing() {
            state.workers -= 1;
            return Next::Leave;
        }
        let (give, given) = oneshot::channel();
        let since = Instant::now();
        state.idle.push(Idle { give, since });
        self.look_at(state, since + IDLE_TIMEOUT);
        Next::Wait(given)
    }

    /// Whether a worker whose connection ended, or that could not connect, shall connect again: since when
    /// it does; `None`: it is gone.
    pub(super) fn connects_again(self: &Arc<Self>) -> Option<Instant> {
        let mut state = self.state.lock();
        let now = Instant::now();
        if state.wants_connection(now) {
            state.connecting.push(now);
            return Some(now);
        }
        state.workers -= 1;
        self.serve_queue(&mut state);
        None
    }

    /// A worker could not connect. Returns the attempt that fails for it: the first, if it has waited since
    /// the worker `began`, waits for no HTTP/2 connection, and is too many for the workers that still connect.
    pub(super) fn not_connected(&self, began: Instant) -> Option<Token> {
        let mut state = self.state.lock();
        state.ended_connecting(began);
        let fails = !state.has_http2()
            && state.queue.len() > state.connecting.len()
            && state.queue.front().is_some_and(|attempt| attempt.queued <= began);
        if fails { state.queue.pop_front().map(|attempt| attempt.token) } else { None }
    }

    /// A worker has an HTTP/2 connection, and ends. Returns whether the host uses this connection:
    /// otherwise it has one.
    pub(super) fn connected_by_http2(self: &Arc<Self>, began: Instant, link: Http2) -> bool {
        let mut state = self.state.lock();
        state.workers -= 1;
        state.ended_connecting(began);
        let is_used = !(state.has_http2() || (self.hosts.is_closing() && state.queue.is_empty()));
        if state.is_http1 {
            state.is_http1 = false;
            self.hosts.has_http1(&self.origin, false);
        }
        if is_used {
            state.http2 = Some(link);
        }
        self.ended_stream(&mut state);
        is_used
    }

    /// The HTTP/2 connection ended, or takes more requests than before.
    pub(super) fn http2_changed(self: &Arc<Self>) {
        self.serve_queue(&mut self.state.lock());
    }

    /// The next attempt on the HTTP/2 connection after a request; `None` for the end.
    pub(super) fn next_stream(self: &Arc<Self>) -> Option<(Http2, Box<PendingRequest>)> {
        let mut state = self.state.lock();
        if !state.queue.is_empty()
            && let streams = state.streams
            && let Some(link) = state.http2_for(streams)
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
                self.look_at(state, now + IDLE_TIMEOUT);
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

    /// Ends the attempts that waited too long. Returns their outcomes, and the time of the next look; `None`
    /// if nothing waits.
    fn inspect(self: &Arc<Self>, now: Instant) -> (Vec<(Token, Outcome)>, Option<Instant>) {
        let mut state = self.state.lock();
        let mut over = Vec::new();
        // Attempts beside an HTTP/2 connection wait for that connection.
        let connecting = match (state.has_http2(), state.is_http1) {
            (true, _) => 0,
            (false, true) => state.connecting.len(),
            (false, false) => state.connecting.len() * MAX_REQUESTS_PER_HOST,
        };
        let takes_none = state.http2.as_ref().is_some_and(|link| link.room() == 0);
        let (mut position, mut next) = (0, None);
        let mut look_at = |at: Instant| next = Some(next.map_or(at, |next: Instant| next.min(at)));
        state.queue.retain(|attempt| {
            // A connection is being made for each of the first, or for all.
            let is_connecting = position < connecting;
            let end = if is_connecting { attempt.until } else { attempt.patience() };
            position += 1;
            if end > now {
                look_at(end.min(now + CHECK_INTERVAL));
                return true;
            }
            let outcome = match is_connecting {
                false if takes_none => outcome::of_no_stream(),
                false => outcome::of_full_host(),
                // This process was suspended.
                true if now > attempt.until + CHECK_INTERVAL => outcome::of_no_time(),
                true => outcome::of_unreachable(&format!("no connection within {:.3?}", now - attempt.begun)),
            };
            over.push((attempt.token, outcome));
            false
        });
        let old = state.idle.partition_point(|idle| idle.since + IDLE_TIMEOUT <= now);
        // Their workers close the connections.
        state.idle.drain(..old);
        if let Some(idle) = state.idle.first() {
            look_at(idle.since + IDLE_TIMEOUT);
        }
        if state.http2.is_some() && state.streams == 0 {
            match state.last_stream.map(|last| last + IDLE_TIMEOUT) {
                Some(at) if at > now && over.is_empty() => look_at(at),
                // Also where requests waited in vain, though the connection carries none.
                _ => state.http2 = None,
            }
        }
        state.upkeep = next;
        self.serve_queue(&mut state);
        (over, next)
    }
}

/// Ends attempts and connections that have waited too long.
async fn upkeep(host: Arc<Host>) {
    loop {
        let (over, next) = host.inspect(Instant::now());
        host.hosts.report(over);
        let Some(at) = next else { break };
        tokio::select! {
            () = sleep_until(at) => {}
            () = host.sooner.notified() => {}
        }
    }
    host.hosts.forget(&host);
}
