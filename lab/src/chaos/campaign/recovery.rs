//! Between two faults: until what the first one held up is out, so that the second one is measured
//! by itself.

use std::collections::HashSet;
use std::time::Duration;

use dwell::clock;

use super::LOOK;
use crate::chaos::recorder::Recorder;
use crate::chaos::system::System;

/// How long that may take: a lease, what a broker waits for a reader that is gone, and some more.
/// Who is not out by then is not waited for again: it may be one that died and whose letter was not
/// taken.
const CALM: Duration = Duration::from_secs(14);

/// Knows for whom it waited in vain.
#[derive(Default)]
pub(super) struct Recovery(HashSet<String>);

impl Recovery {
    /// Waits until each job that was due before the heal is out, and no claim is older than it.
    /// What came of it, for people.
    pub(super) async fn wait(&mut self, system: &System, recorder: &Recorder, healed_us: i64) -> String {
        let began = clock::now();
        loop {
            let mut overdue = recorder.overdue(healed_us / 1000);
            overdue.retain(|id| !self.0.contains(id));
            let claimed = system.reserved_since_before(healed_us).await;
            if overdue.is_empty() && claimed == Some(0) {
                return "all is calm".to_owned();
            }
            if began.elapsed() >= CALM {
                let claimed = claimed.map_or_else(|| "nobody knows how many".to_owned(), |claimed| claimed.to_string());
                let said = format!("{} overdue and {claimed} claimed still", overdue.len());
                self.0.extend(overdue);
                return said;
            }
            clock::sleep(LOOK).await;
        }
    }
}
