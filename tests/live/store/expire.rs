//! Jobs with an expiry: what a sweep, a lease and an action make of them.

use std::collections::BTreeSet;

use dwell::events::{JobEvent, Observer};
use dwell::job::{Action, DeadReason, Due, Expire, Job, Late, Verdict};
use dwell::policy::late::LateRules;
use dwell::request::NewJob;
use dwell::store::jobs::acknowledge::{Acknowledgement, LeaseAction, LeaseVerdict};
use dwell::store::jobs::batch::RequestRef;
use dwell::store::jobs::pop::{PopLimits, Popped};
use dwell::store::reader::lookup::{JobState, StoredJob};
use dwell_testkit::servers::{RedisOptions, RedisServer};
use parking_lot::Mutex;

use super::fixture::{FAR, Fixture, MAIN, PAST, action, id, job};

const HOUR: u64 = 3_600_000;
/// Long ago, epoch ms.
const AGO: i64 = 1_000_000_000_000;

/// The ids and reasons of the deaths, and the ids of the drops.
#[derive(Default)]
struct EndObserver(Mutex<BTreeSet<(String, &'static str)>>);

impl Observer for EndObserver {
    fn observe(&self, event: &JobEvent<'_>) {
        let (id, what) = match event {
            JobEvent::Dead { id, reason, .. } => (id, reason.as_str()),
            JobEvent::Dropped { id, .. } => (id, "dropped"),
            _ => return,
        };
        self.0.lock().insert((id.as_str().to_owned(), what));
    }
}

async fn put(fixture: &Fixture, name: &str, job: Job, due: Due, expire: Expire) {
    let job = Job { expire: Some(expire), ..job };
    let added = fixture.put(NewJob::new(job, due).id(id(name))).await;
    assert_eq!(added, Verdict::Added, "{name}");
}

fn of_queue() -> Job {
    Job::for_queue("q", "body")
}

async fn sweep(fixture: &Fixture) -> BTreeSet<(String, &'static str)> {
    let told = EndObserver::default();
    fixture.store.jobs.end_jobs(0, LateRules::default(), &told).await.unwrap();
    told.0.into_inner()
}

async fn find(fixture: &Fixture, name: &str) -> StoredJob {
    fixture.store.reader.find(&id(name)).await.unwrap().unwrap()
}

async fn fate(fixture: &Fixture, name: &str) -> (JobState, Option<DeadReason>) {
    let found = find(fixture, name).await;
    (found.state, found.state_record.and_then(|state| state.reason))
}

async fn entries(fixture: &Fixture) -> BTreeSet<String> {
    let entries = fixture.redis(&["ZRANGE", &fixture.key("ends"), "0", "-1"]).await;
    redis::from_redis_value(entries).unwrap()
}

#[tokio::test]
async fn a_sweep_ends_what_waits_past_its_expiry() {
    let fixture = Fixture::new().await;
    let after = Expire::After(1);
    put(&fixture, "queue", of_queue(), PAST, after).await;
    put(&fixture, "broker", job("body"), PAST, after).await;
    put(&fixture, "before its due time", of_queue(), FAR, Expire::At(AGO)).await;
    put(&fixture, "later", of_queue(), PAST, Expire::After(1 << 42)).await;
    put(&fixture, "scheduled", of_queue(), FAR, after).await;
    let dropped = Job { late: Some(Late::Drop), max_late_ms: Some(5), ..job("body") };
    put(&fixture, "too late", dropped, PAST, after).await;
    fixture.put(NewJob::new(of_queue(), PAST).id(id("never"))).await;
    assert!(!entries(&fixture).await.contains("never"), "it pays nothing");

    let told = |name: &str, what| (name.to_owned(), what);
    let expected = [
        told("queue", "expired"),
        told("before its due time", "expired"),
        told("too late", "dropped"),
    ];
    assert_eq!(sweep(&fixture).await, BTreeSet::from(expected));
    let expired = Some(DeadReason::Expired);
    assert_eq!(fate(&fixture, "queue").await, (JobState::Dead, expired));
    assert_eq!(fate(&fixture, "before its due time").await, (JobState::Dead, expired));
    for (name, state) in
        [("later", JobState::Ready), ("scheduled", JobState::Scheduled), ("never", JobState::Ready)]
    {
        assert_eq!(fate(&fixture, name).await, (state, None), "{name}");
    }
    assert!(fixture.store.reader.find(&id("too late")).await.unwrap().is_none());
    // The dead letter comes first.
    assert_eq!(fate(&fixture, "broker").await, (JobState::Scheduled, expired));
    let dying = fixture.claim_one().await;
    assert_eq!(
        (dying.id.as_str(), dying.state.reason, dying.state.attempt),
        ("broker", expired, 0)
    );
    assert!(dying.state.last_error.contains("its expiry"), "{}", dying.state.last_error);
    assert_eq!(sweep(&fixture).await, BTreeSet::new(), "once");
}

#[tokio::test]
async fn a_job_with_an_end_of_its_own_expires_too() {
    let fixture = Fixture::new().await;
    let ending = |remove_at_ms| Job { remove_at_ms: Some(remove_at_ms), ..of_queue() };
    put(&fixture, "expires", ending(4_000_000_000_000), PAST, Expire::After(1)).await;
    put(&fixture, "ends", ending(AGO), PAST, Expire::After(1 << 42)).await;
    let expected = BTreeSet::from([("expires".to_owned(), "expired")]);
    assert_eq!(sweep(&fixture).await, expected, "the end is silent");
    assert_eq!(fate(&fixture, "expires").await, (JobState::Dead, Some(DeadReason::Expired)));
    assert!(fixture.store.reader.find(&id("ends")).await.unwrap().is_none());
    assert_eq!(entries(&fixture).await, BTreeSet::from(["expires".to_owned()]));
}

#[tokio::test]
async fn a_cancelled_job_leaves_the_index() {
    let fixture = Fixture::new().await;
    put(&fixture, "cancelled", of_queue(), FAR, Expire::After(1)).await;
    put(&fixture, "stays", job("body"), FAR, Expire::After(1)).await;
    assert_eq!(entries(&fixture).await.len(), 2);
    let cancelled = fixture.act(&action(Action::Cancel, "cancelled", 1)).await;
    assert_eq!(cancelled, Verdict::Cancelled);
    assert_eq!(entries(&fixture).await, BTreeSet::from(["stays".to_owned()]));
}

#[tokio::test]
async fn a_fail_by_a_message_tells_that_the_expiry_ended_the_job() {
    let fixture = Fixture::new().await;
    let table = [
        ("expires", vec![2 * HOUR], vec![0_usize], DeadReason::Expired),
        ("ends", vec![], vec![], DeadReason::Failed),
    ];
    for (message, (name, waits, expired, reason)) in (1..).zip(table) {
        let job = Job { retry: Some(waits), ..of_queue() };
        put(&fixture, name, job, Due::NOW, Expire::After(HOUR)).await;
        assert_eq!(take(&fixture).await.id, id(name));
        let fail = action(Action::Fail, name, message);
        let applied = fixture.store.jobs.apply(&[RequestRef::Act(&fail)], &[]).await;
        let answer = applied.answers[0].as_ref().unwrap();
        assert_eq!((answer.verdict, answer.is_death()), (Verdict::Dead, true), "{name}");
        assert_eq!(applied.expired, expired, "{name}");
        assert_eq!(fate(&fixture, name).await, (JobState::Dead, Some(reason)), "{name}");
    }
}

#[tokio::test]
async fn a_job_that_is_out_is_left_alone() {
    let fixture = Fixture::new().await;
    put(&fixture, "broker", job("body"), PAST, Expire::After(1)).await;
    put(&fixture, "queue", of_queue(), PAST, Expire::After(1)).await;
    let claimed = fixture.claim_one().await;
    let popped = take(&fixture).await;
    assert_eq!(sweep(&fixture).await, BTreeSet::new());
    assert!(fixture.complete(&claimed).await, "a confirm counts");
    assert_eq!(say(&fixture, &popped, LeaseAction::Finish).await, LeaseVerdict::Finished);
}

#[tokio::test]
async fn an_action_begins_the_expiry_anew() {
    let fixture = Fixture::new().await;
    for (name, expire) in [("span", Expire::After(HOUR)), ("time", Expire::At(AGO + 1))] {
        put(&fixture, name, of_queue(), PAST, expire).await;
    }
    assert_eq!(sweep(&fixture).await.len(), 2);
    for (message, name) in (1..).zip(["span", "time"]) {
        let requeued = fixture.act(&action(Action::Requeue, name, message)).await;
        assert_eq!(requeued, Verdict::Requeued);
    }
    assert_eq!(sweep(&fixture).await, BTreeSet::new(), "the time has no meaning any more");
    let now_ms = fixture.store.read_clock().await.unwrap() / 1000;
    let anew = async |name: &str| find(&fixture, name).await.state_record.unwrap().anew_ms.unwrap();
    assert!((now_ms - 60_000..=now_ms).contains(&anew("span").await));

    // An overdue job that is fired has its whole time again.
    put(&fixture, "fired", of_queue(), PAST, Expire::After(HOUR)).await;
    assert_eq!(fixture.act(&action(Action::Fire, "fired", 3)).await, Verdict::Firing);
    assert_eq!(sweep(&fixture).await, BTreeSet::new());
    assert!((now_ms..now_ms + 60_000).contains(&anew("fired").await));
    assert_eq!(
        find(&fixture, "fired").await.state_record.unwrap().due_ms,
        AGO,
        "as consumers know it"
    );

    put(&fixture, "moved", of_queue(), PAST, Expire::At(AGO + 1)).await;
    let rescheduled = fixture.act(&action(Action::Reschedule, "moved", 4)).await;
    assert_eq!(rescheduled, Verdict::Rescheduled);
    assert_eq!(sweep(&fixture).await, BTreeSet::new());
    assert_eq!(anew("moved").await, 4_000_000_000_000);
    // A job without an expiry has nothing more in its state.
    fixture.put(NewJob::new(of_queue(), FAR).id(id("plain"))).await;
    fixture.act(&action(Action::Fire, "plain", 5)).await;
    assert_eq!(find(&fixture, "plain").await.state_record.unwrap().anew_ms, None);
}

async fn take(fixture: &Fixture) -> Popped {
    let limits = PopLimits {
        ttr_ms: Some(600_000),
        max_ttr_ms: 600_000,
        most: 1,
        most_bytes: 1 << 20,
        room: None,
    };
    fixture.store.jobs.pop(rand::random(), 0, "q", limits).await.unwrap().jobs.remove(0)
}

async fn say(fixture: &Fixture, job: &Popped, action: LeaseAction) -> LeaseVerdict {
    let word = Acknowledgement { id: job.id.clone(), lease: job.lease.clone(), action };
    fixture.store.jobs.acknowledge(&[word]).await.remove(0).unwrap().verdict
}

#[tokio::test]
async fn a_wait_of_a_consumer_past_the_expiry_is_not_begun() {
    let fixture = Fixture::new().await;
    let fail = |wait_ms| LeaseAction::Fail { wait_ms: Some(wait_ms), error: "no".to_owned() };
    let expired = (JobState::Dead, Some(DeadReason::Expired));
    let table = [
        ("fails", fail(2 * HOUR), LeaseVerdict::Dead, expired),
        ("waits", fail(60_000), LeaseVerdict::Failed, (JobState::Scheduled, None)),
        ("released", LeaseAction::Release { wait_ms: 2 * HOUR }, LeaseVerdict::Dead, expired),
    ];
    for (name, action, verdict, expected) in table {
        put(&fixture, name, of_queue(), Due::NOW, Expire::After(HOUR)).await;
        let popped = take(&fixture).await;
        assert_eq!(popped.id, id(name));
        for _ in 0..2 {
            assert_eq!(say(&fixture, &popped, action.clone()).await, verdict, "{name}");
        }
        assert_eq!(fate(&fixture, name).await, expected, "{name}");
    }
    let failed = find(&fixture, "fails").await.state_record.unwrap();
    assert_eq!(failed.last_error, "no");
}

#[tokio::test]
async fn jobs_expire_in_a_full_redis() {
    let options = RedisOptions {
        maxmemory: Some("100mb".to_owned()),
        maxmemory_policy: Some("noeviction".to_owned()),
        ..RedisOptions::default()
    };
    let server = RedisServer::start(options).await.unwrap();
    let fixture = Fixture::on(&server.url(), 1, &[MAIN]).await;
    put(&fixture, "queue", of_queue(), PAST, Expire::After(1)).await;
    put(&fixture, "broker", job("body"), PAST, Expire::After(1)).await;
    fixture.redis(&["CONFIG", "SET", "maxmemory", "1mb"]).await;
    assert_eq!(sweep(&fixture).await, BTreeSet::from([("queue".to_owned(), "expired")]));
    let expired = Some(DeadReason::Expired);
    assert_eq!(fate(&fixture, "queue").await, (JobState::Dead, expired));
    assert_eq!(fate(&fixture, "broker").await, (JobState::Scheduled, expired));
    assert_eq!(sweep(&fixture).await, BTreeSet::new(), "the entries stay, and the jobs died once");
}
