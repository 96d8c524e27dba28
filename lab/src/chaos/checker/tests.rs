//! A correct run has no findings, and each planted violation is found, alone. `bounds`: what faults
//! allow, and nothing more; `burst`: requests that are debounced; `consumer`: jobs that their
//! consumers confirm; `failover`: masters that forget; `faults`: redelivered requests and recovery
//! times; `limited`: the limited target, and jobs that expire; `recurring`: schedules; `scope`:
//! faults that affect some jobs only.

mod answers;
mod bounds;
mod burst;
mod consumer;
mod failover;
mod faults;
mod limited;
mod recurring;
mod scope;

use proptest::prelude::*;

use super::verdict::{Verdict, Wrong};
use super::*;
use crate::chaos::history::tests::head;
use crate::chaos::history::{
    Arrival, ControlRequest, DeadJob, End, Fault, HOST, Job, Op, Place, Reply, Sample, Schedule,
};

const DUE_MS: i64 = 1_000_000;
const DUE_US: i64 = DUE_MS * 1000;

/// A history built by hand.
struct Run(History, u64);

fn ok(t_us: i64, op: Op) -> Event {
    Event { t_us, proc: "test".to_owned(), phase: Phase::Ok, op }
}

fn job(target: &str) -> Job {
    Job { due_ms: DUE_MS, target: target.to_owned(), digest: "d".to_owned(), ..Job::default() }
}

impl Run {
    fn new() -> Run {
        Run(History { head: head(), events: Vec::new() }, 0)
    }

    fn push(mut self, event: Event) -> Run {
        self.0.events.push(event);
        self
    }

    fn sent(self, id: &str, phase: Phase, job: Job) -> Run {
        let schedule = |job| Op::schedule(id, job);
        self.push(Event { phase: Phase::Invoke, ..ok(DUE_US - 900_000, schedule(Some(job))) })
            .push(Event { phase, ..ok(DUE_US - 800_000, schedule(None)) })
    }

    fn asked(self, id: &str) -> Run {
        self.sent(id, Phase::Ok, job("t"))
    }

    fn arrival(&mut self, id: &str) -> Arrival {
        self.1 += 1;
        let place = Some(Place { log: "t".to_owned(), partition: 0, offset: self.1 });
        let (id, topic, digest, reason) =
            (id.to_owned(), "t".to_owned(), "d".to_owned(), String::new());
        Arrival {
            id,
            topic,
            due_ms: Some(DUE_MS),
            attempt: Some(1),
            occurrence: None,
            digest,
            place,
            redelivered: false,
            taken_ms: None,
            reason,
            action: String::new(),
        }
    }

    fn came_so(mut self, id: &str, at_us: i64, but: impl FnOnce(&mut Arrival)) -> Run {
        let mut arrival = self.arrival(id);
        but(&mut arrival);
        self.push(ok(at_us, Op::Deliver(arrival)))
    }

    fn came(self, id: &str) -> Run {
        self.came_so(id, DUE_US + 2000, |_| ())
    }

    fn again(self, id: &str, attempt: u32) -> Run {
        self.came_so(id, DUE_US + 1_000_000, |arrival| arrival.attempt = Some(attempt))
    }

    fn died(mut self, id: &str, reason: &str) -> Run {
        let arrival = Arrival {
            topic: "delay.dead".to_owned(),
            reason: reason.to_owned(),
            attempt: Some(2),
            ..self.arrival(id)
        };
        self.push(ok(DUE_US + 5000, Op::Dead(arrival)))
    }

    fn rejected(mut self, id: &str, code: &str) -> Run {
        let arrival = Arrival {
            topic: "delay.rejected".to_owned(),
            reason: code.to_owned(),
            ..self.arrival(id)
        };
        self.push(ok(DUE_US, Op::Reject(arrival)))
    }

    /// A control request just before the due time.
    fn ask(self, op: fn(ControlRequest) -> Op, id: &str, due_ms: Option<i64>) -> Run {
        let ask = ControlRequest { id: id.to_owned(), due_ms, res: String::new(), number: None };
        self.push(Event { phase: Phase::Invoke, ..ok(DUE_US - 200_000, op(ask)) })
    }

    fn told(self, id: &str, action: &str, verdict: &str) -> Run {
        let reply = Reply {
            id: id.to_owned(),
            action: action.to_owned(),
            res: verdict.to_owned(),
            number: None,
        };
        self.push(ok(DUE_US - 100_000, Op::Reply(reply)))
    }

    fn fault_at(self, kind: &str, (began_us, healed_us): (i64, i64), in_flight: u64) -> Run {
        let (kind, detail) = (kind.parse().unwrap(), String::new());
        self.fault_so(Fault {
            kind,
            began_us,
            healed_us,
            in_flight,
            detail,
            clock_step_us: None,
            beside: None,
            leases: None,
            forgotten: None,
        })
    }

    fn fault_so(self, fault: Fault) -> Run {
        self.push(ok(fault.healed_us, Op::Fault(fault)))
    }

    fn fault(self, kind: &str, in_flight: u64) -> Run {
        self.fault_at(kind, (DUE_US - 10_000, DUE_US + 100_000), in_flight)
    }

    fn counted(self, at_us: i64, count: u64) -> Run {
        self.push(ok(
            at_us,
            Op::Sample(Sample {
                instance: 0,
                pid: 1,
                rss: 1,
                possible_duplicates: Some(count),
                rescued: None,
                reclaimed: None,
                leases_lost: None,
            }),
        ))
    }

    fn ended(self, end: End) -> History {
        self.push(ok(DUE_US + 60_000_000, Op::End(end))).0
    }

    fn check(self) -> Verdict {
        check(&self.ended(End::default()))
    }

    /// The kinds of violations found.
    fn wrong(self) -> Vec<Wrong> {
        self.check().findings.keys().copied().collect()
    }
}

/// A correct run with jobs of every fate.
fn true_run() -> Run {
    let refused = Job { refused: Some("missing_delay".to_owned()), ..job("t") };
    Run::new()
        .asked("plain")
        .came("plain")
        .sent("uncertain", Phase::Info, job("t"))
        .sent("recovered", Phase::Info, job("t"))
        .came("recovered")
        .sent("never taken", Phase::Fail, job("t"))
        .asked("cancelled")
        .ask(Op::Cancel, "cancelled", None)
        .told("cancelled", "cancel", "cancelled")
        .told("cancelled", "cancel", "cancelled")
        .asked("unheard")
        .ask(Op::Cancel, "unheard", None)
        .asked("too late")
        .ask(Op::Cancel, "too late", None)
        .told("too late", "cancel", "fired")
        .came("too late")
        .asked("moved")
        .ask(Op::Reschedule, "moved", Some(DUE_MS + 50))
        .told("moved", "reschedule", "rescheduled")
        .came_so("moved", DUE_US + 51_000, |arrival| arrival.due_ms = Some(DUE_MS + 50))
        .asked("fired")
        .ask(Op::Fire, "fired", None)
        .told("fired", "fire", "firing")
        .came_so("fired", DUE_US - 150_000, |arrival| arrival.due_ms = Some(DUE_MS - 160))
        .sent("absent", Phase::Ok, Job { absent: true, retry_ms: Some(vec![1]), ..job("t") })
        .died("absent", "retries_exhausted")
        .sent("bad", Phase::Ok, refused)
        .rejected("bad", "missing_delay")
        .counted(DUE_US - 10_000_000, 5)
        .fault("redis-kill", 1)
        .asked("twice")
        .came("twice")
        .again("twice", 2)
        .counted(DUE_US + 500_000, 6)
}

#[test]
fn a_true_run_has_nothing_to_say() {
    let verdict = true_run().check();
    assert!(verdict.is_sound(), "{verdict}");
    let counts = verdict.counts;
    assert_eq!(
        (counts.taken, counts.uncertain, counts.recovered, counts.delivered, counts.dead),
        (9, 2, 1, 6, 1)
    );
    assert_eq!((counts.rejected, counts.asked, counts.answered, counts.duplicates), (1, 5, 4, 1));
    let impact = &verdict.impacts[0];
    assert_eq!(
        (&*impact.kind, impact.in_flight, impact.duplicates, impact.overdue),
        ("redis-kill", 1, 1, 0)
    );
    assert!(verdict.to_string().starts_with("sound: 9 jobs confirmed"), "{verdict}");
}

#[test]
fn a_message_that_is_read_again_is_none() {
    let place = Some(Place { log: "t".to_owned(), partition: 0, offset: 77 });
    let run =
        Run::new().asked("x").came_so("x", DUE_US, |arrival| arrival.place.clone_from(&place));
    assert_eq!(run.came_so("x", DUE_US + 9, |arrival| arrival.place = place).wrong(), []);
    // Without positions.
    let bare = |redelivered| {
        move |arrival: &mut Arrival| (arrival.place, arrival.redelivered) = (None, redelivered)
    };
    let run = |redelivered| {
        Run::new().asked("x").came_so("x", DUE_US, bare(false)).came_so(
            "x",
            DUE_US + 9,
            bare(redelivered),
        )
    };
    assert_eq!(run(true).wrong(), []);
    assert_eq!(run(false).wrong(), [Wrong::WrongAttempt, Wrong::Unexplained]);
    assert_eq!(run(false).fault("broker-kill", 0).wrong(), []);
}

#[test]
fn each_request_that_a_host_takes_without_an_answer_may_come_again() {
    let by_host = |mut run: Run, id: &str, at_us, attempt| {
        let arrival = Arrival { attempt: Some(attempt), ..run.arrival(id) };
        run.push(Event { proc: HOST.to_owned(), ..ok(at_us, Op::Deliver(arrival)) })
    };
    let twice = |run: Run, id: &str, first_us| {
        by_host(by_host(run.asked(id), id, first_us, 1), id, DUE_US + 1_000_000, 2)
    };
    // Both arrived while the fault was on, or one of them after it.
    let run = Run::new().counted(DUE_US - 9_000_000, 0).fault("host-drops-answers", 0);
    let run = twice(twice(run, "x", DUE_US + 2000), "y", DUE_US + 99_000).counted(DUE_US + 9000, 3);
    assert_eq!(run.wrong(), []);
    let run = Run::new().counted(DUE_US - 9_000_000, 0).fault("host-drops-answers", 0);
    let run =
        twice(twice(run, "x", DUE_US + 2000), "y", DUE_US + 101_000).counted(DUE_US + 9000, 3);
    assert_eq!(run.wrong(), [Wrong::Unexplained]);
}

#[test]
fn a_bad_request_comes_back_again_with_its_batch() {
    // Whatever the number of jobs in flight.
    let refused = Job { refused: Some("loop".to_owned()), ..job("t") };
    let bad = || {
        Run::new().sent("b", Phase::Ok, refused.clone()).rejected("b", "loop").rejected("b", "loop")
    };
    assert_eq!(bad().wrong(), [Wrong::Unexplained]);
    assert_eq!(bad().fault("dwell-kill", 0).wrong(), []);
}

#[test]
fn what_is_early_because_the_clock_of_redis_was_ahead_is_forgiven_as_far_as_it_was() {
    let early = |us| Run::new().asked("x").came_so("x", DUE_US - us, |_| ());
    assert_eq!(early(5000).fault("redis-clock-jump", 0).wrong(), []);
    assert_eq!(early(5000).fault("clock-jump", 0).wrong(), [Wrong::Early]);
    let fired = |kind| {
        let run = Run::new()
            .asked("x")
            .ask(Op::Fire, "x", None)
            .told("x", "fire", "firing")
            .fault(kind, 0);
        run.came_so("x", DUE_US, |arrival| arrival.due_ms = Some(DUE_MS - 5200)).wrong()
    };
    assert_eq!(
        (fired("redis-clock-jump"), fired("clock-jump")),
        (vec![], vec![Wrong::Misdated]),
        "now, by a clock that was behind"
    );
    assert_eq!(
        early(11_000).fault("redis-clock-jump", 0).wrong(),
        [Wrong::Early],
        "before it jumped"
    );
}

#[test]
fn each_planted_fault_is_found_alone() {
    let x = || true_run().asked("x");
    let plants: [(Wrong, Run); 25] = [
        (Wrong::Lost, x()),
        (Wrong::Lost, x().ask(Op::Fire, "x", None)),
        (
            Wrong::Lost,
            true_run().sent("x", Phase::Ok, Job { refused: Some("bad_id".to_owned()), ..job("t") }),
        ),
        (Wrong::Lost, true_run().sent("x", Phase::Info, job("t")).told("x", "schedule", "added")),
        (Wrong::Early, x().came_so("x", DUE_US - 1, |_| ())),
        (Wrong::Early, x().came_so("x", DUE_US + 9, |arrival| arrival.taken_ms = Some(DUE_MS - 2))),
        (
            Wrong::Early,
            x().fault("redis-kill", 1)
                .came_so("x", DUE_US - 1, |_| ())
                .counted(DUE_US, 9)
                .again("x", 2),
        ),
        (Wrong::Unexpected, true_run().came("x")),
        (Wrong::Unexpected, x().came_so("x", DUE_US, |arrival| arrival.topic = "u".to_owned())),
        (Wrong::Unexpected, true_run().sent("x", Phase::Fail, job("t")).came("x")),
        (Wrong::Damaged, x().came_so("x", DUE_US, |arrival| arrival.digest = "e".to_owned())),
        (Wrong::Misdated, x().came_so("x", DUE_US, |arrival| arrival.due_ms = Some(DUE_MS - 1))),
        (Wrong::Misdated, x().came_so("x", DUE_US, |arrival| arrival.due_ms = None)),
        (Wrong::WrongAttempt, x().came_so("x", DUE_US, |arrival| arrival.attempt = Some(0))),
        (
            Wrong::WrongAttempt,
            x().came("x").again("x", 1).fault("redis-kill", 1).counted(DUE_US, 9),
        ),
        (Wrong::Unexplained, x().came("x").again("x", 2)),
        (
            Wrong::FalseVerdict,
            x().ask(Op::Cancel, "x", None).told("x", "cancel", "cancelled").came("x"),
        ),
        (
            Wrong::FalseVerdict,
            x().ask(Op::Reschedule, "x", Some(DUE_MS)).told("x", "reschedule", "kept").came("x"),
        ),
        (
            Wrong::FalseVerdict,
            x().ask(Op::Reschedule, "x", Some(DUE_MS + 7))
                .told("x", "reschedule", "rescheduled")
                .came_so("x", DUE_US, |_| ()),
        ),
        (
            Wrong::Differing,
            x().ask(Op::Cancel, "x", None)
                .told("x", "cancel", "in_flight")
                .told("x", "cancel", "cancelled_after_attempt")
                .came("x"),
        ),
        (Wrong::DeadTooEarly, x().died("x", "crashed")),
        (Wrong::Refused, x().rejected("x", "bad_delay")),
        (
            Wrong::Refused,
            true_run()
                .sent("x", Phase::Ok, Job { refused: Some("bad_id".to_owned()), ..job("t") })
                .rejected("x", "loop"),
        ),
        (Wrong::Late, x().came_so("x", DUE_US + 100_000 + 30_001_000, |_| ())),
        (Wrong::Uncounted, Run::new().asked("x").came("x").again("x", 2).fault("broker-kill", 1)),
    ];
    for (number, (wrong, run)) in plants.into_iter().enumerate() {
        let verdict = run.check();
        assert_eq!(
            verdict.findings.keys().copied().collect::<Vec<_>>(),
            [wrong],
            "plant {number}: {verdict}"
        );
        assert_eq!(verdict.findings[&wrong].len(), 1, "plant {number}: {verdict}");
    }
}

#[test]
fn a_lie_about_what_is_gone_is_found_beside_the_loss() {
    let x = |verdict| Run::new().asked("x").ask(Op::Cancel, "x", None).told("x", "cancel", verdict);
    for verdict in ["fired", "not_found"] {
        assert_eq!(x(verdict).wrong(), [Wrong::Lost, Wrong::FalseVerdict], "{verdict}");
        assert_eq!(x(verdict).came("x").wrong(), [], "{verdict}");
    }
    for verdict in ["in_flight", "cancelled_after_attempt"] {
        assert_eq!(x(verdict).wrong(), []);
        assert_eq!(x(verdict).came("x").wrong(), []);
    }
}

#[test]
fn a_retry_is_burned_by_a_fault_that_hides_answers_and_by_nothing_else() {
    let none = || {
        Run::new()
            .sent("x", Phase::Ok, Job { retry_ms: Some(vec![]), ..job("t") })
            .died("x", "retries_exhausted")
    };
    assert_eq!(none().wrong(), [Wrong::DeadTooEarly]);
    assert_eq!(none().fault("link-drop-answers-broker", 1).wrong(), []);
    assert_eq!(
        none().fault("link-drop-answers-broker", 1).came("x").wrong(),
        [Wrong::Uncounted],
        "it came and died: a copy"
    );
}

#[test]
fn what_is_left_at_the_end_is_found() {
    let cases = [
        (End { scheduled: 1, ..End::default() }, Wrong::NotEmpty),
        (End { reserved: 1, ..End::default() }, Wrong::NotEmpty),
        (End { unacknowledged: Some(1), ..End::default() }, Wrong::NotEmpty),
        (End { damage: vec!["7 x due_without_job".to_owned()], ..End::default() }, Wrong::Damage),
        (End { broken: vec!["no server".to_owned()], ..End::default() }, Wrong::Broken),
    ];
    for (end, wrong) in cases {
        assert_eq!(
            check(&true_run().ended(end)).findings.keys().copied().collect::<Vec<_>>(),
            [wrong]
        );
    }
    assert_eq!(check(&true_run().0).findings.keys().copied().collect::<Vec<_>>(), [Wrong::Broken]);
}

#[test]
fn a_fault_says_when_what_was_overdue_came() {
    let run = Run::new()
        .fault("redis-kill", 0)
        .asked("x")
        .came_so("x", DUE_US + 150_000, |_| ())
        .asked("y");
    let impact = run.came_so("y", DUE_US + 300_000, |_| ()).check().impacts.remove(0);
    assert_eq!(
        (impact.overdue, impact.first_us, impact.last_us, impact.lateness_us),
        (2, Some(50_000), Some(200_000), 300_000)
    );
}

#[test]
fn a_copy_is_of_the_fault_that_was_on_and_not_of_one_that_was_over() {
    let over = (DUE_US - 900_000, DUE_US - 500_000);
    let run = Run::new()
        .counted(DUE_US - 9_000_000, 0)
        .fault_at("redis-kill", over, 9)
        .fault("broker-freeze", 1)
        .counted(DUE_US, 2);
    let verdict = run.asked("x").came("x").again("x", 2).check();
    assert!(verdict.is_sound(), "{verdict}");
    assert_eq!(verdict.impacts.iter().map(|impact| impact.duplicates).collect::<Vec<_>>(), [0, 1]);
}

proptest! {
    /// A fault explains at most as many copies as were in flight.
    #[test]
    fn a_fault_explains_as_many_copies_as_were_in_flight(copies in 0_u64..20, in_flight in 0_u64..20) {
        let mut run = Run::new().counted(DUE_US - 9_000_000, 0).fault("redis-kill", in_flight).counted(DUE_US + 9000, copies);
        for number in 0..copies {
            let id = format!("x{number}");
            run = run.asked(&id).came(&id).again(&id, 2);
        }
        let verdict = run.check();
        prop_assert_eq!(verdict.counts.duplicates, copies.min(in_flight));
        let unexplained = verdict.findings.get(&Wrong::Unexplained).map_or(0, Vec::len) as u64;
        prop_assert_eq!(unexplained, copies.saturating_sub(in_flight));
    }

    /// No history makes the checker panic.
    #[test]
    fn any_history_has_a_verdict(times in proptest::collection::vec((0_i64..5, -3_i64..3, 0_u8..6), 0..40)) {
        let mut run = Run::new();
        for (id, late, what) in times {
            let id = id.to_string();
            run = match what {
                0 => run.asked(&id),
                1 => run.came_so(&id, DUE_US + late, |_| ()),
                2 => run.died(&id, "crashed"),
                3 => run.ask(Op::Cancel, &id, None),
                4 => run.told(&id, "cancel", "fired"),
                _ => run.rejected(&id, "loop"),
            };
        }
        prop_assert!(!check(&run.ended(End::default())).to_string().is_empty());
    }
}
