//! One host: its requests that wait, and its connections.

mod pending_request;
mod reaper;
mod state;
mod worker;

use std::sync::Arc;

use http::Uri;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, OwnedSemaphorePermit, oneshot};
use tokio::time::Instant;

pub(in crate::http) use self::pending_request::PendingRequest;
use self::state::{HostState, IDLE_TIMEOUT, Idle, KeptHttp2, SLOW_CONNECT_TIME};
use super::Hosts;
use crate::Token;
use crate::http::http2::Http2;
use crate::http::limits::MAX_REQUESTS_PER_HOST;

/// A host that has requests or connections.
pub(super) struct Host {
    pub(super) hosts: Arc<Hosts>,
    pub(super) origin: Arc<str>,
    /// The URI to connect to.
    pub(super) uri: Uri,
    state: Mutex<HostState>,
    /// An attempt waits whose time ends before the reaper runs again.
    sooner: Notify,
}

/// The next step of a worker.
pub(super) enum Next {
    Request(Box<PendingRequest>),
    /// Wait for an attempt, with the permit until then, or until the connection is closed.
    Wait(oneshot::Receiver<Box<PendingRequest>>, OwnedSemaphorePermit),
    Leave,
}

impl Host {
    /// `is_http1`: the host is known to have HTTP/1.1 alone.
    pub(super) fn new(hosts: Arc<Hosts>, origin: Arc<str>, uri: Uri, is_http1: bool) -> Self {
        let state = Mutex::new(HostState { is_http1, ..HostState::default() });
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
        while let Some(Idle { give, .. }) =
            state.idle.pop_if(|idle| now < idle.since + IDLE_TIMEOUT)
        {
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
            self.reap_at(&mut state, patience.min(Instant::now() + SLOW_CONNECT_TIME));
        }
    }

    /// Starts workers for the queue, as far as the host has slots.
    fn serve_queue(self: &Arc<Self>, state: &mut MutexGuard<'_, HostState>) {
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

    fn next_of(self: &Arc<Self>, state: &mut MutexGuard<'_, HostState>) -> Next {
        if let Some(attempt) = state.queue.pop_front() {
            return Next::Request(attempt);
        }
        let Some(permit) = self.hosts.idle_permit() else {
            state.workers -= 1;
            return Next::Leave;
        };
        let (give, given) = oneshot::channel();
        let since = Instant::now();
        state.idle.push(Idle { give, since });
        self.reap_at(state, since + IDLE_TIMEOUT);
        Next::Wait(given, permit)
    }

    /// Whether a worker whose connection ended, or that could not connect, shall connect again:
    /// since when it does; `None`: it is gone.
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

    /// A worker could not connect. Returns the attempt that fails for it: the first, if it has
    /// waited since the worker `began`, waits for no HTTP/2 connection, and is too many for the
    /// workers that still connect.
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
            state.http2 = Some(KeptHttp2 { link, idle: None });
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

    fn ended_stream(self: &Arc<Self>, state: &mut MutexGuard<'_, HostState>) {
        self.serve_queue(state);
        let now = Instant::now();
        state.last_stream = Some(now);
        if state.streams == 0
            && let Some(kept) = &mut state.http2
        {
            kept.idle = kept.idle.take().or_else(|| self.hosts.idle_permit());
            // One that takes no requests is not idle while some wait for it.
            if kept.idle.is_none() && state.queue.is_empty() {
                state.http2 = None;
            } else {
                self.reap_at(state, now + IDLE_TIMEOUT);
            }
        }
    }
}
