//! `schedule` stores new jobs, in batches. [`Answer`] is the answer to any request.

use std::time::SystemTime;

use redis::Cmd;

use crate::clock::time_of;
use crate::job::{Conflict, Due, Verdict};
use crate::request::{NewJob, OwnQueues};
use crate::store::answer::Items;
use crate::store::client::Redirects;
use crate::store::error::{Class, StoreError, UNREADABLE_HINT};
use crate::store::queue::Queue;
use crate::store::queue::batch::{Applied, Group, RequestRef};
use crate::store::scripts::Name;

/// The most jobs in one script call. 128 jobs of 200 bytes occupy Redis for 0.65 ms (measured on
/// 7.0.15).
pub const CALL_JOBS: usize = 128;
/// The most bytes of records in one script call; a single larger record is a call of its own.
pub const CALL_BYTES: usize = 1 << 20;

/// The answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// The verdict.
    pub verdict: Verdict,
    /// The due time of the job, epoch ms, if known.
    #[doc(hidden)]
    pub due_ms: Option<i64>,
}

impl Answer {
    /// The due time of the job, if known.
    #[must_use]
    pub fn due(&self) -> Option<SystemTime> {
        self.due_ms.map(time_of)
    }
}

/// A job that became the earliest of its bucket and broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WakeUp {
    /// The bucket.
    pub bucket: u16,
    /// The broker, or `=` and the queue.
    pub broker: String,
    /// Epoch ms by Redis's clock.
    pub due_ms: i64,
}

/// The result of `schedule`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Scheduled {
    /// The answers, one per request, in the order of the requests.
    pub answers: Vec<Answer>,
    /// The buckets whose readers must wake earlier than planned.
    pub wake_ups: Vec<WakeUp>,
}

/// The answers of one call, one per member, and the wake-ups that the call caused.
pub(super) type CallAnswers = (Vec<Result<Answer, StoreError>>, Vec<WakeUp>);

impl Queue {
    /// Stores jobs as [`apply`](Queue::apply) does. After an error the result of every request is
    /// unknown: send the same requests again.
    pub async fn schedule(&self, requests: &[NewJob]) -> Result<Scheduled, StoreError> {
        let asked: Vec<RequestRef<'_>> = requests.iter().map(RequestRef::NewJob).collect();
        let Applied { answers, wake_ups } = self.apply(&asked, &[]).await;
        Ok(Scheduled { answers: answers.into_iter().collect::<Result<_, _>>()?, wake_ups })
    }

    /// Whether the store accepts requests: sends an empty batch for a random bucket through the
    /// durability gate. A full Redis or a damaged bucket counts as an answer.
    pub async fn takes_requests(&self) -> Result<(), StoreError> {
        let bucket = rand::random_range(0..self.namespace.keys.buckets());
        let calls = [vec![self.namespace.script_call(Name::Schedule, bucket, &[])]];
        let (mut loaded, mut moves) = (false, Redirects::default());
        loop {
            let link = self.namespace.gate.link();
            match self.namespace.gate.pass(link, "schedule", &calls).await.pop() {
                Some(Err(error)) if error.class == Class::NoScript && !loaded => {
                    loaded = true;
                    link.load(
                        &self.namespace.scripts.source(Name::Schedule),
                        calls.iter().flatten(),
                    )
                    .await?;
                }
                // Another master may not know the script.
                Some(Err(error)) if moves.follow(&error).await => loaded = false,
                Some(Err(error)) if !matches!(error.class, Class::Script | Class::Oom) => {
                    self.namespace.observer.failed(error.class);
                    return Err(error);
                }
                _ => return Ok(()),
            }
        }
    }

    /// The answers of one call, one per member, and the wake-ups that the call caused.
    pub(super) fn read_scheduled(
        &self,
        group: &Group,
        mut items: Items,
    ) -> Result<CallAnswers, StoreError> {
        let now_us = items.int()?;
        let count = items.int()?;
        if usize::try_from(count) != Ok(group.members.len()) {
            return Err(StoreError::new(
                Class::Script,
                format!(
                    "redis: schedule answered for {count} jobs instead of {}",
                    group.members.len()
                ),
            ));
        }
        self.namespace.saw_clock(now_us);
        let answers = group.members.iter().map(|_| read_answer(&mut items)).collect();
        let mut wake_ups = Vec::new();
        while items.left() >= 2 {
            let broker = items.text()?;
            if let Some(due_ms) = items.maybe_number()? {
                wake_ups.push(WakeUp { bucket: group.bucket, broker, due_ms });
            }
        }
        Ok((answers, wake_ups))
    }
}

/// Appends the deadline of the call, which follows its jobs.
pub(super) fn schedule_deadline(call: &mut Cmd, deadline_us: Option<i64>) {
    if let Some(us) = deadline_us {
        call.arg(us);
    }
}

/// Appends one job to a call.
pub(super) fn schedule_arguments(call: &mut Cmd, request: &NewJob, record: &[u8]) {
    let policy = match request.conflict {
        _ if request.apart => "other",
        Conflict::Replace => "replace",
        Conflict::Keep => "keep",
        Conflict::Reject => "reject",
    };
    call.arg(request.id.as_str()).arg(record).arg(time_argument(request.due)).arg(policy);
    let flags = u8::from(request.origin.check) + 2 * u8::from(request.queue_full);
    call.arg(format!("{flags}{}", own_queues_argument(request.own_queues.as_ref())));
}

/// The queues of a caller in the notation of the scripts.
pub(super) fn own_queues_argument(own: Option<&OwnQueues>) -> String {
    own.map(|own| format!(" {}", own.text())).unwrap_or_default()
}

/// A due time in the notation of the scripts.
pub(super) fn time_argument(due: Due) -> String {
    match due {
        Due::At(ms) => format!("={ms}"),
        Due::In(ms) => format!("+{ms}"),
        Due::Earlier { at_ms, in_ms } => format!("<{at_ms} {in_ms}"),
    }
}

/// A verdict and a due time in the notation of the scripts.
pub(super) fn read_answer(items: &mut Items) -> Result<Answer, StoreError> {
    let word = items.text()?;
    if word == "unreadable" {
        items.text()?;
        return Err(StoreError::new(
            Class::Script,
            "redis: schedule: DWELL_VERSION: the job of this id has an unreadable record",
        )
        .hint(UNREADABLE_HINT));
    }
    if word == "full" {
        items.text()?;
        return Err(StoreError::new(Class::QueueFull, "the queue has as many jobs as it may have")
            .hint("send the request again later"));
    }
    if word == "taken" {
        items.text()?;
        return Err(StoreError::new(Class::Taken, "a job that is not of this token has the id")
            .hint("send another id"));
    }
    let verdict = Verdict::parse(&word).ok_or_else(|| {
        StoreError::new(
            Class::Script,
            format!("redis: a script answered the unknown verdict `{word}`"),
        )
    })?;
    Ok(Answer { verdict, due_ms: items.maybe_number()? })
}
