//! The records of finished jobs and applied messages: how long they are kept, and how many.

use dwell::job::{Action, DeadReason, Verdict};
use dwell::request::{Act, Origin, Schedule};
use dwell::store::admin::sweep::{SweepRules, Swept};
use dwell::store::queue::settle::{Bury, Completion, SettleResult};

use super::fixture::{FAR, Fixture, KEEP, PAST, action, held, request};

const NOTHING: Swept = Swept { dead: 0, turned: 0, master_changed: false };

async fn exists(fixture: &Fixture, name: &str) -> bool {
    fixture.redis(&["EXISTS", &fixture.key(name)]).await == redis::Value::Int(1)
}

/// Moves the time at which a table's turn began or ended into the past.
async fn age(fixture: &Fixture, name: &str, ms: i64) {
    let began = fixture.store.read_clock().await.unwrap() / 1000 - ms;
    fixture.redis(&["HSET", &fixture.key(name), "", &began.to_string()]).await;
}

#[tokio::test]
async fn a_job_that_is_over_is_remembered_for_one_window_at_least_and_two_at_most() {
    let fixture = Fixture::new().await;
    let rules = SweepRules { dedupe_window_ms: 60_000, ..KEEP };
    fixture.put(request("a", 1, PAST)).await;
    assert!(fixture.complete(&fixture.claim_one().await).await);
    assert_eq!(fixture.store.admin.sweep(0, rules).await.unwrap(), NOTHING);
    let fire = |message| action(Action::Fire, "a", message);
    assert_eq!(fixture.act(&fire(2)).await, Verdict::Fired);

    // Nobody swept for a day: what is over just now is known for a window all the same.
    age(&fixture, "gone", 86_400_000).await;
    assert_eq!(fixture.store.admin.sweep(0, rules).await.unwrap(), Swept { turned: 1, ..NOTHING });
    assert_eq!(fixture.store.admin.sweep(0, rules).await.unwrap(), NOTHING);
    assert!(!exists(&fixture, "gone").await);
    assert_eq!(fixture.act(&fire(3)).await, Verdict::Fired);
    let again = fixture.one(request("a", 1, PAST)).await;
    assert_eq!((again.verdict, fixture.place("a").await), (Verdict::Added, "none".to_owned()));

    // A second turn runs meanwhile.
    fixture.put(request("b", 4, PAST)).await;
    assert!(fixture.complete(&fixture.claim_one().await).await);
    age(&fixture, "gone", 60_000).await;
    age(&fixture, "gone_old", 60_000).await;
    assert_eq!(fixture.store.admin.sweep(0, rules).await.unwrap(), Swept { turned: 2, ..NOTHING });
    assert_eq!(fixture.act(&fire(5)).await, Verdict::NotFound);
    assert_eq!(fixture.act(&action(Action::Fire, "b", 6)).await, Verdict::Fired);
    age(&fixture, "gone_old", 60_000).await;
    assert_eq!(fixture.store.admin.sweep(0, rules).await.unwrap(), Swept { turned: 1, ..NOTHING });
    assert_eq!(fixture.act(&action(Action::Fire, "b", 7)).await, Verdict::NotFound);
}

#[tokio::test]
async fn actions_are_remembered_for_a_day_and_two_at_most() {
    let fixture = Fixture::new().await;
    let cancel = action(Action::Cancel, "a", 2);
    fixture.put(request("a", 1, FAR)).await;
    assert_eq!(fixture.act(&cancel).await, Verdict::Cancelled);
    age(&fixture, "acts", 86_400_000 - 60_000).await;
    assert_eq!(fixture.store.admin.sweep(0, KEEP).await.unwrap(), NOTHING);
    age(&fixture, "acts", 86_400_000).await;
    assert_eq!(fixture.store.admin.sweep(0, KEEP).await.unwrap(), Swept { turned: 1, ..NOTHING });
    assert_eq!(fixture.act(&cancel).await, Verdict::Cancelled);
    assert_eq!(fixture.put(request("a", 1, FAR)).await, Verdict::Added);
    assert_eq!(fixture.place("a").await, "none");
    age(&fixture, "acts_old", 86_400_000).await;
    assert_eq!(fixture.store.admin.sweep(0, KEEP).await.unwrap(), Swept { turned: 1, ..NOTHING });
    assert_eq!(fixture.act(&cancel).await, Verdict::NotFound);
}

#[tokio::test]
async fn no_more_than_two_tables_of_4096_are_remembered() {
    let fixture = Fixture::new().await;
    for round in 0..80 {
        let batch: Vec<Schedule> = (0..128).map(|n| request(&format!("job-{round:02}-{n:03}"), round * 128 + n, PAST)).collect();
        fixture.store.queue.schedule(&batch).await.unwrap();
        let jobs: Vec<_> = fixture.claim().await.jobs.iter().map(held).collect();
        assert!(
            fixture.store.queue.complete(0, &jobs, Completion::Fired).await.unwrap().iter().all(|stood| *stood == SettleResult::Settled)
        );
        assert!(count(&fixture, "gone").await <= 4097 && count(&fixture, "gone_old").await <= 4097 + 128);
    }
    // The newest 4096 at least are known, the oldest of 10 240 are not.
    assert_eq!(fixture.act(&action(Action::Fire, "job-48-000", 100_000)).await, Verdict::Fired);
    assert_eq!(fixture.act(&action(Action::Fire, "job-00-000", 100_001)).await, Verdict::NotFound);
}

/// How many of these are remembered.
async fn count(fixture: &Fixture, name: &str) -> i64 {
    match fixture.redis(&["HLEN", &fixture.key(name)]).await {
        redis::Value::Int(count) => count,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn no_more_than_two_tables_of_65536_actions_are_remembered() {
    const FILL: &str = "for n = 1, 65536 do redis.call('HSET', KEYS[1], ARGV[1] .. n, 'not_found:') end return 1";
    let fixture = Fixture::new().await;
    fixture.put(request("a", 1, FAR)).await;
    let cancel = action(Action::Cancel, "a", 2);
    assert_eq!(fixture.act(&cancel).await, Verdict::Cancelled);
    for (message, known) in [(10, Verdict::Cancelled), (20, Verdict::NotFound)] {
        fixture.redis(&["EVAL", FILL, "1", &fixture.key("acts"), &message.to_string()]).await;
        // Whatever remembers one more turns them.
        fixture.put(request("b", message, FAR)).await;
        assert_eq!(fixture.act(&action(Action::Cancel, "b", message + 1)).await, Verdict::Cancelled);
        fixture.act(&action(Action::Cancel, "nobody", message + 2)).await;
        let (newer, older) = (count(&fixture, "acts").await, count(&fixture, "acts_old").await);
        assert!(newer < 10 && (65_536..66_000).contains(&older), "{newer} and {older}");
        assert_eq!(fixture.act(&cancel).await, known);
    }
}

#[tokio::test]
async fn what_changed_nothing_is_remembered_only_where_its_repeat_could_change_a_newer_job() {
    let fixture = Fixture::new().await;
    let called = |what, name: &str, n| {
        let act = action(what, name, n);
        Act { origin: Origin { is_message: false, ..act.origin }, ..act }
    };
    // A call is not repeated once it is answered, and a word that names its schedule is for no
    // other.
    for what in [Action::Cancel, Action::Reschedule, Action::Fire, Action::Finish, Action::Fail, Action::Requeue] {
        assert_eq!(fixture.act(&called(what, "nobody", 1)).await, Verdict::NotFound);
    }
    for what in [Action::Finish, Action::Fail] {
        let named = Act { seen_due: Some(7), seen_attempt: Some(1), ..action(what, "nobody", 2) };
        assert_eq!(fixture.act(&named).await, Verdict::NotFound);
    }
    assert_eq!(count(&fixture, "acts").await, 0);
    // Redelivered behind the job that was scheduled after it, it would end that job.
    let cancel = action(Action::Cancel, "a", 3);
    assert_eq!((fixture.act(&cancel).await, fixture.put(request("a", 4, FAR)).await), (Verdict::NotFound, Verdict::Added));
    assert_eq!((fixture.act(&cancel).await, fixture.put(request("a", 4, FAR)).await), (Verdict::NotFound, Verdict::Added));
    assert_eq!(fixture.place("a").await, "due:main");
    // A call that changed something is told again what it did: its answer may have been lost.
    let cancel = called(Action::Cancel, "a", 5);
    assert_eq!((fixture.act(&cancel).await, fixture.act(&cancel).await), (Verdict::Cancelled, Verdict::Cancelled));
}

#[tokio::test]
async fn the_dead_are_swept_at_the_end_of_their_retention() {
    let fixture = Fixture::new().await;
    let batch: Vec<Schedule> = (0..128).chain(128..130).map(|n| request(&format!("job-{n}"), n, PAST)).collect();
    fixture.store.queue.schedule(&batch).await.unwrap();
    for _ in 0..2 {
        let buries: Vec<Bury> = fixture
            .claim()
            .await
            .jobs
            .iter()
            .map(|lease| Bury { job: held(lease), reason: DeadReason::Invalid, error: String::new() })
            .collect();
        fixture.store.queue.bury(0, &buries).await.unwrap();
    }
    let counts = fixture.store.reader.counts(&[]).await.unwrap();
    assert_eq!((counts.scheduled, counts.reserved, counts.dead), (vec![0], vec![0], vec![130]));
    assert_eq!(fixture.store.admin.sweep(0, KEEP).await.unwrap(), NOTHING);
    let rules = SweepRules { dead_retention_ms: 0, ..KEEP };
    assert_eq!(fixture.store.admin.sweep(0, rules).await.unwrap(), Swept { dead: 128, ..NOTHING });
    assert_eq!(fixture.store.admin.sweep(0, rules).await.unwrap(), Swept { dead: 2, ..NOTHING });
    assert!(!exists(&fixture, "jobs").await && !exists(&fixture, "dead").await);
    assert_eq!(fixture.redis(&["HLEN", &fixture.key("state")]).await, redis::Value::Int(1));
}

#[tokio::test]
async fn what_every_batch_looks_up_is_a_table_from_the_first_job_on() {
    let fixture = Fixture::new().await;
    fixture.put(request("a", 1, PAST)).await;
    let lease = fixture.claim_one().await;
    assert!(fixture.complete(&lease).await);
    fixture.put(request("b", 2, FAR)).await;
    fixture.act(&action(Action::Cancel, "b", 3)).await;
    for name in ["state", "gone", "acts"] {
        let encoding = fixture.redis(&["OBJECT", "ENCODING", &fixture.key(name)]).await;
        assert_eq!(encoding, redis::Value::BulkString(b"hashtable".to_vec()), "{name}");
    }
}
