//! The wait between two faults: until the backlog of the first has drained, so that each fault is
//! measured alone.

use std::collections::HashSet;
use std::time::Duration;

use dwell::clock;

use super::CHECK_INTERVAL;
use crate::chaos::recorder::Recorder;
use crate::chaos::system::System;

/// The longest wait: a lease, the broker's wait for a reader that is gone, and a margin. A job that
/// is outstanding after this is not waited for again: its dead letter may have been
/// refused.
const CALM_TIMEOUT: Duration = Duration::from_secs(14);

/// The jobs that did not arrive in time.
#[derive(Default)]
pub(super) struct Recovery(HashSet<String>);

impl Recovery {
    /// Waits until every job due before the heal is done, and no claim is older than the heal.
    /// Returns a text for people.
    pub(super) async fn wait(
        &mut self,
        system: &System,
        recorder: &Recorder,
        healed_us: i64,
    ) -> String {
        let began = clock::now();
        loop {
            let mut overdue = recorder.overdue(healed_us / 1000);
            overdue.retain(|id| !self.0.contains(id));
            let claimed = system.claimed_before(healed_us).await;
            if overdue.is_empty() && claimed == Some(0) {
                return "all is calm".to_owned();
            }
            if began.elapsed() >= CALM_TIMEOUT {
                let claimed =
                    claimed.map_or("an unknown number".to_owned(), |left| left.to_string());
                let said = format!("{} jobs still overdue and {claimed} claimed", overdue.len());
                self.0.extend(overdue);
                return said;
            }
            clock::sleep(CHECK_INTERVAL).await;
        }
    }
}
