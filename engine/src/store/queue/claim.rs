//! Jobs under a lease: `claim`, `reclaim`, `rescue`. [`settle`](super::settle) ends a lease.

use std::time::Duration;

use bytes::Bytes;
use redis::Value;

use crate::clock::{self, Instant, whole_ms};
use crate::job::JobId;
use crate::store::answer::{Items, micros_of};
use crate::store::error::{Class, StoreError};
use crate::store::queue::Queue;
use crate::store::queue::schedule::{CALL_BYTES, CALL_JOBS};
use crate::store::queue::settle::{ClaimName, ClaimToken};
use crate::store::reader::lookup::score;
use crate::store::record::{self, Nonce, Record, State};
use crate::store::scripts::Name;

/// A claim may take jobs that are due up to this much later. The span is short, because the cancel
/// of a claimed job is not certain, and a claimed job cannot be moved. The scripts' `CLAIM_AHEAD`
/// has the same value: a job that is due this soon after a failover may have been claimed on the
/// former master.
pub const MAX_CLAIM_AHEAD: Duration = Duration::from_millis(5);
/// Unreadable jobs are skipped once they fill one call; fewer are looked at in every call.
const SKIP_THRESHOLD_JOBS: u32 = 1024;
/// The time for which these jobs are skipped before the next look: someone may have repaired them.
const SKIP_TTL: Duration = Duration::from_secs(60);

/// A job that this instance may act on until `deadline`.
#[derive(Debug, Clone)]
pub struct ClaimedJob {
    /// The job's id.
    pub id: JobId,
    /// The bucket of the job.
    pub bucket: u16,
    /// The token that settles the job.
    pub token: ClaimToken,
    /// The time from which another instance may take the job over, by the clock of this process, counted from
    /// before the claim was sent.
    pub deadline: Instant,
    /// Redis's clock at the claim, epoch µs.
    pub taken_us: i64,
    /// The earliest time to publish: the job is due by Redis's clock from then on.
    pub ready: Instant,
    /// The mutable part of the job. The attempt in flight counts.
    pub state: State,
    /// The immutable part of the job.
    pub record: Record,
    /// Bytes of the record, which count against the window.
    pub size: usize,
}

/// A claimed job whose record cannot be read. Only a `bury` settles the job.
#[derive(Debug, Clone)]
pub struct UnreadableJob {
    /// The job's id.
    pub id: JobId,
    /// The bucket of the job.
    pub bucket: u16,
    /// The queue of a job of a queue: the job is buried among the dead of that queue.
    pub queue: Option<String>,
    /// The token that settles the job.
    pub token: ClaimToken,
    /// The reason why the record cannot be read.
    pub why: String,
}

impl ClaimedJob {
    /// The token that settles this lease.
    #[must_use]
    pub fn token(&self) -> ClaimToken {
        self.token.clone()
    }
}

impl UnreadableJob {
    /// The token that settles this lease.
    #[must_use]
    pub fn token(&self) -> ClaimToken {
        self.token.clone()
    }
}

/// The result of a `claim` or `rescue`.
#[derive(Debug, Default)]
pub struct Claim {
    /// The jobs.
    pub jobs: Vec<ClaimedJob>,
    /// Jobs whose record cannot be read.
    pub broken: Vec<UnreadableJob>,
    /// The due time of the next job, or the end of the next lease; epoch ms by Redis's clock.
    pub next_ms: Option<i64>,
    /// Redis's clock at the claim, epoch µs.
    pub now_us: i64,
    /// More jobs may be ready now.
    pub more: bool,
    /// Jobs of another version at the head of the set, which stay in place. Counts only the examined part.
    pub unknown: u32,
    /// Ids without a record, which were removed from the index.
    pub orphans: u32,
}

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

/// Jobs at the head of a set that this version cannot read. The next call starts after them;
/// otherwise they would hide all others.
#[derive(Debug, Clone)]
pub(super) struct Unread {
    count: u32,
    last: Bytes,
    score: Bytes,
    /// The time of the last look at the first of these jobs.
    since: Instant,
}

/// A claim whose answer was lost.
#[derive(Debug, Clone)]
pub(super) struct LostClaim {
    bucket: u16,
    broker: String,
    nonce: Nonce,
}

/// The request of a claim.
#[derive(Debug, Clone, Copy)]
pub struct ClaimRequest {
    /// The duration of the lease.
    pub lease: Duration,
    /// The most jobs, up to [`CALL_JOBS`].
    pub most: usize,
    /// The most bytes of records; one job is always allowed.
    pub most_bytes: usize,
    /// The look-ahead, whole ms: jobs due within it are claimed too. [`ClaimedJob::ready`] says when
    /// each may be published.
    pub ahead: Duration,
}

impl Queue {
    /// Claims due jobs of one bucket and broker, up to `most` jobs and `most_bytes` bytes (at least
    /// one job), without look-ahead.
    pub async fn claim(&self, bucket: u16, broker: &str, lease: Duration, most: usize, most_bytes: usize) -> Result<Claim, StoreError> {
        self.claim_ahead(bucket, broker, ClaimRequest { lease, most, most_bytes, ahead: Duration::ZERO }).await
    }

    /// Claims jobs of one bucket and broker that are due within `ask.ahead`. First gives back the
    /// jobs of earlier claims whose answer was lost.
    pub async fn claim_ahead(&self, bucket: u16, broker: &str, ask: ClaimRequest) -> Result<Claim, StoreError> {
        self.reclaim_lost(bucket, broker).await?;
        self.claim_as(rand::random(), bucket, broker, ask).await
    }

    /// A claim under this nonce. A repeat answers the lease of the first call, as it is by then.
    pub async fn claim_as(&self, nonce: Nonce, bucket: u16, broker: &str, ask: ClaimRequest) -> Result<Claim, StoreError> {
        let ClaimRequest { lease, most, most_bytes, ahead } = ask;
        let sent = clock::now();
        let mut call = self.namespace.script_call(Name::Claim, bucket, &[broker.to_owned()]);
        call.arg(&nonce[..]).arg(whole_ms(lease)).arg(most.min(CALL_JOBS)).arg(most_bytes).arg(whole_ms(ahead));
        let known = self.pass_over(bucket, broker, &mut call);
        let answer = match self.namespace.call(Name::Claim, &call).await {
            Ok(value) => self.read_taken(Name::Claim, bucket, nonce, (sent, lease), value).map(|(taken, last)| {
                let [last, score] = last;
                self.found_unread((bucket, broker), Unread { count: taken.unknown, last, score, since: known.unwrap_or(sent) });
                taken
            }),
            Err(error) => Err(error),
        };
        if answer.is_err() {
            self.lost_claims.lock().push(LostClaim { bucket, broker: broker.to_owned(), nonce });
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
            match self.reclaim(lost.nonce, lost.bucket, &lost.broker).await {
                Ok(_) => self.lost_claims.lock().retain(|other| other.nonce != lost.nonce),
                Err(error) if error.class == Class::Script => result = Err(error),
                Err(error) => return Err(error),
            }
        }
        result
    }

    /// Gives back the jobs of a claim whose answer was lost, and counts them.
    pub async fn reclaim(&self, nonce: Nonce, bucket: u16, broker: &str) -> Result<i64, StoreError> {
        let mut call = self.namespace.script_call(Name::Reclaim, bucket, &[broker.to_owned()]);
        call.arg(&nonce[..]);
        match self.namespace.call(Name::Reclaim, &call).await? {
            Value::Int(count) => Ok(count),
            other => Err(StoreError::new(Class::Script, format!("redis: reclaim answered {other:?} instead of a number"))),
        }
    }

    /// The first end of a lease or hold in each bucket, µs from now by the clock of their master; `None` if
    /// the bucket has none. All buckets must be on one master. One round trip, which costs Redis less than
    /// one script call.
    pub async fn leases_end(&self, buckets: &[u16]) -> Result<Vec<Option<i64>>, StoreError> {
        let mut pipeline = redis::Pipeline::new();
        pipeline.cmd("TIME");
        for bucket in buckets {
            for key in [self.namespace.keys.claim_deadlines(*bucket), self.namespace.keys.held(*bucket)] {
                pipeline.cmd("ZRANGE").arg(key).arg(0).arg(0).arg("WITHSCORES");
            }
        }
        let mut answers = self.namespace.link.pipeline("looking for leases past their time", &pipeline).await?.into_iter();
        let now_us = answers.next().map_or(Ok(0), micros_of)?;
        let ahead = |first| match first {
            Value::Array(first) => first.into_iter().nth(1).and_then(score).map(|ms| ms.saturating_mul(1000).saturating_sub(now_us)),
            _ => None,
        };
        let ends: Vec<Option<i64>> = answers.map(ahead).collect();
        Ok(ends.chunks(2).map(|ends| ends.iter().copied().flatten().min()).collect())
    }

    /// Takes over the jobs of leases past their deadline, and held jobs past their TTR, up to `most`
    /// jobs.
    pub async fn rescue(&self, bucket: u16, lease: Duration, most: usize, most_bytes: usize) -> Result<Claim, StoreError> {
        self.rescue_as(rand::random(), bucket, lease, most, most_bytes).await
    }

    /// A rescue under this nonce; repeated as a claim.
    pub async fn rescue_as(&self, nonce: Nonce, bucket: u16, lease: Duration, most: usize, most_bytes: usize) -> Result<Claim, StoreError> {
        let sent = clock::now();
        let mut call = self.namespace.script_call(Name::Rescue, bucket, &[]);
        call.arg(&nonce[..]).arg(whole_ms(lease)).arg(most.min(CALL_JOBS)).arg(most_bytes);
        let value = self.namespace.call(Name::Rescue, &call).await?;
        self.read_taken(Name::Rescue, bucket, nonce, (sent, lease), value).map(|(taken, _)| taken)
    }

    /// Makes held jobs of these queues due again after their TTR, if the record allows no other next step.
    /// `waits`: the number of waits of a job without a retry array. `until_ms`: jobs whose TTR ended later
    /// stay, epoch ms; without it the time of the call.
    pub async fn time_out(
        &self,
        bucket: u16,
        sets: &[String],
        waits: usize,
        until_ms: Option<i64>,
        error: &str,
    ) -> Result<TimedOut, StoreError> {
        let mut call = self.namespace.script_call(Name::TimeOut, bucket, sets);
        call.arg(TIME_OUT_JOBS_PER_CALL).arg(CALL_BYTES).arg(waits).arg(error).arg(until_ms.map_or_else(String::new, |ms| ms.to_string()));
        let mut items = Items::new(Name::TimeOut.as_str(), self.namespace.call(Name::TimeOut, &call).await?)?;
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

    /// Appends the known unreadable head of this set to a call. Answers when that head was first
    /// examined.
    fn pass_over(&self, bucket: u16, set: &str, call: &mut redis::Cmd) -> Option<Instant> {
        let mut unread = self.unread.lock();
        if !unread.is_empty() {
            let of_set = (bucket, set.to_owned());
            match unread.get(&of_set) {
                Some(known) if known.count >= SKIP_THRESHOLD_JOBS && known.since.elapsed() < SKIP_TTL => {
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

    /// The jobs of a claim or rescue; and the last unreadable id with its score.
    fn read_taken(
        &self,
        script: Name,
        bucket: u16,
        nonce: Nonce,
        (sent, lease): (Instant, Duration),
        value: Value,
    ) -> Result<(Claim, [Bytes; 2]), StoreError> {
        let deadline = sent + lease;
        let mut items = Items::new(script.as_str(), value)?;
        let mut taken = Claim { now_us: items.int()?, next_ms: items.maybe_number()?, more: items.int()? == 1, ..Claim::default() };
        taken.unknown = u32::try_from(items.int()?).unwrap_or(u32::MAX);
        let last_unknown = [items.bytes()?, items.bytes()?];
        taken.orphans = u32::try_from(items.int()?).unwrap_or(u32::MAX);
        let created = <[u8; 8]>::try_from(&items.bytes()?[..]).map_err(|_| {
            StoreError::new(Class::Script, format!("redis: {} answered a lease without the time of its first write", script.as_str()))
        })?;
        self.namespace.saw_clock(taken.now_us);
        let received = clock::now();
        taken.jobs.reserve_exact(items.left() / 4);
        for position in 0..=u8::MAX {
            if items.left() < 4 {
                break;
            }
            let (id, state, bytes) = (items.bytes()?, items.bytes()?, items.bytes()?);
            let due_ms = items.maybe_number()?;
            if id.is_empty() {
                // The job has left the claim.
                continue;
            }
            let is_claim = script == Name::Claim;
            let early = due_ms.filter(|_| is_claim).map_or(0, |ms| ms.saturating_mul(1000).saturating_sub(taken.now_us));
            let ready = received + clock::micros(early);
            // Dwell never writes an id that is not UTF-8. Log it lossily; it cannot be settled, so
            // its lease expires.
            let id = match String::from_utf8(id.to_vec()).map_err(|_| "not UTF-8".to_owned()).and_then(JobId::new) {
                Ok(id) => id,
                Err(why) => {
                    tracing::error!(id = %String::from_utf8_lossy(&id), bucket, why, "an id in redis was not written by dwell, run `dwell fsck`");
                    continue;
                }
            };
            let has_state = !state.is_empty();
            let of_record = || State::of_record(&bytes, due_ms.unwrap_or(taken.now_us / 1000));
            let state = if has_state { State::decode(&state).ok() } else { of_record() };
            let Some(mut state) = state.or_else(of_record) else { continue };
            if !is_claim && !state.held && !state.counted {
                state.crashes = state.crashes.saturating_add(1);
            }
            let size = bytes.len();
            let token = ClaimToken { id: id.clone(), lease: ClaimName { nonce, created }, position, has_state, state };
            match record::decode(bytes.clone()) {
                Ok(record) => {
                    let state = token.state.clone().in_flight();
                    taken.jobs.push(ClaimedJob { id, bucket, token, deadline, taken_us: taken.now_us, ready, state, record, size })
                }
                Err(why) => {
                    let queue = record::queue_of(&bytes).map(str::to_owned);
                    taken.broken.push(UnreadableJob { id, bucket, queue, token, why: why.to_string() });
                }
            }
        }
        Ok((taken, last_unknown))
    }
}
