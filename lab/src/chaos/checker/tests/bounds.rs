//! The deviations that a fault allows, and nothing more.

use super::*;

/// Each of these jobs arrives twice, and each second arrival is counted.
fn twice(run: Run, again_us: &[i64]) -> Run {
    let mut run =
        run.counted(DUE_US - 60_000_000, 0).counted(DUE_US + 50_000, again_us.len() as u64);
    for (number, again_us) in again_us.iter().enumerate() {
        let id = format!("x{number}");
        run = run.asked(&id).came(&id).came_so(&id, *again_us, |arrival| arrival.attempt = Some(2));
    }
    run
}

const SECOND: i64 = 1_000_000;

#[test]
fn a_copy_is_explained_by_a_fault_within_reach_of_both_and_by_no_other() {
    let at = |from: i64, to: i64, again: i64| {
        twice(
            Run::new().fault_at("redis-kill", (DUE_US + from * SECOND, DUE_US + to * SECOND), 9),
            &[DUE_US + again * SECOND],
        )
        .wrong()
    };
    assert_eq!(at(-1, 0, 12), [], "taken over within a lease and five seconds");
    assert_eq!(at(-1, 0, 14), [Wrong::Unexplained], "long after the heal");
    assert_eq!(at(-30, -20, 1), [Wrong::Unexplained], "the first came long after it");
    assert_eq!(at(20, 21, 22), [Wrong::Unexplained], "the first came long before it");
    assert_eq!(at(5, 6, 1), [Wrong::Unexplained], "both came before it");
    // A request is redelivered after the broker's time-out, and not later.
    let refused = Job { refused: Some("loop".to_owned()), ..job("t") };
    let rejected = |again_us| {
        let mut run = Run::new()
            .fault("dwell-kill", 0)
            .sent("b", Phase::Ok, refused.clone())
            .rejected("b", "loop");
        let again = Arrival {
            topic: "delay.rejected".to_owned(),
            reason: "loop".to_owned(),
            ..run.arrival("b")
        };
        run.push(ok(again_us, Op::Reject(again))).wrong()
    };
    assert_eq!(rejected(DUE_US + 25 * SECOND), []);
    assert_eq!(rejected(DUE_US + 31 * SECOND), [Wrong::Unexplained]);
    let over = Run::new()
        .fault_at("dwell-kill", (DUE_US - 20 * SECOND, DUE_US - 15 * SECOND), 0)
        .sent("b", Phase::Ok, refused.clone());
    assert_eq!(
        over.rejected("b", "loop").rejected("b", "loop").wrong(),
        [Wrong::Unexplained],
        "it was over when the first came"
    );
}

#[test]
fn what_nothing_can_repeat_explains_no_copy() {
    for kind in [
        "redis-full",
        "target-full",
        "dwell-term",
        "consumer-deleted",
        "link-slow-redis",
        "redis-clock-jump",
        "clock-jump",
    ] {
        assert_eq!(
            twice(Run::new().fault(kind, 9), &[DUE_US + SECOND]).wrong(),
            [Wrong::Unexplained],
            "{kind}"
        );
    }
}

#[test]
fn what_waits_for_an_answer_is_given_up_in_turns() {
    let long = |kind| {
        twice(
            Run::new().fault_at(kind, (DUE_US - SECOND, DUE_US + 8 * SECOND), 1),
            &[DUE_US + SECOND, DUE_US + SECOND],
        )
        .wrong()
    };
    assert_eq!(long("link-drop-answers-broker"), []);
    assert_eq!(long("dwell-freeze"), [Wrong::Unexplained], "it begins nothing");
}

#[test]
fn each_copy_was_counted_when_it_became_possible_and_no_step_pays_for_two() {
    let copy = |run: Run, id: &str| run.asked(id).came(id).again(id, 2);
    let early = Run::new()
        .counted(DUE_US - 9 * SECOND, 0)
        .counted(DUE_US - 5 * SECOND, 1)
        .counted(DUE_US, 1)
        .fault("redis-kill", 1);
    assert_eq!(copy(early, "x").wrong(), [Wrong::Uncounted], "long before");
    let two = |count| {
        let run = Run::new()
            .counted(DUE_US - 9 * SECOND, 0)
            .fault("redis-kill", 1)
            .fault("broker-freeze", 1)
            .counted(DUE_US, count);
        copy(copy(run, "x"), "y").wrong()
    };
    assert_eq!((two(1), two(2)), (vec![Wrong::Uncounted], vec![]));
    let sampled = |before_us, after_us| {
        let run = Run::new().counted(before_us, 0).fault("broker-freeze", 1).counted(after_us, 1);
        copy(run, "x").wrong()
    };
    let (within, beyond) = (DUE_US + SECOND, DUE_US + 9 * SECOND);
    assert_eq!(sampled(within, beyond), [], "samples between gave no answer");
    assert_eq!(sampled(within + 5 * SECOND, beyond), [Wrong::Uncounted], "long after");
    assert_eq!(copy(Run::new().fault("dwell-freeze", 1), "x").wrong(), [Wrong::Uncounted]);
    assert_eq!(
        copy(Run::new().fault("dwell-kill", 1), "x").wrong(),
        [],
        "who is killed takes its count along"
    );
}

#[test]
fn a_master_that_is_promoted_may_begin_an_attempt_again_and_nothing_else_may() {
    let run = |kind, came_us| {
        let run = Run::new().counted(DUE_US - 9 * SECOND, 0).counted(DUE_US, 1).fault(kind, 0);
        run.asked("x").came_so("x", came_us, |_| ()).again("x", 1).check()
    };
    let verdict = run("redis-failover", DUE_US + 2000);
    assert!(verdict.is_sound(), "{verdict}");
    assert_eq!(
        (verdict.counts.duplicates, verdict.impacts[0].duplicates),
        (1, 1),
        "it is a copy all the same"
    );
    // Only across the failover.
    let far = (DUE_US + 30 * SECOND, DUE_US + 31 * SECOND);
    let run_before = Run::new()
        .counted(DUE_US - 9 * SECOND, 0)
        .counted(DUE_US, 2)
        .fault("link-stall-broker", 1)
        .fault_at("redis-failover", far, 1);
    let run_before = run_before
        .asked("x")
        .came("x")
        .again("x", 1)
        .came_so("x", far.1, |arrival| arrival.attempt = Some(2));
    assert!(run_before.check().findings.contains_key(&Wrong::WrongAttempt));
    assert!(run("redis-kill", DUE_US + 2000).findings.contains_key(&Wrong::WrongAttempt));
    // At most as many as arrived just before or during the fault.
    assert_eq!(
        run("redis-failover", DUE_US + 200_000).findings.keys().copied().collect::<Vec<_>>(),
        [Wrong::Unexplained]
    );
}

#[test]
fn without_places_only_a_broker_that_was_down_hands_out_one_message_twice() {
    let run = |kind| {
        let bare = |arrival: &mut Arrival| arrival.place = None;
        let run =
            Run::new().counted(DUE_US - 9 * SECOND, 0).counted(DUE_US, 1).fault(kind, 1).asked("x");
        run.came_so("x", DUE_US, bare).came_so("x", DUE_US + 9, bare).check()
    };
    for kind in ["redis-kill", "dwell-kill", "link-cut-broker"] {
        assert_eq!(
            run(kind).findings.keys().copied().collect::<Vec<_>>(),
            [Wrong::WrongAttempt],
            "{kind}"
        );
    }
    assert_eq!((run("broker-kill").is_sound(), run("broker-kill").counts.duplicates), (true, 0));
    assert_eq!(
        (run("redis-failover").is_sound(), run("redis-failover").counts.duplicates),
        (true, 1)
    );
}

#[test]
fn attempts_fall_only_where_something_holds_the_earlier_back() {
    let run = |kind| {
        let run =
            Run::new().counted(DUE_US - 9 * SECOND, 0).counted(DUE_US, 1).fault(kind, 1).asked("x");
        run.came_so("x", DUE_US + 2000, |arrival| arrival.attempt = Some(2)).again("x", 1).wrong()
    };
    for (kind, wrong) in [
        ("redis-kill", vec![Wrong::WrongAttempt]),
        ("dwell-kill", vec![Wrong::WrongAttempt]),
        ("dwell-freeze", vec![]),
        ("link-stall-broker", vec![]),
        ("broker-freeze", vec![]),
        ("redis-failover", vec![]),
    ] {
        assert_eq!(run(kind), wrong, "{kind}");
    }
    // An attempt that arrived has begun: its number is used.
    let run = |end_us: i64, last| {
        let run = Run::new()
            .counted(DUE_US - 9 * SECOND, 0)
            .counted(DUE_US, 2)
            .fault("link-stall-broker", 2)
            .asked("x")
            .came("x");
        run.again("x", 2).came_so("x", end_us, |arrival| arrival.attempt = Some(last)).wrong()
    };
    assert_eq!(run(DUE_US + 2 * SECOND, 1), [Wrong::WrongAttempt]);
    assert_eq!(run(DUE_US + 2 * SECOND, 3), []);
    // The order of reading differs from the broker's order.
    let run = Run::new()
        .counted(DUE_US - 9 * SECOND, 0)
        .counted(DUE_US, 1)
        .fault("redis-kill", 1)
        .asked("x");
    let run = run.came_so("x", DUE_US + 9000, |arrival| {
        (arrival.attempt, arrival.taken_ms) = (Some(2), Some(DUE_MS + 8))
    });
    assert_eq!(
        run.came_so("x", DUE_US + 9500, |arrival| arrival.taken_ms = Some(DUE_MS + 2)).wrong(),
        []
    );
}

#[test]
fn late_is_what_was_not_out_in_as_much_whole_time_however_often_something_broke_in_it() {
    let late = |at: i64| {
        let run =
            Run::new().fault_at("redis-kill", (DUE_US + 20 * SECOND, DUE_US + 22 * SECOND), 0);
        let run = run.fault_at("broker-kill", (DUE_US + 21 * SECOND, DUE_US + 25 * SECOND), 0);
        run.asked("x").came_so("x", DUE_US + at * SECOND, |_| ()).wrong()
    };
    assert_eq!((late(35), late(36)), (vec![], vec![Wrong::Late]));
}

#[test]
fn the_clock_of_redis_forgives_only_the_way_it_jumped() {
    let jump = |run: Run, step_us| {
        let mut run = run.fault("redis-clock-jump", 0);
        if let Some(Event { op: Op::Fault(fault), .. }) = run.0.events.last_mut() {
            fault.clock_step_us = Some(step_us);
        }
        run
    };
    let early =
        |step_us| jump(Run::new(), step_us).asked("x").came_so("x", DUE_US - 5000, |_| ()).wrong();
    assert_eq!((early(5 * SECOND), early(-5 * SECOND)), (vec![], vec![Wrong::Early]));
    let fired = |step_us| {
        let run = jump(
            Run::new().asked("x").ask(Op::Fire, "x", None).told("x", "fire", "firing"),
            step_us,
        );
        run.came_so("x", DUE_US, |arrival| arrival.due_ms = Some(DUE_MS - 5200)).wrong()
    };
    assert_eq!((fired(-5 * SECOND), fired(5 * SECOND)), (vec![], vec![Wrong::Misdated]));
}

#[test]
fn a_master_that_is_gone_may_have_moved_what_the_next_one_says_is_fired() {
    let fired = |kind| {
        let run = Run::new().asked("x").ask(Op::Fire, "x", None).fault_at(
            kind,
            (DUE_US - 190_000, DUE_US - 110_000),
            0,
        );
        run.came_so("x", DUE_US - 150_000, |arrival| arrival.due_ms = Some(DUE_MS - 160))
            .told("x", "fire", "fired")
            .wrong()
    };
    assert_eq!(
        (fired("redis-failover"), fired("redis-kill")),
        (vec![], vec![Wrong::Early, Wrong::Misdated])
    );
    // A verdict before the failover comes from the old master.
    let before = Run::new()
        .asked("x")
        .ask(Op::Fire, "x", None)
        .told("x", "fire", "fired")
        .fault("redis-failover", 0);
    assert_eq!(
        before.came_so("x", DUE_US, |arrival| arrival.due_ms = Some(DUE_MS - 160)).wrong().first(),
        Some(&Wrong::Misdated)
    );
}

#[test]
fn what_dies_had_its_retries_and_a_fault_that_fails_a_publish() {
    let died = |job: Job, kind| {
        Run::new().fault(kind, 1).sent("x", Phase::Ok, job).died("x", "retries_exhausted").wrong()
    };
    let tight = |waits: usize| Job { retry_ms: Some(vec![1; waits]), ..job("t") };
    for (kind, wrong) in [
        ("broker-kill", vec![]),
        ("link-stall-broker", vec![]),
        ("target-deleted", vec![]),
        ("permissions-withdrawn", vec![]),
        ("dwell-kill", vec![Wrong::DeadTooEarly]),
        ("dwell-freeze", vec![Wrong::DeadTooEarly]),
        ("redis-kill", vec![Wrong::DeadTooEarly]),
        ("redis-failover", vec![Wrong::DeadTooEarly]),
    ] {
        assert_eq!(died(tight(1), kind), wrong, "{kind}");
    }
    assert_eq!(died(tight(2), "broker-kill"), [Wrong::DeadTooEarly], "its third was not tried");
    assert_eq!(
        died(job("t"), "broker-kill"),
        [Wrong::DeadTooEarly],
        "those of the settings outlast it"
    );
    assert_eq!(
        died(Job { absent: true, ..job("t") }, "redis-kill"),
        [Wrong::DeadTooEarly],
        "so do they a target that is late"
    );
}

#[test]
fn what_is_kept_without_a_letter_is_judged_as_a_letter() {
    let kept = |kind, retry_ms, reason: Option<&str>, attempt| {
        let dead = vec![DeadJob { id: "x".to_owned(), reason: reason.map(str::to_owned), attempt }];
        let run = true_run()
            .fault(kind, 0)
            .sent("x", Phase::Ok, Job { retry_ms, ..job("t") })
            .ended(End { dead, ..End::default() });
        check(&run).findings.keys().copied().collect::<Vec<_>>()
    };
    let (none, one, spent) = (Some(Vec::new()), Some(vec![1]), Some("retries_exhausted"));
    assert_eq!(kept("broker-kill", none.clone(), spent, Some(1)), []);
    assert_eq!(kept("broker-kill", none.clone(), None, None), [], "a record of before");
    assert_eq!(kept("broker-kill", none.clone(), Some("crashed"), Some(1)), [Wrong::DeadTooEarly]);
    assert_eq!(kept("broker-kill", one, spent, Some(1)), [Wrong::DeadTooEarly]);
    assert_eq!(kept("dwell-kill", none, None, None), [Wrong::Lost], "nothing kept its letter away");
}

#[test]
fn what_is_dead_or_bad_is_looked_at_as_closely() {
    let died = |but: fn(&mut Arrival)| {
        let mut run = Run::new()
            .sent("x", Phase::Ok, Job { absent: true, retry_ms: Some(vec![1]), ..job("t") })
            .died("x", "retries_exhausted");
        if let Some(Event { op: Op::Dead(arrival), .. }) = run.0.events.last_mut() {
            but(arrival);
        }
        run.wrong()
    };
    assert_eq!(died(|_| ()), []);
    assert_eq!(died(|arrival| arrival.digest = "e".to_owned()), [Wrong::Damaged]);
    assert_eq!(died(|arrival| arrival.due_ms = Some(DUE_MS + 1)), [Wrong::Misdated]);
    let bad = || {
        Run::new()
            .sent("b", Phase::Ok, Job { refused: Some("loop".to_owned()), ..job("t") })
            .rejected("b", "loop")
    };
    assert_eq!(bad().wrong(), []);
    assert_eq!(bad().came("b").wrong(), [Wrong::Unexpected]);
    assert_eq!(bad().told("b", "schedule", "added").wrong(), [Wrong::Unexpected]);
    let dead = vec![DeadJob { id: "b".to_owned(), ..DeadJob::default() }];
    assert_eq!(
        check(&bad().ended(End { dead, ..End::default() }))
            .findings
            .keys()
            .copied()
            .collect::<Vec<_>>(),
        [Wrong::Unexpected]
    );
}
