//! A recurring schedule: when it fires, and the job of each of its occurrences.

use dwell_core::Destination;
use dwell_schedule::{CatchUp, Expression, ParseError, Timetable, Zone};

use crate::job::{Conflict, Job, JobId};
use crate::request::caller::{Origin, OwnQueues};

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

/// A request for a recurring schedule.
#[derive(Debug, Clone, PartialEq)]
pub struct NewSchedule {
    /// The id of the schedule.
    pub id: JobId,
    /// The rule for an id that exists: [`Conflict::Replace`], `Keep` or `Reject`.
    pub conflict: Conflict,
    /// The caller has only these queues: if a schedule or job of another owner has the id, nothing
    /// changes.
    pub own_queues: Option<OwnQueues>,
    /// A schedule that is new begins paused.
    pub is_paused: bool,
    /// The schedule is one of the settings (`[schedules.NAME]`).
    pub from_settings: bool,
    /// When the schedule fires.
    pub timing: Timing,
    /// The job of each occurrence. `created_ms` is the time of the request.
    pub job: Job,
    /// The identity of the inbound message.
    pub origin: Origin,
    /// The destination of the verdict, on the ingest's broker.
    pub reply_to: Option<Destination>,
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

    /// The next nominal times that are later than `after_ms`, epoch ms: at most `most`, and no more
    /// than are left; also of a paused schedule.
    #[must_use]
    pub fn upcoming(&self, after_ms: i64, most: usize) -> Vec<i64> {
        let left = self.left().map_or(most, |left| usize::try_from(left).unwrap_or(most));
        self.timetable().map(|times| times.upcoming(after_ms, most.min(left))).unwrap_or_default()
    }
}
