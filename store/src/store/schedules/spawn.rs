//! The change of a schedule that makes its due occurrences, and what its answer says for the next
//! plan.

use dwell_schedule::split_occurrence_id;

use super::change::{Change, Changed};
use super::occurrence::{id_at, occurrence};
use super::{Read, Schedules};
use crate::policy::occurrences::{Hindrances, Plan};
use crate::store::call::CALL_BYTES;
use crate::store::error::StoreError;

/// Bytes of an occurrence's record besides its body, roughly.
const HEAD_BYTES: usize = 512;

impl Schedules {
    /// As [`change`](Schedules::change). The error of a change that meets damage is its own.
    pub(crate) async fn change_each(
        &self,
        bucket: u16,
        changes: &[Change],
    ) -> Result<Vec<Result<Changed, StoreError>>, StoreError> {
        match self.change(bucket, changes).await {
            Ok(answers) => return Ok(answers.into_iter().map(Ok).collect()),
            Err(error) if !error.is_unreadable() => return Err(error),
            Err(error) if changes.len() == 1 => return Ok(vec![Err(error)]),
            Err(_) => {}
        }
        let mut answers = Vec::with_capacity(changes.len());
        for change in changes {
            match self.change(bucket, std::slice::from_ref(change)).await {
                Ok(mut answer) => answers.push(Ok(answer.pop().unwrap_or(Changed::Stale))),
                Err(error) if error.is_unreadable() => answers.push(Err(error)),
                Err(error) => return Err(error),
            }
        }
        Ok(answers)
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
