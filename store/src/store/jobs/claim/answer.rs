//! The answer of a claim or rescue: the jobs that it took.

use std::time::Duration;

use bytes::Bytes;
use redis::Value;

use crate::clock::{self, Instant};
use crate::job::JobId;
use crate::store::answer::Items;
use crate::store::error::{Class, StoreError};
use crate::store::jobs::Jobs;
use crate::store::jobs::settle::{ClaimName, ClaimToken};
use crate::store::record::{self, Nonce, Record, StateRecord};
use crate::store::scripts::Name;

/// A job that this instance may act on until `deadline`.
#[derive(Debug, Clone)]
pub struct ClaimedJob {
    /// The job's id.
    pub id: JobId,
    /// The bucket of the job.
    pub bucket: u16,
    /// The token that settles the job.
    pub token: ClaimToken,
    /// The time from which another instance may take the job over, by the clock of this process,
    /// counted from before the claim was sent.
    pub deadline: Instant,
    /// Redis's clock at the claim, epoch µs.
    pub taken_us: i64,
    /// The earliest time to publish: the job is due by Redis's clock from then on.
    pub ready: Instant,
    /// The mutable part of the job. The attempt in flight counts.
    pub state: StateRecord,
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
    /// Jobs of another version at the head of the set, which stay in place. Counts only the
    /// examined part.
    pub unknown: u32,
    /// Ids without a record, which were removed from the index.
    pub orphans: u32,
}

impl Jobs {
    /// The jobs of a claim or rescue; and the last unreadable id with its score.
    pub(super) fn read_taken(
        &self,
        script: Name,
        bucket: u16,
        nonce: Nonce,
        (sent, lease): (Instant, Duration),
        value: Value,
    ) -> Result<(Claim, [Bytes; 2]), StoreError> {
        let deadline = sent + lease;
        let mut items = Items::new(script.as_str(), value)?;
        let mut taken = Claim {
            now_us: items.int()?,
            next_ms: items.maybe_number()?,
            more: items.int()? == 1,
            ..Claim::default()
        };
        taken.unknown = u32::try_from(items.int()?).unwrap_or(u32::MAX);
        let last_unknown = [items.bytes()?, items.bytes()?];
        taken.orphans = u32::try_from(items.int()?).unwrap_or(u32::MAX);
        let created = <[u8; 8]>::try_from(&items.bytes()?[..]).map_err(|_| {
            StoreError::new(
                Class::Script,
                format!(
                    "redis: {} answered a lease without the time of its first write",
                    script.as_str()
                ),
            )
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
            let early = due_ms
                .filter(|_| is_claim)
                .map_or(0, |ms| ms.saturating_mul(1000).saturating_sub(taken.now_us));
            let ready = received + clock::micros(early);
            // Dwell never writes an id that is not UTF-8. Log it lossily; it cannot be settled, so
            // its lease expires.
            let id = match String::from_utf8(id.to_vec())
                .map_err(|_| "not UTF-8".to_owned())
                .and_then(JobId::new)
            {
                Ok(id) => id,
                Err(why) => {
                    tracing::error!(id = %String::from_utf8_lossy(&id), bucket, why, "an id in redis was not written by dwell, run `dwell fsck`");
                    continue;
                }
            };
            let has_state = !state.is_empty();
            let of_record =
                || StateRecord::of_record(&bytes, due_ms.unwrap_or(taken.now_us / 1000));
            let decoded = || StateRecord::decode(&state).ok();
            // A job of a rescue had an attempt: its turn is used.
            let state = match (has_state, is_claim) {
                (true, true) => decoded().map(|read| read.with_turn(&state, &bytes)),
                (true, false) => decoded(),
                (false, _) => of_record(),
            };
            let Some(mut state) = state.or_else(of_record) else { continue };
            if !is_claim && !state.held && !state.counted {
                state.crashes = state.crashes.saturating_add(1);
            }
            let size = bytes.len();
            let token = ClaimToken {
                id: id.clone(),
                lease: ClaimName { nonce, created },
                position,
                has_state,
                state,
            };
            match record::decode(bytes.clone()) {
                Ok(record) => {
                    let state = token.state.clone().in_flight();
                    taken.jobs.push(ClaimedJob {
                        id,
                        bucket,
                        token,
                        deadline,
                        taken_us: taken.now_us,
                        ready,
                        state,
                        record,
                        size,
                    })
                }
                Err(why) => {
                    let queue = record::queue_of(&bytes).map(str::to_owned);
                    taken.broken.push(UnreadableJob {
                        id,
                        bucket,
                        queue,
                        token,
                        why: why.to_string(),
                    });
                }
            }
        }
        Ok((taken, last_unknown))
    }
}
