//! The ids of the occurrences of a schedule: its own, `@` and the nominal time of 13 digits.

/// The longest id of a schedule, so that those of its occurrences fit into 256 bytes.
pub const MAX_SCHEDULE_ID_BYTES: usize = 240;

/// The last time that a schedule can have, in November 2286: ids have 13 digits for it.
pub const MAX_TIME_MS: i64 = 9_999_999_999_999;

const DIGITS: usize = 13;

/// The id of the occurrence of this nominal time, from 0 to [`MAX_TIME_MS`].
#[must_use]
pub fn occurrence_id(schedule_id: &str, nominal_ms: i64) -> String {
    format!("{schedule_id}@{nominal_ms:0DIGITS$}")
}

/// The id of the schedule and the nominal time, if the id ends as that of an occurrence. A
/// schedule's own id never does.
#[must_use]
pub fn split_occurrence_id(id: &str) -> Option<(&str, i64)> {
    let (schedule_id, digits) = id.rsplit_once('@')?;
    let is_time = digits.len() == DIGITS && digits.bytes().all(|b| b.is_ascii_digit());
    is_time.then(|| Some((schedule_id, digits.parse().ok()?)))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_split_into_what_it_was_made_of() {
        for (schedule_id, ms) in [("report", 1_798_762_500_000), ("a@b", 7), ("x@1798762500000", 0)]
        {
            let id = occurrence_id(schedule_id, ms);
            assert_eq!(split_occurrence_id(&id), Some((schedule_id, ms)), "{id}");
        }
        assert_eq!(occurrence_id("report", 7), "report@0000000000007");
        let longest = occurrence_id(&"x".repeat(MAX_SCHEDULE_ID_BYTES), MAX_TIME_MS);
        assert_eq!(longest.len(), 254);
    }

    #[test]
    fn other_ids_do_not_end_so() {
        for id in ["report", "", "@", "a@123456789012", "a@12345678901234", "a@123456789012x"] {
            assert_eq!(split_occurrence_id(id), None, "{id}");
        }
        assert_eq!(split_occurrence_id("ü@٣٣٣٣٣٣٣٣٣٣٣٣٣"), None);
    }
}
