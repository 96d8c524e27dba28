//! What is remembered of jobs that are over and of messages that were applied: for how long, and how much.

use dwell::job::{Action, DeadReason, Verdict};
use dwell::request::Schedule;
use dwell::store::act::{SweepRules, Swept};
use dwell::store::settle::{Bury, Over, Stood};

use super::bed::{Bed, FAR, KEEP, PAST, action, held, request};

const NOTHING: Swept = Swept { dead: 0, turned: 0, master_changed: false };

async fn exists(bed: &Bed, name: &str) -> bool {
    bed.redis(&["EXISTS", &bed.key(name)]).await == redis::Value::Int(1)
}

/// Moves the time at which a table's turn began or ended into the past.
async fn age(bed: &Bed, name: &str, ms: i64) {
    let began = bed.store.read_clock().await.unwrap() / 1000 - ms;
    bed.redis(&["HSET", &bed.key(name), "", &began.to_string()]).await;
}

#[tokio::test]
async fn a_job_that_is_over_is_remembered_for_one_window_at_least_and_two_at_most() {
    let bed = Bed::new().await;
    let rules = SweepRules { dedupe_window_ms: 60_000, ..KEEP };
    bed.put(request("a", 1, PAST)).await;
    assert!(bed.complete(&bed.claim_one().await).await);
    assert_eq!(bed.store.sweep(0, rules).await.unwrap(), NOTHING);
    let fire = |message| action(Action::Fire, "a", message);
    assert_eq!(bed.act(&fire(2)).await, Verdict::Fired);

    // Nobody swept for a day: what is over just now is known for a window all the same.
    age(&bed, "gone", 86_400_000).await;
    assert_eq!(bed.store.sweep(0, rules).await.unwrap(), Swept { turned: 1, ..NOTHING });
    assert_eq!(bed.store.sweep(0, rules).await.unwrap(), NOTHING);
    assert!(!exists(&bed, "gone").await);
    assert_eq!(bed.act(&fire(3)).await, Verdict::Fired);
    let again = bed.one(request("a", 1, PAST)).await;
    assert_eq!((again.verdict, bed.place("a").await), (Verdict::Added, "none".to_owned()));

    // A second turn runs meanwhile.
    bed.put(request("b", 4, PAST)).await;
    assert!(bed.complete(&bed.claim_one().await).await);
    age(&bed, "gone", 60_000).await;
    age(&bed, "gone_old", 60_000).await;
    assert_eq!(bed.store.sweep(0, rules).await.unwrap(), Swept { turned: 2, ..NOTHING });
    assert_eq!(bed.act(&fire(5)).await, Verdict::NotFound);
    assert_eq!(bed.act(&action(Action::Fire, "b", 6)).await, Verdict::Fired);
    age(&bed, "gone_old", 60_000).await;
    assert_eq!(bed.store.sweep(0, rules).await.unwrap(), Swept { turned: 1, ..NOTHING });
    assert_eq!(bed.act(&action(Action::Fire, "b", 7)).await, Verdict::NotFound);
}

#[tokio::test]
async fn actions_are_remembered_for_a_day_and_two_at_most() {
    let bed = Bed::new().await;
    let cancel = action(Action::Cancel, "a", 2);
    bed.put(request("a", 1, FAR)).await;
    assert_eq!(bed.act(&cancel).await, Verdict::Cancelled);
    age(&bed, "acts", 86_400_000 - 60_000).await;
    assert_eq!(bed.store.sweep(0, KEEP).await.unwrap(), NOTHING);
    age(&bed, "acts", 86_400_000).await;
    assert_eq!(bed.store.sweep(0, KEEP).await.unwrap(), Swept { turned: 1, ..NOTHING });
    assert_eq!(bed.act(&cancel).await, Verdict::Cancelled);
    assert_eq!(bed.put(request("a", 1, FAR)).await, Verdict::Added);
    assert_eq!(bed.place("a").await, "none");
    age(&bed, "acts_old", 86_400_000).await;
    assert_eq!(bed.store.sweep(0, KEEP).await.unwrap(), Swept { turned: 1, ..NOTHING });
    assert_eq!(bed.act(&cancel).await, Verdict::NotFound);
}

#[tokio::test]
async fn no_more_than_two_tables_of_4096_are_remembered() {
    let bed = Bed::new().await;
    for round in 0..80 {
        let batch: Vec<Schedule> = (0..128).map(|n| request(&format!("job-{round:02}-{n:03}"), round * 128 + n, PAST)).collect();
        bed.store.schedule(&batch).await.unwrap();
        let jobs: Vec<_> = bed.claim().await.jobs.iter().map(held).collect();
        assert!(bed.store.complete(0, &jobs, Over::Fired).await.unwrap().iter().all(|stood| *stood == Stood::Settled));
        let count = async |name| match bed.redis(&["HLEN", &bed.key(name)]).await {
            redis::Value::Int(count) => count,
            other => panic!("{other:?}"),
        };
        assert!(count("gone").await <= 4097 && count("gone_old").await <= 4097 + 128);
    }
    // The newest 4096 at least are known, the oldest of 10 240 are not.
    assert_eq!(bed.act(&action(Action::Fire, "job-48-000", 100_000)).await, Verdict::Fired);
    assert_eq!(bed.act(&action(Action::Fire, "job-00-000", 100_001)).await, Verdict::NotFound);
}

#[tokio::test]
async fn the_dead_are_swept_at_the_end_of_their_retention() {
    let bed = Bed::new().await;
    let batch: Vec<Schedule> = (0..128).chain(128..130).map(|n| request(&format!("job-{n}"), n, PAST)).collect();
    bed.store.schedule(&batch).await.unwrap();
    for _ in 0..2 {
        let buries: Vec<Bury> = bed
            .claim()
            .await
            .jobs
            .iter()
            .map(|lease| Bury { job: held(lease), reason: DeadReason::Invalid, error: String::new() })
            .collect();
        bed.store.bury(0, &buries).await.unwrap();
    }
    let counts = bed.store.counts(&[]).await.unwrap();
    assert_eq!((counts.scheduled, counts.reserved, counts.dead), (vec![0], vec![0], vec![130]));
    assert_eq!(bed.store.sweep(0, KEEP).await.unwrap(), NOTHING);
    let rules = SweepRules { dead_retention_ms: 0, ..KEEP };
    assert_eq!(bed.store.sweep(0, rules).await.unwrap(), Swept { dead: 128, ..NOTHING });
    assert_eq!(bed.store.sweep(0, rules).await.unwrap(), Swept { dead: 2, ..NOTHING });
    assert!(!exists(&bed, "jobs").await && !exists(&bed, "dead").await);
    assert_eq!(bed.redis(&["HLEN", &bed.key("state")]).await, redis::Value::Int(1));
}

#[tokio::test]
async fn what_every_batch_looks_up_is_a_table_from_the_first_job_on() {
    let bed = Bed::new().await;
    bed.put(request("a", 1, PAST)).await;
    let lease = bed.claim_one().await;
    assert!(bed.complete(&lease).await);
    bed.put(request("b", 2, FAR)).await;
    bed.act(&action(Action::Cancel, "b", 3)).await;
    for name in ["state", "gone", "acts"] {
        let encoding = bed.redis(&["OBJECT", "ENCODING", &bed.key(name)]).await;
        assert_eq!(encoding, redis::Value::BulkString(b"hashtable".to_vec()), "{name}");
    }
}
