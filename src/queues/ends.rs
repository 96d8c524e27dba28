//! Ends the jobs of queues whose own end has come (`ttl` of lmstfy), whatever their state.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::clock;
use crate::fleet::Fleet;
use crate::store::Store;
use crate::store::error::StoreError;

/// How often a fleet of up to [`SMALL_FLEET`] instances looks: the delay of an end.
const LOOK: Duration = Duration::from_secs(1);
/// In a fleet of up to this size, each instance looks as often as a single one.
const SMALL_FLEET: u32 = 10;

/// The agent that ends jobs.
pub(super) struct Ends {
    store: Arc<Store>,
    fleet: watch::Receiver<Fleet>,
}

impl Ends {
    pub(super) fn new(store: Arc<Store>, fleet: watch::Receiver<Fleet>) -> Self {
        Ends { store, fleet }
    }

    /// Ends jobs until told to stop.
    pub(super) async fn run(&self, stop: &CancellationToken) {
        let buckets: Vec<u16> = (0..self.store.keys().buckets()).collect();
        loop {
            // In a cluster each bucket by itself, side by side: a master that hangs must not delay the
            // others.
            let at_once = if self.store.is_cluster() { 1 } else { buckets.len() };
            for result in join_all(buckets.chunks(at_once).map(|some| self.look(some))).await {
                if let Err(error) = result {
                    tracing::debug!(%error, "jobs past their end could not be ended, trying again");
                }
            }
            let pause = self.fleet.borrow().shared(LOOK / SMALL_FLEET).max(LOOK);
            tokio::select! {
                () = stop.cancelled() => return,
                () = clock::sleep(pause) => {}
            }
        }
    }

    async fn look(&self, buckets: &[u16]) -> Result<(), StoreError> {
        let queue = &self.store.queue;
        let mut result = Ok(());
        for (bucket, look) in buckets.iter().zip(queue.look_at_ends(buckets).await?) {
            // A bucket that fails does not stop the others.
            if look.has_ended {
                result = result.and(queue.end_jobs(*bucket).await);
            }
            if look.is_crowded {
                result = result.and(queue.forget_ends(*bucket).await);
            }
        }
        result
    }
}
