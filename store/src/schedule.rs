//! A recurring schedule: when it fires, and the job of each of its occurrences.

use dwell_schedule::{CatchUp, Expression, ParseError, Timetable, Zone};

use crate::job::{Job, JobId};

/// The most bytes of the reason of a pause.
pub const MAX_REASON_BYTES: usize = 1000;

/// When a schedule fires, as it was requested.
#[derive(Debug, Clone, PartialEq)]
pub struct Timing {
    /// The expression as people see it, in a form that [`Expression::parse`] reads.
    pub text: String,
    /// The expression.
    pub expression: Expression,
    /// The zone; `None`: UTC, or an expression of `@every`.
    pub zone: Option<Zone>,
    /// The first moment, epoch ms; included.
    pub start_ms: Option<i64>,
    /// The last moment, epoch ms; included.
    pub end_ms: Option<i64>,
    /// The most occurrences.
    pub count: Option<u64>,
    /// What becomes of missed occurrences.
    pub catch_up: CatchUp,
    /// What becomes of an occurrence while the one before is alive.
    pub overlap: Overlap,
    /// The due time of an occurrence is later than its nominal time by less than this, ms.
    pub spread_ms: u64,
}

/// What becomes of an occurrence while the one before is alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overlap {
    /// The occurrence is made.
    #[default]
    Allow,
    /// The occurrence is not made, and counts as missed.
    Skip,
}

impl Overlap {
    /// The word in requests and answers.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Overlap::Allow => "allow",
            Overlap::Skip => "skip",
        }
    }
}

/// A schedule as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredSchedule {
    /// The id of the schedule.
    pub id: JobId,
    /// When the schedule fires.
    pub timing: Timing,
    /// The job of each occurrence. `created_ms` is the time at which the schedule was last stored.
    pub job: Job,
    /// The schedule is one of the settings.
    pub from_settings: bool,
    /// The progress of the schedule.
    pub progress: Progress,
}

/// The mutable part of a stored schedule.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Progress {
    /// From when the intervals of `@every` without a start are counted, epoch ms.
    pub grid_ms: i64,
    /// The next nominal time, epoch ms; also of a paused schedule. `None`: no further time.
    pub next_ms: Option<i64>,
    /// The version of the zone data with which `next_ms` was computed.
    pub zone_data: String,
    /// The number of the newest occurrence; 0: none was made.
    pub occurrence: u64,
    /// How many occurrences count for `count`.
    pub counted: u64,
    /// The nominal time of the newest occurrence, epoch ms.
    pub last_ms: Option<i64>,
    /// The nominal time of the newest missed occurrence, epoch ms.
    pub last_missed_ms: Option<i64>,
    /// How many occurrences were missed.
    pub missed: u64,
    /// The schedule is paused.
    pub is_paused: bool,
    /// Why the schedule is paused.
    pub reason: Option<String>,
    /// Bytes that no two schedules of one id share.
    pub generation: [u8; 8],
    /// How often the schedule was changed: two states of one schedule are never the same.
    pub revision: u64,
}

impl Timing {
    /// The times of the schedule. `grid_ms`: see [`Progress::grid_ms`].
    ///
    /// # Errors
    /// A zone with `@every`, or an end before the start.
    pub fn timetable(&self, grid_ms: i64) -> Result<Timetable, ParseError> {
        Timetable::new(
            self.expression.clone(),
            self.zone.clone(),
            self.start_ms,
            self.end_ms,
            grid_ms,
        )
    }

    /// The next nominal times at `now_ms` that are later than `after_ms`, epoch ms: at most `most`,
    /// and of the first `left` from now on. `grid_ms`: see [`Progress::grid_ms`].
    #[must_use]
    pub fn upcoming(
        &self,
        grid_ms: i64,
        left: Option<u64>,
        (now_ms, after_ms): (i64, i64),
        most: usize,
    ) -> Vec<i64> {
        let Ok(times) = self.timetable(grid_ms) else { return Vec::new() };
        let most = left.map_or(most, |left| {
            // What comes before uses up a part. Of a very long gap only so many are counted.
            let before = times.gap(now_ms.saturating_add(1), after_ms).count;
            usize::try_from(left.saturating_sub(before)).map_or(most, |left| most.min(left))
        });
        times.upcoming(after_ms, most)
    }
}

impl StoredSchedule {
    /// The times of the schedule; `None` where the stored ones contradict each other.
    #[must_use]
    pub fn timetable(&self) -> Option<Timetable> {
        self.timing.timetable(self.progress.grid_ms).ok()
    }

    /// How many occurrences may still be made; `None`: no bound.
    #[must_use]
    pub fn left(&self) -> Option<u64> {
        self.timing.count.map(|count| count.saturating_sub(self.progress.counted))
    }

    /// The next nominal times that are later than now, epoch ms: at most `most`, and no more than
    /// are left; also of a paused schedule.
    #[must_use]
    pub fn upcoming(&self, now_ms: i64, most: usize) -> Vec<i64> {
        self.upcoming_after(now_ms, now_ms, most)
    }

    /// As [`upcoming`](StoredSchedule::upcoming), of times later than `after_ms`. Those between now
    /// and then use up what is left.
    #[must_use]
    pub fn upcoming_after(&self, now_ms: i64, after_ms: i64, most: usize) -> Vec<i64> {
        self.timing.upcoming(self.progress.grid_ms, self.left(), (now_ms, after_ms), most)
    }
}
