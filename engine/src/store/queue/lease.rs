//! Jobs under a lease: `claim`, `reclaim`, `rescue`. [`settle`](super::settle) ends a lease.

use std::time::Duration;

use bytes::Bytes;
use redis::Value;

use crate::clock::{self, Instant, whole_ms};
use crate::job::JobId;
use crate::store::answer::{Items, micros_of};
use crate::store::error::{Class, StoreError};
use crate::store::queue::Queue;
use crate::store::queue::settle::LeaseToken;
use crate::store::reader::lookup::score;
use crate::store::record::{self, Fence, Record, State};
use crate::store::scripts::Name;

/// A claim may take jobs that are due up to this much later. The span is short, because the cancel
/// of a claimed job is not certain, and a claimed job cannot be moved. The scripts' `CLAIM_AHEAD`
/// has the same value: a job that is due this soon after a failover may have been claimed on the
/// former master.
pub const AHEAD: Duration = Duration::from_millis(5);
/// Unreadable jobs are skipped once they fill one call; fewer are looked at in every call.
const MANY: u32 = 1024;
/// How long they are skipped before the next look: someone may have repaired them.
const PASS_OVER: Duration = Duration::from_secs(60);
/// The most ids that one `reclaim` examines.
const RECLAIM_IDS: usize = 512;

/// A job that this instance may act on until `deadline`.
#[derive(Debug, Clone)]
pub struct Lease {
    /// The job's id.
    pub id: JobId,
    /// Its bucket.
    pub bucket: u16,
    /// Proof of the lease.
    pub fence: Fence,
    /// From then on another instance may take the job over. By the clock of this process, counted
    /// from before the claim was sent.
    pub deadline: Instant,
    /// Redis's clock at the claim, epoch µs.
    pub taken_us: i64,
    /// The earliest time to publish: the job is due by Redis's clock from then on.
    pub ready: Instant,
    /// The mutable part of the job.
    pub state: State,
    /// The immutable part of the job.
    pub record: Record,
    /// Bytes of the record, which count against the window.
    pub size: usize,
}

/// A leased job whose record cannot be read. The only way to settle it is to bury it.
#[derive(Debug, Clone)]
pub struct UnreadableLease {
    /// The job's id.
    pub id: JobId,
    /// Its bucket.
    pub bucket: u16,
    /// Proof of the lease.
    pub fence: Fence,
    /// Why the record cannot be read.
    pub why: String,
}

impl Lease {
    /// The token that settles this lease.
    #[must_use]
    pub fn token(&self) -> LeaseToken {
        LeaseToken { id: self.id.clone(), fence: self.fence, fingerprint: self.record.fingerprint }
    }
}

impl UnreadableLease {
    /// The token that settles this lease.
    #[must_use]
    pub fn token(&self) -> LeaseToken {
        LeaseToken { id: self.id.clone(), fence: self.fence, fingerprint: [0; 8] }
    }
}

/// The result of a `claim` or `rescue`.
#[derive(Debug, Default)]
pub struct Claimed {
    /// The jobs.
    pub jobs: Vec<Lease>,
    /// Jobs whose record cannot be read.
    pub broken: Vec<UnreadableLease>,
    /// When the next job is due, or the next lease ends; epoch ms by Redis's clock.
    pub next_ms: Option<i64>,
    /// Redis's clock at the claim, epoch µs.
    pub now_us: i64,
    /// More jobs may be ready now.
    pub more: bool,
    /// Jobs of another version at the head of the set, which were left in place. Counts only the
    /// examined part.
    pub unknown: u32,
    /// Ids without a record, which were removed from the index.
    pub orphans: u32,
}

/// Jobs at the head of a set that this version cannot read. The next call starts after them;
/// otherwise they would hide all others.
#[derive(Debug, Clone)]
pub(super) struct Unread {
    count: u32,
    last: Bytes,
    score: Bytes,
    /// When the first of them was last examined.
    since: Instant,
}

/// Stands for the set of leases where otherwise a broker's name stands.
const RUN: &str = "";

/// A claim whose answer was lost.
#[derive(Debug, Clone)]
pub struct LostClaim {
    bucket: u16,
    broker: String,
    fence: Fence,
    /// No lease of this claim ends earlier, epoch ms.
    least_deadline_ms: i64,
    /// The look-ahead of the claim.
    ahead: Duration,
}

/// What a claim asks for.
#[derive(Debug, Clone, Copy)]
pub struct ClaimRequest {
    /// The duration of the lease.
    pub lease: Duration,
    /// The most jobs.
    pub most: usize,
    /// The most bytes of records; one job is always allowed.
    pub most_bytes: usize,
    /// The look-ahead, whole ms: jobs due within it are claimed too. [`Lease::ready`] says when
    /// each may be published.
    pub ahead: Duration,
}

impl Queue {
    /// Claims due jobs of one bucket and broker, up to `most` jobs and `most_bytes` bytes (at least
    /// one job), without look-ahead.
    pub async fn claim(&self, bucket: u16, broker: &str, lease: Duration, most: usize, most_bytes: usize) -> Result<Claimed, StoreError> {
        self.claim_ahead(bucket, broker, ClaimRequest { lease, most, most_bytes, ahead: Duration::ZERO }).await
    }

    /// Claims jobs of one bucket and broker that are due within `ask.ahead`. First gives back the
    /// jobs of earlier claims whose answer was lost.
    pub async fn claim_ahead(&self, bucket: u16, broker: &str, ask: ClaimRequest) -> Result<Claimed, StoreError> {
        let ClaimRequest { lease, most, most_bytes, ahead } = ask;
        self.reclaim_lost(bucket, broker).await?;
        let fence: Fence = rand::random();
        let sent = clock::now();
        let lease_ms = whole_ms(lease);
        let mut call = self.namespace.script_call(Name::Claim, bucket, &[broker.to_owned()]);
        call.arg(&fence[..]).arg(lease_ms).arg(most).arg(most_bytes).arg(whole_ms(ahead));
        let known = self.pass_over(bucket, broker, &mut call);
        // Computed before the call and a minute early: only a lower bound for the search.
        let least_deadline_ms = self.namespace.now_ms() + i64::try_from(lease_ms).unwrap_or(i64::MAX / 2) - 60_000;
        let answer = match self.namespace.call(Name::Claim, &call).await {
            Ok(value) => self.read_taken("claim", (bucket, broker), fence, (sent, lease), known, value),
            Err(error) => Err(error),
        };
        if answer.is_err() {
            self.lost_claims.lock().push(LostClaim { bucket, broker: broker.to_owned(), fence, least_deadline_ms, ahead });
        }
        answer
    }

    async fn reclaim_lost(&self, bucket: u16, broker: &str) -> Result<(), StoreError> {
        self.reclaim_where(|lost| lost.bucket == bucket && lost.broker == broker).await
    }

    /// Gives back the jobs of all claims for this broker whose answer was lost. For an instance
    /// that stops claiming; repeat until it succeeds.
    pub async fn reclaim_all_lost(&self, broker: &str) -> Result<(), StoreError> {
        self.reclaim_where(|lost| lost.broker == broker).await
    }

    /// A damaged bucket does not stop the others.
    async fn reclaim_where(&self, is_meant: impl Fn(&LostClaim) -> bool) -> Result<(), StoreError> {
        let lost: Vec<LostClaim> = self.lost_claims.lock().iter().filter(|lost| is_meant(lost)).cloned().collect();
        let mut result = Ok(());
        for lost in lost {
            match self.reclaim(&lost).await {
                Ok(_) => self.lost_claims.lock().retain(|other| other.fence != lost.fence),
                Err(error) if error.class == Class::Script => result = Err(error),
                Err(error) => return Err(error),
            }
        }
        result
    }

    /// Gives back the jobs of a claim whose answer was lost, and counts them.
    async fn reclaim(&self, lost: &LostClaim) -> Result<usize, StoreError> {
        let (mut offset, mut back) = (0, 0);
        loop {
            let mut call = self.namespace.script_call(Name::Reclaim, lost.bucket, std::slice::from_ref(&lost.broker));
            call.arg(&lost.fence[..]).arg(lost.least_deadline_ms).arg(offset).arg(RECLAIM_IDS).arg(whole_ms(lost.ahead));
            let mut items = Items::new("reclaim", self.namespace.call(Name::Reclaim, &call).await?)?;
            let (seen, returned) = (usize::try_from(items.int()?).unwrap_or(0), usize::try_from(items.int()?).unwrap_or(0));
            back += returned;
            if seen < RECLAIM_IDS {
                return Ok(back);
            }
            offset += seen - returned;
        }
    }

    /// When the first lease of each bucket ends, µs from now by the clock of their master; `None`
    /// if the bucket has no lease. All buckets must be on one master. One round trip, which costs
    /// Redis less than one script call.
    pub async fn leases_end(&self, buckets: &[u16]) -> Result<Vec<Option<i64>>, StoreError> {
        let mut pipeline = redis::Pipeline::new();
        pipeline.cmd("TIME");
        for bucket in buckets {
            pipeline.cmd("ZRANGE").arg(self.namespace.keys.run(*bucket)).arg(0).arg(0).arg("WITHSCORES");
        }
        let mut answers = self.namespace.link.pipeline("looking for leases past their time", &pipeline).await?.into_iter();
        let now_us = answers.next().map_or(Ok(0), micros_of)?;
        let ahead = |first| match first {
            Value::Array(first) => first.into_iter().nth(1).and_then(score).map(|ms| ms.saturating_mul(1000).saturating_sub(now_us)),
            _ => None,
        };
        Ok(answers.map(ahead).collect())
    }

    /// Takes over leases past their deadline, up to `most` jobs.
    pub async fn rescue(&self, bucket: u16, lease: Duration, most: usize, most_bytes: usize) -> Result<Claimed, StoreError> {
        let fence: Fence = rand::random();
        let sent = clock::now();
        let mut call = self.namespace.script_call(Name::Rescue, bucket, &[]);
        call.arg(&fence[..]).arg(whole_ms(lease)).arg(most).arg(most_bytes);
        let known = self.pass_over(bucket, RUN, &mut call);
        let value = self.namespace.call(Name::Rescue, &call).await?;
        self.read_taken("rescue", (bucket, RUN), fence, (sent, lease), known, value)
    }

    /// Appends the known unreadable head of this set to a call. Answers when that head was first
    /// examined.
    fn pass_over(&self, bucket: u16, set: &str, call: &mut redis::Cmd) -> Option<Instant> {
        let mut unread = self.unread.lock();
        if !unread.is_empty() {
            let of_set = (bucket, set.to_owned());
            match unread.get(&of_set) {
                Some(known) if known.count >= MANY && known.since.elapsed() < PASS_OVER => {
                    call.arg(known.count).arg(&known.last[..]).arg(&known.score[..]);
                    return Some(known.since);
                }
                _ => drop(unread.remove(&of_set)),
            }
        }
        call.arg(0).arg("").arg("");
        None
    }

    /// Remembers the unreadable head of a set that a call found.
    fn found_unread(&self, (bucket, set): (u16, &str), found: Unread) {
        let mut unread = self.unread.lock();
        if found.count > 0 {
            unread.insert((bucket, set.to_owned()), found);
        } else if !unread.is_empty() {
            unread.remove(&(bucket, set.to_owned()));
        }
    }

    fn read_taken(
        &self,
        script: &'static str,
        (bucket, set): (u16, &str),
        fence: Fence,
        (sent, lease): (Instant, Duration),
        known: Option<Instant>,
        value: Value,
    ) -> Result<Claimed, StoreError> {
        let deadline = sent + lease;
        let mut items = Items::new(script, value)?;
        let mut taken = Claimed { now_us: items.int()?, next_ms: items.maybe_number()?, more: items.int()? == 1, ..Claimed::default() };
        taken.unknown = u32::try_from(items.int()?).unwrap_or(u32::MAX);
        let (last, score) = (items.bytes()?, items.bytes()?);
        self.found_unread((bucket, set), Unread { count: taken.unknown, last, score, since: known.unwrap_or(sent) });
        taken.orphans = u32::try_from(items.int()?).unwrap_or(u32::MAX);
        self.namespace.saw_clock(taken.now_us);
        let received = clock::now();
        while items.left() >= 4 {
            let id = items.bytes()?;
            let (state, bytes) = (items.bytes()?, items.bytes()?);
            let size = bytes.len();
            let ready = received
                + items
                    .maybe_number()?
                    .map_or(Duration::ZERO, |due_ms| clock::micros(due_ms.saturating_mul(1000).saturating_sub(taken.now_us)));
            // Dwell never writes an id that is not UTF-8. Log it lossily; it cannot be settled, so
            // its lease expires.
            let id = match String::from_utf8(id.to_vec()).map_err(|_| "not UTF-8".to_owned()).and_then(JobId::new) {
                Ok(id) => id,
                Err(why) => {
                    tracing::error!(id = %String::from_utf8_lossy(&id), bucket, why, "an id in redis was not written by dwell, run `dwell fsck`");
                    continue;
                }
            };
            match (State::decode(&state), record::decode(bytes)) {
                (Ok(state), Ok(record)) => {
                    taken.jobs.push(Lease { id, bucket, fence, deadline, taken_us: taken.now_us, ready, state, record, size })
                }
                (Err(why), _) | (_, Err(why)) => taken.broken.push(UnreadableLease { id, bucket, fence, why: why.to_string() }),
            }
        }
        Ok(taken)
    }
}
