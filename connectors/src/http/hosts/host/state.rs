//! The state of a host: the requests that wait, and what its connections do.

use std::collections::VecDeque;

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::{Duration, Instant};

use super::pending_request::PendingRequest;
use crate::http::http2::Http2;

/// A connection without requests is closed after this time, before common servers close theirs (5 s
/// is Node's and uvicorn's default): a request on a connection that is being closed has no answer.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(4);
/// The longest interval between two looks at the waiting requests.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// A connection that takes longer to be made may never be: another is made beside it.
pub(super) const SLOW_CONNECT_TIME: Duration = CHECK_INTERVAL;

#[derive(Default)]
pub(super) struct HostState {
    /// Attempts that no link carries, in the order in which they came.
    pub(super) queue: VecDeque<Box<PendingRequest>>,
    /// HTTP/1.1 connections without a request, the last used last.
    pub(super) idle: Vec<Idle>,
    /// Workers with an HTTP/1.1 connection, and those that connect.
    pub(super) workers: usize,
    /// Since when each worker connects that does.
    pub(super) connecting: Vec<Instant>,
    /// Each connection carries one request: as many are made as requests wait. Else one connection
    /// is made for all, which is HTTP/2, or tells that the host has HTTP/1.1 alone; and one more
    /// when those before are [`SLOW_CONNECT_TIME`].
    pub(super) is_http1: bool,
    pub(super) http2: Option<KeptHttp2>,
    /// Requests on the HTTP/2 connection, and the end of the last one.
    pub(super) streams: usize,
    pub(super) last_stream: Option<Instant>,
    /// When the reaper runs again; `None`: it does not run.
    pub(super) next_reap: Option<Instant>,
}

pub(super) struct Idle {
    pub(super) give: oneshot::Sender<Box<PendingRequest>>,
    pub(super) since: Instant,
}

/// The HTTP/2 connection of a host.
pub(super) struct KeptHttp2 {
    pub(super) link: Http2,
    /// Of a connection without a request.
    pub(super) idle: Option<OwnedSemaphorePermit>,
}

impl HostState {
    /// Connections that are up, and requests on the HTTP/2 connection: the host has at most one
    /// request for each.
    pub(super) fn in_use(&self) -> usize {
        self.workers - self.connecting.len() + self.streams
    }

    /// Whether the attempts that wait are worth another connection.
    pub(super) fn wants_connection(&mut self, now: Instant) -> bool {
        // Beside an HTTP/2 connection no other is needed, and no attempt would pay for failures to
        // connect.
        !self.has_http2()
            && self.connecting.len() < self.queue.len()
            && (self.is_http1
                || self.connecting.iter().all(|began| *began + SLOW_CONNECT_TIME <= now))
    }

    /// The worker that `began` to connect then does so no more.
    pub(super) fn ended_connecting(&mut self, began: Instant) {
        if let Some(position) = self.connecting.iter().position(|other| *other == began) {
            self.connecting.swap_remove(position);
        }
    }

    pub(super) fn is_unused(&self) -> bool {
        self.queue.is_empty()
            && self.workers == 0
            && self.streams == 0
            && self.http2.is_none()
            && self.next_reap.is_none()
    }

    /// Whether the HTTP/2 connection takes requests. Forgets one that has ended.
    pub(super) fn has_http2(&mut self) -> bool {
        self.http2.take_if(|kept| kept.link.is_closed());
        self.http2.is_some()
    }

    /// The HTTP/2 connection for a request, if it takes this many at a time.
    pub(super) fn http2_for(&mut self, streams: usize) -> Option<Http2> {
        self.has_http2();
        let kept = self.http2.as_mut().filter(|kept| streams <= kept.link.room())?;
        kept.idle = None;
        Some(kept.link.clone())
    }
}
