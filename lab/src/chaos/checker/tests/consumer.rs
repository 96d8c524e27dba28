//! Jobs that their consumers confirm.

use super::*;
use crate::chaos::history::{Consumer, Word};

const SECOND: i64 = 1_000_000;
/// The TTR and the wait between two attempts, µs.
const TTR_US: i64 = SECOND;
const WAIT_US: i64 = 300_000;

/// A job with three attempts that its consumer confirms.
fn held() -> Run {
    let consumer = Some(Consumer { ttr_ms: 1000, words: vec![Word::Finish] });
    Run::new().sent("x", Phase::Ok, Job { retry_ms: Some(vec![300, 300]), consumer, ..job("t") })
}

impl Run {
    /// An attempt this long after the due time.
    fn attempt(self, number: u32, after_us: i64) -> Run {
        self.came_so("x", DUE_US + after_us, |arrival| arrival.attempt = Some(number))
    }

    /// A word by message, which the broker confirms.
    fn said(self, op: fn(ControlRequest) -> Op, number: u64, after_us: i64) -> Run {
        let ask = ControlRequest {
            id: "x".to_owned(),
            due_ms: None,
            res: String::new(),
            number: Some(number),
        };
        let at_us = DUE_US + after_us;
        self.push(Event { phase: Phase::Invoke, ..ok(at_us, op(ask.clone())) })
            .push(ok(at_us + 100, op(ask)))
    }

    /// A word over HTTP.
    fn called(self, op: fn(ControlRequest) -> Op, number: u64, after_us: i64) -> Run {
        let ask = ControlRequest {
            id: "x".to_owned(),
            due_ms: None,
            res: String::new(),
            number: Some(number),
        };
        let event = Event { phase: Phase::Invoke, ..ok(DUE_US + after_us, op(ask)) };
        self.push(Event { proc: "http-0".to_owned(), ..event })
    }

    fn heard(self, action: &str, res: &str, number: Option<u64>, after_us: i64) -> Run {
        let reply =
            Reply { id: "x".to_owned(), action: action.to_owned(), res: res.to_owned(), number };
        self.push(ok(DUE_US + after_us, Op::Reply(reply)))
    }

    fn dies(mut self, reason: &str, attempt: u32, after_us: i64) -> Run {
        let arrival = Arrival {
            topic: "delay.dead".to_owned(),
            reason: reason.to_owned(),
            attempt: Some(attempt),
            ..self.arrival("x")
        };
        self.push(ok(DUE_US + after_us, Op::Dead(arrival)))
    }

    /// An attempt, and a finish that counts.
    fn finished(self) -> Run {
        self.attempt(1, 0).said(Op::Finish, 1, 1000).heard("finish", "finished", None, 2000)
    }

    /// Three attempts without a word.
    fn ignored(self) -> Run {
        let again_us = TTR_US + WAIT_US;
        self.attempt(1, 0).attempt(2, again_us).attempt(3, 2 * again_us)
    }
}

const OVER_US: i64 = 2 * (TTR_US + WAIT_US) + TTR_US;

#[test]
fn a_job_is_repeated_until_it_is_finished_or_dead() {
    let verdict = held().finished().check();
    assert!(verdict.is_sound(), "{verdict}");
    assert_eq!(
        (verdict.counts.held, verdict.counts.finished, verdict.counts.duplicates),
        (1, 1, 0)
    );
    assert!(verdict.to_string().contains("1 of 1 finished by their consumers"), "{verdict}");
    let verdict = held().ignored().dies("retries_exhausted", 3, OVER_US).check();
    assert!(verdict.is_sound(), "{verdict}");
    assert_eq!(verdict.counts.duplicates, 0, "an attempt that follows is no copy");
    // A fail ends the attempt at once.
    let failed = |run: Run, number, after_us| {
        run.said(Op::Fail, number, after_us).heard("fail", "failed", None, after_us + 900)
    };
    let run = failed(failed(held().attempt(1, 0), 1, 1000).attempt(2, 1000 + WAIT_US), 2, 400_000)
        .attempt(3, 400_000 + WAIT_US);
    assert_eq!(failed(run, 3, 800_000).dies("failed", 3, 801_000).wrong(), []);
    // A late finish ends what is dead, too.
    let late = held().ignored().dies("retries_exhausted", 3, OVER_US).said(
        Op::Finish,
        1,
        OVER_US + SECOND,
    );
    assert_eq!(late.heard("finish", "finished", None, OVER_US + 2 * SECOND).wrong(), []);
    // The second of two.
    let twice =
        held().finished().called(Op::Finish, 2, 9000).heard("finish", "fired", Some(2), 9900);
    assert_eq!(twice.wrong(), []);
}

#[test]
fn each_planted_fault_of_a_consumer_is_found_alone() {
    let again_us = TTR_US + WAIT_US;
    let plants: Vec<(Wrong, Run)> = vec![
        // Forgotten while it was held.
        (Wrong::Lost, held().attempt(1, 0)),
        (Wrong::Lost, held().ignored()),
        (
            Wrong::Lost,
            held().attempt(1, 0).said(Op::Fail, 1, 1000).heard("fail", "failed", None, 2000),
        ),
        // Before the TTR, or before the wait, is over.
        (
            Wrong::Unexplained,
            held().attempt(1, 0).attempt(2, TTR_US).attempt(3, TTR_US + again_us).dies(
                "retries_exhausted",
                3,
                OVER_US,
            ),
        ),
        (Wrong::Unexplained, held().ignored().dies("retries_exhausted", 3, OVER_US - 100_000)),
        // After it was finished.
        (Wrong::FalseVerdict, held().finished().attempt(2, again_us).attempt(3, 2 * again_us)),
        (Wrong::FalseVerdict, held().finished().attempt(2, 20 * SECOND)),
        (Wrong::FalseVerdict, held().finished().dies("retries_exhausted", 3, 20 * SECOND)),
        // Verdicts.
        (Wrong::FalseVerdict, held().finished().heard("fail", "failed", None, 3000)),
        (
            Wrong::FalseVerdict,
            held().attempt(1, 0).said(Op::Finish, 1, 1000).heard("finish", "fired", None, 2000),
        ),
        (
            Wrong::FalseVerdict,
            held().ignored().said(Op::Finish, 1, 1000).heard("finish", "stale", None, 2000).dies(
                "retries_exhausted",
                3,
                OVER_US,
            ),
        ),
        (
            Wrong::FalseVerdict,
            held()
                .ignored()
                .said(Op::Finish, 1, 1000)
                .heard("finish", "not_found", None, 2000)
                .dies("retries_exhausted", 3, OVER_US),
        ),
        (
            Wrong::FalseVerdict,
            held()
                .attempt(1, 0)
                .called(Op::Finish, 1, 1000)
                .heard("finish", "finished", Some(1), 2000)
                .called(Op::Finish, 2, 3000)
                .heard("finish", "finished", Some(2), 4000),
        ),
        (
            Wrong::Unanswered,
            held().ignored().said(Op::Finish, 1, 1000).dies("retries_exhausted", 3, OVER_US),
        ),
        // Deaths.
        (
            Wrong::DeadTooEarly,
            held().attempt(1, 0).attempt(2, again_us).dies(
                "retries_exhausted",
                2,
                again_us + TTR_US,
            ),
        ),
        (Wrong::DeadTooEarly, held().ignored().dies("failed", 3, OVER_US)),
        (Wrong::DeadTooEarly, held().ignored().dies("crashed", 3, OVER_US)),
        (
            Wrong::WrongAttempt,
            held().attempt(1, 0).attempt(3, again_us).attempt(2, 2 * again_us).dies(
                "retries_exhausted",
                3,
                OVER_US,
            ),
        ),
        // Later than the TTR, the wait and the bound on lateness.
        (
            Wrong::Late,
            held().attempt(1, 0).attempt(2, again_us + 33 * SECOND).attempt(3, 36 * SECOND).dies(
                "retries_exhausted",
                3,
                40 * SECOND,
            ),
        ),
    ];
    for (number, (wrong, run)) in plants.into_iter().enumerate() {
        let verdict = run.check();
        // A number that falls is no repeat, and so a copy as well.
        let others = verdict
            .findings
            .keys()
            .copied()
            .filter(|other| wrong != Wrong::WrongAttempt || *other != Wrong::Unexplained);
        assert_eq!(others.collect::<Vec<_>>(), [wrong], "plant {number}: {verdict}");
    }
}

#[test]
fn a_word_without_an_answer_may_have_counted() {
    let asked = |phase| {
        let ask = ControlRequest {
            id: "x".to_owned(),
            due_ms: None,
            res: String::new(),
            number: Some(1),
        };
        let run = held()
            .attempt(1, 0)
            .push(Event { phase: Phase::Invoke, ..ok(DUE_US + 1000, Op::Finish(ask.clone())) });
        run.push(Event { phase, ..ok(DUE_US + 2000, Op::Finish(ask)) }).wrong()
    };
    assert_eq!((asked(Phase::Info), asked(Phase::Fail)), (vec![], vec![Wrong::Lost]));
}

#[test]
fn what_comes_early_around_a_fault_is_a_copy_of_it() {
    let early = |kind| {
        let run = held().counted(DUE_US - 9 * SECOND, 0).fault(kind, 1).counted(DUE_US, 1);
        run.attempt(1, 0)
            .attempt(2, 500_000)
            .said(Op::Finish, 1, 600_000)
            .heard("finish", "finished", None, 700_000)
            .check()
    };
    let verdict = early("dwell-kill");
    assert!(verdict.is_sound(), "{verdict}");
    assert_eq!(verdict.counts.duplicates, 1);
    assert_eq!(
        early("clock-jump").findings.keys().copied().collect::<Vec<_>>(),
        [Wrong::Unexplained]
    );
    // The clock that ends the TTR was ahead.
    assert_eq!(
        (early("redis-clock-jump").is_sound(), early("redis-clock-jump").counts.duplicates),
        (true, 0)
    );
}

#[test]
fn what_a_clock_fired_too_early_is_repeated_before_its_time() {
    let early = |kind| {
        let run = held().fault_at(kind, (DUE_US - 12 * SECOND, DUE_US - 4 * SECOND), 0);
        let run = run.attempt(1, -4 * SECOND).attempt(2, TTR_US + WAIT_US - 4 * SECOND).said(
            Op::Finish,
            1,
            -SECOND,
        );
        run.heard("finish", "finished", None, -900_000).check()
    };
    let verdict = early("redis-clock-jump");
    assert!(verdict.is_sound(), "{verdict}");
    assert_eq!(early("clock-jump").findings[&Wrong::Early].len(), 1, "its first attempt was early");
    // An attempt for another time repeats nothing.
    let run = Run::new()
        .counted(DUE_US - 9 * SECOND, 0)
        .fault("link-stall-broker", 1)
        .counted(DUE_US, 1)
        .asked("x")
        .came("x");
    let run =
        run.ask(Op::Reschedule, "x", Some(DUE_MS + 500)).told("x", "reschedule", "rescheduled");
    let run = run.came_so("x", DUE_US + 400_000, |arrival| {
        (arrival.attempt, arrival.due_ms) = (Some(2), Some(DUE_MS + 500))
    });
    assert_eq!(run.wrong(), [Wrong::Early]);
}

#[test]
fn a_request_in_the_log_of_the_ingest_is_certain() {
    let seen = |seen: bool| {
        let mut run = Run::new().sent("x", Phase::Info, job("t"));
        let request = run.arrival("x");
        if seen { run.push(ok(DUE_US, Op::Inbound(request))).wrong() } else { run.wrong() }
    };
    assert_eq!((seen(true), seen(false)), (vec![Wrong::Lost], vec![]));
}
