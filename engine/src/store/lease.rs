//! Jobs under a lease: `claim`, `reclaim`, `rescue`. How a lease ends is in `settle`.

use std::time::Duration;

use bytes::Bytes;
use redis::Value;

use super::Store;
use super::answer::{Items, micros_of};
use super::error::{Class, StoreError};
use super::read::score;
use super::record::{self, Fence, Record, State};
use super::scripts::Name;
use super::settle::LeaseToken;
use crate::clock::{self, Instant, whole_ms};
use crate::job::JobId;

/// A claim may take what is due so much later. No longer, because a job that is claimed can be neither cancelled for sure nor moved. The scripts
/// know it as `CLAIM_AHEAD`: what is due so soon after a failover may have been claimed by the master before.
pub const AHEAD: Duration = Duration::from_millis(5);
/// What cannot be read is passed over once there is so much of it as one call looks at; less is looked at each time.
const MANY: u32 = 1024;
/// How long it is passed over before it is looked at again: it may have been repaired.
const PASS_OVER: Duration = Duration::from_secs(60);
/// The most ids that one `reclaim` looks at.
const RECLAIM_IDS: usize = 512;

/// A job that this instance may act on until `deadline`.
#[derive(Debug, Clone)]
pub struct Lease {
    /// Whose.
    pub id: JobId,
    /// Its bucket.
    pub bucket: u16,
    /// What proves the lease.
    pub fence: Fence,
    /// By this process's clock, counted from before the claim was sent: at that time others may take the job over.
    pub deadline: Instant,
    /// Redis's clock when it was taken, epoch µs.
    pub taken_us: i64,
    /// Not to be published before this: at that time it is due by Redis's clock, for sure.
    pub ready: Instant,
    /// What changes.
    pub state: State,
    /// What does not.
    pub record: Record,
    /// Bytes of the record: what it costs to hold.
    pub size: usize,
}

/// A job under a lease whose record cannot be read: it can only be buried.
#[derive(Debug, Clone)]
pub struct UnreadableLease {
    /// Whose.
    pub id: JobId,
    /// Its bucket.
    pub bucket: u16,
    /// What proves the lease.
    pub fence: Fence,
    /// What is wrong with it.
    pub why: String,
}

impl Lease {
    /// What settles it.
    #[must_use]
    pub fn token(&self) -> LeaseToken {
        LeaseToken { id: self.id.clone(), fence: self.fence, fingerprint: self.record.fingerprint }
    }
}

impl UnreadableLease {
    /// What settles it.
    #[must_use]
    pub fn token(&self) -> LeaseToken {
        LeaseToken { id: self.id.clone(), fence: self.fence, fingerprint: [0; 8] }
    }
}

/// What a `claim` or `rescue` took.
#[derive(Debug, Default)]
pub struct Claimed {
    /// The jobs.
    pub jobs: Vec<Lease>,
    /// Jobs that cannot be read.
    pub broken: Vec<UnreadableLease>,
    /// The next time at which there is something, epoch ms by Redis's clock.
    pub next_ms: Option<i64>,
    /// Redis's clock when it was taken, epoch µs.
    pub now_us: i64,
    /// There is more already.
    pub more: bool,
    /// Jobs of another version that were left in place at the head of what is due, or past its time; as far as was looked.
    pub unknown: u32,
    /// Ids without a record that were taken out of the index.
    pub orphans: u32,
}

/// Jobs at the head of a set that this version cannot read. Whoever looks there next begins behind them: they would hide all others.
#[derive(Debug, Clone)]
pub(super) struct Unread {
    count: u32,
    last: Bytes,
    score: Bytes,
    /// When the first of them was last looked at.
    since: Instant,
}

/// The set of leases, among the names of brokers.
const RUN: &str = "";

/// A claim whose answer did not come.
#[derive(Debug, Clone)]
pub struct LostClaim {
    bucket: u16,
    broker: String,
    fence: Fence,
    /// No lease of it ends before this, epoch ms.
    least_deadline_ms: i64,
    /// It may have taken what was due so much later.
    ahead: Duration,
}

/// What a claim is to take.
#[derive(Debug, Clone, Copy)]
pub struct ClaimRequest {
    /// How long it holds.
    pub lease: Duration,
    /// At most so many jobs.
    pub most: usize,
    /// At most so many bytes of records, and at least one job.
    pub most_bytes: usize,
    /// What is due so much later, too (whole ms). Each lease says when it may be published.
    pub ahead: Duration,
}

impl Store {
    /// Takes jobs of one bucket that are due on this broker, at most so many and so many bytes (at least one): [`Store::claim_ahead`] of nothing.
    pub async fn claim(&self, bucket: u16, broker: &str, lease: Duration, most: usize, most_bytes: usize) -> Result<Claimed, StoreError> {
        self.claim_ahead(bucket, broker, ClaimRequest { lease, most, most_bytes, ahead: Duration::ZERO }).await
    }

    /// Takes jobs of one bucket that are due on this broker, or will be in a moment. Before that, gives back what earlier claims of this bucket and
    /// broker took without our hearing of it.
    pub async fn claim_ahead(&self, bucket: u16, broker: &str, ask: ClaimRequest) -> Result<Claimed, StoreError> {
        let ClaimRequest { lease, most, most_bytes, ahead } = ask;
        self.reclaim_lost(bucket, broker).await?;
        let fence: Fence = rand::random();
        let sent = clock::now();
        let lease_ms = whole_ms(lease);
        let mut call = self.script_call(Name::Claim, bucket, &[broker.to_owned()]);
        call.arg(&fence[..]).arg(lease_ms).arg(most).arg(most_bytes).arg(whole_ms(ahead));
        let known = self.pass_over(bucket, broker, &mut call);
        // Claimed before the call, and generously early: only a bound for the search.
        let least_deadline_ms = self.now_ms() + i64::try_from(lease_ms).unwrap_or(i64::MAX / 2) - 60_000;
        let answer = match self.call(Name::Claim, &call).await {
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

    /// Gives back what earlier claims for this broker took without our hearing of it: for whoever claims nothing more. To be called until it succeeds.
    pub async fn reclaim_all_lost(&self, broker: &str) -> Result<(), StoreError> {
        self.reclaim_where(|lost| lost.broker == broker).await
    }

    /// A bucket that is damaged keeps no other waiting.
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

    /// Gives back what a claim took whose answer was lost: how many jobs.
    async fn reclaim(&self, lost: &LostClaim) -> Result<usize, StoreError> {
        let (mut offset, mut back) = (0, 0);
        loop {
            let mut call = self.script_call(Name::Reclaim, lost.bucket, std::slice::from_ref(&lost.broker));
            call.arg(&lost.fence[..]).arg(lost.least_deadline_ms).arg(offset).arg(RECLAIM_IDS).arg(whole_ms(lost.ahead));
            let mut items = Items::new("reclaim", self.call(Name::Reclaim, &call).await?)?;
            let (seen, returned) = (usize::try_from(items.int()?).unwrap_or(0), usize::try_from(items.int()?).unwrap_or(0));
            back += returned;
            if seen < RECLAIM_IDS {
                return Ok(back);
            }
            offset += seen - returned;
        }
    }

    /// When the first lease of each of these buckets ends, µs from now by the clock of the master that has them; `None` where nothing is out. One
    /// round trip, which costs Redis less than a script for one of them: for buckets of one master.
    pub async fn leases_end(&self, buckets: &[u16]) -> Result<Vec<Option<i64>>, StoreError> {
        let mut pipeline = redis::Pipeline::new();
        pipeline.cmd("TIME");
        for bucket in buckets {
            pipeline.cmd("ZRANGE").arg(self.keys.run(*bucket)).arg(0).arg(0).arg("WITHSCORES");
        }
        let mut answers = self.link.pipeline("looking for leases past their time", &pipeline).await?.into_iter();
        let now_us = answers.next().map_or(Ok(0), micros_of)?;
        let ahead = |first| match first {
            Value::Array(first) => first.into_iter().nth(1).and_then(score).map(|ms| ms.saturating_mul(1000).saturating_sub(now_us)),
            _ => None,
        };
        Ok(answers.map(ahead).collect())
    }

    /// Takes over leases past their time, at most so many.
    pub async fn rescue(&self, bucket: u16, lease: Duration, most: usize, most_bytes: usize) -> Result<Claimed, StoreError> {
        let fence: Fence = rand::random();
        let sent = clock::now();
        let mut call = self.script_call(Name::Rescue, bucket, &[]);
        call.arg(&fence[..]).arg(whole_ms(lease)).arg(most).arg(most_bytes);
        let known = self.pass_over(bucket, RUN, &mut call);
        let value = self.call(Name::Rescue, &call).await?;
        self.read_taken("rescue", (bucket, RUN), fence, (sent, lease), known, value)
    }

    /// Adds to a call what is known of the head of this set; answers since when.
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

    /// Keeps what a call found at the head of a set.
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
        self.saw_clock(taken.now_us);
        let received = clock::now();
        while items.left() >= 4 {
            let id = items.bytes()?;
            let (state, bytes) = (items.bytes()?, items.bytes()?);
            let size = bytes.len();
            let ready = received
                + items
                    .maybe_number()?
                    .map_or(Duration::ZERO, |due_ms| clock::micros(due_ms.saturating_mul(1000).saturating_sub(taken.now_us)));
            // An id that is no UTF-8 was not written by Dwell; it is shown lossily and cannot be settled: its lease runs out.
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
