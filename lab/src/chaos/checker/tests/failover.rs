//! The writes that a promoted master may have forgotten, and the writes that it may not.

use dwell::store::keys::bucket_of;

use super::*;
use crate::chaos::history::Forgotten;

const SECOND: i64 = 1_000_000;

/// A master that was replaced, and the buckets that it had.
fn replaced(kind: &str, buckets: Option<Vec<u16>>) -> Fault {
    Fault {
        kind: kind.parse().unwrap(),
        began_us: DUE_US - 10_000,
        healed_us: DUE_US + SECOND,
        in_flight: 1,
        detail: String::new(),
        clock_step_us: None,
        beside: None,
        leases: None,
        forgotten: buckets.map(|buckets| Forgotten { buckets, of: 16 }),
    }
}

fn own() -> Vec<u16> {
    vec![bucket_of("x", 16)]
}

fn others() -> Vec<u16> {
    (0..16).filter(|bucket| !own().contains(bucket)).collect()
}

#[test]
fn a_promoted_master_repeats_jobs_of_its_own_buckets_under_the_same_attempt() {
    for kind in ["redis-master-killed", "redis-master-frozen", "redis-failover-ordered"] {
        let twice = |buckets| {
            Run::new().fault_so(replaced(kind, buckets)).asked("x").came("x").again("x", 1).wrong()
        };
        assert_eq!(twice(Some(own())), [], "{kind}");
        assert_eq!(
            twice(Some(others())),
            [Wrong::WrongAttempt, Wrong::Unexplained],
            "{kind}: its master was not replaced"
        );
        assert_eq!(
            twice(None),
            [Wrong::WrongAttempt, Wrong::Unexplained],
            "{kind}: nothing was forgotten"
        );
    }
    // A failover that nobody wanted, during another fault.
    let twice = |buckets| {
        Run::new()
            .fault_so(replaced("redis-freeze", buckets))
            .asked("x")
            .came("x")
            .again("x", 1)
            .check()
    };
    assert!(twice(Some(own())).is_sound());
    assert!(twice(None).findings.contains_key(&Wrong::WrongAttempt));
}

#[test]
fn a_promoted_master_has_all_that_was_acknowledged() {
    let run = || Run::new().fault_so(replaced("redis-master-killed", Some(own())));
    assert_eq!(run().asked("x").wrong(), [Wrong::Lost]);
    let cancelled =
        run().asked("x").ask(Op::Cancel, "x", None).told("x", "cancel", "cancelled").came("x");
    assert_eq!(cancelled.wrong(), [Wrong::FalseVerdict]);
    let old = run()
        .asked("x")
        .came("x")
        .came_so("x", DUE_US + 30 * SECOND, |arrival| arrival.attempt = Some(1));
    assert!(old.check().findings.contains_key(&Wrong::Unexplained), "it is known long after");
}

#[test]
fn slots_that_move_repeat_nothing() {
    for kind in ["redis-slots-moved", "redis-failover-ordered"] {
        let fault = replaced(kind, None);
        assert_eq!(
            Run::new()
                .counted(DUE_US - 9 * SECOND, 0)
                .fault_so(fault)
                .counted(DUE_US, 1)
                .asked("x")
                .came("x")
                .again("x", 2)
                .wrong(),
            [Wrong::Unexplained],
            "{kind}"
        );
    }
}
