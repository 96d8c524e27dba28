//! Fetches the records of listed jobs, so many at a time that little is in memory.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;
use futures_util::future::try_join_all;
use redis::{Pipeline, Value};

use super::{Candidate, PAGE_BYTES};
use crate::job::JobId;
use crate::store::call::CALL_BYTES;
use crate::store::error::StoreError;
use crate::store::reader::Reader;
use crate::store::reader::lookup::{JobState, StoredJob};
use crate::store::record::{self, StateRecord};

/// By id: the job, or the reason why it cannot be read.
pub(super) type Fetched = BTreeMap<String, Result<StoredJob, String>>;
/// A job with the size of its record.
pub(super) type Weighed<'a> = (&'a Candidate, usize);

/// The number of buckets that are read concurrently: each may return a record of the largest size.
const CONCURRENT_BUCKETS: usize = 4;

impl Reader {
    /// These jobs with the sizes of their records, in parts that may be in memory together.
    pub(super) async fn parts<'a>(
        &self,
        batch: &'a [Candidate],
    ) -> Result<Vec<Vec<Weighed<'a>>>, StoreError> {
        let mut sizes: HashMap<(u16, &str), usize> = HashMap::new();
        let buckets: BTreeSet<u16> = batch.iter().map(|candidate| candidate.bucket).collect();
        let of_buckets = buckets.into_iter().map(async |bucket| {
            let members: Vec<&Candidate> =
                batch.iter().filter(|candidate| candidate.bucket == bucket).collect();
            let mut lengths = Pipeline::new();
            for member in &members {
                lengths.cmd("HSTRLEN").arg(self.namespace.keys.jobs(bucket)).arg(&member.spot.id);
            }
            Ok::<_, StoreError>((members, self.namespace.link.pipeline("listing", &lengths).await?))
        });
        for (members, lengths) in try_join_all(of_buckets).await? {
            for (member, length) in members.into_iter().zip(lengths) {
                let Value::Int(length) = length else { continue };
                sizes
                    .insert((member.bucket, &member.spot.id), usize::try_from(length).unwrap_or(0));
            }
        }
        let (mut parts, mut bytes) = (vec![Vec::new()], 0);
        for candidate in batch {
            let size =
                sizes.get(&(candidate.bucket, candidate.spot.id.as_str())).copied().unwrap_or(0);
            bytes += size;
            match parts.last_mut() {
                Some(part) if part.is_empty() || bytes <= PAGE_BYTES => {
                    part.push((candidate, size))
                }
                _ => {
                    parts.push(vec![(candidate, size)]);
                    bytes = size;
                }
            }
        }
        Ok(parts)
    }

    /// Fetches the records and states of these jobs, a few buckets at a time. By id: the job, or
    /// the reason why it cannot be read.
    pub(super) async fn fetch(
        &self,
        part: &[Weighed<'_>],
        state: JobState,
    ) -> Result<Fetched, StoreError> {
        let mut found = Fetched::new();
        let mut buckets: BTreeMap<u16, Vec<Weighed<'_>>> = BTreeMap::new();
        for (candidate, size) in part {
            buckets.entry(candidate.bucket).or_default().push((candidate, *size));
        }
        let buckets: Vec<(u16, Vec<Weighed<'_>>)> = buckets.into_iter().collect();
        for side_by_side in buckets.chunks(CONCURRENT_BUCKETS) {
            let fetching = side_by_side
                .iter()
                .map(|(bucket, members)| self.fetch_bucket(*bucket, members, state));
            try_join_all(fetching)
                .await?
                .into_iter()
                .for_each(|mut of_bucket| found.append(&mut of_bucket));
        }
        Ok(found)
    }

    /// Fetches from one bucket, at most 1 MiB per read, and drops each body at once.
    async fn fetch_bucket(
        &self,
        bucket: u16,
        members: &[Weighed<'_>],
        state: JobState,
    ) -> Result<Fetched, StoreError> {
        let mut found = Fetched::new();
        let (mut chunk, mut bytes) = (Vec::new(), 0);
        for (member, size) in members.iter().copied() {
            if !chunk.is_empty() && bytes + size > CALL_BYTES {
                self.fetch_chunk(bucket, &std::mem::take(&mut chunk), state, &mut found).await?;
                bytes = 0;
            }
            bytes += size;
            chunk.push(member);
        }
        self.fetch_chunk(bucket, &chunk, state, &mut found).await?;
        Ok(found)
    }

    async fn fetch_chunk(
        &self,
        bucket: u16,
        chunk: &[&Candidate],
        state: JobState,
        found: &mut Fetched,
    ) -> Result<(), StoreError> {
        let ids: Vec<&str> = chunk.iter().map(|candidate| candidate.spot.id.as_str()).collect();
        let mut pipeline = Pipeline::new();
        pipeline.cmd("HMGET").arg(self.namespace.keys.jobs(bucket)).arg(&ids);
        pipeline.cmd("HMGET").arg(self.namespace.keys.state(bucket)).arg(&ids);
        let mut answers = self.namespace.link.pipeline("listing", &pipeline).await?.into_iter();
        let (Some(Value::Array(records)), Some(Value::Array(states))) =
            (answers.next(), answers.next())
        else {
            return Ok(());
        };
        for (candidate, (record, stored_state)) in chunk.iter().zip(records.into_iter().zip(states))
        {
            let Value::BulkString(record) = record else { continue };
            let job = decode(candidate, state, Bytes::from(record), stored_state)
                .map_err(|why| why.to_string());
            found.insert(candidate.spot.id.clone(), job);
        }
        Ok(())
    }
}

/// The job without its body.
fn decode(
    candidate: &Candidate,
    state: JobState,
    record: Bytes,
    stored_state: Value,
) -> Result<StoredJob, String> {
    let bytes = record;
    let mut record = record::decode(bytes.clone()).map_err(|why| why.to_string())?;
    let mut state_record = match stored_state {
        Value::BulkString(stored) => {
            let state = StateRecord::decode(&stored).map_err(|why| why.to_string())?;
            Some(state.with_turn(&stored, &bytes))
        }
        _ => None,
    };
    if candidate.is_lent {
        state_record = state_record
            .or_else(|| StateRecord::of_record(&bytes, candidate.spot.at_ms))
            .map(StateRecord::in_flight);
    }
    let size = std::mem::take(&mut record.job.body).len();
    let id = JobId::new(candidate.spot.id.as_str())?;
    let (score_ms, held_by) = (candidate.score_ms, None);
    Ok(StoredJob { id, state, score_ms, record, state_record, held_by, size })
}
