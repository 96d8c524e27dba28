//! Faults that affect only some jobs: what they allow for these, and nothing for others.

use dwell::store::keys::bucket_of;

use super::*;
use crate::chaos::history::{Only, Scope, UNREADABLE};

const SECOND: i64 = 1_000_000;

/// From a second before the due time until twenty seconds after it.
fn beside(run: Run, kind: &str, only: Only) -> Run {
    let (began_us, healed_us, from_us) = (DUE_US - SECOND, DUE_US + 20 * SECOND, DUE_US - SECOND);
    let fault = Fault {
        kind: kind.parse().unwrap(),
        began_us,
        healed_us,
        in_flight: 9,
        detail: String::new(),
        clock_step_us: None,
        leases: None,
        forgotten: None,
        beside: Some(Scope { from_us, only }),
    };
    run.push(ok(healed_us, Op::Fault(fault)))
}

fn silent(target: &str) -> Run {
    beside(Run::new(), "target-silent", Only::Target(target.to_owned()))
}

#[test]
fn who_is_not_concerned_is_in_time_while_it_lasts() {
    let late =
        |run: Run, seconds| run.asked("x").came_so("x", DUE_US + seconds * SECOND, |_| ()).wrong();
    assert_eq!(late(silent("t"), 21), [], "it is the silent one");
    assert_eq!(late(silent("u"), 11), []);
    assert_eq!(late(silent("u"), 13), [Wrong::Late]);
    assert_eq!(late(silent("u"), 21), [Wrong::Late], "also where it came after the heal");
    assert_eq!(late(beside(Run::new(), "instance-cut-off", Only::Nobody), 13), [Wrong::Late]);
    let uncertain =
        silent("u").sent("x", Phase::Info, job("t")).came_so("x", DUE_US + 13 * SECOND, |_| ());
    assert_eq!(uncertain.wrong(), [], "nobody said that it was taken");
    // Unaffected jobs are checked from `from_us` on.
    let mut run = beside(Run::new(), "instance-cut-off", Only::Nobody);
    let Some(Event { op: Op::Fault(Fault { beside: Some(Scope { from_us, .. }), .. }), .. }) =
        run.0.events.last_mut()
    else {
        panic!()
    };
    *from_us = DUE_US + 2 * SECOND;
    assert_eq!(late(run, 13), []);
    // Something else may delay a job that was sent before the fault.
    let mut run = silent("u").asked("x").came_so("x", DUE_US + 13 * SECOND, |_| ());
    run.0
        .events
        .iter_mut()
        .filter(|event| matches!(event.op, Op::Schedule(_)))
        .for_each(|event| event.t_us -= SECOND);
    assert_eq!(run.wrong(), []);
}

#[test]
fn the_strike_says_how_late_others_were() {
    let run = silent("t").asked("x").came_so("x", DUE_US + 6 * SECOND, |_| ());
    let other = Job { target: "u".to_owned(), ..job("u") };
    let run = run
        .sent("y", Phase::Ok, other)
        .came_so("y", DUE_US + 2 * SECOND, |arrival| arrival.topic = "u".to_owned());
    let impact = run.check().impacts.remove(0);
    assert_eq!((impact.lateness_us, impact.beside_us), (6 * SECOND, Some(2 * SECOND)));
}

#[test]
fn only_a_job_for_the_silent_target_dies_of_it_or_comes_twice() {
    let died = |run: Run| {
        run.sent("x", Phase::Ok, Job { retry_ms: Some(Vec::new()), ..job("t") })
            .died("x", "retries_exhausted")
            .wrong()
    };
    assert_eq!(died(silent("t")), []);
    assert_eq!(died(silent("u")), [Wrong::DeadTooEarly]);
    let twice = |run: Run| {
        run.counted(DUE_US - 9 * SECOND, 0)
            .asked("x")
            .came("x")
            .again("x", 2)
            .counted(DUE_US + 2 * SECOND, 1)
            .wrong()
    };
    assert_eq!(twice(silent("t")), []);
    assert_eq!(twice(silent("u")), [Wrong::Unexplained]);
}

#[test]
fn a_request_comes_back_where_its_bucket_cannot_be_read_and_nowhere_else() {
    let bucket = |number| Only::Bucket { number: (bucket_of("x", 8) + number) % 8, of: 8 };
    let came_back = |kind: &str, only, at_us| {
        let mut run = beside(Run::new(), kind, only).asked("x").ask(Op::Fire, "x", None).told(
            "x",
            "fire",
            "not_found",
        );
        let arrival = Arrival { reason: UNREADABLE.to_owned(), ..run.arrival("x") };
        run.push(ok(at_us, Op::Reject(arrival)))
    };
    let run = |kind, number, at_us| came_back(kind, bucket(number), at_us).wrong();
    assert_eq!(run("wrong-type", 0, DUE_US), []);
    assert_eq!(
        run("wrong-type", 1, DUE_US),
        [Wrong::Lost, Wrong::FalseVerdict],
        "of another bucket"
    );
    assert_eq!(
        run("wrong-type", 0, DUE_US - 2 * SECOND),
        [Wrong::Lost, Wrong::FalseVerdict],
        "before"
    );
    let over_us = DUE_US + 20 * SECOND + head().lease_ms * 1000;
    assert_eq!(run("wrong-type", 0, over_us), [], "its answer was on its way");
    assert_eq!(run("wrong-type", 0, over_us + SECOND), [Wrong::Lost, Wrong::FalseVerdict], "after");
    assert_eq!(run("redis-kill", 0, DUE_US), [Wrong::Lost, Wrong::FalseVerdict]);
    let stored = came_back("wrong-type", bucket(0), DUE_US).told("x", "schedule", "added").wrong();
    assert_eq!(stored, [Wrong::Lost, Wrong::FalseVerdict], "it was stored before");
}

#[test]
fn what_cannot_be_read_is_said_of_what_cannot_be_read() {
    let damaged = |id: &str| beside(Run::new(), "record-damaged", Only::Jobs(vec![id.to_owned()]));
    let came_back = |mut run: Run, at_us, action: &str| {
        let arrival = Arrival {
            reason: UNREADABLE.to_owned(),
            action: action.to_owned(),
            ..run.arrival("x")
        };
        run.push(ok(at_us, Op::Reject(arrival)))
    };
    let cancelled = |run: Run| run.asked("x").ask(Op::Cancel, "x", None);
    let came = |run: Run| run.came_so("x", DUE_US + 21 * SECOND, |_| ());
    let run = came_back(cancelled(damaged("x")), DUE_US, "cancel");
    assert_eq!(came_back(came(run), DUE_US, "").wrong(), []);
    let run = |id| came_back(came(cancelled(damaged(id))), DUE_US, "cancel").wrong();
    assert_eq!(run("y"), [Wrong::FalseVerdict, Wrong::Late], "it could be read");
    assert_eq!(
        came(came_back(cancelled(damaged("x")), DUE_US + 60 * SECOND, "cancel")).wrong(),
        [Wrong::FalseVerdict],
        "long after"
    );
    assert_eq!(
        came_back(cancelled(damaged("x")), DUE_US, "cancel").wrong(),
        [Wrong::Lost],
        "nobody cancelled it"
    );
    assert_eq!(
        came(cancelled(damaged("x")).told("x", "cancel", "not_found")).wrong(),
        [Wrong::FalseVerdict],
        "nobody knows"
    );
}
