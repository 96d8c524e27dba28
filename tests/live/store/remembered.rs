//! The records of finished jobs and applied messages: how long they are kept, and how many.

use dwell::job::{Action, DeadReason, Job, Verdict};
use dwell::request::{Act, NewJob, Origin};
use dwell::store::admin::sweep::Swept;
use dwell::store::jobs::acknowledge::{Acknowledgement, LeaseAction, LeaseVerdict};
use dwell::store::jobs::pop::PopLimits;
use dwell::store::jobs::settle::{Bury, Completion, SettleResult};
use dwell::store::meta::SweepRules;

use super::fixture::{FAR, Fixture, KEEP, MAIN, PAST, action, held, id, request};

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

    // Nobody swept for a day: an entry that is over just now is known for a window all the same.
    age(&fixture, "completed", 86_400_000).await;
    assert_eq!(fixture.store.admin.sweep(0, rules).await.unwrap(), Swept { turned: 1, ..NOTHING });
    assert_eq!(fixture.store.admin.sweep(0, rules).await.unwrap(), NOTHING);
    assert!(!exists(&fixture, "completed").await);
    assert_eq!(fixture.act(&fire(3)).await, Verdict::Fired);
    let again = fixture.one(request("a", 1, PAST)).await;
    assert_eq!((again.verdict, fixture.place("a").await), (Verdict::Added, "none".to_owned()));

    // A second turn runs meanwhile.
    fixture.put(request("b", 4, PAST)).await;
    assert!(fixture.complete(&fixture.claim_one().await).await);
    age(&fixture, "completed", 60_000).await;
    age(&fixture, "completed_old", 60_000).await;
    assert_eq!(fixture.store.admin.sweep(0, rules).await.unwrap(), Swept { turned: 2, ..NOTHING });
    assert_eq!(fixture.act(&fire(5)).await, Verdict::NotFound);
    assert_eq!(fixture.act(&action(Action::Fire, "b", 6)).await, Verdict::Fired);
    age(&fixture, "completed_old", 60_000).await;
    assert_eq!(fixture.store.admin.sweep(0, rules).await.unwrap(), Swept { turned: 1, ..NOTHING });
    assert_eq!(fixture.act(&action(Action::Fire, "b", 7)).await, Verdict::NotFound);
}

#[tokio::test]
async fn actions_are_remembered_for_a_day_and_two_at_most() {
    let fixture = Fixture::new().await;
    let cancel = action(Action::Cancel, "a", 2);
    fixture.put(request("a", 1, FAR)).await;
    assert_eq!(fixture.act(&cancel).await, Verdict::Cancelled);
    age(&fixture, "applied", 86_400_000 - 60_000).await;
    assert_eq!(fixture.store.admin.sweep(0, KEEP).await.unwrap(), NOTHING);
    age(&fixture, "applied", 86_400_000).await;
    assert_eq!(fixture.store.admin.sweep(0, KEEP).await.unwrap(), Swept { turned: 1, ..NOTHING });
    assert_eq!(fixture.act(&cancel).await, Verdict::Cancelled);
    assert_eq!(fixture.put(request("a", 1, FAR)).await, Verdict::Added);
    assert_eq!(fixture.place("a").await, "none");
    age(&fixture, "applied_old", 86_400_000).await;
    assert_eq!(fixture.store.admin.sweep(0, KEEP).await.unwrap(), Swept { turned: 1, ..NOTHING });
    assert_eq!(fixture.act(&cancel).await, Verdict::NotFound);
}

#[tokio::test]
async fn ten_thousand_jobs_of_a_bucket_that_are_over_are_known_for_the_window() {
    let fixture = Fixture::new().await;
    let batch = |round: u64| -> Vec<NewJob> {
        (0..128)
            .map(|n| request(&format!("job-{round:02}-{n:03}"), round * 128 + n, PAST))
            .collect()
    };
    for round in 0..80 {
        fixture.store.jobs.schedule(&batch(round)).await.unwrap();
        let jobs: Vec<_> = fixture.claim().await.jobs.iter().map(held).collect();
        assert!(
            fixture
                .store
                .jobs
                .complete(0, &jobs, Completion::Fired)
                .await
                .unwrap()
                .iter()
                .all(|stood| *stood == SettleResult::Settled)
        );
    }
    assert_eq!(fixture.store.admin.sweep(0, KEEP).await.unwrap(), NOTHING);
    // The same messages come again.
    for round in 0..80 {
        let again = fixture.store.jobs.schedule(&batch(round)).await.unwrap();
        assert!(
            again.answers.iter().all(|answer| answer.verdict == Verdict::Added),
            "round {round}: {again:?}"
        );
    }
    assert_eq!(
        (count(&fixture, "jobs").await, count(&fixture, "completed").await),
        (0, 80 * 128 + 1),
        "each was known"
    );
    assert_eq!(fixture.act(&action(Action::Finish, "job-00-000", 100_000)).await, Verdict::Fired);
}

#[tokio::test]
async fn ten_thousand_fetched_jobs_of_a_bucket_are_known_to_be_finished() {
    let fixture = Fixture::new().await;
    let mut acknowledgements = Vec::new();
    for round in 0..80 {
        let new = |n| {
            NewJob::new(Job { ttr_ms: 600_000, ..Job::for_queue("q", "") }, PAST)
                .id(id(&format!("job-{round:02}-{n:03}")))
        };
        fixture.store.jobs.schedule(&(0..128).map(new).collect::<Vec<_>>()).await.unwrap();
        let limits = PopLimits {
            ttr_ms: None,
            max_ttr_ms: 600_000,
            most: 128,
            most_bytes: 1 << 20,
            room: None,
        };
        let popped = fixture.store.jobs.pop(rand::random(), 0, "q", limits).await.unwrap();
        acknowledgements.extend(popped.jobs.into_iter().map(|job| Acknowledgement {
            id: job.id,
            lease: job.lease,
            action: LeaseAction::Finish,
        }));
    }
    for wanted in [LeaseVerdict::Finished, LeaseVerdict::Fired] {
        let answers = fixture.store.jobs.acknowledge(&acknowledgements).await;
        let told =
            answers.iter().filter(|answer| answer.as_ref().unwrap().verdict == wanted).count();
        assert_eq!((answers.len(), told), (80 * 128, 80 * 128), "{wanted:?}");
    }
}

/// Returns the number of entries that are remembered.
async fn count(fixture: &Fixture, name: &str) -> i64 {
    match fixture.redis(&["HLEN", &fixture.key(name)]).await {
        redis::Value::Int(count) => count,
        other => panic!("{other:?}"),
    }
}

/// Of a namespace of 64 buckets, each has 15 625 of the million, and 496 that chance may add.
const SHARE: i64 = 16_121;
const FILL: &str =
    "for n = 1, 16121 do redis.call('HSET', KEYS[1], ARGV[1] .. n, ARGV[2]) end return 1";

/// Ids of the bucket that the fixture looks into.
fn ids_of_bucket_0(fixture: &Fixture) -> impl Iterator<Item = String> {
    (0..).map(|n| format!("job-{n}")).filter(|name| fixture.store.keys().bucket_of(name) == 0)
}

#[tokio::test]
async fn a_bucket_remembers_its_share_of_a_million_jobs_twice_at_most() {
    let fixture = Fixture::with(64, &[MAIN]).await;
    let mut ids = ids_of_bucket_0(&fixture);
    let mut finish = async |message| {
        let name = ids.next().unwrap();
        fixture.put(request(&name, message, PAST)).await;
        assert!(fixture.complete(&fixture.claim_one().await).await);
        name
    };
    let first = finish(1).await;
    let mut message = 2;
    let entry = "f".repeat(26);
    for known in [Verdict::Fired, Verdict::NotFound] {
        fixture
            .redis(&["EVAL", FILL, "1", &fixture.key("completed"), &message.to_string(), &entry])
            .await;
        // The next entry turns the memories.
        finish(message).await;
        let last = finish(message + 1).await;
        let (newer, older) =
            (count(&fixture, "completed").await, count(&fixture, "completed_old").await);
        assert!(newer < 10 && (SHARE..SHARE + 10).contains(&older), "{newer} and {older}");
        assert_eq!(fixture.act(&action(Action::Fire, &first, message + 2)).await, known);
        assert_eq!(fixture.act(&action(Action::Fire, &last, message + 3)).await, Verdict::Fired);
        message += 10;
    }
}

#[tokio::test]
async fn a_bucket_remembers_its_share_of_a_million_actions_twice_at_most() {
    let fixture = Fixture::with(64, &[MAIN]).await;
    let ids: Vec<String> = ids_of_bucket_0(&fixture).take(3).collect();
    fixture.put(request(&ids[0], 1, FAR)).await;
    let cancel = action(Action::Cancel, &ids[0], 2);
    assert_eq!(fixture.act(&cancel).await, Verdict::Cancelled);
    for (message, known) in [(10, Verdict::Cancelled), (20, Verdict::NotFound)] {
        fixture
            .redis(&[
                "EVAL",
                FILL,
                "1",
                &fixture.key("applied"),
                &message.to_string(),
                "not_found:",
            ])
            .await;
        // The next entry turns the memories.
        fixture.put(request(&ids[1], message, FAR)).await;
        assert_eq!(
            fixture.act(&action(Action::Cancel, &ids[1], message + 1)).await,
            Verdict::Cancelled
        );
        fixture.act(&action(Action::Cancel, &ids[2], message + 2)).await;
        let (newer, older) =
            (count(&fixture, "applied").await, count(&fixture, "applied_old").await);
        assert!(newer < 10 && (SHARE..SHARE + 10).contains(&older), "{newer} and {older}");
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
    // A call is not repeated once it is answered, and an action that names its schedule is for no
    // other.
    for what in [
        Action::Cancel,
        Action::Reschedule,
        Action::Fire,
        Action::Finish,
        Action::Fail,
        Action::Requeue,
    ] {
        assert_eq!(fixture.act(&called(what, "nobody", 1)).await, Verdict::NotFound);
    }
    for what in [Action::Finish, Action::Fail] {
        let named = Act { seen_due: Some(7), seen_attempt: Some(1), ..action(what, "nobody", 2) };
        assert_eq!(fixture.act(&named).await, Verdict::NotFound);
    }
    assert_eq!(count(&fixture, "applied").await, 0);
    // Redelivered behind the job that was scheduled after it, it would end that job.
    let cancel = action(Action::Cancel, "a", 3);
    assert_eq!(
        (fixture.act(&cancel).await, fixture.put(request("a", 4, FAR)).await),
        (Verdict::NotFound, Verdict::Added)
    );
    assert_eq!(
        (fixture.act(&cancel).await, fixture.put(request("a", 4, FAR)).await),
        (Verdict::NotFound, Verdict::Added)
    );
    assert_eq!(fixture.place("a").await, "due:main");
    // A call that changed something is told again what it did: its answer may have been lost.
    let cancel = called(Action::Cancel, "a", 5);
    assert_eq!(
        (fixture.act(&cancel).await, fixture.act(&cancel).await),
        (Verdict::Cancelled, Verdict::Cancelled)
    );
}

#[tokio::test]
async fn the_dead_are_swept_at_the_end_of_their_retention() {
    let fixture = Fixture::new().await;
    let batch: Vec<NewJob> =
        (0..128).chain(128..130).map(|n| request(&format!("job-{n}"), n, PAST)).collect();
    fixture.store.jobs.schedule(&batch).await.unwrap();
    for _ in 0..2 {
        let buries: Vec<Bury> = fixture
            .claim()
            .await
            .jobs
            .iter()
            .map(|lease| Bury {
                job: held(lease),
                reason: DeadReason::Invalid,
                error: String::new(),
            })
            .collect();
        fixture.store.jobs.bury(0, &buries).await.unwrap();
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
    for name in ["state", "completed", "applied"] {
        let encoding = fixture.redis(&["OBJECT", "ENCODING", &fixture.key(name)]).await;
        assert_eq!(encoding, redis::Value::BulkString(b"hashtable".to_vec()), "{name}");
    }
}
