//! Ends the jobs of queues whose own end has come (`ttl` of lmstfy), whatever their state, and the
//! jobs that wait past their expiry, where nobody claims or pops them.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::clock;
use crate::events::Observer;
use crate::fleet::Fleet;
use crate::policy::late::LateRules;
use crate::store::Store;
use crate::store::error::StoreError;

/// The interval between looks where jobs may have an end of their own.
pub const ENDS_INTERVAL: Duration = Duration::from_secs(1);
/// The interval between looks where jobs may only have an expiry: half of the longest time until a
/// job that nobody takes is dead.
pub const EXPIRY_INTERVAL: Duration = Duration::from_secs(30);
/// The most buckets that are worked on at once.
const CONCURRENT_BUCKETS: usize = 16;

/// The options of the expiry.
pub struct ExpiryOptions {
    /// The interval between looks, which a larger fleet spreads: the delay of an end.
    pub interval: Duration,
    /// The rules for late jobs that do not set their own.
    pub late: LateRules,
    /// Told of deaths and drops.
    pub observer: Arc<dyn Observer>,
}

/// The agent that ends jobs.
pub struct Expiry {
    store: Arc<Store>,
    options: ExpiryOptions,
    fleet: watch::Receiver<Fleet>,
}

impl Expiry {
    /// Makes an agent; [`Expiry::run`] starts it.
    #[must_use]
    pub fn new(store: Arc<Store>, options: ExpiryOptions, fleet: watch::Receiver<Fleet>) -> Self {
        Expiry { store, options, fleet }
    }

    /// Ends jobs until told to stop.
    pub async fn run(self, stop: CancellationToken) {
        let buckets: Vec<u16> = (0..self.store.keys().buckets()).collect();
        // In a cluster each bucket by itself: a master that hangs must not delay the others.
        let at_once = if self.store.is_cluster() { 1 } else { buckets.len() };
        join_all(buckets.chunks(at_once).map(|some| self.run_on(some, &stop))).await;
    }

    async fn run_on(&self, buckets: &[u16], stop: &CancellationToken) {
        loop {
            if let Err(error) = self.look(buckets).await {
                tracing::debug!(%error, "jobs past their end could not be ended, trying again");
            }
            let pause = self.fleet.borrow().spread(self.options.interval);
            tokio::select! {
                () = stop.cancelled() => return,
                () = clock::sleep(pause) => {}
            }
        }
    }

    async fn look(&self, buckets: &[u16]) -> Result<(), StoreError> {
        let (jobs, ExpiryOptions { late, observer, .. }) = (&self.store.jobs, &self.options);
        let looks = jobs.look_at_ends(buckets).await?;
        let busy = buckets
            .iter()
            .copied()
            .zip(looks)
            .filter(|(_, look)| look.has_ended || look.is_crowded);
        // A bucket that fails, or has many ends, does not stop the others.
        let ends = busy.map(|(bucket, look)| async move {
            if look.has_ended {
                jobs.end_jobs(bucket, *late, &**observer).await?;
            }
            if look.is_crowded { jobs.forget_ends(bucket).await } else { Ok(()) }
        });
        let ended: Vec<Result<(), StoreError>> =
            stream::iter(ends).buffer_unordered(CONCURRENT_BUCKETS).collect().await;
        ended.into_iter().collect()
    }
}
