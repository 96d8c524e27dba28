//! The instances of a namespace: who lives, who reads which bucket first, and how new heads reach every reader.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::clock;
use crate::config::Redis;
use crate::reconnect::Backoff;
use crate::store::Store;
use crate::store::fleet::listen;
use crate::store::inbound::Head;

/// How often an instance beats. Well under the 10 s after which it counts as silent.
const BEAT: Duration = Duration::from_secs(3);
/// The floor poll of a single instance; a fleet of n polls n times more rarely each, so that Redis sees the same.
const FLOOR_POLL: Duration = Duration::from_millis(250);

/// The living instances as this one sees them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fleet {
    me: Arc<str>,
    living: Vec<String>,
}

impl Fleet {
    /// This instance alone.
    #[must_use]
    pub fn alone(me: &str) -> Self {
        Fleet { me: me.into(), living: vec![me.to_owned()] }
    }

    /// How many live, this one included.
    #[must_use]
    pub fn count(&self) -> usize {
        self.living.len()
    }

    /// Per bucket whether this instance reads it first: rendezvous hashing, so that a change of the fleet moves as few buckets as can be.
    #[must_use]
    pub fn preferred(&self, buckets: u16) -> Vec<bool> {
        (0..buckets)
            .map(|bucket| {
                let weight = |name: &str| {
                    let mut hasher = blake3::Hasher::new();
                    hasher.update(name.as_bytes()).update(&bucket.to_le_bytes());
                    *hasher.finalize().as_bytes()
                };
                self.living.iter().max_by_key(|name| weight(name)).is_none_or(|reader| **reader == *self.me)
            })
            .collect()
    }

    /// How often each instance does what the fleet as a whole is to do so often.
    #[must_use]
    pub fn shared(&self, every: Duration) -> Duration {
        every.saturating_mul(u32::try_from(self.living.len().max(1)).unwrap_or(u32::MAX))
    }

    /// How long a bucket may go without a look.
    #[must_use]
    pub fn floor_poll(&self) -> Duration {
        self.shared(FLOOR_POLL)
    }
}

/// Where new heads go: to the dispatchers of this process, and to the other instances.
#[derive(Clone)]
pub struct Heads {
    dispatchers: Arc<HashMap<String, mpsc::UnboundedSender<Head>>>,
    store: Arc<Store>,
    fleet: watch::Receiver<Fleet>,
}

impl Heads {
    /// For the dispatchers of these brokers.
    #[must_use]
    pub fn new(store: Arc<Store>, dispatchers: HashMap<String, mpsc::UnboundedSender<Head>>, fleet: watch::Receiver<Fleet>) -> Self {
        Heads { dispatchers: Arc::new(dispatchers), store, fleet }
    }

    /// Wakes the dispatcher of this process.
    pub fn wake_own(&self, head: Head) {
        if let Some(dispatcher) = self.dispatchers.get(&head.broker) {
            // A dispatcher that ended needs no wake-up.
            let _ = dispatcher.send(head);
        }
    }

    /// Wakes the dispatchers of this process, and the other instances where there are any. For a broker that this process does not deliver to
    /// there must be: an instance that delivers nothing does not follow who lives.
    pub async fn wake(&self, heads: Vec<Head>) {
        let others = self.fleet.borrow().count() > 1;
        let foreign: Vec<Head> = heads.iter().filter(|head| others || !self.dispatchers.contains_key(&head.broker)).cloned().collect();
        if let Err(error) = self.store.wake_others(&foreign).await {
            tracing::debug!(%error, "wake-ups were not sent, the floor poll of the others finds the jobs");
        }
        heads.into_iter().for_each(|head| self.wake_own(head));
    }
}

/// Beats for this instance and follows who lives, until told to stop; then leaves.
pub async fn beat(store: Arc<Store>, fleet: watch::Sender<Fleet>, stop: CancellationToken) {
    let me = fleet.borrow().me.clone();
    loop {
        match store.beat(&me).await {
            Ok(living) => {
                fleet.send_if_modified(|fleet| {
                    let changed = fleet.living != living;
                    if changed {
                        tracing::info!(instances = living.len(), "the fleet changed");
                        fleet.living = living;
                    }
                    changed
                });
            }
            Err(error) => tracing::debug!(%error, "no heartbeat"),
        }
        tokio::select! {
            () = stop.cancelled() => break,
            () = clock::sleep(BEAT) => {}
        }
    }
    if let Err(error) = store.leave(&me).await {
        tracing::debug!(%error, "the others will notice by our silence");
    }
}

/// Listens for the wake-ups of other instances until told to stop.
pub async fn hear(settings: Redis, channel: String, heads: Heads, stop: CancellationToken) {
    let mut backoff = Backoff::link();
    loop {
        let heard = |head| heads.wake_own(head);
        tokio::select! {
            () = stop.cancelled() => return,
            ended = listen(&settings, &channel, heard) => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "not listening for wake-ups, trying again");
                }
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = clock::sleep(backoff.pause()) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bucket_has_exactly_one_preferred_reader_and_few_move() {
        let names: Vec<String> = (0..4).map(|n| format!("instance-{n}")).collect();
        let readers = |living: &[String]| -> Vec<usize> {
            let of: Vec<Vec<bool>> =
                living.iter().map(|me| Fleet { me: me.as_str().into(), living: living.to_vec() }.preferred(64)).collect();
            (0..64)
                .map(|bucket| {
                    let mine: Vec<usize> = (0..living.len()).filter(|n| of[*n][bucket]).collect();
                    assert_eq!(mine.len(), 1, "bucket {bucket}");
                    mine[0]
                })
                .collect()
        };
        let (four, three) = (readers(&names), readers(&names[..3]));
        for bucket in 0..64 {
            assert!(four[bucket] == three[bucket] || four[bucket] == 3, "only the buckets of the one that left may move");
        }
        assert!((0..4).all(|n| four.iter().filter(|reader| **reader == n).count() >= 6), "{four:?}");
    }

    #[test]
    fn a_larger_fleet_polls_more_rarely_each() {
        let fleet = Fleet { me: "a".into(), living: vec!["a".to_owned(), "b".to_owned()] };
        assert_eq!(fleet.floor_poll(), 2 * FLOOR_POLL);
    }
}
