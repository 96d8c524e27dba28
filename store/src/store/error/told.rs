//! The refusals of scripts that tell the caller what to do next.

use super::StoreError;

impl StoreError {
    /// Whether the job of a `fail`, or the schedule of a request, changed since it was read.
    pub(crate) fn is_again(&self) -> bool {
        self.told("DWELL_AGAIN").is_some()
    }

    /// Whether the id of an action is that of a recurring schedule.
    pub(crate) fn is_of_schedule(&self) -> bool {
        self.told("DWELL_SCHEDULE").is_some()
    }

    /// Whether another job has the id of an occurrence.
    pub(crate) fn is_occurrence_taken(&self) -> bool {
        self.told("DWELL_EXISTS").is_some()
    }

    /// The sets that the KEYS of a call lacked, each with the position of its job in the call, from
    /// 1.
    pub(crate) fn unknown_sets(&self) -> impl Iterator<Item = (usize, &str)> {
        let mut words = self.told("DWELL_BROKER").unwrap_or_default().split_ascii_whitespace();
        std::iter::from_fn(move || Some((words.next()?.parse().ok()?, words.next()?)))
    }
}
