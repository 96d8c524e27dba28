//! The hold of a job past its TTR, which `fsck` ends.

use redis::Value;

use crate::policy::{Fate, lease};
use crate::store::admin::fsck::{Fsck, bytes};
use crate::store::call::time::Time;
use crate::store::due_set::DueSet;
use crate::store::error::StoreError;
use crate::store::jobs::settle::failed;
use crate::store::record::{self, StateRecord};
use crate::store::scripts::Name;

impl Fsck<'_> {
    /// Ends a hold after its TTR, as `rescue` does, unless an instance was faster. `state`: as
    /// checked.
    pub(super) async fn end_hold(
        &self,
        bucket: u16,
        id: &[u8],
        state: &[u8],
    ) -> Result<bool, StoreError> {
        let answer = self
            .store
            .link
            .command("HGET", redis::cmd("HGET").arg(self.store.keys.jobs(bucket)).arg(id))
            .await?;
        let (Ok(record), Ok(held)) =
            (record::decode(bytes(answer).unwrap_or_default().into()), StateRecord::decode(state))
        else {
            return Ok(false);
        };
        let (job, now_ms) = (&record.job, self.store.now_ms());
        let fate = lease::unfinished(job, held.progress(), &self.rules.retry_ms, now_ms);
        let (wait_ms, dies, error) = match fate {
            Fate::Retry { wait_ms, error } => (wait_ms, None, error),
            Fate::Die { reason, error, .. } | Fate::Bury { reason, error } => {
                (0, Some(reason), error)
            }
            Fate::Release { .. } | Fate::Drop => return Ok(false),
        };
        let failed = failed(held, dies, &error);
        let mut call =
            self.store.script_call(Name::FsckHold, bucket, &[DueSet::of(&record.job).to_string()]);
        call.arg(id).arg(state).arg(Time::In(wait_ms)).arg(failed.encode());
        Ok(self.store.call(&call).await? == Value::Int(1))
    }
}
