//! The reaper of a host: it ends requests and closes connections that have waited too long.

use std::sync::Arc;

use parking_lot::MutexGuard;
use tokio::time::{Instant, sleep_until};

use super::Host;
use super::state::{CHECK_INTERVAL, HostState, IDLE_TIMEOUT};
use crate::http::limits::MAX_REQUESTS_PER_HOST;
use crate::http::outcome;
use crate::{Outcome, Token};

impl Host {
    /// Makes the reaper run at this time, or before.
    pub(super) fn reap_at(self: &Arc<Self>, state: &mut MutexGuard<'_, HostState>, at: Instant) {
        match state.next_reap {
            None => {
                state.next_reap = Some(at);
                tokio::spawn(reap(Arc::clone(self)));
            }
            Some(next) if at < next => {
                state.next_reap = Some(at);
                self.sooner.notify_one();
            }
            Some(_) => {}
        }
    }

    /// Ends the attempts that waited too long. Returns their outcomes, and the time of the next
    /// look; `None` if nothing waits.
    fn inspect(self: &Arc<Self>, now: Instant) -> (Vec<(Token, Outcome)>, Option<Instant>) {
        let mut state = self.state.lock();
        let mut over = Vec::new();
        // Attempts beside an HTTP/2 connection wait for that connection.
        let connecting = match (state.has_http2(), state.is_http1) {
            (true, _) => 0,
            (false, true) => state.connecting.len(),
            (false, false) => state.connecting.len() * MAX_REQUESTS_PER_HOST,
        };
        let takes_none = state.http2.as_ref().is_some_and(|kept| kept.link.room() == 0);
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
                true => outcome::of_unreachable(&format!(
                    "no connection within {:.3?}",
                    now - attempt.begun
                )),
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
        state.next_reap = next;
        self.serve_queue(&mut state);
        (over, next)
    }
}

/// Ends attempts and connections that have waited too long.
async fn reap(host: Arc<Host>) {
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
