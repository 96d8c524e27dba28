//! The names of the `delayed-*` headers, which Dwell writes on the messages that it publishes, and
//! the type of its events.

/// The id of the job.
pub const ID: &str = "delayed-id";
/// The number of the attempt, from 1; only rises.
pub const ATTEMPT: &str = "delayed-attempt";
/// The due time of the schedule, epoch ms.
pub const DUE: &str = "delayed-due";
/// The number of times that the message came back to an ingest as a new request, if it did.
pub const ROUND: &str = "delayed-round";
/// The id of the schedule whose occurrence the job is. Stored with the job, as the two below.
pub const SCHEDULE: &str = "delayed-schedule";
/// The number of the occurrence, from 1, without gaps.
pub const OCCURRENCE: &str = "delayed-occurrence";
/// The nominal time of the next occurrence, epoch ms; none on the last.
pub const NEXT: &str = "delayed-next";
/// Why the job is dead.
pub const DEAD_REASON: &str = "delayed-dead-reason";
/// The last error.
pub const LAST_ERROR: &str = "delayed-last-error";
/// The code of a rejected request.
pub const ERROR: &str = "delayed-error";
/// The error of a rejected request.
pub const ERROR_DETAIL: &str = "delayed-error-detail";
/// The beginning of the types of the events of jobs.
pub const EVENT_TYPE_PREFIX: &str = "dwell.job.";
