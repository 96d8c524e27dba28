//! The plans of schedules, by time and by what stands in the way.

use dwell_schedule::{CatchUp, Expression};

use super::*;
use crate::job::{Job, JobId};
use crate::schedule::Timing;

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;

/// A schedule of each whole hour, whose next time is the hour 100, after one of the hour 99.
fn hourly() -> StoredSchedule {
    StoredSchedule {
        id: JobId::new("report").unwrap(),
        timing: Timing {
            text: "@hourly".to_owned(),
            expression: Expression::parse("@hourly").unwrap(),
            zone: None,
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
            next_ms: Some(100 * HOUR),
            occurrence: 7,
            counted: 5,
            last_ms: Some(99 * HOUR),
            missed: 3,
            last_missed_ms: Some(90 * HOUR),
            revision: 20,
            ..Progress::default()
        },
    }
}

fn with(edit: impl FnOnce(&mut Timing)) -> StoredSchedule {
    let mut schedule = hourly();
    edit(&mut schedule.timing);
    schedule
}

fn unhindered(schedule: &StoredSchedule, now_ms: i64) -> Plan {
    plan(schedule, now_ms, &Hindrances::default(), usize::MAX).expect("it is due")
}

/// The hours that are made, each with its number and the hour of its successor.
fn made(plan: &Plan) -> Vec<(i64, u64, Option<i64>)> {
    plan.make
        .iter()
        .map(|made| (made.nominal_ms / HOUR, made.number, made.next_ms.map(|next| next / HOUR)))
        .collect()
}

/// The reasons and counts of what is missed, with the hours.
fn missed(plan: &Plan) -> Vec<(&'static str, u64, Vec<i64>)> {
    let hours = |times: &[i64]| times.iter().map(|time| time / HOUR).collect();
    plan.missed.iter().map(|gap| (gap.reason, gap.count, hours(&gap.times))).collect()
}

#[test]
fn one_that_is_due_is_made_and_the_schedule_goes_on() {
    let plan = unhindered(&hourly(), 100 * HOUR);
    assert_eq!((made(&plan), missed(&plan)), (vec![(100, 8, Some(101))], vec![]));
    assert_eq!((plan.make[0].is_caught_up, plan.unless_alive_ms), (false, None));
    let progress = plan.progress.unwrap();
    assert_eq!(
        progress,
        Progress {
            next_ms: Some(101 * HOUR),
            zone_data: Zone::data_version().to_owned(),
            occurrence: 8,
            counted: 6,
            last_ms: Some(100 * HOUR),
            revision: 21,
            ..hourly().progress
        }
    );
}

#[test]
fn nothing_is_due_before_its_time_or_while_paused_or_without_a_time() {
    let none = Hindrances::default();
    assert_eq!(plan(&hourly(), 100 * HOUR - 1, &none, 1), None);
    let edits: [fn(&mut Progress); 2] =
        [|progress| progress.is_paused = true, |progress| progress.next_ms = None];
    for edit in edits {
        let mut schedule = hourly();
        edit(&mut schedule.progress);
        assert_eq!(plan(&schedule, 200 * HOUR, &none, 1), None);
    }
}

#[test]
fn a_gap_is_caught_up_and_the_rest_of_it_is_late() {
    let late = 102 * HOUR + MINUTE + 1;
    let plan = unhindered(&hourly(), late);
    assert_eq!(made(&plan), [(102, 8, Some(103))]);
    assert_eq!(missed(&plan), [(LATE, 2, vec![100, 101])]);
    assert!(plan.make[0].is_caught_up);
    let progress = plan.progress.unwrap();
    assert_eq!((progress.missed, progress.last_missed_ms), (5, Some(101 * HOUR)));

    let none = unhindered(&with(|timing| timing.catch_up = CatchUp::None), late);
    assert!(none.make.is_empty());
    assert_eq!(missed(&none), [(LATE, 3, vec![100, 101, 102])]);
    let progress = none.progress.unwrap();
    assert_eq!((progress.next_ms, progress.occurrence), (Some(103 * HOUR), 7));
    assert_eq!((progress.last_ms, progress.missed), (Some(99 * HOUR), 6));

    let all = unhindered(&with(|timing| timing.catch_up = CatchUp::All), 102 * HOUR);
    assert_eq!(made(&all), [(100, 8, Some(101)), (101, 9, Some(102)), (102, 10, Some(103))]);
    let caught_up: Vec<bool> = all.make.iter().map(|made| made.is_caught_up).collect();
    assert_eq!((caught_up, missed(&all)), (vec![true, true, false], vec![]));
}

#[test]
fn more_than_fit_into_a_call_are_made_one_part_after_the_other() {
    let schedule = with(|timing| timing.catch_up = CatchUp::All);
    let now = 104 * HOUR;
    let first = plan(&schedule, now, &Hindrances::default(), 2).unwrap();
    assert_eq!(made(&first), [(100, 8, Some(101)), (101, 9, Some(102))]);
    let progress = first.progress.unwrap();
    assert_eq!((progress.next_ms, progress.last_ms), (Some(102 * HOUR), Some(101 * HOUR)));
    let rest = unhindered(&StoredSchedule { progress, ..schedule }, now);
    assert_eq!(made(&rest), [(102, 10, Some(103)), (103, 11, Some(104)), (104, 12, Some(105))]);
    assert_eq!((first.missed, rest.missed), (vec![], vec![]));
}

#[test]
fn the_last_occurrence_has_no_successor_and_ends_the_schedule() {
    let counted = with(|timing| timing.count = Some(6));
    let last = unhindered(&counted, 100 * HOUR);
    assert_eq!((made(&last), last.progress), (vec![(100, 8, None)], None));
    let ended = with(|timing| timing.end_ms = Some(100 * HOUR));
    let last = unhindered(&ended, 100 * HOUR);
    assert_eq!((made(&last), last.progress), (vec![(100, 8, None)], None));
    // The count has room for two of three that are due: the newest.
    let all = with(|timing| (timing.catch_up, timing.count) = (CatchUp::All, Some(7)));
    let last = unhindered(&all, 102 * HOUR);
    assert_eq!(made(&last), [(101, 8, Some(102)), (102, 9, None)]);
    assert_eq!((missed(&last), last.progress), (vec![(LATE, 1, vec![100])], None));
}

#[test]
fn what_is_missed_does_not_count() {
    let counted = with(|timing| timing.count = Some(6));
    let full = Hindrances { is_full: true, ..Hindrances::default() };
    let plan = plan(&counted, 100 * HOUR, &full, 9).unwrap();
    assert_eq!(missed(&plan), [(QUEUE_FULL, 1, vec![100])]);
    let progress = plan.progress.unwrap();
    assert_eq!((progress.counted, progress.next_ms), (5, Some(101 * HOUR)));
    assert!(plan.make.is_empty());
}

#[test]
fn a_foreign_job_of_the_id_costs_that_occurrence_alone() {
    let all = with(|timing| (timing.catch_up, timing.count) = (CatchUp::All, Some(8)));
    let hindrances = Hindrances { foreign: vec![101 * HOUR], ..Hindrances::default() };
    let plan = plan(&all, 102 * HOUR, &hindrances, 9).unwrap();
    assert_eq!(made(&plan), [(100, 8, Some(101)), (102, 9, Some(103))]);
    assert_eq!(missed(&plan), [(CONFLICT, 1, vec![101])]);
    let progress = plan.progress.unwrap();
    assert_eq!((progress.counted, progress.next_ms), (7, Some(103 * HOUR)));
    assert_eq!(progress.last_missed_ms, Some(101 * HOUR));
}

#[test]
fn with_skip_the_newest_alone_is_made_and_only_if_the_one_before_is_over() {
    let schedule = with(|timing| (timing.catch_up, timing.overlap) = (CatchUp::All, Overlap::Skip));
    let free = unhindered(&schedule, 102 * HOUR);
    assert_eq!((made(&free), free.unless_alive_ms), (vec![(102, 8, Some(103))], Some(99 * HOUR)));
    assert_eq!(missed(&free), [(OVERLAP, 2, vec![100, 101])]);

    let alive = Hindrances { is_alive: true, ..Hindrances::default() };
    let none = plan(&schedule, 102 * HOUR, &alive, 9).unwrap();
    assert_eq!((made(&none), none.unless_alive_ms), (vec![], None));
    assert_eq!(missed(&none), [(OVERLAP, 3, vec![100, 101, 102])]);
    assert_eq!(none.progress.unwrap().next_ms, Some(103 * HOUR));

    // Nothing was made before: nothing can be alive.
    let mut first = schedule;
    first.progress.last_ms = None;
    assert_eq!(unhindered(&first, 100 * HOUR).unless_alive_ms, None);
}

#[test]
fn a_next_time_that_is_none_any_more_is_moved() {
    // Other zone data: the stored next time is none of the schedule.
    let mut schedule = hourly();
    schedule.progress.next_ms = Some(100 * HOUR + MINUTE);
    let plan = unhindered(&schedule, 100 * HOUR + MINUTE);
    assert_eq!((made(&plan), missed(&plan)), (vec![], vec![]));
    assert_eq!(plan.progress.unwrap().next_ms, Some(101 * HOUR));
}
