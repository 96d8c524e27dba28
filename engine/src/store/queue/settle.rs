//! The ways to end a lease: `complete`, `hold`, `release`, `retry`, `bury`.

use redis::Cmd;

use crate::job::{DeadReason, JobId};
use crate::store::answer::Items;
use crate::store::error::{Class, StoreError};
use crate::store::queue::Queue;
use crate::store::record::{self, Fence};
use crate::store::scripts::Name;

/// Identifies a leased job to settle.
#[derive(Debug, Clone)]
pub struct LeaseToken {
    /// The job's id.
    pub id: JobId,
    /// Proof of the lease.
    pub fence: Fence,
    /// Fingerprint of the message that scheduled the job. A late `complete` needs it to tell this
    /// job from another one of the same id. Zeros if the record cannot be read.
    pub fingerprint: [u8; 8],
}

/// The result of a settle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettleResult {
    /// The lease was valid, and the job is settled.
    Settled,
    /// Nothing changed: the lease is gone. After a `complete` also: the same job does not continue,
    /// as far as Redis knows.
    Lost,
    /// Nothing changed: the lease is gone, and the same job continues after this confirmed attempt.
    /// Another instance holds it, has fired it, or it is due again. Only `complete` answers this.
    TakenOver,
}

/// Why a job is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completion {
    /// The broker confirmed it.
    Fired,
    /// The job was later than its `max_late`.
    Dropped,
}

/// A `release`: the job goes back to `due`.
#[derive(Debug, Clone)]
pub struct Release {
    /// Which job.
    pub job: LeaseToken,
    /// The pause from now, ms.
    pub pause_ms: u64,
    /// Certainly nothing was published: the attempt does not count.
    pub unpublished: bool,
}

/// A `retry`: the attempt failed.
#[derive(Debug, Clone)]
pub struct Retry {
    /// Which job.
    pub job: LeaseToken,
    /// The wait from now, ms.
    pub wait_ms: u64,
    /// Certainly nothing was published: the attempt does not count.
    pub unpublished: bool,
    /// The job dies for this reason: the next claim publishes it to the dead letters.
    pub dies: Option<DeadReason>,
    /// Why the attempt failed.
    pub error: String,
}

/// A `bury`: the job moves to the dead letters.
#[derive(Debug, Clone)]
pub struct Bury {
    /// Which job.
    pub job: LeaseToken,
    /// Why the job dies.
    pub reason: DeadReason,
    /// The last error.
    pub error: String,
}

impl Queue {
    /// Completes the jobs; one result per job.
    pub async fn complete(&self, bucket: u16, jobs: &[LeaseToken], over: Completion) -> Result<Vec<SettleResult>, StoreError> {
        let mut call = self.namespace.script_call(Name::Complete, bucket, &[]);
        call.arg(match over {
            Completion::Fired => "f",
            Completion::Dropped => "d",
        });
        for job in jobs {
            call.arg(job.id.as_str()).arg([job.fence, job.fingerprint].as_flattened());
        }
        self.settle(Name::Complete, &call, jobs.len()).await
    }

    /// Holds the jobs for their consumers, each for its TTR in ms; one result per job.
    pub async fn hold(&self, bucket: u16, jobs: &[(LeaseToken, u32)]) -> Result<Vec<SettleResult>, StoreError> {
        let mut call = self.namespace.script_call(Name::Hold, bucket, &[]);
        for (job, ttr_ms) in jobs {
            call.arg(job.id.as_str()).arg(&job.fence[..]).arg(ttr_ms);
        }
        self.settle(Name::Hold, &call, jobs.len()).await
    }

    /// Returns the jobs to `due` of this broker at the same step; one result per job.
    pub async fn release(&self, bucket: u16, broker: &str, jobs: &[Release]) -> Result<Vec<SettleResult>, StoreError> {
        let mut call = self.namespace.script_call(Name::Release, bucket, &[broker.to_owned()]);
        for release in jobs {
            call.arg(release.job.id.as_str()).arg(&release.job.fence[..]).arg(release.pause_ms).arg(u8::from(release.unpublished));
        }
        self.settle(Name::Release, &call, jobs.len()).await
    }

    /// Records failed attempts: each job returns to `due` of this broker, at the next step or on
    /// its way to the dead letters. One result per job.
    pub async fn retry(&self, bucket: u16, broker: &str, jobs: &[Retry]) -> Result<Vec<SettleResult>, StoreError> {
        let mut call = self.namespace.script_call(Name::Retry, bucket, &[broker.to_owned()]);
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

    /// Moves the jobs to the dead letters; one result per job.
    pub async fn bury(&self, bucket: u16, jobs: &[Bury]) -> Result<Vec<SettleResult>, StoreError> {
        let mut call = self.namespace.script_call(Name::Bury, bucket, &[]);
        for bury in jobs {
            call.arg(bury.job.id.as_str())
                .arg(&bury.job.fence[..])
                .arg(record::code_of_reason(Some(bury.reason)))
                .arg(record::short_error(&bury.error));
        }
        self.settle(Name::Bury, &call, jobs.len()).await
    }

    async fn settle(&self, name: Name, call: &Cmd, count: usize) -> Result<Vec<SettleResult>, StoreError> {
        let mut items = Items::new(name.as_str(), self.namespace.call(name, call).await?)?;
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
