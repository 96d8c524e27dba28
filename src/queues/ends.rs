//! Ends the jobs of queues whose own end has come (`ttl` of lmstfy), whatever their state.

use std::sync::Arc;
use std::time::Duration;

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
/// One look in this many also removes entries of jobs that left before their end.
const TIDY: u32 = 10;

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
        let mut look = 0_u32;
        loop {
            if let Err(error) = self.run_once(look.is_multiple_of(TIDY)).await {
                tracing::debug!(%error, "jobs past their end could not be ended, trying again");
            }
            look = look.wrapping_add(1);
            let pause = self.fleet.borrow().shared(LOOK / SMALL_FLEET).max(LOOK);
            tokio::select! {
                () = stop.cancelled() => return,
                () = clock::sleep(pause) => {}
            }
        }
    }

    async fn run_once(&self, tidies: bool) -> Result<(), StoreError> {
        let buckets: Vec<u16> = (0..self.store.keys().buckets()).collect();
        // In a cluster, each bucket may have a master of its own.
        let at_once = if self.store.is_cluster() { 1 } else { buckets.len() };
        let mut result = Ok(());
        for some in buckets.chunks(at_once.max(1)) {
            match self.store.queue.has_ended(some).await {
                Ok(ended) => {
                    for (bucket, _) in some.iter().zip(ended).filter(|(_, has_ended)| *has_ended) {
                        // A bucket that fails does not stop the others.
                        result = result.and(self.store.queue.end_jobs(*bucket).await.map(|_| ()));
                    }
                }
                Err(error) => result = Err(error),
            }
        }
        for bucket in buckets.iter().filter(|_| tidies) {
            result = result.and(self.store.queue.forget_ends(*bucket).await);
        }
        result
    }
}
