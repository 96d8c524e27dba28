//! What becomes of the due occurrences of a recurring schedule: which are made, which are missed,
//! and what the schedule is afterwards.

use dwell_schedule::{Zone, overdue};

use crate::schedule::{Overlap, Progress, StoredSchedule};

/// Occurrences that were over a minute late, or whose successor was due.
pub const LATE: &str = "late";
/// Occurrences that were due while the one before was alive.
pub const OVERLAP: &str = "overlap";
/// Occurrences of a queue that was full.
pub const QUEUE_FULL: &str = "queue_full";
/// Occurrences whose id another job had.
pub const CONFLICT: &str = "conflict";

/// What stands in the way of occurrences, as far as it is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Hindrances {
    /// The nominal times, epoch ms, of the ids that other jobs have.
    pub(crate) foreign: Vec<i64>,
    /// The newest occurrence is alive.
    pub(crate) is_alive: bool,
    /// The queue is full.
    pub(crate) is_full: bool,
}

/// An occurrence to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Planned {
    /// The nominal time, epoch ms.
    pub(crate) nominal_ms: i64,
    /// The number among the occurrences of the schedule, from 1.
    pub(crate) number: u64,
    /// The nominal time of the next occurrence, epoch ms; `None`: this is the last.
    pub(crate) next_ms: Option<i64>,
    /// The occurrence had been missed, and is made all the same.
    pub(crate) is_caught_up: bool,
}

/// Occurrences that are not made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Missed {
    /// Why: [`LATE`], [`OVERLAP`], [`QUEUE_FULL`] or [`CONFLICT`].
    pub(crate) reason: &'static str,
    /// How many, as far as they are counted.
    pub(crate) count: u64,
    /// The nominal times of the newest, epoch ms, ascending.
    pub(crate) times: Vec<i64>,
}

/// What becomes of the due occurrences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The occurrences to make, ascending.
    pub(crate) make: Vec<Planned>,
    /// The occurrences that are not made, by reason.
    pub(crate) missed: Vec<Missed>,
    /// Nothing may be made while the occurrence of this nominal time, epoch ms, is alive.
    pub(crate) unless_alive_ms: Option<i64>,
    /// The progress afterwards; `None`: the schedule is over.
    pub(crate) progress: Option<Progress>,
}

/// What is due of a schedule at `now_ms`, at most `most` occurrences at a time: the rest stays due.
/// `None`: nothing is due.
pub(crate) fn plan(
    schedule: &StoredSchedule,
    now_ms: i64,
    hindrances: &Hindrances,
    most: usize,
) -> Option<Plan> {
    let StoredSchedule { timing, progress, .. } = schedule;
    let next_ms = progress.next_ms.filter(|next| !progress.is_paused && *next <= now_ms)?;
    let timetable = schedule.timetable()?;
    let due = overdue(&timetable, next_ms, now_ms, timing.catch_up, schedule.left());
    let after_ms = timetable.next(now_ms);
    let mut missed = Vec::new();
    if due.missed > 0 {
        missed.push(Missed { reason: LATE, count: due.missed, times: due.missed_times });
    }
    let successors = due.make.iter().skip(1).copied().map(Some).chain([after_ms]);
    let mut make: Vec<Planned> = due
        .make
        .iter()
        .zip(successors)
        .enumerate()
        .map(|(at, (nominal_ms, next_ms))| Planned {
            nominal_ms: *nominal_ms,
            number: 0,
            next_ms,
            // The oldest of those to make had been missed.
            is_caught_up: at < due.caught_up,
        })
        .collect();

    take_out(&mut make, &mut missed, CONFLICT, |_, planned| {
        hindrances.foreign.contains(&planned.nominal_ms)
    });
    if hindrances.is_full {
        take_out(&mut make, &mut missed, QUEUE_FULL, |_, _| true);
    }
    let skips = timing.overlap == Overlap::Skip;
    if skips {
        // The newest alone: each of the others would be alive when its successor is made.
        let kept = make.len().saturating_sub(usize::from(!hindrances.is_alive));
        take_out(&mut make, &mut missed, OVERLAP, |at, _| at < kept);
    }
    let unless_alive_ms = progress.last_ms.filter(|_| skips && !make.is_empty());

    let rest = if make.len() > most.max(1) { make.split_off(most.max(1)) } else { Vec::new() };
    let made = make.len() as u64;
    let counted = progress.counted.saturating_add(made);
    let is_used_up = timing.count.is_some_and(|count| counted >= count);
    let next_ms = rest.first().map_or(after_ms, |planned| Some(planned.nominal_ms));
    let next_ms = next_ms.filter(|_| !is_used_up);
    for (planned, number) in make.iter_mut().zip(progress.occurrence.saturating_add(1)..) {
        planned.number = number;
    }
    if let (Some(last), None) = (make.last_mut(), next_ms) {
        last.next_ms = None;
    }
    let newest_missed = missed.iter().filter_map(|gap| gap.times.last()).max().copied();
    let missed_count: u64 = missed.iter().map(|gap| gap.count).sum();
    let progress = next_ms.map(|next_ms| Progress {
        next_ms: Some(next_ms),
        zone_data: Zone::data_version().to_owned(),
        occurrence: progress.occurrence.saturating_add(made),
        counted,
        last_ms: make.last().map(|planned| planned.nominal_ms).or(progress.last_ms),
        last_missed_ms: newest_missed.max(progress.last_missed_ms),
        missed: progress.missed.saturating_add(missed_count),
        revision: progress.revision.saturating_add(1),
        ..progress.clone()
    });
    Some(Plan { make, missed, unless_alive_ms, progress })
}

/// Counts as missed those to make of which this is true, by their place and their facts.
fn take_out(
    make: &mut Vec<Planned>,
    missed: &mut Vec<Missed>,
    reason: &'static str,
    is_missed: impl Fn(usize, &Planned) -> bool,
) {
    let (mut times, mut at) = (Vec::new(), 0);
    make.retain(|planned| {
        let is_missed = is_missed(at, planned);
        at += 1;
        if is_missed {
            times.push(planned.nominal_ms);
        }
        !is_missed
    });
    if !times.is_empty() {
        missed.push(Missed { reason, count: times.len() as u64, times });
    }
}

#[cfg(test)]
mod tests;
