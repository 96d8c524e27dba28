//! The times of recurring schedules, and what is overdue of them.
//!
//! This crate does no input or output and has no clock: every time is epoch milliseconds (`i64`).
//! Zone data is part of the binary; the host's data and `TZ` are not asked.
//!
//! - [`Expression`]: cron fields, `@every 30m`, `@daily`.
//! - [`Zone`]: a time zone by its IANA name.
//! - [`Timetable`]: an expression in a zone, from a start to an end: its times, and a [`Gap`].
//! - [`overdue`]: the occurrences to make now and those that were missed.
//! - [`occurrence_id`], [`split_occurrence_id`]: the ids of occurrences.
//! - [`spread_ms`]: by how much an id is moved within a spread.
//! - [`local_time_ms`]: a time without an offset, in a zone.

mod civil;
mod cron;
mod cursor;
mod days;
mod error;
mod expression;
mod field;
mod go_duration;
mod local_time;
mod occurrence_id;
mod overdue;
mod segment;
mod spread;
mod timetable;
mod zone;

pub use error::ParseError;
pub use expression::{Expression, MIN_INTERVAL_MS};
pub use local_time::local_time_ms;
pub use occurrence_id::{MAX_SCHEDULE_ID_BYTES, MAX_TIME_MS, occurrence_id, split_occurrence_id};
pub use overdue::{CatchUp, LATE_MS, Overdue, overdue};
pub use spread::spread_ms;
pub use timetable::{Gap, MAX_COUNTED, MAX_LISTED, Timetable};
pub use zone::Zone;
