//! Computes next times anew at the start, where this version has newer zone data than the one that
//! computed them.

use std::time::Duration;

use dwell_schedule::Zone;

use crate::clock::{self, Instant};
use crate::schedule::{Progress, StoredSchedule};
use crate::store::Store;
use crate::store::error::StoreError;
use crate::store::schedules::change::Change;

/// The time until a bucket is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// The time after the last bucket: never.
const NEVER: Duration = Duration::from_secs(24 * 3600);

/// The buckets whose next times may be of older zone data.
pub(super) struct Renewal<'a> {
    store: &'a Store,
    left: Vec<u16>,
    next_at: Instant,
}

impl<'a> Renewal<'a> {
    pub(super) fn new(store: &'a Store, buckets: &[u16]) -> Self {
        Renewal { store, left: buckets.to_vec(), next_at: clock::now() }
    }

    /// The time of the next step.
    pub(super) fn next_at(&self) -> Instant {
        if self.left.is_empty() { clock::now() + NEVER } else { self.next_at }
    }

    /// Renews the next times of one bucket.
    pub(super) async fn step(&mut self) {
        if self.next_at > clock::now() {
            return;
        }
        let Some(bucket) = self.left.pop() else { return };
        if let Err(error) = self.renew(bucket).await {
            tracing::debug!(bucket, %error, "next times could not be computed anew, trying again");
            // Behind the others, which a broken one must not hold up.
            self.left.insert(0, bucket);
            self.next_at = clock::now() + RETRY_INTERVAL;
        }
    }

    async fn renew(&self, bucket: u16) -> Result<(), StoreError> {
        let schedules = &self.store.schedules;
        let ids = schedules.active_ids(bucket).await?;
        let mut rest = &ids[..];
        while !rest.is_empty() {
            let (part, others) = rest.split_at(schedules.readable_at_once(rest).await?);
            rest = others;
            let now_ms = self.store.now_ms();
            let mut changes: Vec<Change> = Vec::new();
            for read in schedules.read_these(part).await? {
                if let Some(progress) = renewed(&read.schedule, now_ms) {
                    let id = &read.schedule.id;
                    tracing::info!(
                        %id, before_ms = read.schedule.progress.next_ms,
                        now_ms = progress.as_ref().and_then(|progress| progress.next_ms),
                        zone_data = Zone::data_version(),
                        "newer zone data moves the next time of the schedule"
                    );
                    changes.push(read.moved(progress));
                }
            }
            // A schedule that another instance changed meanwhile has a next time of its zone data,
            // which may be as old: its next occurrence corrects it.
            if let Some(error) = schedules.change_each(bucket, &changes).await.failed {
                return Err(error);
            }
        }
        Ok(())
    }
}

/// The progress with a next time by the zone data of this version; `Some(None)`: there is no time
/// left. `None`: nothing changes. What is due stays so: nothing is made twice.
fn renewed(schedule: &StoredSchedule, now_ms: i64) -> Option<Option<Progress>> {
    let progress = &schedule.progress;
    let is_older = progress.zone_data.as_str() < Zone::data_version();
    let next_ms = progress.next_ms.filter(|next_ms| *next_ms > now_ms)?;
    if !is_older || schedule.timing.zone.is_none() || progress.is_paused {
        return None;
    }
    let known_ms = progress.last_ms.max(progress.last_missed_ms).unwrap_or(now_ms).max(now_ms);
    let renewed_ms = schedule.timetable()?.next(known_ms);
    (renewed_ms != Some(next_ms)).then(|| {
        renewed_ms.map(|next_ms| Progress {
            next_ms: Some(next_ms),
            zone_data: Zone::data_version().to_owned(),
            revision: progress.revision.saturating_add(1),
            ..progress.clone()
        })
    })
}

#[cfg(test)]
mod tests {
    use dwell_schedule::{CatchUp, Expression};

    use super::*;
    use crate::job::{Job, JobId};
    use crate::schedule::{Overlap, Timing};

    /// 2027-01-01T12:00:00Z.
    const NOON_MS: i64 = 1_798_804_800_000;
    const HOUR: i64 = 3_600_000;

    /// A schedule of 9 o'clock in Berlin, which is 08:00Z in winter.
    fn of_data(version: &str, next_ms: i64) -> StoredSchedule {
        StoredSchedule {
            id: JobId::new("report").unwrap(),
            timing: Timing {
                text: "0 9 * * *".to_owned(),
                expression: Expression::parse("0 9 * * *").unwrap(),
                zone: Some(Zone::parse("Europe/Berlin").unwrap()),
                start_ms: None,
                end_ms: None,
                count: None,
                catch_up: CatchUp::One,
                overlap: Overlap::Allow,
                spread_ms: 0,
            },
            job: Job::for_queue("reports", ""),
            from_settings: false,
            progress: Progress {
                next_ms: Some(next_ms),
                zone_data: version.to_owned(),
                revision: 4,
                ..Progress::default()
            },
        }
    }

    fn next(schedule: &StoredSchedule) -> Option<Option<i64>> {
        renewed(schedule, NOON_MS).map(|progress| progress.and_then(|progress| progress.next_ms))
    }

    #[test]
    fn older_zone_data_gives_way() {
        let (right, wrong) = (NOON_MS + 20 * HOUR, NOON_MS + 19 * HOUR);
        assert_eq!(next(&of_data("1999a", wrong)), Some(Some(right)));
        assert_eq!(next(&of_data("1999a", right)), None);
        assert_eq!(next(&of_data(Zone::data_version(), wrong)), None);
        assert_eq!(next(&of_data("9999z", wrong)), None);
        // It is due: the plan of the spawner decides.
        assert_eq!(next(&of_data("1999a", NOON_MS)), None);
        let renewed = renewed(&of_data("1999a", wrong), NOON_MS).unwrap().unwrap();
        assert_eq!((renewed.zone_data.as_str(), renewed.revision), (Zone::data_version(), 5));
    }

    #[test]
    fn what_was_made_is_not_made_again() {
        let mut schedule = of_data("1999a", NOON_MS + 21 * HOUR);
        // By the older data it was made ahead of the newer data's time.
        schedule.progress.last_ms = Some(NOON_MS + 20 * HOUR);
        assert_eq!(next(&schedule), Some(Some(NOON_MS + 44 * HOUR)));
    }
}
