//! Lists the jobs of a namespace by due time. Memory holds the jobs of the answer, without their
//! bodies, and one page of ids per sorted set.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::try_join_all;
use redis::{Pipeline, Value};

use self::run::Run;
use crate::job::{JobId, queue_of_set, set_of_queue};
use crate::store::error::StoreError;
use crate::store::queue::schedule::{CALL_BYTES, CALL_JOBS};
use crate::store::reader::Reader;
use crate::store::reader::leases::Lent;
use crate::store::reader::lookup::{Place, StoredJob};
use crate::store::record::{self, State};

mod run;

/// By id: the job, or why it cannot be read.
type Fetched = BTreeMap<String, Result<StoredJob, String>>;

/// How many buckets are read concurrently: each may return a record of the largest size.
const BUCKETS: usize = 4;
/// The most ids that one read of a sorted set returns.
const PAGE: usize = CALL_JOBS;

/// Selects jobs for a list.
#[derive(Debug, Clone)]
pub struct Query {
    /// The state of the jobs.
    pub place: Place,
    /// Due at this time or later, epoch ms.
    pub from_ms: Option<i64>,
    /// Due before this time, epoch ms.
    pub to_ms: Option<i64>,
    /// Only jobs for this target: a subject, topic or routing key, or `exchange/routing key`.
    pub target: Option<String>,
    /// Only jobs of this queue.
    pub queue: Option<String>,
    /// Only jobs of these queues, and none of brokers.
    pub queues: Option<QueueFilter>,
    /// Only jobs after this one: the `next` of the previous page.
    pub after: Option<Cursor>,
    /// The most jobs in the page.
    pub limit: usize,
}

impl Query {
    /// The first 100 jobs in this state, by due time.
    #[must_use]
    pub fn new(place: Place) -> Self {
        Query { place, from_ms: None, to_ms: None, target: None, queue: None, queues: None, after: None, limit: 100 }
    }
}

/// Says for the name of a queue whether its jobs are wanted.
#[derive(Clone)]
pub struct QueueFilter(Arc<dyn Fn(&str) -> bool + Send + Sync>);

impl QueueFilter {
    /// The queues for which this holds.
    pub fn new(is_wanted: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        QueueFilter(Arc::new(is_wanted))
    }

    fn wants(&self, queue: &str) -> bool {
        (self.0)(queue)
    }
}

impl std::fmt::Debug for QueueFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("QueueFilter")
    }
}

/// A position in the list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    /// The due time, epoch ms.
    pub at_ms: i64,
    /// The job's id.
    pub id: String,
}

/// One page of a list.
#[derive(Debug, Default)]
pub struct Page {
    /// The jobs, by due time and then by id, without their bodies.
    pub jobs: Vec<StoredJob>,
    /// The cursor of the next page, if more jobs may follow.
    pub next: Option<Cursor>,
    /// Ids whose record cannot be read, and why.
    pub unreadable: Vec<(String, String)>,
}

/// A job whose record is not fetched yet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    /// Its due time and id.
    spot: Cursor,
    bucket: u16,
    score_ms: i64,
    /// In a lease: an attempt is in flight.
    is_lent: bool,
}

impl Reader {
    /// Lists jobs. A job that changes during the call may be listed or not; every other job is
    /// listed once.
    ///
    /// Scheduled jobs are read in the order of their set, up to the end of the page. Reserved and
    /// dead jobs are all read, because their sets have another order.
    pub async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        if query.limit == 0 {
            return Ok(Page::default());
        }
        match query.place {
            Place::Scheduled | Place::Ready => self.merge(query).await,
            Place::Reserved | Place::Dead => self.select(query).await,
        }
    }

    /// The `due` sets of all buckets, brokers and queues, merged.
    async fn merge(&self, query: &Query) -> Result<Page, StoreError> {
        let mut sets = match &query.queue {
            Some(queue) => vec![set_of_queue(queue)],
            None => self.namespace.sets(),
        };
        sets.retain(|set| query.wants(queue_of_set(set)));
        let ready_to = self.namespace.read_clock().await? / 1000 + 1;
        let is_ready = query.place == Place::Ready;
        let mut runs: Vec<Run> = (0..self.namespace.keys.buckets())
            .flat_map(|bucket| sets.iter().map(move |set| (bucket, set)))
            .filter_map(|(bucket, set)| {
                let (from, to) = match queue_of_set(set) {
                    Some(_) if is_ready => (query.from_ms, Some(query.to_ms.map_or(ready_to, |to| to.min(ready_to)))),
                    Some(_) => (Some(query.from_ms.map_or(ready_to, |from| from.max(ready_to))), query.to_ms),
                    None if is_ready => return None,
                    None => (query.from_ms, query.to_ms),
                };
                Some(Run::new(bucket, self.namespace.keys.due(bucket, set), from, to, query.after.as_ref()))
            })
            .collect();
        // The expected share of each set in the page if the ids are spread evenly.
        let count = (2 * query.limit / runs.len().max(1) + 8).min(PAGE);
        try_join_all(runs.iter_mut().map(|run| self.seek(run))).await?;
        try_join_all(runs.iter_mut().map(|run| self.read_on(run, count))).await?;
        let mut wake_ups: BinaryHeap<Reverse<(Cursor, usize)>> =
            runs.iter_mut().enumerate().filter_map(|(at, run)| Some(Reverse((run.ahead.pop_front()?, at)))).collect();
        let mut page = Page::default();
        loop {
            let wanted = if query.has_filter() { PAGE } else { PAGE.min(query.limit - page.jobs.len()) };
            let mut batch = Vec::with_capacity(wanted);
            while batch.len() < wanted
                && let Some(Reverse((spot, at))) = wake_ups.pop()
            {
                let run = &mut runs[at];
                self.read_on(run, count).await?;
                wake_ups.extend(run.ahead.pop_front().map(|next| Reverse((next, at))));
                batch.push(Candidate { score_ms: spot.at_ms, bucket: run.bucket, spot, is_lent: false });
            }
            let last = wake_ups.is_empty();
            if self.add(&mut page, &batch, query, !last).await? || last {
                return Ok(page);
            }
        }
    }

    /// The earliest reserved or dead jobs, by the due times in their states.
    async fn select(&self, query: &Query) -> Result<Page, StoreError> {
        let mut earliest: BinaryHeap<Candidate> = BinaryHeap::new();
        let mut more = false;
        let mut page = Page::default();
        let is_dead = query.place == Place::Dead;
        for (bucket, key) in self.keys_of(query) {
            let mut run = Run::new(bucket, key, None, None, None);
            let mut lent = if is_dead { Vec::new() } else { self.namespace.lent(bucket).await? };
            loop {
                let members: Vec<Candidate> = if lent.is_empty() {
                    self.read_on(&mut run, PAGE).await?;
                    let member = |spot: Cursor| Candidate { bucket, score_ms: spot.at_ms, spot, is_lent: false };
                    run.ahead.drain(..).map(member).collect()
                } else {
                    let member = |Lent { id, due_ms, deadline_ms }| Candidate {
                        bucket,
                        score_ms: deadline_ms,
                        spot: Cursor { at_ms: due_ms, id },
                        is_lent: true,
                    };
                    lent.drain(lent.len().saturating_sub(PAGE)..).map(member).collect()
                };
                if members.is_empty() {
                    break;
                }
                let mut batch = self.with_due_times(bucket, members).await?;
                batch.retain(|candidate| query.spans(&candidate.spot));
                if query.has_filter() {
                    let mut fitting = Page::default();
                    let all = Query { limit: usize::MAX, ..query.clone() };
                    self.add(&mut fitting, &batch, &all, false).await?;
                    page.unreadable.append(&mut fitting.unreadable);
                    batch.retain(|candidate| fitting.jobs.iter().any(|job| job.id.as_str() == candidate.spot.id));
                }
                for candidate in batch {
                    earliest.push(candidate);
                    if earliest.len() > query.limit {
                        earliest.pop();
                        more = true;
                    }
                }
            }
        }
        let mut candidates = earliest.into_sorted_vec();
        // A lease that was renewed during the call appears twice.
        candidates.dedup_by(|a, b| a.spot == b.spot);
        let mut chunks = candidates.chunks(PAGE).peekable();
        while let Some(batch) = chunks.next() {
            let more = more || chunks.peek().is_some();
            self.add(&mut page, batch, query, more).await?;
        }
        // Jobs that left during the call, or cannot be read, make the page short although more
        // follow.
        if more && page.next.is_none() {
            page.next = candidates.last().map(|candidate| candidate.spot.clone());
        }
        Ok(page)
    }

    /// The sets of the reserved or dead jobs, with their buckets.
    fn keys_of(&self, query: &Query) -> Vec<(u16, String)> {
        let keys = &self.namespace.keys;
        let queues = match &query.queue {
            Some(queue) => std::slice::from_ref(queue).into(),
            None => self.namespace.queues(),
        };
        let queues: Vec<&String> = queues.iter().filter(|queue| query.wants(Some(queue))).collect();
        let of_bucket = |bucket: u16| -> Vec<String> {
            match query.place {
                Place::Dead => {
                    let of_brokers = (query.queue.is_none() && query.wants(None)).then(|| keys.dead(bucket).to_owned());
                    of_brokers.into_iter().chain(queues.iter().map(|queue| keys.dead_of(bucket, &set_of_queue(queue)))).collect()
                }
                _ => vec![keys.held(bucket).to_owned()],
            }
        };
        (0..keys.buckets()).flat_map(|bucket| of_bucket(bucket).into_iter().map(move |key| (bucket, key))).collect()
    }

    /// Fetches these jobs and adds the matching ones, up to the limit. True if the page is full.
    async fn add(&self, page: &mut Page, batch: &[Candidate], query: &Query, more: bool) -> Result<bool, StoreError> {
        let mut fetched = self.fetch(batch, query.place).await?;
        for (at, candidate) in batch.iter().enumerate() {
            match fetched.remove(&candidate.spot.id) {
                Some(Ok(found)) if query.is_for(&found) => page.jobs.push(found),
                Some(Err(why)) => page.unreadable.push((candidate.spot.id.clone(), why)),
                // The job left during the call, or has another target.
                Some(Ok(_)) | None => {}
            }
            if page.jobs.len() >= query.limit {
                page.next = (more || at + 1 < batch.len()).then(|| candidate.spot.clone());
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes the due times from the states.
    async fn with_due_times(&self, bucket: u16, mut members: Vec<Candidate>) -> Result<Vec<Candidate>, StoreError> {
        let mut command = redis::cmd("HMGET");
        command.arg(self.namespace.keys.state(bucket)).arg(members.iter().map(|member| member.spot.id.as_str()).collect::<Vec<_>>());
        let Value::Array(states) = self.namespace.link.command("listing", &command).await? else { return Ok(Vec::new()) };
        for (member, state) in members.iter_mut().zip(states) {
            if let Value::BulkString(bytes) = state
                && let Ok(state) = State::decode(&bytes)
            {
                member.spot.at_ms = state.due_ms;
            }
        }
        Ok(members)
    }

    /// Fetches the records and states of these jobs, a few buckets at a time. By id: the job, or
    /// why it cannot be read.
    async fn fetch(&self, batch: &[Candidate], place: Place) -> Result<Fetched, StoreError> {
        let mut found = Fetched::new();
        let mut buckets: BTreeMap<u16, Vec<&Candidate>> = BTreeMap::new();
        for candidate in batch {
            buckets.entry(candidate.bucket).or_default().push(candidate);
        }
        let buckets: Vec<(u16, Vec<&Candidate>)> = buckets.into_iter().collect();
        for side_by_side in buckets.chunks(BUCKETS) {
            let fetching = side_by_side.iter().map(|(bucket, members)| self.fetch_bucket(*bucket, members, place));
            try_join_all(fetching).await?.into_iter().for_each(|mut of_bucket| found.append(&mut of_bucket));
        }
        Ok(found)
    }

    /// Fetches from one bucket, at most 1 MiB per read, and drops each body at once.
    async fn fetch_bucket(&self, bucket: u16, members: &[&Candidate], place: Place) -> Result<Fetched, StoreError> {
        let mut found = Fetched::new();
        let mut sizes = Pipeline::new();
        for member in members {
            sizes.cmd("HSTRLEN").arg(self.namespace.keys.jobs(bucket)).arg(&member.spot.id);
        }
        let sizes = self.namespace.link.pipeline("listing", &sizes).await?.into_iter().map(|size| match size {
            Value::Int(size) => usize::try_from(size).unwrap_or(0),
            _ => 0,
        });
        let (mut chunk, mut bytes) = (Vec::new(), 0);
        for (member, size) in members.iter().copied().zip(sizes) {
            if !chunk.is_empty() && bytes + size > CALL_BYTES {
                self.fetch_chunk(bucket, &std::mem::take(&mut chunk), place, &mut found).await?;
                bytes = 0;
            }
            bytes += size;
            chunk.push(member);
        }
        self.fetch_chunk(bucket, &chunk, place, &mut found).await?;
        Ok(found)
    }

    async fn fetch_chunk(&self, bucket: u16, chunk: &[&Candidate], place: Place, found: &mut Fetched) -> Result<(), StoreError> {
        let ids: Vec<&str> = chunk.iter().map(|candidate| candidate.spot.id.as_str()).collect();
        let mut pipeline = Pipeline::new();
        pipeline.cmd("HMGET").arg(self.namespace.keys.jobs(bucket)).arg(&ids);
        pipeline.cmd("HMGET").arg(self.namespace.keys.state(bucket)).arg(&ids);
        let mut answers = self.namespace.link.pipeline("listing", &pipeline).await?.into_iter();
        let (Some(Value::Array(records)), Some(Value::Array(states))) = (answers.next(), answers.next()) else { return Ok(()) };
        for (candidate, (record, state)) in chunk.iter().zip(records.into_iter().zip(states)) {
            let Value::BulkString(record) = record else { continue };
            let job = decode(candidate, place, Bytes::from(record), state).map_err(|why| why.to_string());
            found.insert(candidate.spot.id.clone(), job);
        }
        Ok(())
    }
}

/// The job without its body.
fn decode(candidate: &Candidate, place: Place, record: Bytes, state: Value) -> Result<StoredJob, String> {
    let bytes = record;
    let mut record = record::decode(bytes.clone()).map_err(|why| why.to_string())?;
    let mut state = match state {
        Value::BulkString(bytes) => Some(State::decode(&bytes).map_err(|why| why.to_string())?),
        _ => None,
    };
    if candidate.is_lent {
        state = state.or_else(|| State::of_record(&bytes, candidate.spot.at_ms)).map(State::in_flight);
    }
    let size = std::mem::take(&mut record.job.body).len();
    let id = JobId::new(candidate.spot.id.as_str())?;
    Ok(StoredJob { id, place, score_ms: candidate.score_ms, record, state, size })
}

impl Query {
    /// Whether a job lies between `from_ms` and `to_ms` and after `after`.
    fn spans(&self, spot: &Cursor) -> bool {
        self.from_ms.is_none_or(|from| spot.at_ms >= from)
            && self.to_ms.is_none_or(|to| spot.at_ms < to)
            && self.after.as_ref().is_none_or(|after| spot > after)
    }

    fn is_for(&self, found: &StoredJob) -> bool {
        let job = &found.record.job;
        let is_for = |target: &String| job.queue.is_none() && (*target == job.to.address || *target == job.to.to_string());
        self.wants(job.queue.as_deref())
            && self.target.as_ref().is_none_or(is_for)
            && self.queue.as_ref().is_none_or(|queue| job.queue.as_ref() == Some(queue))
    }

    /// Whether jobs of this queue are wanted; `None`: those of brokers.
    fn wants(&self, queue: Option<&str>) -> bool {
        self.queues.as_ref().is_none_or(|filter| queue.is_some_and(|queue| filter.wants(queue)))
    }

    /// Whether only the record tells if a job is wanted.
    fn has_filter(&self) -> bool {
        self.target.is_some() || self.queue.is_some() || self.queues.is_some()
    }
}
