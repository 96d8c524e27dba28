//! The time-out of held jobs whose TTR has passed without an acknowledgement.

use crate::store::answer::Items;
use crate::store::call::CALL_BYTES;
use crate::store::error::StoreError;
use crate::store::jobs::Jobs;
use crate::store::scripts::Name;

/// The most held jobs that one call looks at: the work per job is small.
pub(crate) const TIME_OUT_JOBS_PER_CALL: usize = 512;

/// The result of a `time_out`.
#[derive(Debug, Default)]
pub struct TimedOut {
    /// Redis's clock, epoch µs.
    pub now_us: i64,
    /// Sets of queues with timed-out jobs that the call did not name.
    pub left_out: Vec<String>,
    /// Sets of queues, each with the number of its jobs that are due again.
    pub ready: Vec<(String, u64)>,
}

impl Jobs {
    /// Makes held jobs of these queues due again after their TTR, if the record allows no other
    /// next step. `waits`: the number of waits of a job without a retry array. `until_ms`: jobs
    /// whose TTR ended later stay, epoch ms; without it the time of the call.
    pub async fn time_out(
        &self,
        bucket: u16,
        sets: &[String],
        waits: usize,
        until_ms: Option<i64>,
        error: &str,
    ) -> Result<TimedOut, StoreError> {
        let mut call = self.namespace.script_call(Name::TimeOut, bucket, sets);
        call.arg(TIME_OUT_JOBS_PER_CALL)
            .arg(CALL_BYTES)
            .arg(waits)
            .arg(error)
            .arg(until_ms.map_or_else(String::new, |ms| ms.to_string()));
        let mut items = Items::new(Name::TimeOut.as_str(), self.namespace.call(&call).await?)?;
        let mut done = TimedOut { now_us: items.int()?, ..TimedOut::default() };
        self.namespace.saw_clock(done.now_us);
        for _ in 0..items.int()? {
            done.left_out.push(items.text()?);
        }
        while items.left() > 0 {
            done.ready.push((items.text()?, u64::try_from(items.int()?).unwrap_or(0)));
        }
        Ok(done)
    }
}
