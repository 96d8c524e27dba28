//! `sweep` removes the entries that a bucket may forget, by rules that the namespace keeps. The
//! verdict of a cancel depends on it.

use crate::store::admin::Admin;
use crate::store::answer::Items;
use crate::store::call::CALL_JOBS;
use crate::store::due_set::DueSet;
use crate::store::error::StoreError;
use crate::store::meta::{self, SweepRules};
use crate::store::scripts::Name;

/// The time for which one generation of `applied` is filled, ms. An entry lives for one to two of
/// these times.
pub(super) const APPLIED_ROTATION_MS: u64 = 24 * 3_600_000;

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

impl Admin {
    /// Stores these rules if the namespace has none, and answers the rules of the namespace.
    pub async fn keep(&self, own: SweepRules) -> Result<SweepRules, StoreError> {
        meta::keep(&self.namespace.link, &self.namespace.keys, own).await
    }

    /// The rules of the namespace, with rules of `own` in place of missing ones. Stores nothing.
    pub async fn rules_or(&self, own: SweepRules) -> Result<SweepRules, StoreError> {
        Ok(meta::read_as(&self.namespace.link, &self.namespace.keys).await?.rules_or(own))
    }

    /// Removes dead jobs of a queue in this bucket past its retention, ms. Returns their number.
    pub async fn sweep_queue(
        &self,
        bucket: u16,
        queue: &str,
        dead_retention_ms: u64,
    ) -> Result<u64, StoreError> {
        let mut call =
            self.namespace.script_call(Name::Sweep, bucket, &[DueSet::Queue(queue).to_string()]);
        call.arg(dead_retention_ms).arg(0).arg(0).arg(CALL_JOBS);
        let mut items = Items::new("sweep", self.namespace.call(&call).await?)?;
        items.int().map(|dead| u64::try_from(dead).unwrap_or(0))
    }

    /// For each of these queues, whether it has jobs in this bucket that died by its given time,
    /// epoch ms.
    pub async fn with_old_dead(
        &self,
        bucket: u16,
        queues: &[(String, i64)],
    ) -> Result<Vec<bool>, StoreError> {
        let mut pipeline = redis::Pipeline::new();
        for (queue, by_ms) in queues {
            let key = self.namespace.keys.dead_of(bucket, &DueSet::Queue(queue).to_string());
            pipeline.cmd("ZCOUNT").arg(key).arg("-inf").arg(by_ms);
        }
        if pipeline.is_empty() {
            return Ok(Vec::new());
        }
        let answers = self.namespace.link.pipeline("counting old dead jobs", &pipeline).await?;
        Ok(answers.into_iter().map(|count| !matches!(count, redis::Value::Int(0))).collect())
    }

    /// Removes expired entries of this bucket and records its current master. The verdict of a
    /// cancel depends on when the master last changed.
    pub async fn sweep(&self, bucket: u16, rules: SweepRules) -> Result<Swept, StoreError> {
        let mut call = self.namespace.script_call(Name::Sweep, bucket, &[]);
        call.arg(rules.dead_retention_ms)
            .arg(rules.dedupe_window_ms)
            .arg(APPLIED_ROTATION_MS)
            .arg(CALL_JOBS);
        let mut items = Items::new("sweep", self.namespace.call(&call).await?)?;
        let number = |number: i64| u64::try_from(number).unwrap_or(0);
        Ok(Swept {
            dead: number(items.int()?),
            turned: number(items.int()?),
            master_changed: items.int()? == 1,
        })
    }
}
