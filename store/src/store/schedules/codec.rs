//! The stored forms of a recurring schedule: the record, written by each request that changes it,
//! and the state. Each is one hash field.
//!
//! Record: version(1) digest(16) length of timing(4) timing, then the record of the job of each
//! occurrence (`store/record.rs`). Integers are big-endian; the timing is MessagePack with names.
//! The scripts read the record of the job alone.
//!
//! State: MessagePack with names. Scripts compare its bytes and never read them.

use std::borrow::Cow;

use bytes::Bytes;
use dwell_schedule::{Expression, Zone};
use serde::{Deserialize, Serialize};

use crate::job::Job;
use crate::request::NewSchedule;
use crate::schedule::{Overlap, Progress, Timing};
use crate::store::record::reader::Reader;
use crate::store::record::{self, Generation, Unreadable};

/// The version of records.
const VERSION: u8 = 1;
/// The depth limit of a timing and of a state, which have no lists.
const MAX_DEPTH: usize = 16;

/// A hash of all that makes two requests the same in everything.
pub(super) type Digest = [u8; 16];

/// A decoded record.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Record {
    pub(super) digest: Digest,
    pub(super) timing: Timing,
    pub(super) from_settings: bool,
    pub(super) job: Job,
}

/// A timing as it is stored. The fields have their meanings in [`Timing`]. A field of a later version
/// makes the schedule unreadable: without it, occurrences would be made at other times.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredTiming<'a> {
    text: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    zone: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    start_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    end_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    catch_up: Cow<'a, str>,
    overlap: Cow<'a, str>,
    spread_ms: u64,
    from_settings: bool,
}

/// A state as it is stored. The fields have their meanings in [`Progress`]. A field of a later
/// version makes the state unreadable: the next change would lose the field.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredState<'a> {
    grid_ms: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next_ms: Option<i64>,
    zone_data: Cow<'a, str>,
    occurrence: u64,
    counted: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_missed_ms: Option<i64>,
    missed: u64,
    is_paused: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<Cow<'a, str>>,
    generation: u64,
    revision: u64,
}

/// The digest of a request. Its moment, its message and its trace are no part of it.
pub(super) fn digest(new: &NewSchedule) -> Digest {
    let Timing { expression, zone, start_ms, end_ms, count, catch_up, overlap, spread_ms, .. } =
        &new.timing;
    let zone = zone.as_ref().map_or("UTC", Zone::name);
    let timing = (
        (expression.normal(), zone, start_ms, end_ms, count),
        (catch_up.name(), overlap.as_str(), spread_ms, new.from_settings),
    );
    let timing = packed(rmp_serde::to_vec(&timing));
    let job =
        Job { created_ms: 0, origin: String::new(), trace: None, round: 0, ..new.job.clone() };
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(timing.len() as u64).to_be_bytes()).update(&timing);
    hasher.update(&record::encode_recurring(&job, [0; 8], [0; 8]));
    let hash = hasher.finalize();
    std::array::from_fn(|i| hash.as_bytes()[i])
}

/// The record of a request. `generation`: see [`Progress::generation`].
pub(super) fn encode(new: &NewSchedule, digest: &Digest, generation: Generation) -> Vec<u8> {
    let timing = &new.timing;
    let stored = StoredTiming {
        text: Cow::Borrowed(&timing.text),
        zone: timing.zone.as_ref().map(|zone| Cow::Borrowed(zone.name())),
        start_ms: timing.start_ms,
        end_ms: timing.end_ms,
        count: timing.count,
        catch_up: Cow::Borrowed(timing.catch_up.name()),
        overlap: Cow::Borrowed(timing.overlap.as_str()),
        spread_ms: timing.spread_ms,
        from_settings: new.from_settings,
    };
    let stored = packed(rmp_serde::to_vec_named(&stored));
    let job = record::encode_recurring(&new.job, generation, new.origin.fingerprint);
    let mut bytes = Vec::with_capacity(21 + stored.len() + job.len());
    bytes.push(VERSION);
    bytes.extend_from_slice(digest);
    let length = u32::try_from(stored.len());
    bytes.extend_from_slice(&length.expect("an expression is far below 4 GiB").to_be_bytes());
    bytes.extend_from_slice(&stored);
    bytes.extend_from_slice(&job);
    bytes
}

/// Decodes a record; the body is a slice of the bytes, not a copy.
pub(super) fn decode(bytes: Bytes) -> Result<Record, Unreadable> {
    let mut reader = Reader { rest: &bytes };
    let version = reader.take::<1>()?[0];
    if version != VERSION {
        return Err(Unreadable(format!(
            "version {version} of a recurring schedule, this program reads {VERSION}"
        )));
    }
    let digest = reader.take()?;
    let length = u32::from_be_bytes(reader.take()?) as usize;
    let stored: StoredTiming<'_> = unpacked(reader.slice(length)?, "timing")?;
    let job_at = bytes.len() - reader.rest.len();
    let (timing, from_settings) = timing_of(stored)?;
    let job = record::decode(bytes.slice(job_at..))?.job;
    Ok(Record { digest, timing, from_settings, job })
}

fn timing_of(stored: StoredTiming<'_>) -> Result<(Timing, bool), Unreadable> {
    let unreadable = |why: dwell_schedule::ParseError| Unreadable(format!("timing: {why}"));
    let overlap = [Overlap::Allow, Overlap::Skip]
        .into_iter()
        .find(|overlap| overlap.as_str() == stored.overlap)
        .ok_or_else(|| Unreadable(format!("timing: the overlap `{}`", stored.overlap)))?;
    let timing = Timing {
        expression: Expression::parse(&stored.text).map_err(unreadable)?,
        text: stored.text.into_owned(),
        zone: stored.zone.as_deref().map(Zone::parse).transpose().map_err(unreadable)?,
        start_ms: stored.start_ms,
        end_ms: stored.end_ms,
        count: stored.count,
        catch_up: stored.catch_up.parse().map_err(unreadable)?,
        overlap,
        spread_ms: stored.spread_ms,
    };
    Ok((timing, stored.from_settings))
}

/// The state of a schedule.
pub(super) fn encode_state(progress: &Progress) -> Vec<u8> {
    packed(rmp_serde::to_vec_named(&StoredState {
        grid_ms: progress.grid_ms,
        next_ms: progress.next_ms,
        zone_data: Cow::Borrowed(&progress.zone_data),
        occurrence: progress.occurrence,
        counted: progress.counted,
        last_ms: progress.last_ms,
        last_missed_ms: progress.last_missed_ms,
        missed: progress.missed,
        is_paused: progress.is_paused,
        reason: progress.reason.as_deref().map(Cow::Borrowed),
        generation: u64::from_be_bytes(progress.generation),
        revision: progress.revision,
    }))
}

/// Decodes a state.
pub(super) fn decode_state(bytes: &[u8]) -> Result<Progress, Unreadable> {
    let stored: StoredState<'_> = unpacked(bytes, "state")?;
    Ok(Progress {
        grid_ms: stored.grid_ms,
        next_ms: stored.next_ms,
        zone_data: stored.zone_data.into_owned(),
        occurrence: stored.occurrence,
        counted: stored.counted,
        last_ms: stored.last_ms,
        last_missed_ms: stored.last_missed_ms,
        missed: stored.missed,
        is_paused: stored.is_paused,
        reason: stored.reason.map(Cow::into_owned),
        generation: stored.generation.to_be_bytes(),
        revision: stored.revision,
    })
}

fn packed(written: Result<Vec<u8>, rmp_serde::encode::Error>) -> Vec<u8> {
    written.expect("strings and numbers, which MessagePack can write")
}

fn unpacked<'a, T: Deserialize<'a>>(bytes: &'a [u8], what: &str) -> Result<T, Unreadable> {
    let mut reading = rmp_serde::Deserializer::from_read_ref(bytes);
    reading.set_max_depth(MAX_DEPTH);
    T::deserialize(&mut reading).map_err(|error| Unreadable(format!("{what}: {error}")))
}

#[cfg(test)]
mod tests;
