//! The change of a schedule that makes its due occurrences, and what its answer says for the next
//! plan.

use dwell_schedule::split_occurrence_id;

use super::change::{Change, Changed};
use super::occurrence::{id_at, occurrence};
use super::{Read, Schedules, members_of_call};
use crate::policy::occurrences::{Hindrances, Plan};
use crate::store::call::CALL_BYTES;
use crate::store::error::StoreError;

/// Bytes of an occurrence's record besides its body, roughly.
const HEAD_BYTES: usize = 512;

/// What became of changes.
pub(crate) struct Answers {
    /// One for each of the changes that Redis has answered, from the first on. The error of a change
    /// that meets damage is its own.
    pub(crate) of_changes: Vec<Result<Changed, StoreError>>,
    /// A call failed. The last answers may be lost again in a failover.
    pub(crate) failed: Option<StoreError>,
    /// The number of changes after the answered ones that Redis may have applied. The others were
    /// not sent, or refused.
    pub(crate) unanswered: usize,
}

impl Schedules {
    /// As [`change`](Schedules::change), with what is known after a failure.
    pub(crate) async fn change_each(&self, bucket: u16, changes: &[Change]) -> Answers {
        let of_changes = Vec::with_capacity(changes.len());
        let mut answers = Answers { of_changes, failed: None, unanswered: 0 };
        // After one that met damage in a call, so many changes go each by itself.
        let (mut rest, mut alone) = (changes, 0_usize);
        while !rest.is_empty() {
            let size = if alone > 0 { 1 } else { members_of_call(rest) };
            let (call, more) = rest.split_at(size);
            match self.change_together(bucket, call).await {
                Ok(changed) => answers.of_changes.extend(changed.into_iter().map(Ok)),
                Err(error) if error.is_unreadable() && size > 1 => {
                    alone = size;
                    continue;
                }
                Err(error) if error.is_unreadable() => answers.of_changes.push(Err(error)),
                Err(mut error) => {
                    let undurable = error.undurable.take();
                    let was_sent = error.unanswered || undurable.is_some();
                    match undurable.map(|answer| self.read_answer(bucket, call, *answer)) {
                        Some(Ok(changed)) => answers.of_changes.extend(changed.into_iter().map(Ok)),
                        _ => answers.unanswered = if was_sent { size } else { 0 },
                    }
                    answers.failed = Some(error);
                    return answers;
                }
            }
            alone = alone.saturating_sub(1);
            rest = more;
        }
        answers
    }
}

impl Read {
    /// The change that applies this plan.
    pub(crate) fn change(&self, plan: &Plan) -> Change {
        let schedule = &self.schedule;
        let made = plan.make.iter();
        Change {
            id: schedule.id.clone(),
            expected: Some(self.state.clone()),
            record: None,
            progress: plan.progress.clone(),
            make: made
                .map(|made| occurrence(schedule, made.nominal_ms, made.number, made.next_ms))
                .collect(),
            unless_alive: plan.unless_alive_ms.map(|newest_ms| id_at(&schedule.id, newest_ms)),
            take: None,
        }
    }

    /// The most occurrences that one call makes.
    pub(crate) fn most(&self) -> usize {
        CALL_BYTES / self.bytes_of_one()
    }

    /// Bytes of one occurrence, roughly.
    pub(crate) fn bytes_of_one(&self) -> usize {
        self.schedule.job.body.len() + self.schedule.job.headers.footprint() + HEAD_BYTES
    }
}

impl Changed {
    /// Notes what stood in the way of a change. False if the answer is another one, or says nothing
    /// new.
    pub(crate) fn hinders(&self, hindrances: &mut Hindrances) -> bool {
        match self {
            Changed::Alive => !std::mem::replace(&mut hindrances.is_alive, true),
            Changed::Exists(id) => match split_occurrence_id(id.as_str()) {
                Some((_, nominal_ms)) if !hindrances.foreign.contains(&nominal_ms) => {
                    hindrances.foreign.push(nominal_ms);
                    true
                }
                _ => false,
            },
            Changed::Done { .. } | Changed::Stale | Changed::JobHasId => false,
        }
    }
}
