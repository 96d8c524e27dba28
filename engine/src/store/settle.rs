//! The ways in which a lease ends: `complete`, `hold`, `release`, `retry`, `bury`.

use redis::Cmd;

use super::Store;
use super::answer::Items;
use super::error::{Class, StoreError};
use super::record::{self, Fence};
use super::scripts::Name;
use crate::job::{DeadReason, JobId};

/// What to settle: a job by its lease.
#[derive(Debug, Clone)]
pub struct LeaseToken {
    /// Whose.
    pub id: JobId,
    /// What proves the lease.
    pub fence: Fence,
    /// Of the message that scheduled it: tells it from another job of this id, for a `complete` that comes too late. Zeros where the record cannot be read.
    pub fingerprint: [u8; 8],
}

/// What became of a settle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettleResult {
    /// The lease stood: it is settled.
    Settled,
    /// Nothing changed: the lease is gone; and for a `complete`, the same job does not go on, as far as is known.
    Lost,
    /// Nothing changed, and the attempt that landed is not the last: the same job goes on, with somebody else or due again, or somebody else made it
    /// fire. Only `complete` says so.
    TakenOver,
}

/// How a job left for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completion {
    /// The broker confirmed it.
    Fired,
    /// It was too late for its `max_late`.
    Dropped,
}

/// A `release`: back to due.
#[derive(Debug, Clone)]
pub struct Release {
    /// Which job.
    pub job: LeaseToken,
    /// From now, ms.
    pub pause_ms: u64,
    /// No publish was made, for sure: the attempt does not count.
    pub unpublished: bool,
}

/// A `retry`: the attempt failed.
#[derive(Debug, Clone)]
pub struct Retry {
    /// Which job.
    pub job: LeaseToken,
    /// From now, ms.
    pub wait_ms: u64,
    /// No publish was made, for sure: the attempt does not count.
    pub unpublished: bool,
    /// It is to die for this reason: the next claim publishes it to the dead letters.
    pub dies: Option<DeadReason>,
    /// What went wrong.
    pub error: String,
}

/// A `bury`.
#[derive(Debug, Clone)]
pub struct Bury {
    /// Which job.
    pub job: LeaseToken,
    /// Why.
    pub reason: DeadReason,
    /// What went wrong last.
    pub error: String,
}

impl Store {
    /// The jobs are over. What became of each.
    pub async fn complete(&self, bucket: u16, jobs: &[LeaseToken], over: Completion) -> Result<Vec<SettleResult>, StoreError> {
        let mut call = self.script_call(Name::Complete, bucket, &[]);
        call.arg(match over {
            Completion::Fired => "f",
            Completion::Dropped => "d",
        });
        for job in jobs {
            call.arg(job.id.as_str()).arg([job.fence, job.fingerprint].as_flattened());
        }
        self.settle(Name::Complete, &call, jobs.len()).await
    }

    /// The jobs wait for their consumers' word, each for its ttr in ms. What became of each.
    pub async fn hold(&self, bucket: u16, jobs: &[(LeaseToken, u32)]) -> Result<Vec<SettleResult>, StoreError> {
        let mut call = self.script_call(Name::Hold, bucket, &[]);
        for (job, ttr_ms) in jobs {
            call.arg(job.id.as_str()).arg(&job.fence[..]).arg(ttr_ms);
        }
        self.settle(Name::Hold, &call, jobs.len()).await
    }

    /// The jobs go back to due of this broker, their step kept. What became of each.
    pub async fn release(&self, bucket: u16, broker: &str, jobs: &[Release]) -> Result<Vec<SettleResult>, StoreError> {
        let mut call = self.script_call(Name::Release, bucket, &[broker.to_owned()]);
        for release in jobs {
            call.arg(release.job.id.as_str()).arg(&release.job.fence[..]).arg(release.pause_ms).arg(u8::from(release.unpublished));
        }
        self.settle(Name::Release, &call, jobs.len()).await
    }

    /// The attempts failed: the jobs go back to due of this broker at the next step, or on their way to the dead letters.
    pub async fn retry(&self, bucket: u16, broker: &str, jobs: &[Retry]) -> Result<Vec<SettleResult>, StoreError> {
        let mut call = self.script_call(Name::Retry, bucket, &[broker.to_owned()]);
        for retry in jobs {
            call.arg(retry.job.id.as_str())
                .arg(&retry.job.fence[..])
                .arg(retry.wait_ms)
                .arg(u8::from(retry.unpublished))
                .arg(record::code_of_reason(retry.dies))
                .arg(record::short_error(&retry.error));
        }
        self.settle(Name::Retry, &call, jobs.len()).await
    }

    /// The jobs are dead.
    pub async fn bury(&self, bucket: u16, jobs: &[Bury]) -> Result<Vec<SettleResult>, StoreError> {
        let mut call = self.script_call(Name::Bury, bucket, &[]);
        for bury in jobs {
            call.arg(bury.job.id.as_str())
                .arg(&bury.job.fence[..])
                .arg(record::code_of_reason(Some(bury.reason)))
                .arg(record::short_error(&bury.error));
        }
        self.settle(Name::Bury, &call, jobs.len()).await
    }

    async fn settle(&self, name: Name, call: &Cmd, count: usize) -> Result<Vec<SettleResult>, StoreError> {
        let mut items = Items::new(name.as_str(), self.call(name, call).await?)?;
        if items.left() != count {
            return Err(StoreError::new(
                Class::Script,
                format!("redis: {} answered for {} jobs instead of {count}", name.as_str(), items.left()),
            ));
        }
        let stood = (0..count).map(|_| {
            Ok(match items.text()?.as_str() {
                "done" => SettleResult::Settled,
                "taken_over" => SettleResult::TakenOver,
                _ => SettleResult::Lost,
            })
        });
        stood.collect()
    }
}
