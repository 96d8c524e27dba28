//! The last event of `GET /v1/events`, shared by all its listeners.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::clock;

/// The interval between two reads of Redis.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The most listeners: each holds a connection.
pub(super) const MAX_LISTENERS: usize = 64;

/// The name and the data of an event.
pub(super) type SharedEvent = (&'static str, Arc<str>);
/// The number and the event of a round; `None` before the first one.
pub(super) type LastEvent = Option<(u64, SharedEvent)>;

/// The events of one instance.
pub(super) struct Feed {
    last: watch::Sender<LastEvent>,
    rounds: AtomicU64,
    /// By token with only some queues: its last event. The settings bound the number.
    own: Mutex<HashMap<String, Arc<tokio::sync::Mutex<LastEvent>>>>,
    is_polled: Mutex<bool>,
    stop: CancellationToken,
}

impl Feed {
    /// `stop` ends all streams.
    pub(super) fn new(stop: CancellationToken) -> Self {
        Feed {
            last: watch::Sender::new(None),
            rounds: AtomicU64::new(0),
            own: Mutex::default(),
            is_polled: Mutex::new(false),
            stop,
        }
    }

    /// Adds a listener, and returns whether the caller must start to poll; `None` where too many
    /// listen.
    pub(super) fn subscribe(&self) -> Option<(watch::Receiver<LastEvent>, bool)> {
        if self.last.receiver_count() >= MAX_LISTENERS {
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
        let round = self.rounds.fetch_add(1, Ordering::Relaxed);
        self.last.send_replace(Some((round, (name, data.into()))));
    }

    /// The event of this round for the bearers of a token: the first one asks, for all of them.
    pub(super) async fn own(
        &self,
        token: &str,
        round: u64,
        ask: impl Future<Output = Option<(&'static str, String)>>,
    ) -> Option<SharedEvent> {
        let of_token = self.own.lock().entry(token.to_owned()).or_default().clone();
        let mut last = of_token.lock().await;
        if let Some((of, event)) = &*last
            && *of >= round
        {
            return Some(event.clone());
        }
        let (name, data) = ask.await?;
        let event: SharedEvent = (name, data.into());
        *last = Some((round, event.clone()));
        Some(event)
    }

    /// Waits until the next poll.
    pub(super) async fn pause(&self) {
        self.stop.run_until_cancelled(clock::sleep(POLL_INTERVAL)).await;
    }

    /// The token that ends all streams.
    pub(super) fn stop(&self) -> CancellationToken {
        self.stop.clone()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_listeners_of_a_token_share_what_one_of_them_asks() {
        let (feed, asked) = (Feed::new(CancellationToken::new()), AtomicU64::new(0));
        let (feed, asked) = (&feed, &asked);
        let listens = async |token: &str, round| {
            let ask = async {
                tokio::task::yield_now().await;
                Some(("stats", asked.fetch_add(1, Ordering::Relaxed).to_string()))
            };
            feed.own(token, round, ask).await.unwrap().1.to_string()
        };
        let (a, b, c) = tokio::join!(listens("shop", 0), listens("shop", 0), listens("till", 0));
        assert_eq!((a == b, a == c, asked.load(Ordering::Relaxed)), (true, false, 2));
        assert_eq!(
            (listens("shop", 1).await, listens("shop", 0).await, listens("shop", 1).await),
            ("2".into(), "2".into(), "2".into())
        );
        // This caller goes away before the answer.
        assert!(futures_util::FutureExt::now_or_never(listens("shop", 2)).is_none());
        assert_eq!(listens("shop", 2).await, "3");
    }
}
