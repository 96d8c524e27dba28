//! The stored forms of a job: the record, written once, and the state, only for jobs that were
//! held, sent back or changed. Each is one hash field.
//!
//! Record: version(1) flags(1) ttr ms(4) generation(8) fingerprint(8) digest(8) length of owner(1)
//! owner, length of metadata(4), metadata, body. Integers are big-endian. The owner is a broker, or
//! a queue if the version is 2. The scripts read up to the owner and no further; the metadata is
//! MessagePack with names. The upper three bits of the flags tell the scripts how long a job of a
//! queue goes on after time-outs. The bit before them stands for a retry array that the metadata
//! leaves out. The metadata of a job that debounces ends in the time of its first request, which
//! the `schedule` script writes.
//!
//! State: version(1) flags(1) crashes(1) attempt(4) step(2) due ms(8) pop(8) generation(8)
//! fingerprint(8) marks(1) reason(1) last error. Pop: the nonce of the last pop that handed the job
//! out; for a job of a broker its turn at a limited target, or zero. One of the marks tells that anew
//! ms(8) stands before the last error: the time from which the expiry of the job counts.

mod digest;
mod metadata;
mod pop;
pub(in crate::store) mod reader;

use bytes::Bytes;
use serde::Deserialize as _;

use self::digest::digest;
use self::metadata::Metadata;
use self::reader::Reader;
use crate::job::{Confirm, Conflict, DeadReason, Job, Target, is_queue_name};
use crate::policy::limit::Turn;
use crate::policy::{Progress, lease, retry};
use crate::request::NewJob;

/// The version of records and states.
pub const VERSION: u8 = 1;
/// The version of the record of a queue's job. A program that knows no queues leaves it in place.
pub const VERSION_QUEUE: u8 = 2;
const FLAG_CONSUMER: u8 = 1;
const FLAG_GENERATED: u8 = 2;
const FLAG_REPLACED: u8 = 4;
const FLAG_CALL_ID: u8 = 8;
/// The retry array of the job of a queue is [`retry::DEFAULT_MS`], that of a queue without one of
/// its own, and is not in the metadata.
const FLAG_DEFAULT_RETRY: u8 = 16;
/// The bits of a record's flags from here: [`lease::time_out_code`].
const GOES_ON_SHIFT: u8 = 5;
const FLAG_HELD: u8 = 1;
const FLAG_COUNTED: u8 = 2;
const MARK_REPLACED: u8 = 1;
const MARK_CALL_ID: u8 = 4;
const MARK_EARLY: u8 = 32;
const MARK_ANEW: u8 = 64;
/// The part of a record from version to fingerprint, which does not depend on the target.
const HEAD_BYTES: usize = 22;
const FIXED_STATE_BYTES: usize = 43;
/// The depth limit of the metadata, about three per level of nested lists and tables in headers.
/// Bounds the stack that a damaged record can use.
const MAX_METADATA_DEPTH: usize = 200;
/// The maximum length of a stored error text; a longer one is cut at a character. 4 KiB of an HTTP
/// answer fit, with the description of the answer.
const MAX_ERROR_BYTES: usize = 4_400;

/// The 8 random bytes of one claim or rescue. Only their holder may settle the jobs of its lease.
pub type Nonce = [u8; 8];

/// The 8 random bytes that name one schedule of an id. Copies of one generation are repeats of each
/// other.
pub type Generation = [u8; 8];

/// A record or a state that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unreadable record: {0}")]
pub struct Unreadable(pub(in crate::store) String);

/// A decoded record.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The job, with its body.
    pub job: Job,
    /// Dwell generated the id.
    pub generated: bool,
    /// The generation of the first schedule; a state, if present, has the current one.
    pub generation: Generation,
    /// Fingerprint of the inbound message.
    pub fingerprint: [u8; 8],
}

/// The record of a new job with this generation.
#[must_use]
pub fn encode(new_job: &NewJob, generation: Generation) -> Vec<u8> {
    let generated = if new_job.generated { FLAG_GENERATED } else { 0 };
    let call_id = if new_job.call_id.is_some() { FLAG_CALL_ID } else { 0 };
    let (flags, fingerprint) = (generated | call_id, new_job.origin.fingerprint);
    let first_ms = matches!(new_job.conflict, Conflict::Debounce { .. }).then_some(0);
    encode_job(&new_job.job, first_ms, flags, generation, fingerprint)
}

/// The record of the job of a recurring schedule, or of an occurrence.
#[must_use]
pub(in crate::store) fn encode_recurring(
    job: &Job,
    generation: Generation,
    fingerprint: [u8; 8],
) -> Vec<u8> {
    encode_job(job, None, 0, generation, fingerprint)
}

fn encode_job(
    job: &Job,
    first_ms: Option<i64>,
    flags: u8,
    generation: Generation,
    fingerprint: [u8; 8],
) -> Vec<u8> {
    let consumer = if job.confirm == Confirm::Consumer { FLAG_CONSUMER } else { 0 };
    let mut head = [0; HEAD_BYTES];
    let version = match &job.target {
        Target::Broker { .. } => VERSION,
        Target::Queue { .. } => VERSION_QUEUE,
    };
    head[..2].copy_from_slice(&[version, consumer | flags]);
    head[2..6].copy_from_slice(&job.ttr_ms.to_be_bytes());
    head[6..14].copy_from_slice(&generation);
    head[14..].copy_from_slice(&fingerprint);
    written(&head, job, first_ms)
}

/// The record of the same schedule with another target; `None` if `record` is too short.
#[must_use]
pub fn moved(record: &[u8], job: &Job) -> Option<Vec<u8>> {
    record.first_chunk().map(|head| written(head, job, job.debounced_ms))
}

/// `first_ms`: of a job that debounces, the time of its first request, epoch ms.
fn written(head: &[u8; HEAD_BYTES], job: &Job, first_ms: Option<i64>) -> Vec<u8> {
    let has_default_retry =
        job.queue().is_some() && job.retry.as_deref() == Some(retry::DEFAULT_MS);
    let metadata = Metadata::of(job, first_ms);
    let metadata = if has_default_retry { metadata.without_retry() } else { metadata };
    let metadata = rmp_serde::to_vec_named(&metadata)
        .expect("a job holds only strings, numbers and bytes, which MessagePack can write");
    let (Target::Broker { broker: owner, .. } | Target::Queue { queue: owner }) = &job.target;
    let mut bytes = Vec::with_capacity(35 + owner.len() + metadata.len() + job.body.len());
    bytes.extend_from_slice(head);
    let default_retry = if has_default_retry { FLAG_DEFAULT_RETRY } else { 0 };
    bytes[1] = (bytes[1] & (FLAG_DEFAULT_RETRY - 1))
        | default_retry
        | (lease::time_out_code(job) << GOES_ON_SHIFT);
    bytes.extend_from_slice(&digest(job));
    bytes.push(
        u8::try_from(owner.len())
            .expect("a broker's name has at most 64 bytes, that of a queue 255"),
    );
    bytes.extend_from_slice(owner.as_bytes());
    bytes.extend_from_slice(
        &u32::try_from(metadata.len())
            .expect("headers are bounded by max_body and the broker's own limits, far below 4 GiB")
            .to_be_bytes(),
    );
    bytes.extend_from_slice(&metadata);
    bytes.extend_from_slice(&job.body);
    bytes
}

/// Decodes a record; the body is a slice of the bytes, not a copy.
pub fn decode(bytes: Bytes) -> Result<Record, Unreadable> {
    let mut reader = Reader { rest: &bytes };
    let version = reader.take::<1>()?[0];
    if version != VERSION && version != VERSION_QUEUE {
        return Err(Unreadable(format!(
            "version {version}, this program reads {VERSION} and {VERSION_QUEUE}"
        )));
    }
    let flags = reader.take::<1>()?[0];
    let ttr_ms = u32::from_be_bytes(reader.take()?);
    let generation = reader.take()?;
    let fingerprint = reader.take()?;
    reader.take::<8>()?;
    let owner_len = usize::from(reader.take::<1>()?[0]);
    let owner = std::str::from_utf8(reader.slice(owner_len)?)
        .map_err(|_| Unreadable("the name of the broker or queue is not UTF-8".to_owned()))?
        .to_owned();
    let metadata_len = u32::from_be_bytes(reader.take()?) as usize;
    let metadata = reader.slice(metadata_len)?;
    let mut reading = rmp_serde::Deserializer::from_read_ref(metadata);
    reading.set_max_depth(MAX_METADATA_DEPTH);
    let metadata = Metadata::deserialize(&mut reading)
        .map_err(|error| Unreadable(format!("metadata: {error}")))?;
    let body_at = bytes.len() - reader.rest.len();
    let target_of = |to| match version {
        VERSION_QUEUE => Target::Queue { queue: owner },
        _ => Target::Broker { broker: owner, to },
    };
    let confirm = if flags & FLAG_CONSUMER != 0 { Confirm::Consumer } else { Confirm::Broker };
    let mut job = metadata.into_job(target_of, ttr_ms, confirm, bytes.slice(body_at..));
    if flags & FLAG_DEFAULT_RETRY != 0 && job.retry.is_none() {
        job.retry = Some(retry::DEFAULT_MS.to_vec());
    }
    Ok(Record { job, generated: flags & FLAG_GENERATED != 0, generation, fingerprint })
}

/// The queue of a job of a queue; also of a record whose other parts cannot be read.
#[must_use]
pub fn queue_of(bytes: &[u8]) -> Option<&str> {
    let owner = bytes.get(31..31 + usize::from(*bytes.get(30)?))?;
    let name = std::str::from_utf8(owner).ok().filter(|name| is_queue_name(name))?;
    (bytes[0] == VERSION_QUEUE).then_some(name)
}

/// Whether the job replaced another one (a flag that the `schedule` script sets).
#[must_use]
pub fn replaced(bytes: &[u8]) -> bool {
    bytes.get(1).is_some_and(|flags| flags & FLAG_REPLACED != 0)
}

/// The mutable part of a job, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateRecord {
    /// Held until the consumer answers.
    pub held: bool,
    /// `attempt` includes the last attempt and `crashes` its crash, although the job is in a claim:
    /// `fsck` took the job out of a damaged claim, and the rescue took it over.
    pub counted: bool,
    /// The number of crashes of owners in a row.
    pub crashes: u8,
    /// Attempts so far. Of a job in a claim: without the one in flight, unless the state is `held`,
    /// `counted` or dying.
    pub attempt: u32,
    /// Step in the retry array: the number of waits used.
    pub step: u16,
    /// The due time of the schedule, epoch ms.
    pub due_ms: i64,
    /// Generation of the current schedule.
    pub generation: Generation,
    /// Fingerprint of the message that scheduled the job.
    pub fingerprint: [u8; 8],
    /// Bits for the scripts (prelude.lua), but for that of `anew_ms`.
    pub marks: u8,
    /// The time from which the expiry counts if an action began it anew, epoch ms.
    pub anew_ms: Option<i64>,
    /// The reason why the job is dead or dying.
    pub reason: Option<DeadReason>,
    /// The turn at a limited target, while the job waits for it: only a claim reads it, and only a
    /// release keeps it.
    pub turn: Turn,
    /// The last error.
    pub last_error: String,
}

impl StateRecord {
    /// Decodes a state.
    pub fn decode(bytes: &[u8]) -> Result<StateRecord, Unreadable> {
        if bytes.len() < FIXED_STATE_BYTES || bytes[0] != VERSION {
            return Err(Unreadable(format!(
                "a state of {} bytes, version {}",
                bytes.len(),
                bytes.first().copied().unwrap_or_default()
            )));
        }
        let mut reader = Reader { rest: &bytes[1..] };
        let [flags, crashes] = reader.take()?;
        let attempt = u32::from_be_bytes(reader.take()?);
        let step = u16::from_be_bytes(reader.take()?);
        let due_ms = i64::from_be_bytes(reader.take()?);
        reader.take::<8>()?;
        let (generation, fingerprint) = (reader.take()?, reader.take()?);
        let [marks, reason] = reader.take()?;
        let has_anew = marks & MARK_ANEW != 0 && reader.rest.len() >= 8;
        let anew_ms = if has_anew { Some(i64::from_be_bytes(reader.take()?)) } else { None };
        Ok(StateRecord {
            held: flags & FLAG_HELD != 0,
            counted: flags & FLAG_COUNTED != 0,
            crashes,
            attempt,
            step,
            due_ms,
            generation,
            fingerprint,
            marks: marks & !MARK_ANEW,
            anew_ms,
            reason: reason_of_code(reason),
            turn: Turn::NONE,
            last_error: String::from_utf8_lossy(reader.rest).into_owned(),
        })
    }

    /// The state of a job that has none: due at `due_ms`, never attempted. `None` if the record is
    /// too short.
    #[must_use]
    pub fn of_record(record: &[u8], due_ms: i64) -> Option<StateRecord> {
        let mut reader = Reader { rest: record.get(1..)? };
        let [flags] = reader.take().ok()?;
        reader.take::<4>().ok()?;
        let (generation, fingerprint) = (reader.take().ok()?, reader.take().ok()?);
        let mark = |flag: u8, mark: u8| if flags & flag != 0 { mark } else { 0 };
        let marks = mark(FLAG_REPLACED, MARK_REPLACED) | mark(FLAG_CALL_ID, MARK_CALL_ID);
        let (held, counted, reason) = (false, false, None);
        Some(StateRecord {
            held,
            counted,
            crashes: 0,
            attempt: 0,
            step: 0,
            due_ms,
            generation,
            fingerprint,
            marks,
            anew_ms: None,
            reason,
            turn: Turn::NONE,
            last_error: String::new(),
        })
    }

    /// Counts the attempt in flight of a job in a lease. A job on its way to the dead letters has
    /// no new attempt.
    #[must_use]
    pub fn in_flight(mut self) -> StateRecord {
        if !self.held && !self.counted && self.reason.is_none() {
            self.attempt = self.attempt.saturating_add(1);
        }
        self
    }

    /// The facts that decide the fate of the job.
    #[must_use]
    pub fn progress(&self) -> Progress<'_> {
        Progress {
            attempt: self.attempt,
            step: self.step,
            due_ms: self.due_ms,
            anew_ms: self.anew_ms,
            crashes: self.crashes,
            reason: self.reason,
            last_error: &self.last_error,
        }
    }

    /// The stored form.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let flags =
            if self.held { FLAG_HELD } else { 0 } | if self.counted { FLAG_COUNTED } else { 0 };
        let mut bytes = Vec::with_capacity(FIXED_STATE_BYTES + self.last_error.len());
        bytes.extend_from_slice(&[VERSION, flags, self.crashes]);
        bytes.extend_from_slice(&self.attempt.to_be_bytes());
        bytes.extend_from_slice(&self.step.to_be_bytes());
        bytes.extend_from_slice(&self.due_ms.to_be_bytes());
        bytes.extend_from_slice(&self.turn.to_bytes());
        bytes.extend_from_slice(&self.generation);
        bytes.extend_from_slice(&self.fingerprint);
        let anew = if self.anew_ms.is_some() { MARK_ANEW } else { 0 };
        bytes.extend_from_slice(&[self.marks | anew, code_of_reason(self.reason)]);
        self.anew_ms.iter().for_each(|ms| bytes.extend_from_slice(&ms.to_be_bytes()));
        bytes.extend_from_slice(self.last_error.as_bytes());
        bytes
    }

    /// The entry of a completed job in `completed` (prelude.lua), without the outcome.
    #[must_use]
    pub fn completed_entry(&self) -> [u8; 25] {
        let mut entry = [self.marks; 25];
        entry[1..9].copy_from_slice(&self.fingerprint);
        entry[9..17].copy_from_slice(&self.due_ms.to_be_bytes());
        entry[17..].copy_from_slice(&self.generation);
        entry
    }
}

/// The code of a reason in a state; 0: none.
#[must_use]
pub fn code_of_reason(reason: Option<DeadReason>) -> u8 {
    match reason {
        None => 0,
        Some(DeadReason::RetriesExhausted) => 1,
        Some(DeadReason::Invalid) => 2,
        Some(DeadReason::Late) => 3,
        Some(DeadReason::Failed) => 4,
        Some(DeadReason::Crashed) => 5,
        Some(DeadReason::Expired) => 6,
        Some(DeadReason::Unknown) => u8::MAX,
    }
}

/// The reason of a code. The code of a later version is a death too: without a reason, a dying job
/// would be published to its target.
fn reason_of_code(code: u8) -> Option<DeadReason> {
    let known = DeadReason::ALL.into_iter().find(|reason| code_of_reason(Some(*reason)) == code);
    (code != 0).then_some(known.unwrap_or(DeadReason::Unknown))
}

/// An error text as it is stored, cut at a character.
#[must_use]
pub fn short_error(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_ERROR_BYTES.min(text.len()))]
}

#[cfg(test)]
mod tests;
