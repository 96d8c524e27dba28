//! Tests of the decisions on requests for recurring schedules.

use dwell_schedule::{CatchUp, Expression};

use super::*;
use crate::job::Job;
use crate::request::KeptParts;
use crate::schedule::{Overlap, Timing};
use crate::store::record;

/// 2025-11-21T00:00:00Z, a midnight.
const MIDNIGHT: i64 = 1_763_683_200_000;
const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;
/// A moment of the tests: 10:00.
const NOW: i64 = MIDNIGHT + 10 * HOUR;
const GENERATION: Generation = *b"generate";

fn timing(text: &str) -> Timing {
    Timing {
        text: text.to_owned(),
        expression: Expression::parse(text).unwrap(),
        zone: None,
        start_ms: None,
        end_ms: None,
        count: None,
        catch_up: CatchUp::One,
        overlap: Overlap::Allow,
        spread_ms: 0,
    }
}

/// Changes a request.
type Edit<'a> = &'a dyn Fn(&mut NewSchedule);

pub(in crate::store) fn new(id: &str, text: &str) -> NewSchedule {
    NewSchedule {
        id: id.parse().unwrap(),
        conflict: Conflict::Replace,
        own_queues: None,
        is_paused: false,
        from_settings: false,
        timing: timing(text),
        job: Job { created_ms: 0, ..Job::for_queue("jobs", "x") },
        keep: KeptParts::default(),
        origin: Origin { fingerprint: *b"fingerpr", maybe_redelivered: true, is_message: true },
        reply_to: None,
    }
}

/// What is stored after this request, at `NOW`.
fn read_of(new: &NewSchedule) -> Read {
    let progress = added(new, NOW, GENERATION).unwrap();
    read_with(new, progress)
}

fn read_with(new: &NewSchedule, progress: Progress) -> Read {
    Read {
        state: codec::encode_state(&progress).into(),
        digest: codec::digest(new),
        schedule: StoredSchedule {
            id: new.id.clone(),
            timing: new.timing.clone(),
            job: new.job.clone(),
            from_settings: new.from_settings,
            progress,
        },
    }
}

/// A schedule of this expression, stored at `NOW`.
pub(in crate::store) fn stored(id: &str, text: &str) -> StoredSchedule {
    read_of(&new(id, text)).schedule
}

/// The verdict, the due time and the new state of a request.
fn outcome(plan: &Plan) -> (Verdict, Option<i64>, Option<Progress>) {
    let progress = plan.change.as_ref().and_then(|change| change.progress.clone());
    (*plan.verdict.as_ref().unwrap(), plan.due_ms, progress)
}

#[test]
fn a_new_schedule_has_its_first_time_from_now_on() {
    let first = |change: &dyn Fn(&mut NewSchedule)| {
        let mut new = new("a", "@hourly");
        change(&mut new);
        let plan = put(&new, None, NOW, GENERATION);
        let (verdict, due_ms, progress) = outcome(&plan);
        let progress = progress.unwrap();
        assert_eq!((verdict, due_ms), (Verdict::Added, progress.next_ms));
        assert_eq!((progress.generation, progress.revision), (GENERATION, 1));
        assert_eq!((plan.expected.clone(), progress.occurrence), (None, 0));
        let record = plan.change.unwrap().record.unwrap();
        assert_eq!(codec::decode(record).unwrap().timing, new.timing);
        progress
    };
    // A time that is now counts.
    assert_eq!(first(&|_| {}).next_ms, Some(NOW));
    assert_eq!(first(&|new| new.timing = timing("@every 1h")).next_ms, Some(NOW + HOUR));
    assert_eq!(first(&|new| new.timing.start_ms = Some(NOW + 1)).next_ms, Some(NOW + HOUR));
    // A start in the past gives the grid, and nothing to catch up.
    let on_grid = first(&|new| {
        new.timing = Timing { start_ms: Some(NOW - 5 * HOUR - 7), ..timing("@every 2h") };
    });
    assert_eq!(on_grid.next_ms, Some(NOW + HOUR - 7));
    assert!(first(&|new| new.is_paused = true).is_paused);
}

#[test]
fn kept_parts_are_those_that_are_stored_when_the_request_is_applied() {
    let with_body = |text: &str, body: &str| {
        let mut new = new("a", text);
        new.job.body = body.to_owned().into();
        new
    };
    // Another request has replaced what the caller read.
    let stored = read_of(&with_body("@hourly", "newer"));
    let keep = KeptParts { body: true, ..KeptParts::default() };
    let asked = NewSchedule { keep, ..with_body("@daily", "older") };
    let plan = put(&asked, Some(&stored), NOW, GENERATION);
    assert_eq!(outcome(&plan).0, Verdict::Replaced);
    let record = codec::decode(plan.change.unwrap().record.unwrap()).unwrap();
    assert_eq!((&record.job.body[..], record.timing), (&b"newer"[..], asked.timing.clone()));
    let same = read_of(&with_body("@daily", "newer"));
    assert_eq!(outcome(&put(&asked, Some(&same), NOW, GENERATION)).0, Verdict::Duplicate);

    let elsewhere = NewSchedule { job: Job::for_queue("elsewhere", "x"), ..asked.clone() };
    for (asked, stored) in [(&elsewhere, Some(&stored)), (&asked, None)] {
        let plan = put(asked, stored, NOW, GENERATION);
        assert!(plan.change.is_none() && plan.verdict.unwrap_err().is_refusal());
    }
}

#[test]
fn a_schedule_without_a_time_from_now_on_is_refused() {
    let ends = |end_ms: i64| {
        let mut new = new("a", "@hourly");
        new.timing.end_ms = Some(end_ms);
        put(&new, None, NOW + 1, GENERATION)
    };
    let refused = ends(NOW + HOUR - 1);
    assert!(refused.change.is_none() && refused.verdict.unwrap_err().is_refusal());
    assert!(ends(NOW + HOUR).verdict.is_ok(), "the end is included");
    // A replacement too: its schedule goes on.
    let read = read_of(&new("a", "@hourly"));
    let mut shorter = new("a", "@hourly");
    shorter.timing.end_ms = Some(NOW - 1);
    let refused = put(&shorter, Some(&read), NOW, GENERATION);
    assert_eq!(refused.expected, Some(read.state.clone()));
    assert!(refused.verdict.unwrap_err().is_refusal());
}

#[test]
fn no_schedule_has_the_id_of_an_occurrence() {
    for id in ["a@1763722800000".to_owned(), "x".repeat(241)] {
        assert!(put(&new(&id, "@hourly"), None, NOW, GENERATION).verdict.is_err(), "{id}");
    }
}

#[test]
fn the_same_in_everything_is_a_duplicate_whatever_the_policy() {
    let mut asked = new("a", "@hourly");
    let read = read_of(&asked);
    // Moment and message are not part of a schedule.
    asked.job.created_ms = 7;
    asked.job.trace = Some("00-1-2-01".to_owned());
    asked.origin.fingerprint = *b"anothero";
    asked.timing.text = "0 * * * *".to_owned();
    for conflict in [Conflict::Replace, Conflict::Keep, Conflict::Reject] {
        asked.conflict = conflict;
        let plan = put(&asked, Some(&read), NOW + 5, GENERATION);
        assert_eq!(outcome(&plan), (Verdict::Duplicate, Some(NOW), None));
        assert_eq!((plan.expected, plan.change), (Some(read.state.clone()), None));
    }
}

#[test]
fn any_difference_replaces_unless_the_policy_keeps() {
    let base = new("a", "@hourly");
    let read = read_of(&base);
    let changes: [(&str, Edit<'_>); 10] = [
        ("expression", &|new| new.timing = timing("@daily")),
        ("zone", &|new| new.timing.zone = Some(Zone::parse("Europe/Berlin").unwrap())),
        ("start", &|new| new.timing.start_ms = Some(0)),
        ("end", &|new| new.timing.end_ms = Some(NOW + DAY)),
        ("count", &|new| new.timing.count = Some(3)),
        ("catch-up", &|new| new.timing.catch_up = CatchUp::All),
        ("overlap", &|new| new.timing.overlap = Overlap::Skip),
        ("spread", &|new| new.timing.spread_ms = 1),
        ("body", &|new| new.job.body = "y".into()),
        ("settings", &|new| new.from_settings = true),
    ];
    for (what, change) in changes {
        let mut other = base.clone();
        change(&mut other);
        for (conflict, verdict) in [
            (Conflict::Replace, Verdict::Replaced),
            (Conflict::Keep, Verdict::Kept),
            (Conflict::Reject, Verdict::Conflict),
        ] {
            other.conflict = conflict;
            let plan = put(&other, Some(&read), NOW, GENERATION);
            assert_eq!(*plan.verdict.as_ref().unwrap(), verdict, "{what}");
            assert_eq!(plan.change.is_some(), verdict == Verdict::Replaced, "{what}");
            if verdict != Verdict::Replaced {
                assert_eq!(plan.due_ms, Some(NOW), "{what}");
            }
        }
    }
    // UTC is the zone of a schedule without one.
    let mut utc = base.clone();
    utc.timing.zone = Some(Zone::utc());
    assert_eq!(outcome(&put(&utc, Some(&read), NOW, GENERATION)).0, Verdict::Duplicate);
}

/// A schedule that has made five occurrences, of which three count, missed two and is paused.
fn worked(new: &NewSchedule) -> Read {
    let progress = Progress {
        grid_ms: NOW - 10 * HOUR,
        next_ms: Some(NOW - HOUR),
        occurrence: 5,
        counted: 3,
        last_ms: Some(NOW - 2 * HOUR),
        last_missed_ms: Some(NOW - 3 * HOUR),
        missed: 2,
        is_paused: true,
        reason: Some("maintenance".to_owned()),
        revision: 9,
        ..read_of(new).schedule.progress
    };
    read_with(new, progress)
}

#[test]
fn a_replacement_keeps_what_the_schedule_has_become() {
    let counted = |text: &str, count: Option<u64>| {
        let mut new = new("a", text);
        (new.timing.count, new.timing.spread_ms) = (count, 9);
        new
    };
    let mut was = counted("@every 1h", Some(9));
    was.timing.spread_ms = 0;
    let read = worked(&was);
    // What came in the pause is never made: the verdict tells the time after.
    let after = NOW + HOUR;
    // (request, grid, next, due of the verdict, counted)
    for (request, grid_ms, next_ms, told_ms, counts) in [
        // The same times: the next stays, due or not, and the same count goes on.
        (counted("@every 1h", Some(9)), NOW - 10 * HOUR, NOW - HOUR, after, 3),
        (counted("@every 60m", Some(9)), NOW - 10 * HOUR, NOW - HOUR, after, 3),
        // Another count counts from there.
        (counted("@every 1h", Some(10)), NOW - 10 * HOUR, NOW - HOUR, after, 0),
        (counted("@every 1h", None), NOW - 10 * HOUR, NOW - HOUR, after, 0),
        // Other times count from now.
        (counted("@every 2h", Some(9)), NOW, NOW + 2 * HOUR, NOW + 2 * HOUR, 0),
        (counted("30 * * * *", Some(9)), NOW, NOW + HOUR / 2, NOW + HOUR / 2, 0),
    ] {
        let (verdict, due_ms, progress) = outcome(&put(&request, Some(&read), NOW, [7; 8]));
        let expected = Progress {
            grid_ms,
            next_ms: Some(next_ms),
            counted: counts,
            revision: 10,
            ..read.schedule.progress.clone()
        };
        assert_eq!((verdict, due_ms), (Verdict::Replaced, Some(told_ms)), "{request:?}");
        assert_eq!(progress, Some(expected), "{request:?}");
    }
}

#[test]
fn a_replacement_never_makes_a_time_again() {
    let base = new("a", "@every 1h");
    let mut progress = read_of(&base).schedule.progress;
    progress.last_ms = Some(NOW);
    let read = read_with(&base, progress);
    // 10:00 was made, by another expression.
    let (_, due_ms, _) = outcome(&put(&new("a", "@hourly"), Some(&read), NOW, GENERATION));
    assert_eq!(due_ms, Some(NOW + HOUR));
}

#[test]
fn an_end_may_be_set_and_moved() {
    let base = new("a", "@hourly");
    let read = read_of(&base);
    let mut other = base.clone();
    other.timing.end_ms = Some(NOW);
    let plan = put(&other, Some(&read), NOW + 5, GENERATION);
    assert_eq!(outcome(&plan).1, Some(NOW), "the next time is before the end");
}

#[test]
fn a_cancel_ends_the_schedule_and_names_its_newest_occurrence() {
    let read = read_of(&new("a", "@hourly"));
    let plan = act(Action::Cancel, &read, NOW, &[]);
    assert_eq!(outcome(&plan), (Verdict::Cancelled, Some(NOW), None));
    assert_eq!(plan.change.unwrap().take, None);
    let read = worked(&new("a", "@hourly"));
    let change = act(Action::Cancel, &read, NOW, &[]).change.unwrap();
    let made = occurrence(&read.schedule, NOW - 2 * HOUR, 5, None);
    let generation = record::decode(made.record.into()).unwrap().generation;
    assert_eq!(change.take, Some((made.id, generation)));
    assert_eq!((change.expected, change.progress), (Some(read.state), None));
}

#[test]
fn actions_on_jobs_leave_a_schedule_waiting() {
    let read = read_of(&new("a", "@hourly"));
    for action in [Action::Reschedule, Action::Finish, Action::Fail, Action::Requeue] {
        let plan = act(action, &read, NOW, &[]);
        assert_eq!(outcome(&plan), (Verdict::Waiting, Some(NOW), None), "{action:?}");
        assert!(plan.change.is_none());
    }
    assert!(act(Action::Add, &read, NOW, &[]).verdict.is_err());
}

#[test]
fn a_verdict_on_a_paused_schedule_tells_no_time_of_the_pause() {
    let asked = new("a", "@hourly");
    let read = worked(&asked);
    for plan in [
        put(&asked, Some(&read), NOW + 7, GENERATION),
        act(Action::Fail, &read, NOW + 7, &[]),
        act(Action::Cancel, &read, NOW + 7, &[]),
    ] {
        assert_eq!(plan.due_ms, Some(NOW + HOUR), "{:?}", plan.verdict);
    }
    let mut ended = asked;
    ended.timing.end_ms = Some(NOW);
    let plan = act(Action::Fire, &worked(&ended), NOW + 7, &[]);
    let job = record::decode(plan.made().unwrap().record.clone().into()).unwrap().job;
    assert_eq!(job.headers.get("delayed-next"), None, "the end came in the pause");
}

#[test]
fn a_fired_occurrence_is_the_next_number_and_moves_nothing() {
    let mut asked = new("a", "@hourly");
    (asked.timing.spread_ms, asked.timing.count) = (HOUR.unsigned_abs(), Some(9));
    let read = worked(&asked);
    let now = NOW + 7;
    let plan = act(Action::Fire, &read, now, &[]);
    let (verdict, due_ms, progress) = outcome(&plan);
    assert_eq!((verdict, due_ms), (Verdict::Firing, Some(now)));
    let expected = Progress {
        occurrence: 6,
        counted: 4,
        last_ms: Some(now),
        revision: 10,
        ..read.schedule.progress.clone()
    };
    assert_eq!(progress, Some(expected), "also while it is paused");
    let made = plan.made().unwrap();
    assert_eq!((made.id.as_str(), made.due_ms), (format!("a@{now}").as_str(), now), "not spread");
    let job = record::decode(made.record.clone().into()).unwrap().job;
    let header = |name| job.headers.get(name).cloned();
    assert_eq!(header("delayed-occurrence"), Some(dwell_core::Value::I64(6)));
    let next = Some(dwell_core::Value::I64(NOW + HOUR));
    assert_eq!(header("delayed-next"), next, "what came in the pause is never made");
}

#[test]
fn a_fired_occurrence_takes_a_free_millisecond() {
    let at = |read: &Read, now: i64, not_at: &[i64]| act(Action::Fire, read, now, not_at).due_ms;
    let read = read_of(&new("a", "@hourly"));
    assert_eq!(at(&read, NOW, &[]), Some(NOW + 1), "the next time is taken");
    assert_eq!(at(&read, NOW + HOUR, &[]), Some(NOW + HOUR + 1), "as are the times after it");
    assert_eq!(at(&read, NOW + 5, &[]), Some(NOW + 5));
    assert_eq!(at(&read, NOW + 5, &[NOW + 5, NOW + 6]), Some(NOW + 7));
    let mut fired = read.schedule.progress.clone();
    fired.last_ms = Some(NOW + 5);
    let read = read_with(&new("a", "@hourly"), fired);
    assert_eq!(at(&read, NOW + 5, &[]), Some(NOW + 6), "the newest has it");
}

#[test]
fn the_last_of_a_count_ends_the_schedule() {
    let mut asked = new("a", "@hourly");
    asked.timing.count = Some(4);
    let plan = act(Action::Fire, &worked(&asked), NOW + 7, &[]);
    assert_eq!(outcome(&plan), (Verdict::Firing, Some(NOW + 7), None), "the id is free");
    let made = plan.made().unwrap();
    let job = record::decode(made.record.clone().into()).unwrap().job;
    assert_eq!(job.headers.get("delayed-next"), None);
}
