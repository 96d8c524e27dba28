//! The last event of `GET /v1/events`, shared by all its listeners.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::clock;

/// How often Redis is asked.
const INTERVAL: Duration = Duration::from_secs(1);
/// The most listeners: each holds a connection.
pub(super) const LISTENERS_MAX: usize = 64;

/// The name and the data of an event; `None` before the first one.
pub(super) type LastEvent = Option<(&'static str, Arc<str>)>;

/// The events of one instance.
pub(super) struct Feed {
    last: watch::Sender<LastEvent>,
    is_polled: Mutex<bool>,
    stop: CancellationToken,
}

impl Feed {
    /// `stop` ends all streams.
    pub(super) fn new(stop: CancellationToken) -> Self {
        Feed { last: watch::Sender::new(None), is_polled: Mutex::new(false), stop }
    }

    /// Adds a listener, and returns whether the caller must start to poll; `None` where too many
    /// listen.
    pub(super) fn subscribe(&self) -> Option<(watch::Receiver<LastEvent>, bool)> {
        if self.last.receiver_count() >= LISTENERS_MAX {
            return None;
        }
        let mut is_polled = self.is_polled.lock();
        let mut receiver = self.last.subscribe();
        // The last event is new to this listener.
        receiver.mark_changed();
        Some((receiver, !std::mem::replace(&mut *is_polled, true)))
    }

    /// Whether to poll again. If not, the next listener starts to poll.
    pub(super) fn is_wanted(&self) -> bool {
        let mut is_polled = self.is_polled.lock();
        *is_polled = self.last.receiver_count() > 0 && !self.stop.is_cancelled();
        if !*is_polled {
            // The next listener must not get an old event.
            self.last.send_replace(None);
        }
        *is_polled
    }

    pub(super) fn send(&self, name: &'static str, data: String) {
        self.last.send_replace(Some((name, data.into())));
    }

    /// Waits until the next poll.
    pub(super) async fn pause(&self) {
        self.stop.run_until_cancelled(clock::sleep(INTERVAL)).await;
    }

    /// The token that ends all streams.
    pub(super) fn stop(&self) -> CancellationToken {
        self.stop.clone()
    }
}
