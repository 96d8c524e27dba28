//! Judges the counts of held jobs: of each queue, the number of its jobs in `held`.
//!
//! A script reads the counts and the ids at one instant, but no queues of jobs, because their
//! records have any size. The queues are read afterwards. A job may have left by then, or be
//! another one of its id: a count is wrong if two looks, each with queues read anew, find it wrong
//! by the same number.

use std::collections::HashMap;

use redis::{Pipeline, Value};

use super::{Fsck, Problem, bytes};
use crate::store::answer::Items;
use crate::store::call::{CALL_BYTES, CALL_JOBS};
use crate::store::due_set::DueSet;
use crate::store::error::StoreError;
use crate::store::record;
use crate::store::scripts::Name;

/// The most looks at a bucket whose jobs move.
const MAX_COUNT_TRIES: usize = 16;

/// A count that differs from the number of jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wrong {
    set: String,
    /// The count in Redis.
    count: Vec<u8>,
    /// The count is missing, although the bucket has jobs of the queue: no instance looks for them.
    is_missing: bool,
    right: i64,
}

/// The data of one queue in Redis: its set, its count, and whether jobs of it wait or are dead.
type Counted = (String, Vec<u8>, bool);

impl Wrong {
    /// The difference from the right count; `None`: the count is no number. The difference stays
    /// the same while jobs move.
    fn by(&self) -> Option<i64> {
        number(&self.count)?.checked_sub(self.right)
    }
}

/// The sets of jobs by their ids; `None`: the job is not there, or cannot be read.
type SetsById = HashMap<Vec<u8>, Option<String>>;

impl Fsck<'_> {
    /// Judges the counts of a bucket, after its jobs: repairs of these change counts.
    pub(super) async fn counts(&mut self, bucket: u16) -> Result<(), StoreError> {
        let (mut sets, mut before): (SetsById, Option<Vec<Wrong>>) = (HashMap::new(), None);
        let mut left = Vec::new();
        for _ in 0..MAX_COUNT_TRIES {
            let (counts, held) = self.look(bucket).await?;
            sets.retain(|_, set| set.is_some());
            self.read_sets(bucket, &held, &mut sets).await?;
            // Of these queues the bucket has held jobs alone, and no count.
            let known = self.queues.entry(bucket).or_default();
            let before_held = known.len();
            known.extend(
                sets.values().flatten().filter(|set| DueSet::named(set).is_of_queue()).cloned(),
            );
            if known.len() > before_held {
                continue;
            }
            let Some(wrong) = wrong(counts, &held, &sets) else { continue };
            if wrong.is_empty() {
                return Ok(());
            }
            let is_as_before = |one: &&Wrong| {
                before.iter().flatten().any(|other| one.set == other.set && one.by() == other.by())
            };
            left.clear();
            let same: Vec<Wrong> = wrong.iter().filter(is_as_before).cloned().collect();
            if same.is_empty() {
                // The first look, or jobs moved during one of the two.
                before = Some(wrong);
                sets.clear();
                continue;
            }
            for one in same {
                if self.rules.repair && self.set_count(bucket, &one).await? {
                    self.tell_count(bucket, &one, true);
                } else {
                    left.push(one);
                }
            }
            if left.is_empty() || !self.rules.repair {
                break;
            }
        }
        left.iter().for_each(|one| self.tell_count(bucket, one, false));
        Ok(())
    }

    fn tell_count(&mut self, bucket: u16, wrong: &Wrong, repaired: bool) {
        self.tell(
            bucket,
            DueSet::named(&wrong.set).queue().unwrap_or_default().as_bytes(),
            Problem::BadCount,
            repaired,
        );
    }

    /// The counts of all queues, and the ids of all held jobs.
    async fn look(&self, bucket: u16) -> Result<(Vec<Counted>, Vec<Vec<u8>>), StoreError> {
        let sets: Vec<String> = self.queues.get(&bucket).into_iter().flatten().cloned().collect();
        let mut call = self.store.script_call(Name::FsckCounts, bucket, &sets);
        for set in &sets {
            call.arg(set).arg("").arg("");
        }
        let mut items = Items::new("fsck_counts", self.store.call(&call).await?)?;
        let mut counts = Vec::with_capacity(sets.len());
        for set in sets {
            counts.push((set, items.bytes()?.to_vec(), items.int()? == 1));
        }
        let mut held = Vec::with_capacity(items.left());
        while items.left() > 0 {
            held.push(items.bytes()?.to_vec());
        }
        Ok((counts, held))
    }

    /// Sets a count unless it has changed. Returns whether it has not.
    async fn set_count(&self, bucket: u16, wrong: &Wrong) -> Result<bool, StoreError> {
        let mut call = self.store.script_call(Name::FsckCounts, bucket, &[]);
        call.arg(&wrong.set).arg(&wrong.count[..]).arg(wrong.right);
        Ok(Items::new("fsck_counts", self.store.call(&call).await?)?.bytes()? == wrong.count)
    }

    /// Reads the sets of these jobs that are not known yet, at most 1 MiB at a time.
    async fn read_sets(
        &self,
        bucket: u16,
        ids: &[Vec<u8>],
        sets: &mut SetsById,
    ) -> Result<(), StoreError> {
        let jobs = self.store.keys.jobs(bucket).to_owned();
        let unknown: Vec<&Vec<u8>> = ids.iter().filter(|id| !sets.contains_key(*id)).collect();
        for ids in unknown.chunks(CALL_JOBS) {
            let mut sizes = Pipeline::new();
            for id in ids {
                sizes.cmd("HSTRLEN").arg(&jobs).arg(&id[..]);
            }
            let sizes = self.store.link.pipeline("fsck", &sizes).await?;
            let (mut chunk, mut chunk_bytes) = (Vec::new(), 0);
            for (at, id) in ids.iter().enumerate() {
                chunk.push(&id[..]);
                chunk_bytes += size(sizes.get(at));
                if at + 1 == ids.len() || chunk_bytes + size(sizes.get(at + 1)) > CALL_BYTES {
                    let answer = self
                        .store
                        .link
                        .command("fsck", redis::cmd("HMGET").arg(&jobs).arg(&chunk))
                        .await?;
                    let Value::Array(records) = answer else { return Ok(()) };
                    sets.extend(
                        chunk.drain(..).map(<[u8]>::to_vec).zip(records.into_iter().map(set_of)),
                    );
                    chunk_bytes = 0;
                }
            }
        }
        Ok(())
    }
}

fn size(answer: Option<&Value>) -> usize {
    match answer {
        Some(Value::Int(size)) => usize::try_from(*size).unwrap_or(0),
        _ => 0,
    }
}

fn set_of(record: Value) -> Option<String> {
    let record = record::decode(bytes(record)?.into()).ok()?;
    Some(DueSet::of(&record.job).to_string())
}

/// A missing count is none.
fn number(count: &[u8]) -> Option<i64> {
    if count.is_empty() { Some(0) } else { std::str::from_utf8(count).ok()?.parse().ok() }
}

/// The counts that are wrong; `None` if a held job is of an unknown set.
fn wrong(counts: Vec<Counted>, held: &[Vec<u8>], sets: &SetsById) -> Option<Vec<Wrong>> {
    let mut rights: HashMap<&str, i64> = HashMap::new();
    for id in held {
        *rights.entry(sets.get(id)?.as_deref()?).or_default() += 1;
    }
    let one = |(set, count, has_jobs): Counted| {
        let right = rights.get(set.as_str()).copied().unwrap_or(0);
        Wrong { is_missing: count.is_empty() && (has_jobs || right > 0), right, set, count }
    };
    Some(counts.into_iter().map(one).filter(|one| one.is_missing || one.by() != Some(0)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(of: &[(&str, &str)]) -> Vec<Counted> {
        of.iter()
            .map(|(set, count)| ((*set).to_owned(), count.as_bytes().to_vec(), *set == "=waits"))
            .collect()
    }

    #[test]
    fn counts_are_compared_with_the_jobs_of_their_queue() {
        let held: Vec<Vec<u8>> = ["a", "b", "c"].map(|id| id.as_bytes().to_vec()).into();
        let mut sets: SetsById = held
            .iter()
            .cloned()
            .zip(["=one", "=one", "main"].map(|set| Some(set.to_owned())))
            .collect();
        assert_eq!(
            wrong(counts(&[("=one", "2"), ("=two", ""), ("=three", "0")]), &held, &sets),
            Some(Vec::new())
        );
        let found = wrong(counts(&[("=one", "1"), ("=two", "x"), ("=three", "-1")]), &held, &sets)
            .unwrap_or_default();
        let by: Vec<_> = found.iter().map(|one| (one.set.as_str(), one.right, one.by())).collect();
        assert_eq!(by, [("=one", 2, Some(-1)), ("=two", 0, None), ("=three", 0, Some(-1))]);
        let missing =
            wrong(counts(&[("=one", "2"), ("=waits", ""), ("=waits", "0")]), &held, &sets)
                .unwrap_or_default();
        assert_eq!(
            missing.iter().map(|one| (one.set.as_str(), one.right, one.by())).collect::<Vec<_>>(),
            [("=waits", 0, Some(0))]
        );
        sets.insert(b"c".to_vec(), None);
        assert_eq!(
            wrong(counts(&[("=one", "1")]), &held, &sets),
            None,
            "a job that left may be of any queue"
        );
    }
}
