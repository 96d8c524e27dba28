//! The limited target, and jobs that expire.

use super::*;

/// A run with so many jobs for a target of ten a second, which arrive so many ms apart.
fn limited(mut run: Run, count: i64, apart_ms: i64) -> Run {
    run.0.head.limited_per_s = Some(10);
    for number in 0..count {
        let id = format!("l{number}");
        let job = Job { limited: true, ..job("t") };
        run = run.sent(&id, Phase::Ok, job).came_so(&id, DUE_US + number * apart_ms * 1000, |_| ());
    }
    run
}

#[test]
fn no_more_arrives_than_the_rate_the_burst_and_what_a_fault_held_back() {
    assert_eq!(limited(Run::new(), 100, 100).wrong(), []);
    assert_eq!(limited(Run::new(), 16, 0).wrong(), [], "within the tolerance");
    assert_eq!(limited(Run::new(), 17, 0).wrong(), [Wrong::OverLimit]);
    assert_eq!(limited(Run::new(), 100, 50).wrong(), [Wrong::OverLimit]);
    // A fault of 110 ms adds 16 turns, once. A failover doubles them.
    let during = |kind: &str, count| limited(Run::new().fault(kind, 0), count, 0).wrong();
    assert_eq!((during("link-cut-broker", 32), during("redis-failover", 48)), (vec![], vec![]));
    assert_eq!(during("link-cut-broker", 33), [Wrong::OverLimit]);
    assert_eq!(during("redis-failover", 49), [Wrong::OverLimit]);
    let over = (DUE_US - 90_000_000, DUE_US - 80_000_000);
    let before = Run::new().fault_at("link-cut-broker", over, 0);
    assert_eq!(limited(before, 17, 0).wrong(), [Wrong::OverLimit], "it was over");
}

#[test]
fn the_wait_for_a_turn_uses_up_no_attempt() {
    let run = |kind| {
        let run: Run = if kind { Run::new().fault("link-cut-broker", 1) } else { Run::new() };
        let run = run.sent("x", Phase::Ok, Job { limited: true, ..job("t") });
        run.came_so("x", DUE_US + 9000, |arrival| arrival.attempt = Some(2)).wrong()
    };
    assert_eq!((run(false), run(true)), (vec![Wrong::WrongAttempt], vec![]));
}

#[test]
fn a_job_is_delivered_before_it_expires_or_dead_after_it() {
    let job = |expire_ms| Job { expire_ms, ..job("t") };
    let dead = |mut run: Run, job: Job, after_ms: i64| {
        run = run.sent("x", Phase::Ok, job);
        let (topic, reason) = ("delay.dead".to_owned(), "expired".to_owned());
        let arrival = Arrival { topic, reason, ..run.arrival("x") };
        run.push(ok(DUE_US + after_ms * 1000, Op::Dead(arrival)))
    };
    let died = |job: Job, after_ms| dead(Run::new(), job, after_ms).wrong();
    assert_eq!(died(job(Some(1000)), 1001), []);
    assert_eq!(died(job(Some(1000)), 999), [Wrong::DeadTooEarly]);
    assert_eq!(died(job(None), 1001), [Wrong::DeadTooEarly], "it never expires");
    assert_eq!(died(job(Some(1000)), 100_000), [Wrong::Late]);
    // A wait that would end later is not begun.
    assert_eq!(died(Job { limited: true, ..job(Some(1000)) }, 999), []);
    let failed = dead(Run::new().fault("link-cut-broker", 1), job(Some(1000)), 999);
    assert_eq!(failed.wrong(), []);

    let jumped = |kind: &str| {
        let run = Run::new().fault_at(kind, (DUE_US - 5_000_000, DUE_US - 3_000_000), 0);
        dead(run, Job { absent: true, ..job(Some(1000)) }, -4000).wrong()
    };
    assert_eq!(jumped("redis-clock-jump"), [], "by a clock that was ahead");
    assert_eq!(jumped("clock-jump"), [Wrong::DeadTooEarly]);

    let came = |at_us| Run::new().sent("x", Phase::Ok, job(Some(1000))).came_so("x", at_us, |_| ());
    assert_eq!(came(DUE_US + 9_000_000).wrong(), [], "it was in flight");
    assert_eq!(came(DUE_US + 14_000_000).wrong(), [Wrong::Late]);
    let both = dead(Run::new(), job(Some(1000)), 1001).came("x");
    assert_eq!(both.wrong(), [Wrong::Unexplained]);
}
