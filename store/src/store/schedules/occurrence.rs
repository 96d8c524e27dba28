//! The job of an occurrence: its id, its headers and its generation.

use dwell_core::Value;
use dwell_schedule::{
    MAX_SCHEDULE_ID_BYTES, MAX_TIME_MS, occurrence_id, split_occurrence_id, spread_ms,
};

use crate::job::{Job, JobId};
use crate::schedule::StoredSchedule;
use crate::store::record::{self, Generation};
use crate::store::schedules::set_of;

/// The header with the id of the schedule.
const SCHEDULE: &str = "delayed-schedule";
/// The header with the number of the occurrence, from 1.
const OCCURRENCE: &str = "delayed-occurrence";
/// The header with the next nominal time, epoch ms; none on the last occurrence.
const NEXT: &str = "delayed-next";

/// An occurrence to make.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Occurrence {
    /// The id of the job.
    pub(crate) id: JobId,
    /// The nominal time, epoch ms.
    pub(crate) nominal_ms: i64,
    /// The due time of the job, epoch ms.
    pub(crate) due_ms: i64,
    /// The number among the occurrences of the schedule, from 1.
    pub(crate) number: u64,
    /// The set of the job.
    pub(crate) set: String,
    /// The record of the job.
    pub(crate) record: Vec<u8>,
}

/// The occurrence of this nominal time, epoch ms. `number`: from 1. `next_ms`: the next nominal
/// time, if there is one.
pub(crate) fn occurrence(
    schedule: &StoredSchedule,
    nominal_ms: i64,
    number: u64,
    next_ms: Option<i64>,
) -> Occurrence {
    let id = id_at(&schedule.id, nominal_ms);
    let mut job = Job { created_ms: nominal_ms, ..schedule.job.clone() };
    job.headers.push(SCHEDULE, Value::Text(schedule.id.as_str().to_owned()));
    job.headers.push(OCCURRENCE, Value::I64(i64::try_from(number).unwrap_or(i64::MAX)));
    if let Some(next_ms) = next_ms {
        job.headers.push(NEXT, Value::I64(next_ms));
    }
    let (generation, fingerprint) = identity_at(schedule.progress.generation, nominal_ms);
    let spread_ms = spread_ms(schedule.id.as_str(), schedule.timing.spread_ms);
    Occurrence {
        id,
        nominal_ms,
        due_ms: nominal_ms.saturating_add_unsigned(spread_ms),
        number,
        set: set_of(schedule),
        record: record::encode_recurring(&job, generation, fingerprint),
    }
}

/// The id of the occurrence of this nominal time, epoch ms. The id of the schedule passed
/// [`check_id`].
pub(crate) fn id_at(schedule: &JobId, nominal_ms: i64) -> JobId {
    let id = occurrence_id(schedule.as_str(), nominal_ms.clamp(0, MAX_TIME_MS));
    JobId::new(id).expect("the id of a schedule has at most 240 bytes, and 14 more make 254")
}

/// The generation of the occurrence of this nominal time: the same in every attempt to make it.
pub(in crate::store) fn generation_at(schedule: Generation, nominal_ms: i64) -> Generation {
    identity_at(schedule, nominal_ms).0
}

/// Generation and fingerprint.
fn identity_at(schedule: Generation, nominal_ms: i64) -> (Generation, [u8; 8]) {
    let hash = blake3::hash(&[schedule, nominal_ms.to_be_bytes()].concat());
    let hash = hash.as_bytes();
    (std::array::from_fn(|i| hash[i]), std::array::from_fn(|i| hash[8 + i]))
}

/// Why this cannot be the id of a schedule.
pub(in crate::store) fn check_id(id: &JobId) -> Result<(), String> {
    let id = id.as_str();
    if id.len() > MAX_SCHEDULE_ID_BYTES {
        return Err(format!(
            "the id of a recurring schedule has at most {MAX_SCHEDULE_ID_BYTES} bytes, this one has {}",
            id.len()
        ));
    }
    if split_occurrence_id(id).is_some() {
        return Err(
            "the id of a recurring schedule does not end in `@` and 13 digits, as those of its occurrences do"
                .to_owned(),
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::schedules::plan::tests::stored;

    #[test]
    fn an_occurrence_is_the_job_with_its_place_in_the_schedule() {
        let mut schedule = stored("daily", "@daily");
        schedule.timing.spread_ms = 1000;
        let made = occurrence(&schedule, 1_763_722_800_000, 7, Some(1_763_809_200_000));
        assert_eq!(made.id.as_str(), "daily@1763722800000");
        assert_eq!((made.nominal_ms, made.set.as_str()), (1_763_722_800_000, "=jobs"));
        let late = made.due_ms - made.nominal_ms;
        assert_eq!(u64::try_from(late), Ok(spread_ms("daily", 1000)));
        let record = record::decode(made.record.clone().into()).unwrap();
        let header = |name| record.job.headers.get(name).cloned();
        assert_eq!(header("delayed-schedule"), Some(Value::Text("daily".to_owned())));
        assert_eq!(header("delayed-occurrence"), Some(Value::I64(7)));
        assert_eq!(header("delayed-next"), Some(Value::I64(1_763_809_200_000)));
        assert_eq!(record.job.body, schedule.job.body);
        let again = occurrence(&schedule, 1_763_722_800_000, 7, Some(1_763_809_200_000));
        assert_eq!(again, made, "each attempt to make it makes the same");
        let last = occurrence(&schedule, 1_763_722_800_001, 8, None);
        let last_record = record::decode(last.record.into()).unwrap();
        assert_ne!(last_record.generation, record.generation);
        assert_eq!(last_record.job.headers.get("delayed-next"), None);
    }

    #[test]
    fn no_time_makes_an_id_that_is_too_long() {
        let id = JobId::new("x".repeat(MAX_SCHEDULE_ID_BYTES)).unwrap();
        assert_eq!(check_id(&id), Ok(()));
        for (ms, end) in [(i64::MAX, "@9999999999999"), (i64::MIN, "@0000000000000")] {
            assert!(id_at(&id, ms).as_str().ends_with(end), "{ms}");
        }
        assert!(check_id(&JobId::new("x".repeat(241)).unwrap()).is_err());
        assert!(check_id(&JobId::new("a@1763722800000").unwrap()).is_err());
    }
}
