//! The change of a schedule that makes its due occurrences, and what its answer says for the next
//! plan.

use dwell_schedule::{occurrence_id, split_occurrence_id};

use super::{Change, Changed, Read, occurrence};
use crate::job::JobId;
use crate::policy::occurrences::{Hindrances, Plan};
use crate::store::call::CALL_BYTES;

/// Bytes of an occurrence's record besides its body, roughly.
const HEAD_BYTES: usize = 512;

impl Read {
    /// The change that applies this plan.
    pub(crate) fn change(&self, plan: &Plan) -> Change {
        let schedule = &self.schedule;
        let made = plan.make.iter();
        let of_newest = |newest_ms| JobId::new(occurrence_id(schedule.id.as_str(), newest_ms)).ok();
        Change {
            id: schedule.id.clone(),
            expected: Some(self.state.clone()),
            record: None,
            progress: plan.progress.clone(),
            make: made
                .map(|made| occurrence(schedule, made.nominal_ms, made.number, made.next_ms))
                .collect(),
            unless_alive: plan.unless_alive_ms.and_then(of_newest),
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
