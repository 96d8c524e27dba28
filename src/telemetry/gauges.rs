//! The age of the gauges that are counted in the store. A scrape that finds them old has them
//! counted again.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::clock::{self, Instant};

/// Older gauges are counted again before a scrape reads them, so that none is older than five
/// seconds.
const GAUGE_TTL: Duration = Duration::from_secs(4);
/// The longest wait of scrapes for new gauges, all together. After that they get the old ones.
const MAX_SCRAPE_WAIT: Duration = Duration::from_secs(1);

/// The time of the last count of the gauges, and the wait of scrapes for new ones.
#[derive(Debug, Clone, Default)]
pub struct Gauges(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// When they were last counted. Also sent when counting failed.
    counted: watch::Sender<Option<Instant>>,
    /// When the current wait ends.
    wait_ends: Mutex<Option<Instant>>,
    wanted: Notify,
}

impl Gauges {
    /// Waits until a scrape wants new gauges.
    pub async fn wanted(&self) {
        self.0.wanted.notified().await;
    }

    /// The gauges were counted, or could not be.
    pub fn tried(&self, has_counted: bool) {
        *self.0.wait_ends.lock() = None;
        self.0.counted.send_modify(|counted| {
            if has_counted {
                *counted = Some(clock::now());
            }
        });
    }

    /// Waits for new gauges if these are old. Returns at once if none were ever counted: then the
    /// store is not open yet.
    pub async fn fresh(&self) {
        let mut counted = self.0.counted.subscribe();
        let last = *counted.borrow_and_update();
        if last.is_some_and(|last| clock::now().duration_since(last) > GAUGE_TTL) {
            let until =
                *self.0.wait_ends.lock().get_or_insert_with(|| clock::now() + MAX_SCRAPE_WAIT);
            self.0.wanted.notify_one();
            // The sender lives in `self`.
            let _ =
                clock::timeout(until.saturating_duration_since(clock::now()), counted.changed())
                    .await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_what_is_old_is_waited_for_and_not_for_ever() {
        let gauges = Gauges::default();
        let waited = async |gauges: &Gauges| {
            let begun = clock::now();
            gauges.fresh().await;
            clock::now().duration_since(begun)
        };
        assert_eq!(waited(&gauges).await, Duration::ZERO, "the store is not open yet");
        gauges.tried(true);
        clock::sleep(GAUGE_TTL).await;
        assert_eq!(waited(&gauges).await, Duration::ZERO);
        clock::sleep(Duration::from_millis(1)).await;
        assert!(waited(&gauges).await >= MAX_SCRAPE_WAIT, "nobody counts");
        assert_eq!(waited(&gauges).await, Duration::ZERO, "the wait has ended once");
        gauges.tried(false);
        let counting = async {
            gauges.wanted().await;
            clock::sleep(MAX_SCRAPE_WAIT / 2).await;
            gauges.tried(false);
        };
        let (waited, ()) = tokio::join!(waited(&gauges), counting);
        assert!(waited < MAX_SCRAPE_WAIT, "a failure ends the wait: {waited:?}");
    }
}
