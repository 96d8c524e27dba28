//! `sweep`: what a bucket may forget, and the rules of it, which the namespace keeps. The verdict of
//! a cancel depends on it.

use crate::store::admin::Admin;
use crate::store::answer::Items;
use crate::store::error::StoreError;
use crate::store::meta;
use crate::store::queue::schedule::CALL_JOBS;
use crate::store::scripts::Name;

/// How long one generation of `acts` is filled, ms. An entry lives for one to two of these turns.
pub(super) const ACTS_TURN_MS: u64 = 24 * 3_600_000;

/// The result of a `sweep`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Dead jobs that were removed after their retention.
    pub dead: u64,
    /// Tables of completed jobs and applied requests that were rotated.
    pub turned: u64,
    /// Since the last sweep of the bucket, the master was replaced or restarted.
    pub master_changed: bool,
}

/// The settings of `sweep`, kept in the namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SweepRules {
    /// How long dead jobs are kept, ms.
    pub dead_retention_ms: u64,
    /// How long a completed job is remembered, ms.
    pub dedupe_window_ms: u64,
}

impl Admin {
    /// Stores these rules if the namespace has none, and answers the rules of the namespace.
    pub async fn keep(&self, own: SweepRules) -> Result<SweepRules, StoreError> {
        meta::keep(&self.namespace.link, &self.namespace.keys, own).await
    }

    /// Removes expired entries of this bucket and records its current master. The verdict of a
    /// cancel depends on when the master last changed.
    pub async fn sweep(&self, bucket: u16, rules: SweepRules) -> Result<Swept, StoreError> {
        let mut call = self.namespace.script_call(Name::Sweep, bucket, &[]);
        call.arg(rules.dead_retention_ms).arg(rules.dedupe_window_ms).arg(ACTS_TURN_MS).arg(CALL_JOBS);
        let mut items = Items::new("sweep", self.namespace.call(Name::Sweep, &call).await?)?;
        let number = |number: i64| u64::try_from(number).unwrap_or(0);
        Ok(Swept { dead: number(items.int()?), turned: number(items.int()?), master_changed: items.int()? == 1 })
    }
}
