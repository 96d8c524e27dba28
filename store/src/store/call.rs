//! The calls of scripts: their bounds, their form, and their repeats.
//!
//! - `script_call`: one call; `time`: the times in its arguments.
//! - `waves`: the requests of a batch in calls; `sharing`: calls that share a command; `repairs`:
//!   calls that Redis did not run.

pub(in crate::store) mod repairs;
pub(in crate::store) mod script_call;
pub(in crate::store) mod sharing;
pub(in crate::store) mod time;
pub(in crate::store) mod waves;

/// The most jobs in one script call. 128 jobs of 200 bytes occupy Redis for 0.65 ms (measured on
/// 7.0.15).
pub const CALL_JOBS: usize = 128;
/// The most bytes of records in one script call; a single larger record is a call of its own.
pub const CALL_BYTES: usize = 1 << 20;
