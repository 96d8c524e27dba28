//! Received and missing verdicts.

use super::*;

const SECOND: i64 = 1_000_000;

fn x() -> Run {
    Run::new().asked("x")
}

/// A control request for `x`, and its answer.
fn told(op: fn(ControlRequest) -> Op, action: &str, verdict: &str) -> Run {
    x().ask(op, "x", None).told("x", action, verdict)
}

#[test]
fn a_verdict_that_contradicts_what_came_is_false() {
    // The requests of these jobs are uncertain: without an arrival nothing is lost.
    let uncertain = |verdict| {
        Run::new()
            .sent("x", Phase::Info, job("t"))
            .ask(Op::Fire, "x", None)
            .told("x", "fire", verdict)
            .wrong()
    };
    assert_eq!(uncertain("firing"), [Wrong::FalseVerdict]);
    assert_eq!(uncertain("not_found"), []);
    assert_eq!(told(Op::Fire, "fire", "dead").came("x").wrong(), [Wrong::FalseVerdict]);
    let moved = x().ask(Op::Reschedule, "x", Some(DUE_MS)).told("x", "reschedule", "dead");
    assert_eq!(moved.came("x").wrong(), [Wrong::FalseVerdict]);
    assert_eq!(
        told(Op::Cancel, "cancel", "cancelled").fault("broker-kill", 1).came("x").wrong(),
        [Wrong::FalseVerdict]
    );
}

#[test]
fn fired_is_said_of_what_came_before() {
    let came = |run: Run, at: i64| {
        told(Op::Cancel, "cancel", "fired")
            .0
            .events
            .into_iter()
            .fold(run, Run::push)
            .came_so("x", DUE_US + at * SECOND, |_| ())
            .wrong()
    };
    assert_eq!(came(Run::new(), 1), []);
    assert_eq!(came(Run::new(), 3), [Wrong::FalseVerdict]);
    assert_eq!(came(Run::new().fault("redis-kill", 0), 3), [Wrong::FalseVerdict]);
    assert_eq!(came(Run::new().fault("broker-freeze", 0), 3), [], "nobody could read it earlier");
}

#[test]
fn after_a_cancel_only_the_attempt_that_is_out_may_land() {
    for verdict in ["in_flight", "cancelled_after_attempt"] {
        let came = |at: i64| {
            told(Op::Cancel, "cancel", verdict).came_so("x", DUE_US + at * SECOND, |_| ())
        };
        assert_eq!(came(9).wrong(), [], "{verdict}");
        assert_eq!(came(11).wrong(), [Wrong::FalseVerdict], "{verdict}");
        assert_eq!(came(11).fault("redis-kill", 0).wrong(), [Wrong::FalseVerdict], "{verdict}");
        assert_eq!(
            came(11).fault_at("broker-freeze", (DUE_US, DUE_US + 8 * SECOND), 0).wrong(),
            [],
            "{verdict}"
        );
        let twice = |kind| {
            let run = Run::new().counted(DUE_US - 9 * SECOND, 0).counted(DUE_US, 1).fault(kind, 1);
            came(0).again("x", 2).0.events.into_iter().fold(run, Run::push).wrong()
        };
        assert_eq!(twice("redis-kill"), [Wrong::FalseVerdict], "{verdict}");
        assert_eq!(twice("link-stall-broker"), [], "{verdict}");
    }
}

#[test]
fn a_request_that_the_broker_has_is_answered() {
    let ask = |run: Run| {
        let done = Op::Cancel(ControlRequest {
            id: "x".to_owned(),
            due_ms: None,
            res: String::new(),
            number: None,
        });
        run.asked("x").ask(Op::Cancel, "x", None).push(ok(DUE_US - 150_000, done)).check()
    };
    let wrong = |verdict: &Verdict| verdict.findings.keys().copied().collect::<Vec<_>>();
    assert_eq!(wrong(&ask(Run::new())), [Wrong::Unanswered]);
    assert_eq!(wrong(&ask(Run::new().fault("redis-kill", 0))), [Wrong::Unanswered]);
    let far = (DUE_US + 20 * SECOND, DUE_US + 21 * SECOND);
    assert_eq!(wrong(&ask(Run::new().fault_at("broker-kill", far, 0))), [Wrong::Unanswered]);
    let untold = ask(Run::new().fault("broker-kill", 0));
    assert_eq!((untold.is_sound(), untold.counts.untold), (true, 1), "{untold}");
}

#[test]
fn an_answer_answers_something() {
    assert_eq!(x().came("x").told("x", "cancel", "fired").wrong(), [Wrong::Unexpected]);
    assert_eq!(
        x().told("x", "cancel", "cancelled").wrong(),
        [Wrong::Lost, Wrong::Unexpected],
        "and it takes nothing away"
    );
    // An unreadable answer has no id.
    assert_eq!(x().came("x").told("", "", "").wrong(), [Wrong::Unexpected]);
    assert_eq!(x().came("x").told("x", "schedule", "added").wrong(), []);
    assert_eq!(x().came("x").told("x", "schedule", "conflict").wrong(), [Wrong::FalseVerdict]);
}

#[test]
fn an_interface_without_answers_is_broken() {
    let at_door = |event: Event| Event { proc: "http-0".to_owned(), ..event };
    let asked = |count: usize| {
        (0..count).fold(Run::new(), |run, number| {
            let id = format!("x{number}");
            let ask = Op::Cancel(ControlRequest {
                id: id.clone(),
                due_ms: None,
                res: String::new(),
                number: None,
            });
            run.asked(&id)
                .came(&id)
                .push(at_door(Event { phase: Phase::Invoke, ..ok(DUE_US, ask) }))
        })
    };
    assert_eq!(asked(4).wrong(), []);
    assert_eq!(asked(5).wrong(), [Wrong::Broken]);
    let new = Op::Schedule(Schedule {
        id: "x0".to_owned(),
        job: None,
        res: "added".to_owned(),
        number: None,
    });
    assert_eq!(
        asked(5).push(at_door(ok(DUE_US, new))).wrong(),
        [Wrong::Broken],
        "new jobs are another question"
    );
    let reply = Op::Reply(crate::chaos::history::Reply {
        id: "x0".to_owned(),
        action: "cancel".to_owned(),
        res: "fired".to_owned(),
        number: None,
    });
    assert_eq!(asked(5).push(at_door(ok(DUE_US + 5000, reply))).wrong(), []);
}

#[test]
fn what_was_moved_does_not_come_at_its_old_time_too() {
    let moved = |kind, attempt, old_us| {
        let run =
            Run::new().counted(DUE_US - 9 * SECOND, 0).counted(DUE_US, 1).fault(kind, 1).asked("x");
        let run =
            run.ask(Op::Reschedule, "x", Some(DUE_MS + 500)).told("x", "reschedule", "rescheduled");
        let run = run.came_so("x", old_us, |arrival| arrival.attempt = Some(3 - attempt));
        run.came_so("x", DUE_US + 600_000, |arrival| {
            (arrival.attempt, arrival.due_ms) = (Some(attempt), Some(DUE_MS + 500))
        })
        .wrong()
    };
    assert_eq!(moved("link-stall-broker", 2, DUE_US), [], "its first attempt was out");
    assert_eq!(moved("link-stall-broker", 1, DUE_US), [Wrong::Early], "it was never tried before");
    let late = |old_us| {
        let run = Run::new()
            .counted(DUE_US - 9 * SECOND, 0)
            .counted(DUE_US + 5 * SECOND, 1)
            .fault_at("redis-kill", (DUE_US, DUE_US + 5 * SECOND), 1);
        let run = run.asked("x").ask(Op::Reschedule, "x", Some(DUE_MS + 500)).told(
            "x",
            "reschedule",
            "rescheduled",
        );
        let run = run.came_so("x", DUE_US + 600_000, |arrival| {
            (arrival.attempt, arrival.due_ms) = (Some(2), Some(DUE_MS + 500))
        });
        run.came_so("x", old_us, |arrival| arrival.attempt = Some(3)).wrong()
    };
    assert_eq!(late(DUE_US + 9 * SECOND), []);
    assert_eq!(late(DUE_US + 11 * SECOND), [Wrong::Early], "nothing of then can still be out");
}
