//! Requests that a broker redelivers, and recovery times.

use super::*;

const SECOND: i64 = 1_000_000;

fn on(broker: &str, mut run: Run) -> Run {
    run.0.head.broker = broker.to_owned();
    run
}

/// The job arrives twice as attempt 1, at its due time and a second later; AMQP has no positions.
fn twice(run: Run) -> Run {
    run.came_so("x", DUE_US + 2000, |arrival| arrival.place = None).came_so(
        "x",
        DUE_US + SECOND,
        |arrival| arrival.place = None,
    )
}

#[test]
fn on_rabbitmq_a_request_that_is_handed_out_again_may_be_carried_out_again() {
    let run = |broker, kind| twice(on(broker, Run::new().fault(kind, 0).asked("x"))).check();
    for kind in [
        "link-half-open-broker",
        "link-drop-answers-broker",
        "link-cut-broker",
        "permissions-withdrawn",
        "dwell-freeze",
        "instance-cut-off",
    ] {
        let verdict = run("amqp", kind);
        assert!(verdict.is_sound(), "{kind}: {verdict}");
        assert_eq!((verdict.counts.redelivered, verdict.counts.duplicates), (1, 0), "{kind}");
        assert!(
            verdict.to_string().contains("1 run again after a redelivered request"),
            "{verdict}"
        );
        assert!(
            run("nats", kind).findings.contains_key(&Wrong::WrongAttempt),
            "{kind}: requests have places there"
        );
    }
    for kind in [
        "redis-kill",
        "link-half-open-redis",
        "link-slow-broker",
        "target-full",
        "clock-jump",
        "dwell-kill",
        "dwell-term",
    ] {
        assert!(run("amqp", kind).findings.contains_key(&Wrong::WrongAttempt), "{kind}");
    }
}

#[test]
fn on_kafka_the_client_may_send_an_attempt_again_around_a_fault_of_the_broker() {
    let run = |broker, kind| {
        let run = Run::new().counted(DUE_US - 9 * SECOND, 0).counted(DUE_US, 1).fault(kind, 1);
        on(broker, run).asked("x").came("x").again("x", 1).check()
    };
    for kind in ["link-half-open-broker", "broker-kill"] {
        let verdict = run("kafka", kind);
        assert!(verdict.is_sound(), "{kind}: {verdict}");
        assert_eq!(
            (verdict.counts.duplicates, verdict.counts.sent_again),
            (1, 1),
            "{kind}: it is a copy all the same"
        );
        assert!(
            verdict.to_string().contains("1 duplicates (1 of them with the same attempt)"),
            "{verdict}"
        );
        assert!(run("nats", kind).findings.contains_key(&Wrong::WrongAttempt), "{kind}");
    }
    // No instance counts such a copy. A copy with another attempt must be counted.
    let uncounted = |attempt| {
        on("kafka", Run::new().fault("broker-kill", 1))
            .asked("x")
            .came("x")
            .again("x", attempt)
            .wrong()
    };
    assert_eq!((uncounted(1), uncounted(2)), (vec![], vec![Wrong::Uncounted]));
    for kind in ["redis-kill", "dwell-kill", "target-full", "link-slow-broker"] {
        assert!(run("kafka", kind).findings.contains_key(&Wrong::WrongAttempt), "{kind}");
    }
}

#[test]
fn on_kafka_the_client_sends_nothing_again_after_its_time_for_it() {
    let apart = |seconds| {
        let fault = ("broker-kill", (DUE_US - SECOND, DUE_US + 60 * SECOND));
        let run = on("kafka", Run::new().fault_at(fault.0, fault.1, 1).asked("x").came("x"));
        run.came_so("x", DUE_US + seconds * SECOND, |_| ()).check()
    };
    assert!(!apart(2).findings.contains_key(&Wrong::WrongAttempt));
    assert!(
        apart(20).findings.contains_key(&Wrong::WrongAttempt),
        "whoever sent it gave it up long before"
    );
}

#[test]
fn it_is_carried_out_again_only_around_the_fault_and_from_its_first_attempt_on() {
    let at = |from_us, to_us| {
        twice(on("amqp", Run::new().fault_at("link-cut-broker", (from_us, to_us), 0).asked("x")))
            .wrong()
    };
    assert_eq!(at(DUE_US - SECOND, DUE_US), []);
    assert_eq!(at(DUE_US - 9 * SECOND, DUE_US), [], "sent while it lasted");
    // Requested long before the due time: the cut-off instance has stored the request by then, so a
    // redelivery is recognised.
    let mut waited = twice(on(
        "amqp",
        Run::new()
            .fault_at("link-cut-broker", (DUE_US - 3602 * SECOND, DUE_US - 3600 * SECOND), 0)
            .asked("x"),
    ));
    waited
        .0
        .events
        .iter_mut()
        .filter(|event| matches!(event.op, Op::Schedule(_)))
        .for_each(|event| event.t_us -= 3600 * SECOND);
    assert!(waited.check().findings.contains_key(&Wrong::WrongAttempt));
    assert_eq!(
        at(DUE_US - 9 * SECOND, DUE_US - 4 * SECOND),
        [Wrong::WrongAttempt, Wrong::Unexplained],
        "over before it was sent"
    );
    assert_eq!(
        at(DUE_US + 2 * SECOND, DUE_US + 3 * SECOND),
        [Wrong::WrongAttempt, Wrong::Unexplained],
        "after both"
    );
    // Requested at DUE_US - 900 ms.
    let late = |from_us, again_us| {
        let run = on(
            "amqp",
            Run::new().fault_at("link-cut-broker", (from_us, from_us + SECOND), 0).asked("x"),
        );
        let run = run.came_so("x", DUE_US + 2000, |arrival| arrival.place = None);
        run.came_so("x", again_us, |arrival| arrival.place = None).check()
    };
    assert!(late(DUE_US, DUE_US + 20 * SECOND).is_sound());
    assert!(
        late(DUE_US, DUE_US + 3600 * SECOND).findings.contains_key(&Wrong::WrongAttempt),
        "an hour later nobody hands it out again"
    );
    let acknowledged = late(DUE_US + 4 * SECOND, DUE_US + 6 * SECOND);
    assert!(
        acknowledged.findings.contains_key(&Wrong::WrongAttempt),
        "long acknowledged when the link was cut"
    );
    // A request over HTTP is not redelivered.
    let mut run = on("amqp", Run::new().fault("link-cut-broker", 0).asked("x"));
    run.0.events.iter_mut().for_each(|event| event.proc = "http-0".to_owned());
    assert!(twice(run).check().findings.contains_key(&Wrong::WrongAttempt));
    // Each copy of a job has another attempt, also the second time.
    let run = on("amqp", Run::new().fault("link-cut-broker", 0).asked("x"));
    let run = twice(run).came_so("x", DUE_US + 2 * SECOND, |arrival| {
        (arrival.attempt, arrival.place) = (Some(2), None)
    });
    assert_eq!(run.wrong(), [Wrong::Unexplained], "the third of them was in flight for no fault");
    let run = on("amqp", Run::new().fault("link-cut-broker", 9).asked("x")).came_so(
        "x",
        DUE_US,
        |arrival| arrival.attempt = Some(2),
    );
    assert!(
        run.again("x", 2).check().findings.contains_key(&Wrong::WrongAttempt),
        "a new job does not begin at 2"
    );
}

#[test]
fn a_bad_request_of_long_ago_is_rejected_again_where_its_stream_is_read_anew() {
    let (killed, remade) = (
        (DUE_US + 100 * SECOND, DUE_US + 101 * SECOND),
        (DUE_US + 110 * SECOND, DUE_US + 111 * SECOND),
    );
    let run = |faults: &[(&str, (i64, i64))], again_us| {
        let refused = Job { refused: Some("loop".to_owned()), ..job("t") };
        let run = faults.iter().fold(Run::new(), |run, (kind, at)| run.fault_at(kind, *at, 0));
        let mut run = run.sent("b", Phase::Ok, refused).rejected("b", "loop");
        let again = Arrival {
            topic: "delay.rejected".to_owned(),
            reason: "loop".to_owned(),
            ..run.arrival("b")
        };
        let verdict = run.push(ok(again_us, Op::Reject(again))).check();
        (verdict.findings.keys().copied().collect::<Vec<_>>(), verdict.counts.duplicates)
    };
    let both = [("broker-kill", killed), ("consumer-deleted", remade)];
    assert_eq!(run(&both, remade.0 + 1000), (vec![], 1));
    assert_eq!(
        run(&both[..1], remade.0 + 1000),
        (vec![Wrong::Unexplained], 0),
        "nobody reads the stream anew"
    );
    assert_eq!(
        run(&both[1..], remade.0 + 1000),
        (vec![Wrong::Unexplained], 0),
        "the server was never killed"
    );
    assert_eq!(
        run(&both, remade.0 - 1000),
        (vec![Wrong::Unexplained], 0),
        "before it was made anew"
    );
    let swapped =
        [("broker-kill", (remade.1 + SECOND, remade.1 + 2 * SECOND)), ("consumer-deleted", remade)];
    assert_eq!(
        run(&swapped, remade.1 + 3 * SECOND).0,
        [Wrong::Unexplained],
        "read anew before the server was killed"
    );
    let before = [("broker-kill", (DUE_US - 90 * SECOND, DUE_US - 89 * SECOND)), both[1]];
    assert_eq!(
        run(&before, remade.0 + 1000),
        (vec![Wrong::Unexplained], 0),
        "killed before the request was there"
    );
}

#[test]
fn recovery_is_until_the_first_job_that_can_come_and_owes_nothing_to_an_earlier_fault() {
    let fault = |run: Run| run.fault_at("redis-kill", (DUE_US - SECOND, DUE_US + SECOND), 0);
    let at = |id: &str, due_us: i64, at_us: i64, run: Run| {
        let job = Job { due_ms: due_us / 1000, ..job("t") };
        run.sent(id, Phase::Ok, job)
            .came_so(id, at_us, |arrival| arrival.due_ms = Some(due_us / 1000))
    };
    let impact = |run: Run| {
        let impact = run.check().impacts.remove(0);
        (impact.first_us, impact.overdue, impact.last_us)
    };
    assert_eq!(
        impact(at("x", DUE_US, DUE_US + 3 * SECOND, fault(Run::new()))),
        (Some(2 * SECOND), 1, Some(2 * SECOND))
    );
    // Delayed by something earlier: not a job of this fault, but a possible first arrival.
    let run = at("old", DUE_US - 15 * SECOND, DUE_US + 30 * SECOND, fault(Run::new()));
    assert_eq!(impact(run), (Some(29 * SECOND), 0, None));
    // Claimed at the start of the fault: the job waits for the lease.
    let run = at("claimed", DUE_US - 2 * SECOND, DUE_US + 7 * SECOND, fault(Run::new()));
    assert_eq!(impact(run), (Some(6 * SECOND), 1, Some(6 * SECOND)));
    let run = at(
        "x",
        DUE_US,
        DUE_US + 3 * SECOND,
        at("old", DUE_US - 15 * SECOND, DUE_US + 30 * SECOND, fault(Run::new())),
    );
    assert_eq!(impact(run), (Some(2 * SECOND), 1, Some(2 * SECOND)));
    // No job was due before.
    let run = at("later", DUE_US + 8 * SECOND, DUE_US + 9 * SECOND, fault(Run::new()));
    assert_eq!(impact(run), (Some(SECOND), 0, None));
    assert_eq!(impact(fault(Run::new()).asked("x").came("x")), (None, 0, None));
}
