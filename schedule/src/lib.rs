//! The times of recurring schedules, and what is overdue of them.
//!
//! This crate does no input or output and has no clock: every time is epoch milliseconds (`i64`).
//! Zone data is part of the binary; the host's data and `TZ` are not asked.
//!
//! - [`Expression`]: cron fields, `@every 30m`, `@daily`.
//! - [`Zone`]: a time zone by its IANA name.
//! - [`Timetable`]: an expression in a zone, from a start to an end: its times, and a [`Gap`].
//! - [`overdue()`]: the occurrences to make now and those that were missed.
//! - [`occurrence_id()`], [`split_occurrence_id`]: the ids of occurrences.
//! - [`spread_ms`]: by how much an id is moved within a spread.
//! - [`local_time_ms`]: a time without an offset, in a zone.
//!
//! ```
//! use dwell_schedule::{CatchUp, Expression, Timetable, Zone, overdue};
//!
//! # fn main() -> Result<(), dwell_schedule::ParseError> {
//! let weekdays = Expression::parse("0 9 * * MON-FRI")?;
//! let berlin = Zone::parse("Europe/Berlin")?;
//! let timetable = Timetable::new(weekdays, Some(berlin), None, None, 0)?;
//! // 2027-01-01T12:00:00Z is a Friday.
//! let monday = timetable.next(1_798_804_800_000).expect("no end");
//! assert_eq!(monday, 1_799_049_600_000);
//! // An instance comes back on Wednesday at noon.
//! let due = overdue(&timetable, monday, monday + 183_600_000, CatchUp::One, None);
//! assert_eq!((due.make, due.missed), (vec![monday + 172_800_000], 2));
//! # Ok(())
//! # }
//! ```

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
