//! Lists the jobs of a namespace by due time. Memory holds the jobs of the answer, without their
//! bodies, and one page of ids per sorted set. A page ends early where its jobs have large headers.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};

use futures_util::future::try_join_all;
use redis::Value;

pub use self::page::{Cursor, Page};
pub use self::query::Query;
pub use self::queue_filter::QueueFilter;
use self::run::Run;
use crate::store::call::CALL_JOBS;
use crate::store::due_set::DueSet;
use crate::store::error::StoreError;
use crate::store::reader::Reader;
use crate::store::reader::leases::ClaimEntry;
use crate::store::reader::lookup::JobState;
use crate::store::record::StateRecord;

mod fetch;
mod page;
mod query;
mod queue_filter;
mod run;
mod sets;

/// The bytes of headers with which a page ends, and the bytes of records that are read at a time.
const PAGE_BYTES: usize = 4 << 20;
/// The most ids that one read of a sorted set returns.
const MAX_IDS_PER_READ: usize = CALL_JOBS;

/// A job whose record is not fetched yet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    /// The due time and the id of the job.
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
        match query.state {
            JobState::Scheduled | JobState::Ready => self.merge(query).await,
            JobState::Reserved | JobState::Dead => self.select(query).await,
        }
    }

    /// The `due` sets of all buckets, brokers and queues, merged.
    async fn merge(&self, query: &Query) -> Result<Page, StoreError> {
        let sets = self.sets_of(query).await?;
        let ready_to = self.namespace.read_clock().await? / 1000 + 1;
        let is_ready = query.state == JobState::Ready;
        let mut runs: Vec<Run> = (0..)
            .zip(&sets)
            .flat_map(|(bucket, sets)| sets.iter().map(move |set| (bucket, set)))
            .filter_map(|(bucket, set)| {
                let (from, to) = match DueSet::named(set).queue() {
                    Some(_) if is_ready => {
                        (query.from_ms, Some(query.to_ms.map_or(ready_to, |to| to.min(ready_to))))
                    }
                    Some(_) => (
                        Some(query.from_ms.map_or(ready_to, |from| from.max(ready_to))),
                        query.to_ms,
                    ),
                    None if is_ready => return None,
                    None => (query.from_ms, query.to_ms),
                };
                Some(Run::new(
                    bucket,
                    self.namespace.keys.due(bucket, set),
                    from,
                    to,
                    query.after.as_ref(),
                ))
            })
            .collect();
        // The expected share of each set in the page if the ids are spread evenly.
        let count = (2 * query.limit / runs.len().max(1) + 8).min(MAX_IDS_PER_READ);
        try_join_all(runs.iter_mut().map(|run| self.seek(run))).await?;
        try_join_all(runs.iter_mut().map(|run| self.read_on(run, count))).await?;
        let mut wake_ups: BinaryHeap<Reverse<(Cursor, usize)>> = runs
            .iter_mut()
            .enumerate()
            .filter_map(|(at, run)| Some(Reverse((run.ahead.pop_front()?, at))))
            .collect();
        let mut page = Page::default();
        loop {
            let wanted = if query.has_filter() {
                MAX_IDS_PER_READ
            } else {
                MAX_IDS_PER_READ.min(query.limit - page.jobs.len())
            };
            let mut batch = Vec::with_capacity(wanted);
            while batch.len() < wanted
                && let Some(Reverse((spot, at))) = wake_ups.pop()
            {
                let run = &mut runs[at];
                self.read_on(run, count).await?;
                wake_ups.extend(run.ahead.pop_front().map(|next| Reverse((next, at))));
                batch.push(Candidate {
                    score_ms: spot.at_ms,
                    bucket: run.bucket,
                    spot,
                    is_lent: false,
                });
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
        let is_dead = query.state == JobState::Dead;
        for (bucket, key) in self.keys_of(query).await? {
            let mut run = Run::new(bucket, key, None, None, None);
            let mut claimed =
                if is_dead { Vec::new() } else { self.namespace.claimed_jobs(bucket).await? };
            loop {
                let members: Vec<Candidate> = if claimed.is_empty() {
                    self.read_on(&mut run, MAX_IDS_PER_READ).await?;
                    let member = |spot: Cursor| Candidate {
                        bucket,
                        score_ms: spot.at_ms,
                        spot,
                        is_lent: false,
                    };
                    run.ahead.drain(..).map(member).collect()
                } else {
                    let member = |ClaimEntry { id, due_ms, deadline_ms }| Candidate {
                        bucket,
                        score_ms: deadline_ms,
                        spot: Cursor { at_ms: due_ms, id },
                        is_lent: true,
                    };
                    claimed
                        .drain(claimed.len().saturating_sub(MAX_IDS_PER_READ)..)
                        .map(member)
                        .collect()
                };
                if members.is_empty() {
                    break;
                }
                let mut batch = self.with_due_times(bucket, members).await?;
                batch.retain(|candidate| query.spans(&candidate.spot));
                if query.has_filter() {
                    batch = self.fitting(&mut page, batch, query).await?;
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
        let mut chunks = candidates.chunks(MAX_IDS_PER_READ).peekable();
        while let Some(batch) = chunks.next() {
            let more = more || chunks.peek().is_some();
            if self.add(&mut page, batch, query, more).await? {
                break;
            }
        }
        // Jobs that left during the call, or cannot be read, make the page short although more
        // follow.
        if more && page.next.is_none() {
            page.next = candidates.last().map(|candidate| candidate.spot.clone());
        }
        Ok(page)
    }

    /// Fetches these jobs and adds the matching ones, up to the limit. True if the page is full.
    async fn add(
        &self,
        page: &mut Page,
        batch: &[Candidate],
        query: &Query,
        more: bool,
    ) -> Result<bool, StoreError> {
        let mut left = batch.len();
        for part in self.parts(batch).await? {
            let mut fetched = self.fetch(&part, query.state).await?;
            for (candidate, _) in part {
                left -= 1;
                match fetched.remove(&candidate.spot.id) {
                    Some(Ok(found)) if query.is_for(&found) => {
                        page.bytes += found.job().headers.footprint();
                        page.jobs.push(found);
                    }
                    Some(Err(why)) => page.unreadable.push((candidate.spot.id.clone(), why)),
                    // The job left during the call, or has another target.
                    Some(Ok(_)) | None => {}
                }
                if page.jobs.len() >= query.limit || page.bytes >= PAGE_BYTES {
                    page.next = (more || left > 0).then(|| candidate.spot.clone());
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// The jobs of the batch that the query wants, as only their records show.
    async fn fitting(
        &self,
        page: &mut Page,
        batch: Vec<Candidate>,
        query: &Query,
    ) -> Result<Vec<Candidate>, StoreError> {
        let mut fitting = HashSet::new();
        for part in self.parts(&batch).await? {
            for (id, found) in self.fetch(&part, query.state).await? {
                match found {
                    Ok(found) if query.is_for(&found) => drop(fitting.insert(id)),
                    Ok(_) => {}
                    Err(why) => page.unreadable.push((id, why)),
                }
            }
        }
        Ok(batch.into_iter().filter(|candidate| fitting.contains(&candidate.spot.id)).collect())
    }

    /// Takes the due times from the states.
    async fn with_due_times(
        &self,
        bucket: u16,
        mut members: Vec<Candidate>,
    ) -> Result<Vec<Candidate>, StoreError> {
        let mut command = redis::cmd("HMGET");
        command
            .arg(self.namespace.keys.state(bucket))
            .arg(members.iter().map(|member| member.spot.id.as_str()).collect::<Vec<_>>());
        let Value::Array(states) = self.namespace.link.command("listing", &command).await? else {
            return Ok(Vec::new());
        };
        for (member, state) in members.iter_mut().zip(states) {
            if let Value::BulkString(bytes) = state
                && let Ok(state) = StateRecord::decode(&bytes)
            {
                member.spot.at_ms = state.due_ms;
            }
        }
        Ok(members)
    }
}
