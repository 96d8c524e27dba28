//! Recurring schedules in Redis.
//!
//! - [`query`] and `list`: pages of schedules; `counts`: their numbers; `ids`, `pattern`: what both
//!   use.
//! - `pause`: pauses and resumes.
//! - `heads`: the schedules that are due; `spawn`: the change that makes their occurrences;
//!   `changes`: wakes the spawner.

mod changes;
pub mod counts;
pub(crate) mod heads;
mod ids;
mod list;
mod pattern;
mod pause;
pub mod query;
mod spawn;
