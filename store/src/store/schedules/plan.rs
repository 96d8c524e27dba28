//! The decisions on requests for recurring schedules. Pure: a request, the schedule that was read
//! and the time go in, and a change comes out.

use bytes::Bytes;
use dwell_core::quote;
use dwell_schedule::Zone;

use super::change::{Change, ChangeRequest, arguments};
use super::occurrence::{Occurrence, check_id, generation_at, id_at, occurrence};
use super::{Read, codec};
use crate::job::{Action, Conflict, JobId, Verdict};
use crate::request::NewSchedule;
use crate::request::{Origin, OwnQueues};
use crate::schedule::{Progress, StoredSchedule, Timing};
use crate::store::call::script_call::ScriptCall;
use crate::store::error::StoreError;
use crate::store::record::Generation;

/// What becomes of a request.
#[derive(Debug)]
pub(in crate::store) struct Plan {
    /// The state that was read.
    pub(in crate::store) expected: Option<Bytes>,
    /// The change; `None`: nothing changes.
    pub(in crate::store) change: Option<Change>,
    /// The verdict if the change is applied; an error refuses the request.
    pub(in crate::store) verdict: Result<Verdict, StoreError>,
    /// The due time of the verdict, epoch ms.
    pub(in crate::store) due_ms: Option<i64>,
}

impl Plan {
    fn changes(change: Change, verdict: Verdict, due_ms: Option<i64>) -> Self {
        let expected = change.expected.clone();
        Plan { expected, change: Some(change), verdict: Ok(verdict), due_ms }
    }

    fn keeps(read: &Read, verdict: Verdict, now_ms: i64) -> Self {
        let due_ms = next_of(&read.schedule.timing, &read.schedule.progress, now_ms);
        Plan { expected: Some(read.state.clone()), change: None, verdict: Ok(verdict), due_ms }
    }

    /// The request is refused, unless it was applied before.
    pub(in crate::store) fn refuses(expected: Option<Bytes>, why: StoreError) -> Self {
        Plan { expected, change: None, verdict: Err(why), due_ms: None }
    }

    /// The occurrence that the change makes.
    pub(in crate::store) fn made(&self) -> Option<&Occurrence> {
        self.change.as_ref()?.make.first()
    }

    /// Appends the change to a call.
    pub(in crate::store) fn arguments(
        &self,
        call: &mut ScriptCall,
        id: &JobId,
        origin: &Origin,
        own_queues: Option<&OwnQueues>,
    ) {
        let verdict = self.verdict.as_ref().ok().copied();
        let asked = ChangeRequest { origin, own_queues, verdict, due_ms: self.due_ms };
        arguments(call, id, self.expected.as_ref(), self.change.as_ref(), Some(&asked));
    }
}

/// The plan for a new schedule. `generation`: of the schedule if it is new, the same in every
/// attempt to store it.
pub(in crate::store) fn put(
    new: &NewSchedule,
    read: Option<&Read>,
    now_ms: i64,
    generation: Generation,
) -> Plan {
    if !new.keep.is_any() {
        return put_whole(new, read, now_ms, generation);
    }
    // The caller has read them too, and another request may have replaced them since.
    match read.and_then(|read| new.keep.of(&read.schedule.job, new.job.clone())) {
        Some(job) => put_whole(&NewSchedule { job, ..new.clone() }, read, now_ms, generation),
        None => Plan::refuses(
            read.map(|read| read.state.clone()),
            StoreError::rejected(
                "keep: the recurring schedule has ended, or has another target or queue by now: send the parts instead",
            ),
        ),
    }
}

/// The same, of a schedule with all of its parts.
fn put_whole(new: &NewSchedule, read: Option<&Read>, now_ms: i64, generation: Generation) -> Plan {
    let digest = codec::digest(new);
    if let Some(read) = read {
        let kept = match new.conflict {
            _ if read.digest == digest => Some(Verdict::Duplicate),
            // A schedule does not debounce.
            Conflict::Replace | Conflict::Debounce { .. } => None,
            Conflict::Keep => Some(Verdict::Kept),
            Conflict::Reject => Some(Verdict::Conflict),
        };
        if let Some(verdict) = kept {
            return Plan::keeps(read, verdict, now_ms);
        }
    }
    let expected = read.map(|read| read.state.clone());
    let progress = match check_id(&new.id) {
        Ok(()) => match read {
            Some(read) => replaced(new, &read.schedule, now_ms),
            None => added(new, now_ms, generation),
        },
        Err(why) => Err(why),
    };
    let progress = match progress {
        Ok(progress) => progress,
        Err(why) => return Plan::refuses(expected, StoreError::rejected(why)),
    };
    let record = codec::encode(new, &digest, progress.generation);
    let due_ms = next_of(&new.timing, &progress, now_ms);
    let change = Change {
        record: Some(record.into()),
        progress: Some(progress),
        ..removal(&new.id, expected)
    };
    let verdict = if read.is_some() { Verdict::Replaced } else { Verdict::Added };
    Plan::changes(change, verdict, due_ms)
}

/// The state of a new schedule.
fn added(new: &NewSchedule, now_ms: i64, generation: Generation) -> Result<Progress, String> {
    let times = new.timing.timetable(now_ms).map_err(|why| why.to_string())?;
    Ok(Progress {
        grid_ms: now_ms,
        next_ms: Some(times.first(now_ms).ok_or_else(|| no_time(new))?),
        zone_data: Zone::data_version().to_owned(),
        is_paused: new.is_paused,
        generation,
        revision: 1,
        ..Progress::default()
    })
}

/// The state of a schedule that a request replaces: with the same expression, zone and start the
/// next time stays, and the same count goes on. All else counts from now.
fn replaced(new: &NewSchedule, schedule: &StoredSchedule, now_ms: i64) -> Result<Progress, String> {
    let was = &schedule.progress;
    let fresh = new.timing.timetable(now_ms).map_err(|why| why.to_string())?;
    let goes_on = schedule.timetable().is_some_and(|times| times.continues(&fresh));
    let (grid_ms, next_ms, zone_data) = if goes_on {
        let times = new.timing.timetable(was.grid_ms).map_err(|why| why.to_string())?;
        // The end may be another, and come before the next time.
        let next_ms = times.first(was.next_ms.unwrap_or(now_ms));
        (was.grid_ms, next_ms, was.zone_data.clone())
    } else {
        // Each nominal time is made once at most.
        let from_ms = was.last_ms.map_or(now_ms, |last| now_ms.max(last.saturating_add(1)));
        (now_ms, fresh.first(from_ms), Zone::data_version().to_owned())
    };
    let counts_on = goes_on && schedule.timing.count == new.timing.count;
    Ok(Progress {
        grid_ms,
        next_ms: Some(next_ms.ok_or_else(|| no_time(new))?),
        zone_data,
        counted: if counts_on { was.counted } else { 0 },
        revision: was.revision.wrapping_add(1),
        ..was.clone()
    })
}

fn no_time(new: &NewSchedule) -> String {
    format!(
        "the recurring schedule {} has no time from now on, within its start and end: choose other fields, or a later end",
        quote(&new.timing.text)
    )
}

/// The plan for an action on a schedule. `not_at`: times, epoch ms, whose ids other jobs have.
pub(in crate::store) fn act(action: Action, read: &Read, now_ms: i64, not_at: &[i64]) -> Plan {
    let Read { schedule, state, .. } = read;
    match action {
        Action::Cancel => {
            let newest = schedule.progress.last_ms.map(|last_ms| {
                let generation = generation_at(schedule.progress.generation, last_ms);
                (id_at(&schedule.id, last_ms), generation)
            });
            let change = Change { take: newest, ..removal(&schedule.id, Some(state.clone())) };
            let due_ms = next_of(&schedule.timing, &schedule.progress, now_ms);
            Plan::changes(change, Verdict::Cancelled, due_ms)
        }
        Action::Fire => fire(schedule, state, free_ms(schedule, now_ms, not_at)),
        Action::Reschedule | Action::Finish | Action::Fail | Action::Requeue => {
            Plan::keeps(read, Verdict::Waiting, now_ms)
        }
        Action::Add => {
            let why = StoreError::rejected("`schedule` is no action on a schedule that exists");
            Plan::refuses(Some(state.clone()), why)
        }
    }
}

/// Makes the next occurrence at this time, epoch ms. The next nominal time stays.
fn fire(schedule: &StoredSchedule, state: &Bytes, at_ms: i64) -> Plan {
    let was = &schedule.progress;
    let progress = Progress {
        occurrence: was.occurrence.saturating_add(1),
        counted: was.counted.saturating_add(1),
        last_ms: Some(at_ms),
        revision: was.revision.wrapping_add(1),
        ..was.clone()
    };
    let is_last = schedule.timing.count.is_some_and(|count| progress.counted >= count);
    let next_ms = next_of(&schedule.timing, was, at_ms).filter(|_| !is_last);
    let made = occurrence(schedule, at_ms, progress.occurrence, next_ms);
    let change = Change {
        // A schedule without a further time is over.
        progress: Some(progress).filter(|progress| progress.next_ms.is_some() && !is_last),
        // What is fired is never spread.
        make: vec![Occurrence { due_ms: at_ms, ..made }],
        ..removal(&schedule.id, Some(state.clone()))
    };
    Plan::changes(change, Verdict::Firing, Some(at_ms))
}

/// The next nominal time at `now_ms`, epoch ms. A time that came while the schedule is paused is
/// never made: the next one is that of a resume.
fn next_of(timing: &Timing, progress: &Progress, now_ms: i64) -> Option<i64> {
    let Progress { next_ms, last_ms, .. } = *progress;
    if !progress.is_paused || next_ms.is_none_or(|next_ms| next_ms >= now_ms) {
        return next_ms;
    }
    let after_ms = last_ms.map_or(now_ms, |last_ms| last_ms.max(now_ms));
    let left = timing.count.map(|count| count.saturating_sub(progress.counted));
    timing.upcoming(progress.grid_ms, left, (after_ms, after_ms), 1).pop()
}

/// The first time from now on that is neither a time of the schedule nor that of another
/// occurrence, epoch ms.
fn free_ms(schedule: &StoredSchedule, now_ms: i64, not_at: &[i64]) -> i64 {
    let Progress { next_ms, last_ms, .. } = schedule.progress;
    let times = schedule.timetable();
    let is_nominal = |ms: i64| {
        next_ms == Some(ms) || times.as_ref().is_some_and(|times| times.first(ms) == Some(ms))
    };
    let mut ms = last_ms.map_or(now_ms, |last| now_ms.max(last.saturating_add(1)));
    while not_at.contains(&ms) || is_nominal(ms) {
        ms = ms.saturating_add(1);
    }
    ms
}

/// A change that removes the schedule, and no more.
fn removal(id: &JobId, expected: Option<Bytes>) -> Change {
    Change {
        id: id.clone(),
        expected,
        record: None,
        progress: None,
        make: Vec::new(),
        unless_alive: None,
        take: None,
    }
}

#[cfg(test)]
pub(in crate::store) mod tests;
