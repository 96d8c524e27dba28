//! Removes the entries that a bucket may forget: dead jobs of brokers past their retention, and
//! remembered outcomes. The rules are the namespace's.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::clock;
use crate::fleet::Fleet;
use crate::store::Store;
use crate::store::error::StoreError;
use crate::store::meta::SweepRules;

/// The interval between sweeps of buckets, which a larger fleet spreads.
const SWEEP_INTERVAL: Duration = Duration::from_secs(30);

/// What applies where the namespace has no rules.
#[derive(Debug, Clone, Copy)]
pub enum RetentionOptions {
    /// The rules that it had before, else the defaults. They are not stored.
    Defaults,
    /// The rules of the settings, which the namespace keeps from then on.
    Settings {
        /// The rules.
        own: SweepRules,
        /// Told when the namespace is found to have others.
        differ: fn(kept: SweepRules, own: SweepRules),
    },
}

/// The agent that sweeps the buckets.
pub struct Retention {
    store: Arc<Store>,
    options: RetentionOptions,
    /// The rules that the namespace keeps, which apply; `None` until they are read.
    kept: Mutex<Option<SweepRules>>,
    fleet: watch::Receiver<Fleet>,
}

impl Retention {
    /// Makes an agent; [`Retention::run`] starts it.
    #[must_use]
    pub fn new(
        store: Arc<Store>,
        options: RetentionOptions,
        fleet: watch::Receiver<Fleet>,
    ) -> Self {
        Retention { store, options, kept: Mutex::default(), fleet }
    }

    /// Sweeps until told to stop.
    pub async fn run(self, stop: CancellationToken) {
        loop {
            if let Err(error) = self.run_once().await
                && !error.is_told()
            {
                tracing::warn!(%error, hint = error.hint, "sweeping failed, trying again");
            }
            let pause = self.fleet.borrow().spread(SWEEP_INTERVAL);
            tokio::select! {
                () = stop.cancelled() => return,
                () = clock::sleep(pause) => {}
            }
        }
    }

    /// One pass over all buckets. First makes a namespace again that Redis lost: new instances and
    /// commands look for it.
    pub async fn run_once(&self) -> Result<(), StoreError> {
        let mut result = self.store.rejoin().await;
        result = result.and(self.follow().await);
        // The retention of the settings may be shorter than the namespace's: nothing is removed by
        // the settings.
        let Some(rules) = *self.kept.lock() else { return result };
        for bucket in 0..self.store.keys().buckets() {
            // A bucket that fails (damage, a shard that is down) does not stop the sweep of the
            // others.
            result = result.and(self.sweep(bucket, rules).await);
        }
        result
    }

    /// Reads the rules of the namespace, and tells where the settings differ.
    async fn follow(&self) -> Result<(), StoreError> {
        let RetentionOptions::Settings { own, differ } = self.options else {
            let known = self.kept.lock().unwrap_or(SweepRules::DEFAULT);
            let kept = self.store.admin.rules_or(known).await?;
            *self.kept.lock() = Some(kept);
            return Ok(());
        };
        let kept = self.store.admin.keep(own).await?;
        let before = self.kept.lock().replace(kept);
        if before != Some(kept) && (before.is_some() || kept != own) {
            differ(kept, own);
        }
        Ok(())
    }

    async fn sweep(&self, bucket: u16, rules: SweepRules) -> Result<(), StoreError> {
        loop {
            let swept = self.store.admin.sweep(bucket, rules).await?;
            if swept.master_changed {
                tracing::warn!(
                    bucket,
                    "redis failed over or restarted: writes that were not replicated or fsynced are lost"
                );
            }
            if swept.dead == 0 {
                return Ok(());
            }
        }
    }
}
