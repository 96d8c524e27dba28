//! Each broken promise is found, and a failover excuses no more than it can cause.

use super::*;
use crate::chaos::checker::verdict::LeaseStates;
use crate::chaos::fault::FaultKind;
use crate::chaos::history::tests::head;
use crate::chaos::history::{End, Forgotten, Job, Leases, QUEUE, RunHeader, Tally};
use crate::chaos::load::extra::job;
use dwell::store::keys::bucket_of;

/// A hand-out of a lease of 100 ms.
fn held(attempt: u32, begun_ms: i64) -> HandOut {
    HandOut {
        lease: format!("{attempt} at {begun_ms}"),
        attempt,
        begun_ms,
        deadline_ms: begun_ms + 100,
        ..HandOut::default()
    }
}

/// The same, finished half way.
fn finished(attempt: u32, begun_ms: i64) -> HandOut {
    HandOut { finished_ms: Some(begun_ms + 50), ..held(attempt, begun_ms) }
}

/// A job that is due at 10 000, and was over with its last finish.
fn life(hand_outs: &[HandOut]) -> Life {
    let over_ms = hand_outs
        .iter()
        .filter_map(|hand_out| hand_out.finished_ms)
        .max()
        .map(|sent_ms| sent_ms + 1);
    Life {
        due_ms: 10_000,
        accepted_ms: Some(9_000),
        hand_outs: hand_outs.to_vec(),
        over_ms,
        ..Life::default()
    }
}

fn breaches(life: &Life) -> Vec<Breach> {
    life.breaches("x", &[]).into_iter().map(|(breach, _)| breach).collect()
}

/// A failover from 10 000 to 11 000, and the buckets that have another master since.
fn failover(kind: FaultKind, buckets: Option<Vec<u16>>) -> Fault {
    Fault {
        kind,
        began_us: 10_000_000,
        healed_us: 11_000_000,
        in_flight: 0,
        detail: String::new(),
        clock_step_us: None,
        beside: None,
        leases: None,
        forgotten: buckets.map(|buckets| Forgotten { buckets, of: 16 }),
    }
}

#[test]
fn sound_lives_break_nothing() {
    for sound in [
        life(&[finished(1, 10_000)]),
        life(&[held(1, 10_000), finished(2, 10_100)]),
        // Seen by another consumer first.
        life(&[finished(2, 10_100), held(1, 10_000)]),
        // The lease ended early by a word, or perhaps by one without an answer.
        life(&[HandOut { given_up_ms: Some(10_020), ..held(1, 10_000) }, finished(2, 10_020)]),
        life(&[HandOut { is_unsure: true, ..held(1, 10_000) }, finished(2, 10_020)]),
        // The lease ran out while the finish was under way.
        life(&[HandOut { refused_ms: Some(10_101), ..held(1, 10_000) }, finished(2, 10_102)]),
        // The answer to a finish was lost, and the next one said that it had been done.
        Life { over_ms: Some(10_060), ..life(&[held(1, 10_000)]) },
        // Nobody promised anything.
        Life { accepted_ms: None, unknown_ms: Some(10_050), ..life(&[held(1, 10_000)]) },
        // Stored by a master that died, handed out, stored again by the next one, and then
        // accepted.
        Life {
            accepted_ms: Some(10_060),
            unknown_ms: Some(10_050),
            ..life(&[finished(1, 10_000)])
        },
    ] {
        assert_eq!(breaches(&sound), [], "{sound:?}");
    }
}

#[test]
fn each_broken_promise_is_found() {
    for (broken, breach) in [
        (life(&[]), Breach::Unfinished),
        (life(&[held(1, 10_000)]), Breach::Unfinished),
        (life(&[finished(1, 10_000), finished(2, 10_100)]), Breach::FinishedTwice),
        (life(&[finished(1, 9_990)]), Breach::Early),
        (life(&[held(1, 10_000), finished(1, 10_100)]), Breach::AttemptAgain),
        (life(&[held(2, 10_000), finished(1, 10_100)]), Breach::AttemptAgain),
        (life(&[held(1, 10_000), finished(2, 10_090)]), Breach::HeldByTwo),
        (life(&[finished(1, 10_000), held(2, 10_100)]), Breach::AfterFinish),
        (
            Life { over_ms: Some(10_050), ..life(&[held(1, 10_000), held(2, 10_100)]) },
            Breach::AfterFinish,
        ),
        (life(&[HandOut { finished_ms: Some(10_102), ..held(1, 10_000) }]), Breach::FinishedLate),
        (
            life(&[HandOut { refused_ms: Some(10_090), ..held(1, 10_000) }, finished(2, 10_100)]),
            Breach::Refused,
        ),
        (Life { unknown_ms: Some(10_050), ..life(&[finished(1, 10_000)]) }, Breach::Unknown),
        (Life { is_damaged: true, ..life(&[finished(1, 10_000)]) }, Breach::Damaged),
    ] {
        assert!(breaches(&broken).contains(&breach), "{breach}: {broken:?}");
    }
}

#[test]
fn a_promoted_master_may_have_forgotten_hand_outs_of_its_buckets_at_that_time_and_nothing_else() {
    let own = vec![bucket_of("x", 16)];
    let others: Vec<u16> = (0..16).filter(|bucket| !own.contains(bucket)).collect();
    let again = life(&[held(1, 10_010), finished(1, 10_050)]);
    let wrong = |life: &Life, fault: Fault| {
        let faults = [fault];
        life.breaches("x", &faults)
            .into_iter()
            .filter(|(_, is_excused)| !is_excused)
            .map(|(breach, _)| breach)
            .collect::<Vec<_>>()
    };
    let killed = |buckets| failover(FaultKind::RedisMasterKilled, buckets);
    assert_eq!(wrong(&again, killed(Some(own.clone()))), []);
    assert_eq!(
        wrong(&again, failover(FaultKind::RedisFailover, None)),
        [],
        "every bucket has another master"
    );
    for unforgotten in [killed(Some(others)), killed(None), failover(FaultKind::RedisKill, None)] {
        assert_eq!(wrong(&again, unforgotten), [Breach::AttemptAgain, Breach::HeldByTwo]);
    }
    let long_after = life(&[held(1, 20_000), finished(1, 20_050)]);
    assert_eq!(
        wrong(&long_after, killed(Some(own.clone()))),
        [Breach::AttemptAgain, Breach::HeldByTwo]
    );
    for (broken, breach) in [
        (life(&[held(1, 10_010)]), Breach::Unfinished),
        (life(&[finished(1, 10_010), finished(1, 10_050)]), Breach::FinishedTwice),
        (life(&[finished(1, 9_990)]), Breach::Early),
        (life(&[HandOut { finished_ms: Some(10_200), ..held(1, 10_010) }]), Breach::FinishedLate),
        (Life { unknown_ms: Some(10_050), ..life(&[finished(1, 10_010)]) }, Breach::Unknown),
    ] {
        assert_eq!(wrong(&broken, killed(Some(own.clone()))), [breach], "{broken:?}");
    }
}

/// A history of these jobs, which were accepted before they were due.
fn accepted(ids: &[&str]) -> History {
    let head = RunHeader { broker: QUEUE.to_owned(), ..head() };
    let mut history = History { head, events: Vec::new() };
    for id in ids {
        push(&mut history, Phase::Invoke, Op::schedule(id, Some(job("q", 10_000))));
        push(&mut history, Phase::Ok, Op::schedule(id, None));
    }
    history
}

fn push(history: &mut History, phase: Phase, op: Op) {
    history.events.push(Event { t_us: 9_000_000, proc: "test".to_owned(), phase, op });
}

fn handed_out(history: &mut History, id: &str, hand_out: &HandOut) {
    let HandOut { lease, attempt, begun_ms, deadline_ms, .. } = hand_out.clone();
    let id = id.to_owned();
    let popped = PoppedJob { id, lease, attempt, begun_ms, deadline_ms, is_damaged: false };
    push(history, Phase::Ok, Op::Pop(popped));
}

fn said(history: &mut History, id: &str, hand_out: &HandOut, sent_ms: i64, verdict: &str) {
    let said = LeaseWord {
        id: id.to_owned(),
        lease: hand_out.lease.clone(),
        sent_ms,
        heard_ms: sent_ms + 1,
        verdict: verdict.to_owned(),
    };
    push(history, Phase::Ok, Op::Lease(said));
}

/// The verdict, where pops without an answer explain so many attempts.
fn judged(mut history: History, faults: &[Fault], unanswered_jobs: u64) -> Verdict {
    let consumers = Some(Tally { unanswered_jobs, ..Tally::default() });
    push(&mut history, Phase::Ok, Op::End(End { consumers, ..End::default() }));
    check(&history, faults)
}

#[test]
fn a_broken_history_is_found_from_what_its_consumers_were_told() {
    let mut history = accepted(&["sound", "lost", "early", "twice", "shared", "unseen"]);
    let mut round = |id: &str, hand_out: HandOut, verdict: &str| {
        handed_out(&mut history, id, &hand_out);
        said(&mut history, id, &hand_out, hand_out.begun_ms + 50, verdict);
    };
    round("sound", held(1, 10_000), "released");
    round("sound", held(2, 10_050), "finished");
    round("lost", held(1, 10_000), "failed");
    round("early", held(1, 9_000), "finished");
    round("twice", held(1, 10_000), "finished");
    round("twice", held(2, 10_100), "finished");
    round("shared", held(1, 10_000), "stale");
    round("shared", held(2, 10_020), "finished");
    round("unseen", held(3, 10_000), "finished");
    let verdict = judged(history.clone(), &[], 2);
    let mut wrong: Vec<String> = verdict
        .findings
        .values()
        .flatten()
        .filter_map(|line| Some(line.split_once(": Life")?.0.to_owned()))
        .collect();
    wrong.sort();
    let expected = [
        "early: handed out early",
        "lost: nobody finished it",
        "shared: a word was refused while its lease lasted",
        "shared: held by two consumers at a time",
        "twice: handed out after its finish",
        "twice: handed out after its finish",
        "twice: two consumers finished it",
    ];
    assert_eq!(wrong, expected);
    assert_eq!((verdict.counts.taken, verdict.counts.finished), (6, 5));
    let counts = verdict.queue.unwrap();
    assert_eq!((counts.hand_outs, counts.unseen), (9, 2));
    let unexplained = |verdict: &Verdict| verdict.findings[&Wrong::Unexplained].len();
    assert_eq!(unexplained(&judged(history, &[], 1)), unexplained(&verdict) + 1, "of 2 attempts");
}

#[test]
fn a_word_belongs_to_its_lease_where_two_hand_outs_have_one_attempt() {
    let mut history = accepted(&["x"]);
    // The answer of the master that was frozen comes last.
    let (of_promoted, of_frozen) = (held(1, 10_300), held(1, 10_000));
    handed_out(&mut history, "x", &of_promoted);
    handed_out(&mut history, "x", &of_frozen);
    said(&mut history, "x", &of_promoted, 10_350, "finished");
    said(&mut history, "x", &of_frozen, 10_352, "stale");
    let faults = [failover(FaultKind::RedisMasterFrozen, Some(vec![bucket_of("x", 16)]))];
    let verdict = judged(history, &faults, 0);
    assert!(verdict.is_sound(), "{verdict}");
    assert_eq!(verdict.queue.unwrap().forgotten, 1);
}

#[test]
fn a_job_whose_request_had_no_answer_is_recovered_by_its_hand_out() {
    let mut history = accepted(&["x"]);
    for id in ["y", "z"] {
        push(&mut history, Phase::Invoke, Op::schedule(id, Some(job("q", 10_000))));
    }
    for id in ["x", "y"] {
        handed_out(&mut history, id, &held(1, 10_000));
        said(&mut history, id, &held(1, 10_000), 10_050, "finished");
    }
    let leases = Some(Leases { claimed: 2, held: 1, ..Leases::default() });
    let faults = [Fault { leases, ..failover(FaultKind::RedisKill, None) }];
    let verdict = judged(history, &faults, 0);
    assert!(verdict.is_sound(), "{verdict}");
    let Counts { taken, uncertain, delivered, recovered, .. } = verdict.counts;
    assert_eq!((taken, uncertain, delivered, recovered), (1, 2, 2, 1));
    let LeaseStates { met_claimed, met_half_settled, met_held, .. } = verdict.leases;
    assert_eq!((met_claimed, met_half_settled, met_held), (1, 0, 1));
}

#[test]
fn among_the_jobs_of_a_broker_only_a_strange_fault_excuses_what_consumers_saw() {
    let queued = Job { queued: true, ..job("q", 10_000) };
    let wrong = |hand_outs: &[(HandOut, &str)], faults: &[Fault]| {
        let mut history = History { head: head(), events: Vec::new() };
        push(&mut history, Phase::Invoke, Op::schedule("x", Some(queued.clone())));
        push(&mut history, Phase::Ok, Op::schedule("x", None));
        for (hand_out, verdict) in hand_outs {
            handed_out(&mut history, "x", hand_out);
            said(&mut history, "x", hand_out, hand_out.begun_ms + 50, verdict);
        }
        let mut verdict = Verdict::default();
        beside(&history, faults, &mut verdict);
        assert_eq!(verdict.queue.map(|queue| queue.hand_outs), Some(hand_outs.len() as u64));
        verdict.findings.into_keys().collect::<Vec<_>>()
    };
    let (once, early, lost) = (
        [(held(1, 10_000), "finished")],
        [(held(1, 9_000), "finished")],
        [(held(1, 10_000), "failed")],
    );
    assert_eq!((wrong(&once, &[]), wrong(&early, &[])), (vec![], vec![Wrong::Early]));
    let fault = |kind| [failover(kind, None)];
    assert_eq!(wrong(&early, &fault(FaultKind::RedisKill)), [Wrong::Early]);
    assert_eq!(wrong(&early, &fault(FaultKind::RedisClockJump)), []);
    assert_eq!(wrong(&lost, &fault(FaultKind::RedisClockJump)), [Wrong::Lost]);
}
