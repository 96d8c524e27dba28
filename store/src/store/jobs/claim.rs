//! Jobs under a lease: `claim`, `reclaim`, `rescue`. [`settle`](super::settle) ends a lease.

pub mod answer;
mod lost_claim;
pub mod time_out;
mod unread;

use std::time::Duration;

use redis::Value;

pub use self::answer::{Claim, ClaimedJob};
pub(super) use self::lost_claim::LostClaim;
pub(super) use self::unread::Unread;
use crate::clock::{self, whole_ms};
use crate::store::answer::{micros_of, score};
use crate::store::call::CALL_JOBS;
use crate::store::due_set::DueSet;
use crate::store::error::StoreError;
use crate::store::jobs::Jobs;
use crate::store::record::Nonce;
use crate::store::scripts::Name;

/// A claim or a waiting pop may take jobs that are due up to this much later. The span is short,
/// because the cancel of a claimed job is not certain, and a claimed job cannot be moved. The
/// scripts' `CLAIM_AHEAD` has the same value: a job that is due this soon after a failover may have
/// been claimed on the former master.
pub const MAX_CLAIM_AHEAD: Duration = Duration::from_millis(5);

/// The request of a claim.
#[derive(Debug, Clone, Copy)]
pub struct ClaimRequest {
    /// The duration of the lease.
    pub lease: Duration,
    /// The most jobs, up to [`CALL_JOBS`].
    pub most: usize,
    /// The most bytes of records; one job is always allowed.
    pub most_bytes: usize,
    /// The look-ahead, whole ms: jobs due within it are claimed too. [`ClaimedJob::ready`] says
    /// when each may be published.
    pub ahead: Duration,
}

impl Jobs {
    /// Claims due jobs of one bucket and broker, up to `most` jobs and `most_bytes` bytes (at least
    /// one job), without look-ahead.
    pub async fn claim(
        &self,
        bucket: u16,
        broker: &str,
        lease: Duration,
        most: usize,
        most_bytes: usize,
    ) -> Result<Claim, StoreError> {
        self.claim_ahead(
            bucket,
            broker,
            ClaimRequest { lease, most, most_bytes, ahead: Duration::ZERO },
        )
        .await
    }

    /// Claims jobs of one bucket and broker that are due within `ask.ahead`. First gives back the
    /// jobs of earlier claims whose answer was lost.
    pub async fn claim_ahead(
        &self,
        bucket: u16,
        broker: &str,
        ask: ClaimRequest,
    ) -> Result<Claim, StoreError> {
        self.reclaim_lost(bucket, broker).await?;
        self.claim_as(rand::random(), bucket, broker, ask).await
    }

    /// A claim under this nonce. A repeat answers the lease of the first call, as it is by then.
    pub async fn claim_as(
        &self,
        nonce: Nonce,
        bucket: u16,
        broker: &str,
        ask: ClaimRequest,
    ) -> Result<Claim, StoreError> {
        let ClaimRequest { lease, most, most_bytes, ahead } = ask;
        let sent = clock::now();
        let mut call = self.namespace.script_call(Name::Claim, bucket, &[broker.to_owned()]);
        call.arg(&nonce[..])
            .arg(whole_ms(lease))
            .arg(most.min(CALL_JOBS))
            .arg(most_bytes)
            .arg(whole_ms(ahead));
        let known = self.pass_over(bucket, broker, &mut call);
        let answer = match self.namespace.call(&call).await {
            Ok(value) => self.read_taken(Name::Claim, bucket, nonce, (sent, lease), value).map(
                |(taken, last)| {
                    let [last, score] = last;
                    self.found_unread(
                        (bucket, broker),
                        Unread { count: taken.unknown, last, score, since: known.unwrap_or(sent) },
                    );
                    taken
                },
            ),
            Err(error) => Err(error),
        };
        if answer.is_err() {
            self.lost_claims.lock().push(LostClaim { bucket, broker: broker.to_owned(), nonce });
        }
        answer
    }

    /// The first end of a lease or hold in each bucket, µs from now by the clock of their master;
    /// `None` if the bucket has none. All buckets must be on one master. One round trip, which
    /// costs Redis less than one script call.
    pub async fn leases_end(&self, buckets: &[u16]) -> Result<Vec<Option<i64>>, StoreError> {
        let mut pipeline = redis::Pipeline::new();
        pipeline.cmd("TIME");
        for bucket in buckets {
            for key in
                [self.namespace.keys.claim_deadlines(*bucket), self.namespace.keys.held(*bucket)]
            {
                pipeline.cmd("ZRANGE").arg(key).arg(0).arg(0).arg("WITHSCORES");
            }
        }
        let mut answers = self
            .namespace
            .link
            .pipeline("looking for leases past their time", &pipeline)
            .await?
            .into_iter();
        let now_us = answers.next().map_or(Ok(0), micros_of)?;
        let ahead = |first| match first {
            Value::Array(first) => first
                .into_iter()
                .nth(1)
                .and_then(score)
                .map(|ms| ms.saturating_mul(1000).saturating_sub(now_us)),
            _ => None,
        };
        let ends: Vec<Option<i64>> = answers.map(ahead).collect();
        Ok(ends.chunks(2).map(|ends| ends.iter().copied().flatten().min()).collect())
    }

    /// Takes over the jobs of leases past their deadline, and held jobs past their TTR, up to
    /// `most` jobs.
    pub async fn rescue(
        &self,
        bucket: u16,
        lease: Duration,
        most: usize,
        most_bytes: usize,
    ) -> Result<Claim, StoreError> {
        self.rescue_as(rand::random(), bucket, lease, most, most_bytes).await
    }

    /// A rescue under this nonce; repeated as a claim.
    pub async fn rescue_as(
        &self,
        nonce: Nonce,
        bucket: u16,
        lease: Duration,
        most: usize,
        most_bytes: usize,
    ) -> Result<Claim, StoreError> {
        let sent = clock::now();
        let mut call = self.namespace.script_call(Name::Rescue, bucket, &[]);
        call.arg(&nonce[..]).arg(whole_ms(lease)).arg(most.min(CALL_JOBS)).arg(most_bytes);
        let value = self.namespace.call(&call).await?;
        self.read_taken(Name::Rescue, bucket, nonce, (sent, lease), value).map(|(taken, _)| taken)
    }
}

/// Groups jobs by the name of their [`DueSet`].
#[must_use]
pub fn by_set(jobs: Vec<ClaimedJob>) -> Vec<(String, Vec<ClaimedJob>)> {
    let mut groups: Vec<(String, Vec<ClaimedJob>)> = Vec::new();
    for job in jobs {
        let set = DueSet::of(&job.record.job).name();
        match groups.iter_mut().find(|(known, _)| *known == *set) {
            Some((_, group)) => group.push(job),
            None => groups.push((set.into_owned(), vec![job])),
        }
    }
    groups
}
