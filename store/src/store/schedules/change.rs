//! A change of a schedule: its arguments for `change_schedule.lua`, and its result.

use std::borrow::Cow;

use bytes::Bytes;

use crate::job::{JobId, Verdict};
use crate::request::{Origin, OwnQueues};
use crate::schedule::Progress;
use crate::store::answer::Items;
use crate::store::call::script_call::ScriptCall;
use crate::store::error::{Class, StoreError, UNREADABLE_HINT};
use crate::store::jobs::schedule::own_queues_argument;
use crate::store::record::Generation;
use crate::store::schedules::codec;
use crate::store::schedules::occurrence::Occurrence;
use crate::store::wake_up::WakeUp;

/// The word for a state that does not change.
const SAME_STATE: &[u8] = b"=";

/// A change of a schedule, applied if its state is still the one that was read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Change {
    /// The id of the schedule.
    pub(crate) id: JobId,
    /// The state that was read; `None`: no schedule has the id.
    pub(crate) expected: Option<Bytes>,
    /// The new record; `None` keeps it.
    pub(crate) record: Option<Bytes>,
    /// The new state, of another revision; `None` removes the schedule.
    pub(crate) progress: Option<Progress>,
    /// The occurrences to make.
    pub(crate) make: Vec<Occurrence>,
    /// Nothing changes while this job is alive: waiting, out, held or retrying.
    pub(crate) unless_alive: Option<JobId>,
    /// The occurrence to take out if nothing of it was attempted, and its generation.
    pub(crate) take: Option<(JobId, Generation)>,
}

/// The result of a change.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Changed {
    /// The change was applied.
    Done {
        /// What became of the occurrence to take out, if the change named one.
        taken: Option<Taken>,
        /// An occurrence is the first of its set by now.
        wake_up: Option<WakeUp>,
    },
    /// Nothing changed: the state is another. Read again, and decide again.
    Stale,
    /// Nothing changed: this id of an occurrence has another job.
    Exists(JobId),
    /// Nothing changed: [`Change::unless_alive`] is alive.
    Alive,
    /// Nothing changed: a job that is alive has the id of the new schedule.
    JobHasId,
}

/// What became of the occurrence to take out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Nothing of it was attempted, and the job is gone.
    Cancelled,
    /// An attempt is out: the job goes on.
    InFlight,
    /// Neither: the job retries, is held, dead or over, or there is none.
    Left,
}

/// The request that asks for a change.
pub(in crate::store) struct ChangeRequest<'a> {
    /// The identity of its message.
    pub(in crate::store) origin: &'a Origin,
    /// The queues of its caller, if those are not all.
    pub(in crate::store) own_queues: Option<&'a OwnQueues>,
    /// Its verdict; `None`: it is refused, unless it was applied before.
    pub(in crate::store) verdict: Option<Verdict>,
    /// The due time of the verdict, epoch ms.
    pub(in crate::store) due_ms: Option<i64>,
}

/// Appends one change to a call. `change`: `None` if the schedule stays as it is.
pub(in crate::store) fn arguments(
    call: &mut ScriptCall,
    id: &JobId,
    expected: Option<&Bytes>,
    change: Option<&Change>,
    asked: Option<&ChangeRequest<'_>>,
) {
    let state: Cow<'_, [u8]> = match change {
        None => SAME_STATE.into(),
        Some(change) => {
            change.progress.as_ref().map(codec::encode_state).unwrap_or_default().into()
        }
    };
    let progress = change.and_then(|change| change.progress.as_ref());
    let next = progress.filter(|progress| !progress.is_paused).and_then(|now| now.next_ms);
    let text = |ms: Option<i64>| ms.map(|ms| ms.to_string()).unwrap_or_default();
    call.arg(id.as_str()).arg(bytes_of(expected)).arg(&state[..]);
    call.arg(bytes_of(change.and_then(|change| change.record.as_ref()))).arg(text(next));
    let alive = change.and_then(|change| change.unless_alive.as_ref());
    call.arg(alive.map(JobId::as_str).unwrap_or_default());
    match change.and_then(|change| change.take.as_ref()) {
        Some((id, generation)) => call.arg(id.as_str()).arg(&generation[..]),
        None => call.arg("").arg(""),
    };
    match asked {
        Some(ChangeRequest { origin, own_queues, verdict, due_ms }) => {
            let bits = u8::from(origin.maybe_redelivered) | u8::from(origin.is_message) << 1;
            call.arg(&origin.fingerprint[..])
                .arg(format!("{bits}{}", own_queues_argument(*own_queues)))
                .arg(verdict.map(Verdict::as_str).unwrap_or_default())
                .arg(text(*due_ms));
        }
        None => {
            call.arg("").arg("0").arg("").arg("");
        }
    }
    let make = change.map(|change| &change.make[..]).unwrap_or_default();
    call.arg(make.len());
    for made in make {
        call.arg(made.id.as_str()).arg(&made.record[..]).arg(made.due_ms);
    }
}

fn bytes_of(bytes: Option<&Bytes>) -> &[u8] {
    bytes.map(|bytes| &bytes[..]).unwrap_or_default()
}

/// The result of one change, in the words of the script.
pub(in crate::store) struct ChangeAnswer {
    /// `done`, `before`, `stale` and so on.
    result: String,
    /// The verdict, or the id of an occurrence.
    word: String,
    due_ms: Option<i64>,
    taken: String,
    wake_up: Option<WakeUp>,
}

/// Reads the result of one change of this bucket.
pub(in crate::store) fn read_result(
    bucket: u16,
    items: &mut Items,
) -> Result<ChangeAnswer, StoreError> {
    let (result, word, due_ms) = (items.text()?, items.text()?, items.maybe_number()?);
    let (taken, broker, first_ms) = (items.text()?, items.text()?, items.maybe_number()?);
    let wake_up = first_ms.map(|due_ms| WakeUp { bucket, broker, due_ms });
    Ok(ChangeAnswer { result, word, due_ms, taken, wake_up })
}

/// The verdict and due time of a request, epoch ms, and the wake-up that it caused.
pub(in crate::store) type Answered = (Verdict, Option<i64>, Option<WakeUp>);

impl ChangeAnswer {
    /// The result of a change without a request.
    pub(in crate::store) fn changed(self, change: &Change) -> Result<Changed, StoreError> {
        let taken = change.take.as_ref().map(|_| match self.taken.as_str() {
            "cancelled" => Taken::Cancelled,
            "in_flight" => Taken::InFlight,
            _ => Taken::Left,
        });
        Ok(match self.result.as_str() {
            "done" => Changed::Done { taken, wake_up: self.wake_up },
            "stale" => Changed::Stale,
            "exists" => match JobId::new(self.word.clone()) {
                Ok(id) => Changed::Exists(id),
                Err(_) => return Err(self.odd()),
            },
            "alive" => Changed::Alive,
            "conflict" => Changed::JobHasId,
            "unreadable" => return Err(unreadable()),
            _ => return Err(self.odd()),
        })
    }

    /// The change was applied by this call.
    pub(in crate::store) fn is_done(&self) -> bool {
        self.result == "done"
    }

    /// The request is refused: it was not applied before.
    pub(in crate::store) fn is_refused(&self) -> bool {
        self.result == "refused"
    }

    /// The answer to a request. `None`: the schedule, or the job that has its id, is of others.
    pub(in crate::store) fn answered(self) -> Result<Option<Answered>, StoreError> {
        match self.result.as_str() {
            "done" | "before" | "conflict" => match Verdict::parse(&self.word) {
                Some(verdict) => Ok(Some((verdict, self.due_ms, self.wake_up))),
                None => Err(self.odd()),
            },
            "foreign" => Ok(None),
            "unreadable" => Err(unreadable()),
            _ => Err(self.odd()),
        }
    }

    fn odd(&self) -> StoreError {
        let ChangeAnswer { result, word, .. } = self;
        StoreError::new(
            Class::Script,
            format!("redis: change_schedule answered the unknown result `{result}` `{word}`"),
        )
    }
}

fn unreadable() -> StoreError {
    StoreError::new(
        Class::Script,
        "redis: change_schedule: DWELL_VERSION: the job of this id has an unreadable record",
    )
    .hint(UNREADABLE_HINT)
}
