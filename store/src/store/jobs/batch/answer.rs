//! The answer to a request of a batch, as the scripts give it.

use std::time::SystemTime;

use crate::clock::time_of;
use crate::job::{JobId, Verdict};
use crate::store::answer::Items;
use crate::store::error::{Class, StoreError, UNREADABLE_HINT};
use crate::store::jobs::Jobs;
use crate::store::jobs::batch::RequestRef;
use crate::store::jobs::batch::item::Item;
use crate::store::schedules::change::read_result;
use crate::store::wake_up::WakeUp;

/// The answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "exhaustive"), non_exhaustive)]
pub struct Answer {
    /// The verdict.
    pub verdict: Verdict,
    /// The due time of the job, epoch ms, if known.
    #[doc(hidden)]
    pub due_ms: Option<i64>,
    /// Whether the due time had come by Redis's clock when the script ran, to the millisecond.
    #[doc(hidden)]
    pub is_due: bool,
}

impl Answer {
    /// The answer about a job whose due time is not known.
    #[doc(hidden)]
    #[must_use]
    pub fn of(verdict: Verdict) -> Answer {
        Answer { verdict, due_ms: None, is_due: false }
    }

    /// The due time of the job, if known.
    #[must_use]
    pub fn due(&self) -> Option<SystemTime> {
        self.due_ms.map(time_of)
    }

    /// Whether this call ended a job of a queue, as the answer to a `fail`: a job that was dead before
    /// has a due time.
    #[doc(hidden)]
    #[must_use]
    pub fn is_death(&self) -> bool {
        self.verdict == Verdict::Dead && self.due_ms.is_none()
    }
}

/// An occurrence of a recurring schedule that a request made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewOccurrence {
    /// The place of the request in the batch.
    pub at: usize,
    /// The id of the occurrence's job.
    pub id: JobId,
    /// The name of the sets of the job.
    pub set: String,
    /// The due time of the job, epoch ms.
    pub due_ms: i64,
    /// The number of the occurrence, from 1.
    pub number: u64,
}

/// The occurrence that the call of this request makes, if it makes one. `at`: the place of the
/// request.
fn made_by(item: &Item<'_>, at: usize) -> Option<NewOccurrence> {
    let made = item.recurring.planned.as_ref()?.plan.made()?;
    let (id, set) = (made.id.clone(), made.set.clone());
    Some(NewOccurrence { at, id, set, due_ms: made.due_ms, number: made.number })
}

/// The answers of one call, one per member.
pub(super) struct CallAnswers {
    pub(super) answers: Vec<Result<Answer, StoreError>>,
    /// The wake-ups that the call caused.
    pub(super) wake_ups: Vec<WakeUp>,
    /// The occurrence that the call made.
    pub(super) made: Option<NewOccurrence>,
}

impl CallAnswers {
    /// The answer of a call for one request, which caused nothing.
    pub(super) fn one(answer: Result<Answer, StoreError>) -> Self {
        CallAnswers { answers: vec![answer], wake_ups: Vec::new(), made: None }
    }
}

impl Jobs {
    /// The answers of one call of `schedule`, and the wake-ups that the call caused.
    pub(super) fn read_scheduled(
        &self,
        bucket: u16,
        jobs: usize,
        mut items: Items,
    ) -> Result<CallAnswers, StoreError> {
        let now_us = items.int()?;
        let count = items.int()?;
        if usize::try_from(count) != Ok(jobs) {
            return Err(StoreError::new(
                Class::Script,
                format!("redis: schedule answered for {count} jobs instead of {jobs}"),
            ));
        }
        self.namespace.saw_clock(now_us);
        let answers = (0..jobs).map(|_| read_answer(now_us, &mut items)).collect();
        let mut wake_ups = Vec::new();
        while items.left() >= 2 {
            let broker = items.text()?;
            if let Some(due_ms) = items.maybe_number()? {
                wake_ups.push(WakeUp { bucket, broker, due_ms });
            }
        }
        Ok(CallAnswers { answers, wake_ups, made: None })
    }

    /// The answer of the one change of a call of `change_schedule`, and what it caused. `at`: the
    /// place of the request.
    pub(super) fn read_changed(
        &self,
        bucket: u16,
        item: &Item<'_>,
        at: usize,
        mut items: Items,
    ) -> Result<CallAnswers, StoreError> {
        let now_us = items.int()?;
        self.namespace.saw_clock(now_us);
        items.int()?;
        let told = read_result(bucket, &mut items)?;
        if told.is_refused()
            && let Some(planned) = &item.recurring.planned
            && let Err(why) = &planned.plan.verdict
        {
            return Ok(CallAnswers::one(Err(why.clone())));
        }
        let made = if told.is_done() { made_by(item, at) } else { None };
        Ok(match (told.answered()?, item.asked) {
            (Some((verdict, due_ms, wake_up)), asked) => {
                let is_stored = matches!(verdict, Verdict::Added | Verdict::Replaced);
                if is_stored && matches!(asked, RequestRef::NewSchedule(_)) {
                    self.namespace.schedules_changed.notify_one();
                }
                CallAnswers {
                    answers: vec![Ok(Answer { verdict, due_ms, is_due: is_due(due_ms, now_us) })],
                    wake_ups: wake_up.into_iter().collect(),
                    made,
                }
            }
            (None, RequestRef::Act(_)) => CallAnswers::one(Ok(Answer::of(Verdict::NotFound))),
            (None, _) => CallAnswers::one(Err(taken())),
        })
    }
}

/// The error of a request whose job does not fit into its queue.
pub(super) fn queue_full() -> StoreError {
    StoreError::new(Class::QueueFull, "the queue has as many jobs as it may have")
        .hint("send the request again later")
}

/// The error of a request whose id is of others.
fn taken() -> StoreError {
    StoreError::new(Class::Taken, "a job that is not of this token has the id")
        .hint("send another id")
}

/// Whether this due time, epoch ms, has come at this time, epoch µs. The scripts round a due time
/// up to the next ms.
fn is_due(due_ms: Option<i64>, now_us: i64) -> bool {
    due_ms.is_some_and(|due_ms| due_ms.saturating_sub(1).saturating_mul(1000) < now_us)
}

/// A verdict and a due time in the notation of the scripts. `now_us`: when the script ran;
/// `i64::MIN` if it does not say so.
pub(super) fn read_answer(now_us: i64, items: &mut Items) -> Result<Answer, StoreError> {
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
        return Err(queue_full());
    }
    if word == "taken" {
        items.text()?;
        return Err(taken());
    }
    let verdict = Verdict::parse(&word).ok_or_else(|| {
        StoreError::new(
            Class::Script,
            format!("redis: a script answered the unknown verdict `{word}`"),
        )
    })?;
    let due_ms = items.maybe_number()?;
    Ok(Answer { verdict, due_ms, is_due: is_due(due_ms, now_us) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_due_time_that_a_script_rounded_up_has_come() {
        for (due_ms, now_us, expected) in [
            (Some(5), 4_001, true),
            (Some(5), 5_000, true),
            (Some(5), 4_000, false),
            (Some(5), i64::MIN, false),
            (Some(i64::MIN), 0, true),
            (None, 5_000, false),
        ] {
            assert_eq!(is_due(due_ms, now_us), expected, "{due_ms:?} at {now_us}");
        }
    }
}
