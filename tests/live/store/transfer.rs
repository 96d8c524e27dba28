//! Jobs of one broker move to another, from every place.

use dwell::job::{Action, Job, JobId, Verdict};
use dwell::store::admin::transfer::Transferred;
use dwell::store::record::Record;
use dwell_testkit::servers::{RedisOptions, RedisServer};

use super::actions::{bring, expected};
use super::fixture::{FAR, Fixture, MAIN, PAST, action, id, request, target_on};

const OTHER: &str = "other";
/// Places of a job, and where it is once it was moved.
const PLACES: [(&str, &str); 9] = [
    ("waiting", "due:other"),
    ("returned", "due:other"),
    ("retrying", "due:other"),
    ("dying", "due:other"),
    ("dead", "dead"),
    ("in_flight", "lease"),
    ("held", "held"),
    ("taken_over", "lease"),
    ("fired", "none"),
];

fn to_other(_: &JobId, record: Record) -> Option<Job> {
    Some(Job { target: target_on(OTHER), ..record.job })
}

#[tokio::test]
async fn each_job_keeps_all_but_its_broker_and_every_verdict() {
    for asked in [
        Action::Cancel,
        Action::Reschedule,
        Action::Fire,
        Action::Finish,
        Action::Fail,
        Action::Requeue,
    ] {
        let fixture = Fixture::new().await;
        for (number, (place, _)) in PLACES.iter().enumerate() {
            bring(&fixture, place, place, 10 * number as u64).await;
        }
        let before = fixture.jobs().await;
        let done = fixture.store.admin.transfer(MAIN, OTHER, to_other).await.unwrap();
        assert_eq!(
            (done.scheduled, done.dead, done.reserved, done.refused, done.unreadable),
            (4, 1, 3, 0, 0)
        );
        let after = fixture.jobs().await;
        for name in ["state", "dead", "claim_deadlines", "claims", "settled", "held"] {
            assert_eq!(after.get(&fixture.key(name)), before.get(&fixture.key(name)), "{name}");
        }
        assert_eq!(
            after.get(&fixture.key("due:other")),
            before.get(&fixture.key("due:main")),
            "due when they were"
        );
        assert_eq!(after.get(&fixture.key("due:main")), None);
        // Again: nothing is left that may move.
        let again = fixture.store.admin.transfer(MAIN, OTHER, to_other).await.unwrap();
        assert_eq!(again, Transferred { reserved: 3, ..Transferred::default() });
        assert_eq!(fixture.jobs().await, after);
        // The redelivery of the request that made a job finds it.
        assert_eq!(fixture.put(request("waiting", 0, FAR)).await, Verdict::Added);
        assert_eq!(fixture.jobs().await, after);

        for (number, (place, now)) in PLACES.iter().enumerate() {
            assert_eq!(fixture.place(place).await, *now, "{place}");
            let verdict = fixture.act(&action(asked, place, 1000 + number as u64)).await;
            assert_eq!(verdict, expected(place, asked).0, "{} of {place}", asked.as_str());
        }
    }
}

#[tokio::test]
async fn what_is_refused_hides_nothing_behind_it() {
    let fixture = Fixture::with(2, &[MAIN]).await;
    for number in 0..700 {
        fixture.put(request(&format!("job-{number}"), number, PAST)).await;
    }
    let stays = |id: &JobId| id.as_str().ends_with(['0', '1', '2', '3', '4', '5', '6', '7']);
    let done = fixture
        .store
        .admin
        .transfer(MAIN, OTHER, |id, record| if stays(id) { None } else { to_other(id, record) })
        .await
        .unwrap();
    assert_eq!((done.scheduled, done.refused), (140, 560));
    assert_eq!(
        done.wake_ups.iter().filter(|head| head.broker == OTHER).count(),
        done.wake_ups.len()
    );
    let counts = fixture.store.reader.counts(&[]).await.unwrap();
    assert_eq!(counts.brokers, [(MAIN.to_owned(), 560), (OTHER.to_owned(), 140)]);
    let found = fixture.store.reader.find(&id("job-9")).await.unwrap().unwrap();
    assert_eq!((found.record.job.broker(), found.due_ms()), (Some(OTHER), 1_000_000_000_000));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_comes_back_from_its_attempt_meanwhile_is_moved_too() {
    let fixture = Fixture::new().await;
    bring(&fixture, "dead", "dead", 1).await;
    fixture.put(request("out", 10, PAST)).await;
    let lease = fixture.claim_one().await;
    fixture.put(request("refused", 20, FAR)).await;
    let mut refused = 0;
    let done = fixture.store.admin.transfer(MAIN, OTHER, |id, record| match id.as_str() {
        // The waiting jobs were walked by now.
        "dead" => {
            let back = tokio::task::block_in_place(|| {
                tokio::runtime::Handle::current().block_on(fixture.retry(&lease, 1_000_000))
            });
            assert!(back);
            to_other(id, record)
        }
        "refused" => {
            refused += 1;
            None
        }
        _ => to_other(id, record),
    });
    let done = done.await.unwrap();
    assert_eq!((done.scheduled, done.dead, done.reserved, done.refused), (1, 1, 0, 1));
    assert_eq!(fixture.place("out").await, "due:other");
    assert_eq!(refused, 1, "it is said once");
}

#[tokio::test]
async fn a_full_redis_moves_them_too() {
    let options = RedisOptions {
        maxmemory: Some("12mb".to_owned()),
        maxmemory_policy: Some("noeviction".to_owned()),
        ..RedisOptions::default()
    };
    let server = RedisServer::start(options).await.unwrap();
    let fixture = Fixture::on(&server.url(), 1, &[MAIN, OTHER]).await;
    let mut stored = 0;
    loop {
        let mut large = request(&format!("job-{stored}"), stored, FAR);
        large.job.body = vec![b'x'; 50_000].into();
        if fixture.store.jobs.schedule(&[large]).await.is_err() {
            break;
        }
        stored += 1;
    }
    let done = fixture.store.admin.transfer(MAIN, OTHER, to_other).await.unwrap();
    assert_eq!(done.scheduled, stored);
}
