//! `pop` hands jobs of a queue to a consumer, and `unpop` takes them back. [`acknowledge`] ends the
//! leases of a pop.
//!
//! [`acknowledge`]: super::acknowledge

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use redis::{Pipeline, Value};

use crate::clock::{self, whole_ms};
use crate::job::JobId;
use crate::policy::{expiry, retry};
use crate::store::answer::{Items, micros_of, score};
use crate::store::call::script_call::ScriptCall;
use crate::store::call::{CALL_BYTES, CALL_JOBS};
use crate::store::due_set::DueSet;
use crate::store::error::{Class, StoreError};
use crate::store::jobs::Jobs;
use crate::store::jobs::claim::MAX_CLAIM_AHEAD;
use crate::store::jobs::lease::Lease;
use crate::store::record::{self, Nonce, Record, StateRecord};
use crate::store::scripts::Name;

/// The limits of what a consumer pops from one bucket of a queue.
#[derive(Debug, Clone, Copy)]
pub struct PopLimits {
    /// The lease, ms; `None`: the TTR of each job.
    pub ttr_ms: Option<u64>,
    /// The longest lease, ms.
    pub max_ttr_ms: u64,
    /// The most jobs, up to [`CALL_JOBS`].
    pub most: usize,
    /// The most bytes of records; one job is always handed out.
    pub most_bytes: usize,
    /// The most bytes of that one job; `None`: any.
    pub room: Option<usize>,
}

/// A job that a consumer holds until its deadline.
#[derive(Debug, Clone)]
pub struct Popped {
    /// The job's id.
    pub id: JobId,
    /// The lease, which the consumer names to end it.
    pub lease: Lease,
    /// The end of the lease, epoch ms by Redis's clock.
    pub deadline_ms: i64,
    /// The mutable part of the job; this hand-out counts as an attempt.
    pub state: StateRecord,
    /// The immutable part of the job.
    pub record: Record,
    /// Bytes of the record.
    pub size: usize,
}

/// The jobs of one of the consumers that share a pop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Portion {
    /// The number of the jobs. They follow the jobs of the consumers before.
    pub jobs: usize,
    /// There is none, because the first one is larger than [`PopLimits::room`].
    pub is_cut: bool,
}

/// The result of one pop from one bucket.
#[derive(Debug, Default)]
pub struct PopAnswer {
    /// The jobs, those of the first consumer first.
    pub jobs: Vec<Popped>,
    /// The due time of the next job of the bucket, epoch ms.
    pub next_ms: Option<i64>,
    /// More jobs are due.
    pub more: bool,
    /// The portions of the consumers, in their order.
    pub portions: Vec<Portion>,
    /// The queue is paused: the pop looked at no job.
    pub paused: bool,
    /// Unreadable jobs that stay in the queue: run `dwell fsck`.
    pub unknown: u32,
    /// Redis's clock at the pop, epoch µs.
    pub now_us: i64,
    /// The time from the pop until the jobs may be handed out, µs; zero: they are due.
    pub wait_us: i64,
}

/// Buckets, and the due time of the first job of each.
pub type Heads = (Vec<u16>, Result<Vec<Option<i64>>, StoreError>);

/// When popped jobs go back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Return {
    /// After their due time: a consumer may have had them, and their hand-outs are counted.
    Due,
    /// Before their due time, which the pop was ahead of: they reached no consumer, and their
    /// hand-outs are not counted.
    Early,
}

/// The interval between two reports of unreadable jobs.
const UNREADABLE_LOG_INTERVAL: Duration = Duration::from_secs(60);

impl Jobs {
    /// Hands out due jobs of one bucket of a queue. `nonce`: random, for this call alone; a repeat
    /// answers the jobs that this pop still holds. After an error, jobs may be held without a
    /// consumer: [`unpop`](Jobs::unpop) takes them back.
    pub async fn pop(
        &self,
        nonce: Nonce,
        bucket: u16,
        queue: &str,
        limits: PopLimits,
    ) -> Result<PopAnswer, StoreError> {
        self.pop_for(nonce, bucket, queue, &[limits], Duration::ZERO).await
    }

    /// A [`pop`](Jobs::pop) that several consumers share, together of up to [`CALL_JOBS`]: the
    /// first one gets the first jobs, up to its limits, then the next one. Where no job is due,
    /// those of the first due time within `ahead` (whole ms, up to [`MAX_CLAIM_AHEAD`]) are taken:
    /// [`PopAnswer::wait_us`] says when to hand them out.
    pub async fn pop_for(
        &self,
        nonce: Nonce,
        bucket: u16,
        queue: &str,
        consumers: &[PopLimits],
        ahead: Duration,
    ) -> Result<PopAnswer, StoreError> {
        let ahead = ahead.min(MAX_CLAIM_AHEAD);
        let proof = self.namespace.pop_proof(nonce, queue);
        let call = |deadline_us: Option<i64>| {
            let mut call = self.call_with_pops(Name::Pop, bucket, queue);
            call.arg(&proof[..])
                .arg(deadline_us.map(|us| us.to_string()).unwrap_or_default())
                .arg(CALL_BYTES)
                .arg(whole_ms(ahead));
            for limits in consumers {
                call.arg(limits.ttr_ms.map(|ms| ms.to_string()).unwrap_or_default())
                    .arg(limits.max_ttr_ms.min(u32::MAX.into()))
                    .arg(limits.most.min(CALL_JOBS))
                    .arg(limits.most_bytes)
                    .arg(limits.room.map(|bytes| bytes.to_string()).unwrap_or_default());
            }
            call
        };
        let mut answer = self.namespace.call(&call(self.deadline_us())).await;
        // The clock that the deadline was computed from was too old. Redis's answer carries the new
        // one.
        if let Err(Some(us)) = answer.as_ref().map_err(StoreError::late) {
            self.namespace.saw_clock(us);
            answer = self.namespace.call(&call(self.deadline_us())).await;
        }
        self.read_popped(nonce, bucket, queue, (consumers.len(), ahead), answer?)
    }

    fn read_popped(
        &self,
        nonce: Nonce,
        bucket: u16,
        queue: &str,
        (consumers, ahead): (usize, Duration),
        value: Value,
    ) -> Result<PopAnswer, StoreError> {
        let mut items = Items::new("pop", value)?;
        let mut answer = PopAnswer {
            now_us: items.int()?,
            next_ms: items.maybe_number()?,
            ..PopAnswer::default()
        };
        answer.more = items.int()? > 0;
        answer.paused = items.int()? == 1;
        answer.unknown = u32::try_from(items.int()?).unwrap_or(u32::MAX);
        let orphans = items.int()?;
        // The first consumers so many have all that they may get.
        let full = usize::try_from(items.int()?).unwrap_or(0);
        answer.portions = (0..consumers).map(|at| Portion { jobs: 0, is_cut: at < full }).collect();
        self.namespace.saw_clock(answer.now_us);
        if orphans > 0 {
            tracing::error!(
                queue,
                bucket,
                orphans,
                "ids without a record were removed; run `dwell fsck`"
            );
        }
        if answer.unknown > 0 && self.may_tell_unread() {
            tracing::error!(
                queue,
                bucket,
                jobs = answer.unknown,
                "jobs of a queue cannot be read and stay; run `dwell fsck`"
            );
        }
        let latest_us = answer.now_us.saturating_add_unsigned(1000 * whole_ms(ahead));
        answer.jobs.reserve_exact(items.left() / 5);
        while items.left() >= 5 {
            let (id, state, bytes) = (items.text()?, items.bytes()?, items.bytes()?);
            let deadline_ms = items.maybe_number()?.unwrap_or_default();
            let consumer = items.int()?;
            let at = usize::try_from(consumer).ok().and_then(|number| number.checked_sub(1));
            let Some(portion) = at.and_then(|at| answer.portions.get_mut(at)) else {
                let message = format!("redis: pop answered a job for consumer {consumer}");
                return Err(StoreError::new(Class::Script, message));
            };
            portion.is_cut = false;
            match self.read_job(
                nonce,
                queue,
                (id.clone(), deadline_ms, (answer.now_us, latest_us)),
                &state,
                bytes,
            ) {
                Ok((job, wait_us)) => {
                    portion.jobs += 1;
                    answer.wait_us = answer.wait_us.max(wait_us);
                    answer.jobs.push(job);
                }
                // The lease of the job ends, and the rescue keeps the job among the dead.
                Err(why) => tracing::error!(id, queue, bucket, why, "a stored job cannot be read"),
            }
        }
        Ok(answer)
    }

    /// At most once a minute: each pop of the bucket meets these jobs.
    fn may_tell_unread(&self) -> bool {
        let mut told = self.unread_told.lock();
        let is_new = told.is_none_or(|at| at.elapsed() > UNREADABLE_LOG_INTERVAL);
        if is_new {
            *told = Some(clock::now());
        }
        is_new
    }

    /// A popped job, and the time from the pop until it may be handed out, µs. `latest_us`: the end
    /// of the look-ahead.
    fn read_job(
        &self,
        nonce: Nonce,
        queue: &str,
        (id, deadline_ms, (now_us, latest_us)): (String, i64, (i64, i64)),
        state: &[u8],
        bytes: Bytes,
    ) -> Result<(Popped, i64), String> {
        let (id, size) = (JobId::new(id)?, bytes.len());
        let state = StateRecord::decode(state).map_err(|why| why.to_string())?;
        let record = record::decode(bytes).map_err(|why| why.to_string())?;
        let wait_ms = retry::wait_ms(&record.job, state.step, &[]);
        // A due job may have a later due time in its state: a fire moves a job that was attempted,
        // and not its schedule.
        let begin_us = if state.is_early() {
            state.due_ms.saturating_mul(1000).clamp(now_us, latest_us)
        } else {
            now_us
        };
        // The deadline was rounded up to a whole ms, from the clock of the answer or the due time.
        let span = (deadline_ms.saturating_mul(1000).saturating_sub(begin_us) / 1000).max(0);
        let mut lease = Lease {
            nonce,
            ttr_ms: u32::try_from(span).unwrap_or(u32::MAX),
            wait_ms,
            expires_ms: expiry::expires_ms(&record.job, state.progress()),
            queue: queue.to_owned(),
            seal: [0; 8],
        };
        lease.seal = self.namespace.seal(&id, &lease);
        let popped = Popped { id, lease, deadline_ms, state, record, size };
        Ok((popped, begin_us.saturating_sub(now_us)))
    }

    /// Takes back the jobs that this pop still holds, `ids` or all (empty): they are due as before.
    /// Returns their number. A copy of the pop that arrives later hands nothing out.
    pub async fn unpop(
        &self,
        nonce: Nonce,
        when: Return,
        bucket: u16,
        queue: &str,
        ids: &[JobId],
    ) -> Result<u64, StoreError> {
        let proof = self.namespace.pop_proof(nonce, queue);
        let mut call = self.call_with_pops(Name::Unpop, bucket, queue);
        call.arg(&proof[..])
            .arg(if when == Return::Early { "1" } else { "" })
            .arg(ids.iter().map(JobId::as_str).collect::<Vec<_>>());
        let answer = self.namespace.call(&call).await?;
        self.namespace.give_lease_places_back(bucket, proof, queue, ids).await;
        match answer {
            Value::Int(count) => Ok(u64::try_from(count).unwrap_or(0)),
            _ => Ok(0),
        }
    }

    /// The due time of the first job of a queue in each of these buckets, µs from now by the clock
    /// of its master; negative if the job is due; `None` without a job. In a cluster each bucket by
    /// itself, as its answer comes.
    pub fn heads<'a>(
        &'a self,
        queue: &str,
        buckets: &'a [u16],
    ) -> FuturesUnordered<impl Future<Output = Heads> + use<'a>> {
        // In a cluster, a pipeline reaches one master.
        let at_once = if self.namespace.is_cluster() { 1 } else { buckets.len().max(1) };
        let set = DueSet::Queue(queue).to_string();
        buckets.chunks(at_once).map(|buckets| self.heads_of(set.clone(), buckets)).collect()
    }

    /// The heads of buckets on one master. A bucket with a damaged key has no jobs, and hides the
    /// jobs of no other bucket.
    async fn heads_of(&self, set: String, buckets: &[u16]) -> Heads {
        let heads = match self.heads_at_once(&set, buckets).await {
            Err(error) if error.class == Class::Script && buckets.len() > 1 => {
                if self.may_tell_unread() {
                    tracing::error!(queue = DueSet::named(&set).queue(), %error, "the jobs of a queue in a bucket cannot be read; run `dwell fsck`");
                }
                let each = buckets.iter().map(|bucket| async {
                    self.heads_at_once(&set, std::slice::from_ref(bucket)).await
                });
                let found = join_all(each).await.into_iter().map(|heads| match heads {
                    Err(error) if error.class == Class::Script => Ok(None),
                    heads => heads.map(|heads| heads.into_iter().next().flatten()),
                });
                found.collect()
            }
            heads => heads,
        };
        (buckets.to_vec(), heads)
    }

    async fn heads_at_once(
        &self,
        set: &str,
        buckets: &[u16],
    ) -> Result<Vec<Option<i64>>, StoreError> {
        let mut pipeline = Pipeline::new();
        pipeline.cmd("TIME");
        for bucket in buckets {
            pipeline
                .cmd("ZRANGE")
                .arg(self.namespace.keys.due(*bucket, set))
                .arg(0)
                .arg(0)
                .arg("WITHSCORES");
        }
        let mut answers =
            self.namespace.link.pipeline("looking for due jobs", &pipeline).await?.into_iter();
        let now_us = answers.next().map_or(Ok(0), micros_of)?;
        self.namespace.saw_clock(now_us);
        let ahead = |head| match head {
            Value::Array(head) => head
                .into_iter()
                .nth(1)
                .and_then(score)
                .map(|ms| ms.saturating_mul(1000).saturating_sub(now_us)),
            _ => None,
        };
        Ok(answers.map(ahead).collect())
    }

    fn call_with_pops(&self, name: Name, bucket: u16, queue: &str) -> ScriptCall {
        self.namespace.script_call_with(
            name,
            bucket,
            &[DueSet::Queue(queue).to_string()],
            &self.namespace.keys.pops(bucket),
        )
    }
}

impl Popped {
    /// The first due time of the job in its schedule, epoch ms; its retries do not change it.
    #[must_use]
    pub fn due_ms(&self) -> i64 {
        self.state.due_ms
    }

    /// The µs from the due time of the job to now; negative before.
    #[must_use]
    pub fn late_us(&self, now_us: i64) -> i64 {
        now_us.saturating_sub(self.state.due_ms.saturating_mul(1000))
    }
}
