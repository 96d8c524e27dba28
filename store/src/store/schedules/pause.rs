//! Pauses and resumes schedules. Nothing is made while a schedule is paused, and nothing of that
//! time is caught up or missed.

use futures_util::{StreamExt, stream};

use super::change::{Change, Changed};
use super::pattern::is_own;
use super::query::ScheduleFilter;
use super::{Read, Schedules};
use crate::events::JobEvent;
use crate::job::{Job, JobId};
use crate::policy::occurrences::{Hindrances, Plan, plan};
use crate::request::OwnQueues;
use crate::schedule::{Progress, StoredSchedule};
use crate::store::due_set::DueSet;
use crate::store::error::{Class, StoreError};

/// The most tries for one schedule: each meets another change of the schedule, or another foreign
/// job.
const MAX_TRIES: usize = 256;
/// The most schedules that a pause of many works on at once.
const CONCURRENT_CHANGES: usize = 32;

/// The schedule, and whether the call changed its pause.
type Paused = Option<(StoredSchedule, bool)>;

impl Schedules {
    /// Pauses a schedule. What was due before is made first. The reason stays until the schedule is
    /// resumed; a schedule that is paused keeps its reason. `None`: the caller has no such schedule,
    /// or the last occurrence was due and the schedule is over.
    pub async fn pause(
        &self,
        id: &JobId,
        reason: Option<&str>,
        own: Option<&OwnQueues>,
    ) -> Result<Option<StoredSchedule>, StoreError> {
        Ok(self.try_pause(id, reason, own).await?.map(|(schedule, _)| schedule))
    }

    /// Resumes a schedule, whose next time is then the first after now. `None`: the caller has no
    /// such schedule, or its end came while it was paused and the schedule is over.
    pub async fn resume(
        &self,
        id: &JobId,
        own: Option<&OwnQueues>,
    ) -> Result<Option<StoredSchedule>, StoreError> {
        Ok(self.try_resume(id, own).await?.map(|(schedule, _)| schedule))
    }

    /// Pauses these schedules. Returns how many were not paused before.
    pub async fn pause_many(
        &self,
        filter: &ScheduleFilter,
        reason: Option<&str>,
    ) -> Result<u64, StoreError> {
        let own = filter.own_queues.as_ref();
        let ids = self.ids_of(filter, false).await?;
        let pauses = ids.iter().map(|id| self.try_pause(id, reason, own));
        changed(pauses.collect::<Vec<_>>()).await
    }

    /// Resumes these schedules. Returns how many were paused before.
    pub async fn resume_many(&self, filter: &ScheduleFilter) -> Result<u64, StoreError> {
        let own = filter.own_queues.as_ref();
        let ids = self.ids_of(filter, true).await?;
        let resumes = ids.iter().map(|id| self.try_resume(id, own));
        changed(resumes.collect::<Vec<_>>()).await
    }

    /// The ids of the schedules that are wanted and are paused, or are not.
    async fn ids_of(
        &self,
        filter: &ScheduleFilter,
        is_paused: bool,
    ) -> Result<Vec<JobId>, StoreError> {
        let mut ids = Vec::new();
        if filter.paused.is_none_or(|paused| paused == is_paused) {
            let filter = ScheduleFilter { paused: Some(is_paused), ..filter.clone() };
            self.each(&filter, |schedule| ids.push(schedule.id)).await?;
        }
        Ok(ids)
    }

    async fn try_pause(
        &self,
        id: &JobId,
        reason: Option<&str>,
        own: Option<&OwnQueues>,
    ) -> Result<Paused, StoreError> {
        let bucket = self.namespace.keys.bucket_of(id.as_str());
        let mut hindrances = Hindrances::default();
        for _ in 0..MAX_TRIES {
            let Some(read) = self.read_own(bucket, id, own).await? else { return Ok(None) };
            if read.schedule.progress.is_paused {
                return Ok(Some((read.schedule, false)));
            }
            let now_ms = self.namespace.read_clock_of(bucket).await?;
            hindrances.is_full = self.is_full(&read.schedule.job);
            let plan = plan(&read.schedule, now_ms, &hindrances, read.most());
            let mut change = match &plan {
                Some(plan) => read.change(plan),
                None => read.moved(Some(read.schedule.progress.clone())),
            };
            // A part of what is due is left: the next try makes the rest.
            let is_done = !change.progress.as_ref().is_some_and(|progress| {
                plan.is_some() && progress.next_ms.is_some_and(|next_ms| next_ms <= now_ms)
            });
            if is_done && let Some(progress) = &mut change.progress {
                progress.is_paused = true;
                progress.reason = reason.map(str::to_owned);
                progress.revision = read.schedule.progress.revision.saturating_add(1);
            }
            let progress = change.progress.clone();
            let made: Vec<(JobId, i64)> =
                change.make.iter().map(|made| (made.id.clone(), made.due_ms)).collect();
            let changed = self.change_one(bucket, change).await?;
            if let Changed::Done { .. } = changed {
                if let Some(plan) = &plan {
                    self.tell(&read.schedule, plan, &made);
                }
                if is_done {
                    return Ok(progress.map(|progress| (with(read.schedule, progress), true)));
                }
                hindrances = Hindrances::default();
            } else if !changed.hinders(&mut hindrances) {
                hindrances = Hindrances::default();
            }
        }
        Err(keeps_changing())
    }

    async fn try_resume(&self, id: &JobId, own: Option<&OwnQueues>) -> Result<Paused, StoreError> {
        let bucket = self.namespace.keys.bucket_of(id.as_str());
        for _ in 0..MAX_TRIES {
            let Some(read) = self.read_own(bucket, id, own).await? else { return Ok(None) };
            let StoredSchedule { progress, .. } = &read.schedule;
            if !progress.is_paused {
                return Ok(Some((read.schedule, false)));
            }
            let now_ms = self.namespace.read_clock_of(bucket).await?;
            let resumed = resumed(&read.schedule, now_ms);
            let change = read.moved(resumed.clone());
            if let Changed::Done { .. } = self.change_one(bucket, change).await? {
                self.namespace.schedules_changed.notify_one();
                return Ok(resumed.map(|progress| (with(read.schedule, progress), true)));
            }
        }
        Err(keeps_changing())
    }

    /// Tells what a pause made, by id and due time, epoch ms, and what was missed. Without an
    /// observer the log tells of the latter.
    fn tell(&self, schedule: &StoredSchedule, plan: &Plan, made: &[(JobId, i64)]) {
        let Some(observer) = self.observer.get() else {
            for gap in &plan.missed {
                tracing::warn!(
                    id = %schedule.id, count = gap.count, reason = gap.reason,
                    "occurrences of the schedule were missed"
                );
            }
            return;
        };
        let set = DueSet::of(&schedule.job);
        for (planned, (id, due_ms)) in plan.make.iter().zip(made) {
            observer.observe(&JobEvent::OccurrenceMade {
                schedule: &schedule.id,
                id,
                set,
                to: schedule.job.destination(),
                due_ms: *due_ms,
                number: planned.number,
                is_caught_up: planned.is_caught_up,
            });
        }
        for gap in &plan.missed {
            observer.observe(&JobEvent::OccurrencesMissed {
                schedule: &schedule.id,
                set,
                count: gap.count,
                times: &gap.times,
                reason: gap.reason,
                to_log: Some(gap.count),
            });
        }
    }

    fn is_full(&self, job: &Job) -> bool {
        let is_full = self.namespace.is_queue_full.get();
        is_full.zip(job.queue()).is_some_and(|(is_full, queue)| is_full(queue))
    }

    async fn read_own(
        &self,
        bucket: u16,
        id: &JobId,
        own: Option<&OwnQueues>,
    ) -> Result<Option<Read>, StoreError> {
        let read = self.read_one(bucket, id).await?;
        Ok(read.filter(|read| is_own(&read.schedule.job, own)))
    }

    /// Applies one change, and wakes the readers of what it made.
    async fn change_one(&self, bucket: u16, change: Change) -> Result<Changed, StoreError> {
        let changed = self.change(bucket, &[change]).await?.pop().unwrap_or(Changed::Stale);
        if let Changed::Done { wake_up: Some(head), .. } = &changed
            && let Err(error) = self.namespace.wake_others(std::slice::from_ref(head)).await
        {
            tracing::debug!(%error, "wake-ups were not sent, the floor poll finds the jobs");
        }
        Ok(changed)
    }
}

impl Read {
    /// The change that gives the schedule this progress, or ends it, and makes nothing.
    pub(crate) fn moved(&self, progress: Option<Progress>) -> Change {
        Change {
            id: self.schedule.id.clone(),
            expected: Some(self.state.clone()),
            record: None,
            progress,
            make: Vec::new(),
            unless_alive: None,
            take: None,
        }
    }
}

/// The progress of a paused schedule that is resumed; `None`: it has no time left.
fn resumed(schedule: &StoredSchedule, now_ms: i64) -> Option<Progress> {
    let progress = &schedule.progress;
    // Each nominal time is made once at most, also where the clock went back.
    let after_ms = progress.last_ms.map_or(now_ms, |last_ms| last_ms.max(now_ms));
    let next_ms = schedule.upcoming(after_ms, 1).pop()?;
    Some(Progress {
        next_ms: Some(next_ms),
        zone_data: dwell_schedule::Zone::data_version().to_owned(),
        is_paused: false,
        reason: None,
        revision: progress.revision.saturating_add(1),
        ..progress.clone()
    })
}

fn with(schedule: StoredSchedule, progress: Progress) -> StoredSchedule {
    StoredSchedule { progress, ..schedule }
}

/// Counts the schedules that were changed. The first error ends the call.
async fn changed<F>(calls: Vec<F>) -> Result<u64, StoreError>
where
    F: Future<Output = Result<Paused, StoreError>>,
{
    let mut calls = stream::iter(calls).buffer_unordered(CONCURRENT_CHANGES);
    let mut count = 0;
    while let Some(changed) = calls.next().await {
        count += u64::from(changed?.is_some_and(|(_, is_changed)| is_changed));
    }
    Ok(count)
}

fn keeps_changing() -> StoreError {
    StoreError::new(Class::Outdated, "redis: the schedule changed at each of many tries")
        .hint("try again")
}

#[cfg(test)]
mod tests {
    use dwell_schedule::{CatchUp, Expression};

    use super::*;
    use crate::schedule::{Overlap, Timing};

    const HOUR: i64 = 3_600_000;

    #[test]
    fn a_schedule_goes_on_after_its_pause_with_the_next_time_from_now() {
        let paused = StoredSchedule {
            id: JobId::new("report").unwrap(),
            timing: Timing {
                text: "@hourly".to_owned(),
                expression: Expression::parse("@hourly").unwrap(),
                zone: None,
                start_ms: None,
                end_ms: Some(110 * HOUR),
                count: Some(9),
                catch_up: CatchUp::All,
                overlap: Overlap::Allow,
                spread_ms: 0,
            },
            job: Job::for_queue("reports", ""),
            from_settings: false,
            progress: Progress {
                next_ms: Some(100 * HOUR),
                counted: 8,
                missed: 3,
                is_paused: true,
                reason: Some("release".to_owned()),
                revision: 4,
                ..Progress::default()
            },
        };
        let progress = resumed(&paused, 105 * HOUR).unwrap();
        assert_eq!((progress.next_ms, progress.missed), (Some(106 * HOUR), 3));
        assert_eq!((progress.is_paused, progress.reason, progress.revision), (false, None, 5));
        assert_eq!(resumed(&paused, 110 * HOUR), None);
        let mut made = paused.clone();
        made.progress.last_ms = Some(106 * HOUR);
        let progress = resumed(&made, 105 * HOUR).unwrap();
        assert_eq!(progress.next_ms, Some(107 * HOUR), "the clock went back");
        let mut used_up = paused;
        used_up.progress.counted = 9;
        assert_eq!(resumed(&used_up, 105 * HOUR), None);
    }
}
