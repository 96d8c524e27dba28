//! The checker of measurements: what was sent and what consumers received in, broken promises out.
//! Pure, but for `occurrences`, which reads what schedules say.
//!
//! - `occurrences`: whether the occurrences of a schedule agree with what it says of itself. The
//!   checker of [`chaos`](crate::chaos::checker) has the same rule.
//! - [`schedules`]: all schedules of a campaign; [`pace`]: jobs with a limit; [`burst`]: requests
//!   that debounce; [`trail`]: events of jobs.

pub mod burst;
pub(crate) mod occurrences;
pub mod pace;
pub mod schedules;
pub mod trail;

use serde::{Deserialize, Serialize};

/// The most broken promises that are told.
const MAX_REPORTED: usize = 20;

/// The broken promises.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Wrongs {
    /// How many.
    pub wrongs: u64,
    /// The first of them.
    pub wrong: Vec<String>,
}

impl Wrongs {
    /// Notes a broken promise.
    pub(crate) fn broken(&mut self, what: impl Into<String>) {
        self.wrongs += 1;
        if self.wrong.len() < MAX_REPORTED {
            self.wrong.push(what.into());
        }
    }
}

/// A job, such as an occurrence, that a consumer received.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Receipt {
    /// The id of the job.
    pub(crate) id: String,
    /// `delayed-occurrence`; 0 if there was none.
    pub(crate) number: u64,
    /// The number of the hand-out.
    pub(crate) attempt: u32,
    /// When it was received, wall clock, epoch µs.
    pub(crate) at_us: i64,
}

/// The receipts of one job.
struct Received {
    /// From its due time to the first receipt, µs.
    late_us: i64,
    /// The attempt of each receipt, from the lowest to the highest.
    attempts: Vec<u32>,
}

impl Received {
    /// Of these receipts, which are not empty. Notes an early one.
    fn of(id: &str, due_ms: i64, receipts: &[&Receipt], wrongs: &mut Wrongs) -> Received {
        let first_us = receipts.iter().map(|receipt| receipt.at_us).min().unwrap_or_default();
        let late_us = first_us - due_ms * 1000;
        if late_us < 0 {
            wrongs.broken(format!("{id}: {} µs early", -late_us));
        }
        let mut attempts: Vec<u32> = receipts.iter().map(|receipt| receipt.attempt).collect();
        attempts.sort_unstable();
        Received { late_us, attempts }
    }

    /// How many receipts have the attempt of another one.
    fn repeats(&self) -> u64 {
        self.attempts.windows(2).filter(|pair| pair[0] == pair[1]).count() as u64
    }
}
