//! Recurring schedules: three keys a bucket, and the script that changes them.
//!
//! A schedule is in the hash `schedules` (its record, see `codec`), in `schedule_states` (its
//! state), and in the zset `schedule_times` while it is not paused. Every decision is made in Rust,
//! on a state that was read; `change_schedule.lua` applies it if the state is still the same.
//!
//! - `codec`: the stored forms; `change`: a change and its result; `occurrence`: the job of an
//!   occurrence.
//! - `plan`: the decisions on requests.
//! - `query` and `list`: pages of schedules; `counts`: their numbers; `ids`, `pattern`: what both
//!   use.
//! - `pause`: pauses and resumes.
//! - `heads`: the schedules that are due; `spawn`: the change that makes their occurrences.
//! - `of_settings`: the schedules of the settings.

pub(crate) mod change;
mod codec;
mod counts;
pub(crate) mod heads;
mod ids;
mod list;
pub(crate) mod occurrence;
mod of_settings;
pub(in crate::store) mod pattern;
mod pause;
pub(in crate::store) mod plan;
mod query;
pub(crate) mod spawn;

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use redis::{Pipeline, Value};

use self::change::{Change, Changed, arguments, read_result};
pub use self::counts::ScheduleCounts;
pub use self::query::{ScheduleFilter, SchedulePage, ScheduleQuery};
use super::answer::Items;
use super::call::{CALL_BYTES, CALL_JOBS};
use super::due_set::DueSet;
use super::error::{Class, StoreError, UNREADABLE_HINT};
use super::namespace::{IsQueueFull, Namespace};
use super::record::Unreadable;
use super::scripts::Name;
use crate::events::Observer;
use crate::job::JobId;
use crate::schedule::StoredSchedule;

/// The number of ids in one read: a record may be large.
const IDS_PER_READ: usize = 32;

/// The recurring schedules of a namespace.
pub struct Schedules {
    namespace: Arc<Namespace>,
    /// Is told what pauses make and miss; nobody before this is set.
    observer: OnceLock<Arc<dyn Observer>>,
}

/// A schedule as it was read, with the bytes of its state.
#[derive(Debug, Clone)]
pub(crate) struct Read {
    /// The schedule.
    pub(crate) schedule: StoredSchedule,
    /// The state, which a change expects.
    pub(crate) state: Bytes,
    /// Equal for requests that are the same in everything.
    digest: codec::Digest,
}

/// What the keys have under an id.
#[derive(Clone)]
pub(in crate::store) struct Found {
    /// The state of a schedule that exists.
    pub(in crate::store) state: Option<Bytes>,
    /// The schedule; an error if it cannot be read.
    pub(in crate::store) read: Result<Option<Read>, StoreError>,
}

impl Schedules {
    pub(super) fn new(namespace: Arc<Namespace>) -> Self {
        Schedules { namespace, observer: OnceLock::new() }
    }

    /// From now on `fire` is refused while the queue of the schedule is full. Only the first call
    /// counts.
    pub fn know_full_queues(&self, is_full: IsQueueFull) {
        let _ = self.namespace.is_queue_full.set(is_full);
    }

    /// From now on this observer is told of the occurrences that a pause makes or misses. Only the
    /// first call counts.
    pub fn observe(&self, observer: Arc<dyn Observer>) {
        let _ = self.observer.set(observer);
    }

    /// Waits until a request of this process has stored a schedule since the last wait: the time of
    /// a schedule may come sooner than any before.
    pub async fn changed(&self) {
        self.namespace.schedules_changed.notified().await;
    }

    /// Schedules of one bucket by id, with the bytes of their states. One that cannot be read is
    /// left out, as one that does not exist: `fsck` reports it.
    pub(crate) async fn read(
        &self,
        bucket: u16,
        ids: &[JobId],
    ) -> Result<Vec<Option<Read>>, StoreError> {
        let names: Vec<&str> = ids.iter().map(JobId::as_str).collect();
        let found = look(&self.namespace, bucket, &names).await?;
        Ok(found.into_iter().map(|found| found.read.unwrap_or_default()).collect())
    }

    /// Applies changes of one bucket through the durability gate, with one answer each. The ids are
    /// distinct. After an error some may have been applied: read again, and decide again.
    pub(crate) async fn change(
        &self,
        bucket: u16,
        changes: &[Change],
    ) -> Result<Vec<Changed>, StoreError> {
        let mut changed = Vec::with_capacity(changes.len());
        let mut rest = changes;
        while !rest.is_empty() {
            let (call, more) = rest.split_at(members_of_call(rest));
            changed.extend(self.change_together(bucket, call).await?);
            rest = more;
        }
        Ok(changed)
    }

    /// Applies changes in one call.
    async fn change_together(
        &self,
        bucket: u16,
        changes: &[Change],
    ) -> Result<Vec<Changed>, StoreError> {
        let answer = self.send(bucket, changes).await?;
        self.read_answer(bucket, changes, answer)
    }

    /// Sends changes in one call. The script names the sets that the call lacks: those of other
    /// jobs, which nobody knows before.
    async fn send(&self, bucket: u16, changes: &[Change]) -> Result<Value, StoreError> {
        let made = changes.iter().flat_map(|change| &change.make);
        let mut sets: BTreeSet<String> = made.map(|made| made.set.clone()).collect();
        loop {
            let keys: Vec<String> = sets.iter().cloned().collect();
            let mut call = self.namespace.script_call(Name::ChangeSchedule, bucket, &keys);
            call.arg("").arg("");
            for change in changes {
                arguments(&mut call, &change.id, change.expected.as_ref(), Some(change), None);
            }
            let error = match self.namespace.durable_call(call).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let unknown: Vec<String> =
                error.unknown_sets().map(|(_, set)| set.to_owned()).collect();
            let known = sets.len();
            sets.extend(unknown);
            if sets.len() == known {
                return Err(error);
            }
        }
    }

    /// Reads the answer to the call of these changes.
    fn read_answer(
        &self,
        bucket: u16,
        changes: &[Change],
        answer: Value,
    ) -> Result<Vec<Changed>, StoreError> {
        let mut items = Items::new(Name::ChangeSchedule.as_str(), answer)?;
        self.namespace.saw_clock(items.int()?);
        items.int()?;
        changes.iter().map(|change| read_result(bucket, &mut items)?.changed(change)).collect()
    }
}

/// The number of changes, from the first, in one call.
fn members_of_call(changes: &[Change]) -> usize {
    let (mut jobs, mut bytes) = (0, 0);
    let fits = |change: &&Change| {
        jobs += change.make.len().max(1);
        bytes += change.make.iter().map(|made| made.record.len()).sum::<usize>();
        jobs <= CALL_JOBS && bytes <= CALL_BYTES
    };
    changes.iter().take_while(fits).count().max(1)
}

/// What this bucket has under these ids.
pub(in crate::store) async fn look(
    namespace: &Namespace,
    bucket: u16,
    ids: &[&str],
) -> Result<Vec<Found>, StoreError> {
    let mut found = Vec::with_capacity(ids.len());
    for ids in ids.chunks(IDS_PER_READ) {
        found.extend(look_at(namespace, bucket, ids).await?);
    }
    Ok(found)
}

async fn look_at(
    namespace: &Namespace,
    bucket: u16,
    ids: &[&str],
) -> Result<Vec<Found>, StoreError> {
    // The states first: a record that is newer than its state fails the change, one that is older
    // would not.
    let mut pipeline = Pipeline::new();
    pipeline.cmd("HMGET").arg(namespace.keys.schedule_states(bucket)).arg(ids);
    pipeline.cmd("HMGET").arg(namespace.keys.schedules(bucket)).arg(ids);
    let mut answers =
        namespace.link.pipeline("reading recurring schedules", &pipeline).await?.into_iter();
    let mut values = || match answers.next() {
        Some(Value::Array(values)) if values.len() == ids.len() => Ok(values),
        _ => Err(StoreError::new(
            Class::Script,
            "redis: HMGET answered no list with an item for each recurring schedule",
        )),
    };
    let (states, records) = (values()?, values()?);
    let found = ids.iter().zip(states).zip(records).map(|((id, state), record)| {
        let Some(record) = bytes_of(record) else { return Found { state: None, read: Ok(None) } };
        let state = bytes_of(state);
        let read = decode(id, record, state.clone()).map(Some).map_err(|why| {
            StoreError::new(Class::Script, format!("redis: recurring schedule `{id}`: {why}"))
                .hint(UNREADABLE_HINT)
        });
        Found { state, read }
    });
    Ok(found.collect())
}

fn bytes_of(value: Value) -> Option<Bytes> {
    if let Value::BulkString(bytes) = value { Some(bytes.into()) } else { None }
}

fn decode(id: &str, record: Bytes, state: Option<Bytes>) -> Result<Read, Unreadable> {
    let id = JobId::new(id).map_err(Unreadable)?;
    occurrence::check_id(&id).map_err(Unreadable)?;
    let state = state.ok_or_else(|| Unreadable("no state".to_owned()))?;
    let progress = codec::decode_state(&state)?;
    let codec::Record { digest, timing, from_settings, job } = codec::decode(record)?;
    Ok(Read {
        schedule: StoredSchedule { id, timing, job, from_settings, progress },
        state,
        digest,
    })
}

/// The set of the job of a schedule.
fn set_of(schedule: &StoredSchedule) -> String {
    DueSet::of(&schedule.job).to_string()
}

#[cfg(test)]
mod tests;
