//! Moves jobs from one broker to another, such as from a broker that the settings no longer have.

use std::collections::HashMap;

use bytes::Bytes;
use redis::{Pipeline, Value};

use crate::job::{Job, JobId};
use crate::store::admin::Admin;
use crate::store::answer::{Items, score};
use crate::store::call::{CALL_BYTES, CALL_JOBS};
use crate::store::error::StoreError;
use crate::store::meta;
use crate::store::reader::lookup::JobState;
use crate::store::record::{self, Record};
use crate::store::scripts::Name;
use crate::store::wake_up::WakeUp;

/// The most scans of a bucket for jobs that returned from an attempt meanwhile.
const MAX_BUCKET_SCANS: usize = 16;

/// The result of a move.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transferred {
    /// Moved, with unchanged due times.
    pub scheduled: u64,
    /// Moved, still dead.
    pub dead: u64,
    /// Not moved: an attempt is in flight, or they wait for their consumer. At least one if jobs
    /// kept returning from attempts during all scans.
    pub reserved: u64,
    /// Not moved: the caller refused them.
    pub refused: u64,
    /// Not moved: their records cannot be read.
    pub unreadable: u64,
    /// The new earliest due time on the other broker, by bucket.
    pub wake_ups: Vec<WakeUp>,
}

/// The reason why a waiting or dead job is not moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeepReason {
    Refused,
    Unreadable,
}

/// The scan of one bucket.
struct Walk<'a, J> {
    bucket: u16,
    brokers: &'a [String; 2],
    classify: &'a mut J,
    done: &'a mut Transferred,
    stays: HashMap<String, KeepReason>,
}

/// A job of the old broker, as read.
struct Leaver {
    id: JobId,
    due_ms: i64,
    /// The record for the new broker.
    record: Vec<u8>,
}

impl Admin {
    /// Moves the jobs of broker `from` to broker `to`, which is added to the namespace. `classify`
    /// returns the job for the new broker, or refuses it. Each job moves atomically, and a repeated
    /// call does not change moved jobs. Id, due time, attempts, retry step and generation stay the
    /// same. Behind the durability gate.
    pub async fn transfer(
        &self,
        from: &str,
        to: &str,
        mut classify: impl FnMut(&JobId, Record) -> Option<Job>,
    ) -> Result<Transferred, StoreError> {
        meta::admit(&self.namespace.link, &self.namespace.keys, to).await?;
        self.namespace.rejoin().await?;
        let mut done = Transferred::default();
        let brokers = [from.to_owned(), to.to_owned()];
        for bucket in 0..self.namespace.keys.buckets() {
            let mut walk = Walk {
                bucket,
                brokers: &brokers,
                classify: &mut classify,
                done: &mut done,
                stays: HashMap::new(),
            };
            self.walk(&mut walk, JobState::Scheduled).await?;
            self.walk(&mut walk, JobState::Dead).await?;
            let others = walk.done.reserved;
            // A job whose attempt ends during the scan may return behind the scan's position.
            for left in (0..MAX_BUCKET_SCANS).rev() {
                let moved = walk.done.scheduled;
                walk.done.reserved = others;
                self.walk(&mut walk, JobState::Reserved).await?;
                self.walk(&mut walk, JobState::Scheduled).await?;
                if walk.done.scheduled == moved {
                    break;
                }
                if left == 0 {
                    walk.done.reserved = walk.done.reserved.max(others + 1);
                }
            }
            let stay = |why| walk.stays.values().filter(|stays| **stays == why).count() as u64;
            let (refused, unreadable) = (stay(KeepReason::Refused), stay(KeepReason::Unreadable));
            done.refused += refused;
            done.unreadable += unreadable;
        }
        Ok(done)
    }

    /// Moves or counts the jobs of one set, page by page.
    async fn walk<J>(&self, walk: &mut Walk<'_, J>, state: JobState) -> Result<(), StoreError>
    where
        J: FnMut(&JobId, Record) -> Option<Job>,
    {
        if state == JobState::Reserved {
            let claimed = self
                .namespace
                .claimed_jobs(walk.bucket)
                .await?
                .into_iter()
                .map(|claimed| (claimed.id, claimed.deadline_ms));
            for page in claimed.collect::<Vec<_>>().chunks(CALL_JOBS) {
                self.transfer_page(walk, state, page).await?;
            }
        }
        let key = match state {
            JobState::Scheduled | JobState::Ready => {
                self.namespace.keys.due(walk.bucket, &walk.brokers[0])
            }
            JobState::Dead => self.namespace.keys.dead(walk.bucket).to_owned(),
            JobState::Reserved => self.namespace.keys.held(walk.bucket).to_owned(),
        };
        let mut offset = 0;
        loop {
            let page = self.members(&key, offset).await?;
            if page.is_empty() {
                return Ok(());
            }
            let left = self.transfer_page(walk, state, &page).await?;
            // Moved jobs leave the set, so the following jobs advance.
            offset += if state == JobState::Scheduled { left } else { page.len() };
        }
    }

    /// A page of a sorted set: ids and scores.
    async fn members(&self, key: &str, offset: usize) -> Result<Vec<(String, i64)>, StoreError> {
        let mut command = redis::cmd("ZRANGE");
        command.arg(key).arg(offset).arg(offset + CALL_JOBS - 1).arg("WITHSCORES");
        let Value::Array(items) = self.namespace.link.command("listing", &command).await? else {
            return Ok(Vec::new());
        };
        let mut items = items.into_iter();
        let mut page = Vec::new();
        while let (Some(Value::BulkString(id)), Some(at)) = (items.next(), items.next()) {
            page.push((String::from_utf8_lossy(&id).into_owned(), score(at).unwrap_or(0)));
        }
        Ok(page)
    }

    /// Moves the jobs of a page that belong to the old broker, 1 MiB at a time. Returns how many
    /// stay in the set.
    async fn transfer_page<J>(
        &self,
        walk: &mut Walk<'_, J>,
        state: JobState,
        page: &[(String, i64)],
    ) -> Result<usize, StoreError>
    where
        J: FnMut(&JobId, Record) -> Option<Job>,
    {
        let mut sizes = Pipeline::new();
        for (id, _) in page {
            sizes.cmd("HSTRLEN").arg(self.namespace.keys.jobs(walk.bucket)).arg(id);
        }
        let sizes = self.namespace.link.pipeline("listing", &sizes).await?;
        let sizes = sizes.into_iter().map(|size| {
            if let Value::Int(size) = size { usize::try_from(size).unwrap_or(0) } else { 0 }
        });
        let (mut left, mut chunk, mut bytes) = (0, Vec::new(), 0);
        for (member, size) in page.iter().zip(sizes) {
            if !chunk.is_empty() && bytes + size > CALL_BYTES {
                left += self.transfer_chunk(walk, state, &std::mem::take(&mut chunk)).await?;
                bytes = 0;
            }
            bytes += size;
            chunk.push(member);
        }
        Ok(left + self.transfer_chunk(walk, state, &chunk).await?)
    }

    async fn transfer_chunk<J>(
        &self,
        walk: &mut Walk<'_, J>,
        state: JobState,
        chunk: &[&(String, i64)],
    ) -> Result<usize, StoreError>
    where
        J: FnMut(&JobId, Record) -> Option<Job>,
    {
        let Walk { bucket, brokers, classify, done, stays } = walk;
        let bucket = *bucket;
        let mut command = redis::cmd("HMGET");
        command
            .arg(self.namespace.keys.jobs(bucket))
            .arg(chunk.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>());
        let Value::Array(records) = self.namespace.link.command("listing", &command).await? else {
            return Ok(chunk.len());
        };
        let mut leavers = Vec::new();
        for ((id, at_ms), record) in chunk.iter().zip(records) {
            // A job without a record has left meanwhile, or is damage that `fsck` reports. Other
            // ids are already counted.
            let Value::BulkString(bytes) = record else { continue };
            if state != JobState::Reserved && stays.contains_key(id) {
                continue;
            }
            let bytes = Bytes::from(bytes);
            let (Ok(id), Ok(read)) = (JobId::new(id.as_str()), record::decode(bytes.clone()))
            else {
                // The broker of an unreadable dead job is unknown.
                if state == JobState::Scheduled {
                    stays.insert(id.clone(), KeepReason::Unreadable);
                }
                continue;
            };
            if read.job.broker() != Some(brokers[0].as_str()) {
                continue;
            }
            if state == JobState::Reserved {
                done.reserved += 1;
                continue;
            }
            match classify(&id, read).and_then(|job| record::moved(&bytes, &job)) {
                Some(record) => leavers.push(Leaver { id, due_ms: *at_ms, record }),
                None => drop(stays.insert(id.as_str().to_owned(), KeepReason::Refused)),
            }
        }
        if leavers.is_empty() {
            return Ok(chunk.len());
        }
        let mut gone = 0;
        let mut earliest: Option<i64> = None;
        for (leaver, word) in leavers.iter().zip(self.pass_move(bucket, brokers, &leavers).await?) {
            match (word.as_str(), state) {
                ("moved", JobState::Scheduled) => {
                    done.scheduled += 1;
                    earliest =
                        Some(earliest.map_or(leaver.due_ms, |first| first.min(leaver.due_ms)));
                }
                ("moved", _) => done.dead += 1,
                // A reserved job is counted in its own set, and a changed one at its new place, if
                // it still belongs to the old broker.
                _ => {}
            }
            gone += 1;
        }
        done.wake_ups.extend(earliest.map(|due_ms| WakeUp {
            bucket,
            due_ms,
            broker: brokers[1].clone(),
        }));
        Ok(chunk.len() - gone)
    }

    async fn pass_move(
        &self,
        bucket: u16,
        brokers: &[String; 2],
        leavers: &[Leaver],
    ) -> Result<Vec<String>, StoreError> {
        let mut call = self.namespace.script_call(Name::Move, bucket, brokers);
        for leaver in leavers {
            call.arg(leaver.id.as_str()).arg(&leaver.record[..]);
        }
        let mut items = Items::new(Name::Move.as_str(), self.namespace.durable_call(call).await?)?;
        leavers.iter().map(|_| items.text()).collect()
    }
}
