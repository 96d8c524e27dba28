//! Requests that are debounced.

use super::*;
use crate::chaos::history::Debounce;

/// The due times of a request, ms after it, and at the latest.
const DEBOUNCE: Debounce = Debounce { delay_ms: 1000, max_wait_ms: 2000 };

impl Run {
    /// The request of this number so many ms after the due time of other jobs, answered 10 ms later.
    fn requested(self, number: u64, after_ms: i64) -> Run {
        let job = Job { debounce: Some(DEBOUNCE), digest: format!("d{number}"), ..job("t") };
        let op = |job| {
            let (id, res) = ("x".to_owned(), String::new());
            Op::Schedule(Schedule { id, job, res, number: Some(number) })
        };
        let event = |phase, at_ms: i64, op| Event {
            proc: "http-0".to_owned(),
            phase,
            ..ok(DUE_US + at_ms * 1000, op)
        };
        self.push(event(Phase::Invoke, after_ms, op(Some(job)))).push(event(
            Phase::Ok,
            after_ms + 10,
            op(None),
        ))
    }

    /// The body of this request arrives 1 ms after its due time.
    fn brings(self, number: u64, due_ms: i64) -> Run {
        self.brings_at(number, due_ms, due_ms + 1)
    }

    fn brings_at(self, number: u64, due_ms: i64, at_ms: i64) -> Run {
        self.came_so("x", DUE_US + at_ms * 1000, |arrival| {
            (arrival.digest, arrival.due_ms) = (format!("d{number}"), Some(DUE_MS + due_ms));
        })
    }
}

fn two() -> Run {
    Run::new().requested(0, 0).requested(1, 500)
}

#[test]
fn a_burst_becomes_its_last_request() {
    let verdict = two().brings(1, 1500).check();
    assert!(verdict.is_sound() && verdict.counts.bursts == 1, "{verdict}");
    assert_eq!(two().requested(2, 1600).brings(1, 1500).brings(2, 2600).wrong(), [], "two jobs");
    // The longest wait ends it.
    let four = || two().requested(2, 1200).requested(3, 1900);
    assert_eq!(four().brings(3, 2000).wrong(), []);
    assert_eq!(four().brings(3, 2900).wrong(), [Wrong::Late]);
}

#[test]
fn each_broken_promise_of_a_burst_is_found() {
    for (run, wrong) in [
        (two(), vec![Wrong::Lost]),
        (two().brings(0, 1000), vec![Wrong::Lost]),
        (two().requested(2, 1600).brings(1, 1500), vec![Wrong::Lost]),
        (two().brings(1, 2600), vec![Wrong::Late]),
        (two().brings_at(1, 1500, 40_000), vec![Wrong::Late]),
        (two().brings(1, 1400), vec![Wrong::Misdated]),
        (two().brings_at(1, 1500, 1499), vec![Wrong::Early]),
        (two().brings(0, 1000).brings(1, 1500), vec![Wrong::Unexplained]),
        (two().brings(1, 1500).brings(1, 1500), vec![Wrong::Unexplained]),
        (two().brings(1, 1500).brings(7, 3500), vec![Wrong::Damaged]),
        (two().brings(1, 1500).rejected("x", "bad_header"), vec![Wrong::Refused]),
    ] {
        let verdict = run.check();
        assert_eq!(verdict.findings.keys().copied().collect::<Vec<_>>(), wrong, "{verdict}");
    }
    // The requests of a killed reader come again, and in another order.
    let killed = ("dwell-kill", (DUE_US - 10_000, DUE_US + 100_000));
    let run = Run::new().fault_at(killed.0, killed.1, 0).requested(0, 0);
    assert_eq!(run.requested(1, 5).brings(0, 1005).wrong(), [], "the first was answered later");
}

#[test]
fn an_attempt_that_was_out_around_a_fault_excuses_a_request_that_began_anew() {
    // The job of the first two requests was out at 1500 ms: the third one replaced it.
    let anew = |fault_ms: Option<(i64, i64)>, at_ms| {
        let run = fault_ms.map_or_else(Run::new, |(began_ms, healed_ms)| {
            let at_us = (DUE_US + began_ms * 1000, DUE_US + healed_ms * 1000);
            Run::new().fault_at("link-drop-answers-broker", at_us, 0)
        });
        let run = run.requested(0, 0).requested(1, 500).requested(2, 1600);
        run.brings_at(2, 2600, at_ms).wrong()
    };
    let during = Some((1400, 1700));
    assert_eq!(anew(during, 2601), []);
    assert_eq!(anew(None, 2601), [Wrong::Late], "nothing was out");
    assert_eq!(anew(Some((2520, 2550)), 2601), [Wrong::Late], "the fault began after their waits");
    // A lease of 8 s from the fault was over before the first request.
    assert_eq!(anew(Some((-9000, -8100)), 2601), [Wrong::Late], "the fault was over");
    assert_eq!(anew(during, 40_000), [Wrong::Late], "a job that began anew is in time, too");
}
