//! Recurring schedules in Redis.
//!
//! - `query` and `list`: pages of schedules; `counts`: their numbers; `ids`, `pattern`: what both
//!   use.
//! - `pause`: pauses and resumes.
//! - `heads`: the schedules that are due; `spawn`: the change that makes their occurrences.

mod counts;
pub(crate) mod heads;
mod ids;
mod list;
mod pattern;
mod pause;
mod query;
mod spawn;

pub use counts::ScheduleCounts;
pub use query::{ScheduleFilter, SchedulePage, ScheduleQuery};
