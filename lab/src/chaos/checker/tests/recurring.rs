//! Recurring schedules.

use super::*;
use crate::chaos::history::{Claim, Recurring};

impl Run {
    /// The schedule `s`, which is due each second.
    fn stored(self, count: Option<u64>) -> Run {
        let recurring = Some(Recurring { every_ms: 1000, count });
        self.sent("s", Phase::Ok, Job { recurring, ..job("t") }).told("s", "schedule", "added")
    }

    /// The occurrence of this second.
    fn occurs(self, second: i64, number: u64) -> Run {
        self.occurs_at(second, number, second * 1000 + 2)
    }

    /// The same, which arrives so many ms after the first time.
    fn occurs_at(self, second: i64, number: u64, after_ms: i64) -> Run {
        let due_ms = DUE_MS + second * 1000;
        self.came_so(&format!("s@{due_ms:013}"), DUE_US + after_ms * 1000, |arrival| {
            (arrival.due_ms, arrival.occurrence) = (Some(due_ms), Some(number));
        })
    }

    /// A control request so many ms after the first time, and its answer.
    fn did(self, op: fn(ControlRequest) -> Op, after_ms: i64) -> Run {
        let ask =
            ControlRequest { id: "s".to_owned(), due_ms: None, res: String::new(), number: None };
        let event = |phase, after_ms: i64| Event {
            proc: "http-0".to_owned(),
            phase,
            ..ok(DUE_US + after_ms * 1000, op(ask.clone()))
        };
        self.push(event(Phase::Invoke, after_ms)).push(event(Phase::Ok, after_ms + 10))
    }

    fn left(self, schedules: Vec<Claim>) -> Vec<Wrong> {
        let end = End { schedules: Some(schedules), ..End::default() };
        check(&self.ended(end)).findings.keys().copied().collect()
    }
}

/// What the schedule says of itself after three seconds.
fn claim(occurrence: u64, missed: u64) -> Vec<Claim> {
    let (start_ms, next_ms) = (DUE_MS, DUE_MS + 3000);
    vec![Claim { id: "s".to_owned(), start_ms, every_ms: 1000, next_ms, occurrence, missed }]
}

fn three() -> Run {
    Run::new().stored(None).occurs(0, 1).occurs(1, 2).occurs(2, 3)
}

fn two() -> Run {
    Run::new().stored(None).occurs(0, 1).occurs(2, 2)
}

#[test]
fn each_time_is_made_once_or_missed() {
    assert_eq!((three().left(claim(3, 0)), two().left(claim(2, 1))), (vec![], vec![]));
    let verdict = three().check();
    assert_eq!((verdict.counts.occurrences, verdict.is_sound()), (3, true), "{verdict}");
    assert_eq!(two().left(claim(2, 0)), [Wrong::Lost]);
    assert_eq!(three().left(claim(3, 1)), [Wrong::Unexplained]);
    assert_eq!(three().fault("redis-failover", 1).left(claim(3, 1)), []);
    let gap = Run::new().stored(None).occurs(0, 1).occurs(1, 3).occurs(2, 4);
    assert_eq!(gap.left(claim(3, 0)), [Wrong::WrongAttempt]);
    // From the request to two seconds after the failover four times may be forgotten.
    let gap = |number| {
        let run = Run::new().fault("redis-failover", 1).stored(None).occurs(0, 1);
        run.occurs(1, number).occurs(2, number + 1).left(claim(3, 0))
    };
    assert_eq!((gap(6), gap(7)), (vec![], vec![Wrong::WrongAttempt]));
    assert_eq!(three().came("s@0000001001500").left(claim(3, 0)).first(), Some(&Wrong::Early));
    let again = three().occurs(1, 2).left(claim(3, 0));
    assert_eq!(again, [Wrong::WrongAttempt, Wrong::Unexplained], "one attempt twice");
    assert_eq!(three().occurs(3, 4).left(claim(3, 0)), [Wrong::Unexplained], "beyond the next");
    let strange = Run::new().occurs(0, 1).left(Vec::new());
    assert_eq!(strange, [Wrong::Unexpected], "no such schedule");
}

#[test]
fn a_schedule_ends_with_its_cancel_or_its_count_and_not_before() {
    let cancelled = || Run::new().stored(None).ask(Op::Cancel, "s", None);
    assert_eq!(cancelled().told("s", "cancel", "cancelled").left(Vec::new()), []);
    for verdict in ["cancelled", "in_flight"] {
        let run = cancelled().told("s", "cancel", verdict).occurs(0, 1);
        assert_eq!(run.left(Vec::new()), [Wrong::FalseVerdict], "{verdict}");
    }
    assert_eq!(cancelled().occurs(0, 1).left(Vec::new()), [], "the answer is lost");
    assert_eq!(three().left(Vec::new()), [Wrong::Lost]);
    let counted = |count| Run::new().stored(Some(count)).occurs(0, 1).occurs(1, 2).left(Vec::new());
    assert_eq!((counted(2), counted(3)), (vec![], vec![Wrong::Lost]));
    assert_eq!(counted(1), [Wrong::Unexplained]);
}

#[test]
fn a_paused_schedule_makes_nothing_and_misses_nothing() {
    let paused = |run: Run| run.did(Op::Pause, 500).did(Op::Resume, 1500);
    assert_eq!(paused(two()).left(claim(2, 0)), []);
    assert_eq!(paused(two()).left(claim(2, 1)), [Wrong::Unexplained], "it was not missed");
    assert_eq!(paused(three()).left(claim(3, 0)), [Wrong::Unexplained, Wrong::FalseVerdict]);
    assert_eq!(two().did(Op::Pause, 1500).did(Op::Resume, 1600).left(claim(2, 0)), [Wrong::Lost]);
}

#[test]
fn an_occurrence_that_a_clock_ahead_made_before_the_pause_stands() {
    // Redis's clock is ahead by five seconds until half a second after the first time, and makes the
    // fifth time then. A pause from 3.5 to 4.5 seconds has this time in it.
    let paused = |arrived_ms: i64, missed| {
        let fault = (DUE_US - 500_000, DUE_US + 450_000);
        let run = Run::new().fault_at("redis-clock-jump", fault, 0).stored(None);
        let run = run.occurs(0, 1).occurs_at(4, 2, arrived_ms);
        let (start_ms, next_ms, id) = (DUE_MS, DUE_MS + 5000, "s".to_owned());
        let claim = Claim { id, start_ms, every_ms: 1000, next_ms, occurrence: 2, missed };
        run.did(Op::Pause, 3500).did(Op::Resume, 4500).left(vec![claim])
    };
    assert_eq!(paused(400, 3), []);
    assert_eq!(paused(400, 4), [Wrong::Unexplained], "a time was made and missed");
    assert_eq!(paused(4002, 3), [Wrong::Unexplained, Wrong::FalseVerdict], "after the pause");
}

#[test]
fn the_times_that_a_clock_which_was_ahead_had_passed_need_no_decision() {
    // Stored 100 ms before its first time. It makes this time first, and none is missed.
    let begins = |run: Run, second: i64| {
        let (start_ms, next_ms) = (DUE_MS, DUE_MS + (second + 1) * 1000);
        let (id, every_ms) = ("s".to_owned(), 1000);
        let claim = Claim { id, start_ms, every_ms, next_ms, occurrence: 1, missed: 0 };
        run.stored(None).occurs(second, 1).left(vec![claim])
    };
    let jumped = |kind, healed_us| Run::new().fault_at(kind, (DUE_US - 9_000_000, healed_us), 0);
    assert_eq!((begins(Run::new(), 0), begins(Run::new(), 1)), (vec![], vec![Wrong::Lost]));
    // Redis's clock is ahead by five seconds at most.
    let ahead = || jumped("redis-clock-jump", DUE_US);
    assert_eq!((begins(ahead(), 1), begins(ahead(), 5)), (vec![], vec![]));
    assert_eq!(begins(ahead(), 6), [Wrong::Lost], "by more than the jump");
    let before = jumped("redis-clock-jump", DUE_US - 3_000_000);
    assert_eq!(begins(before, 1), [Wrong::Lost], "the clock was right again");
    assert_eq!(
        begins(jumped("clock-jump", DUE_US), 1),
        [Wrong::Lost],
        "the clock of the instances"
    );
}
