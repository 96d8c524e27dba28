//! A namespace of schema 1, in which each claimed job had a lease of its own in `run`.

use std::sync::Arc;
use std::time::Duration;

use dwell::job::{Action, Verdict};
use dwell::store::error::Class;
use dwell::store::queue::settle::{Release, Retry, SettleResult};
use dwell::store::record::State;
use dwell::store::{Store, Unobserved};
use dwell_testkit::servers::{RedisOptions, RedisServer};

use super::fixture::{FAR, Fixture, LEASE, MAIN, action, held, id, request};
use crate::support::wait_until;

/// Makes a job as an instance of schema 1 leaves it: in `run`, with these flags and this deadline, epoch
/// ms.
async fn claimed_before(fixture: &Fixture, name: &str, flags: u8, deadline_ms: i64) {
    fixture.put(request(name, u64::from(flags), FAR)).await;
    let record = fixture.store.reader.find(&id(name)).await.unwrap().unwrap().record;
    let crashes = u8::from(flags == 2);
    let state = State {
        held: false,
        counted: false,
        crashes,
        attempt: 1,
        step: 0,
        due_ms: 4_000_000_000_000,
        generation: record.generation,
        fingerprint: record.fingerprint,
        marks: 0,
        reason: None,
        last_error: String::new(),
    };
    let mut bytes = state.encode();
    bytes[1] = flags;
    bytes[17..25].copy_from_slice(b"thefence");
    let mut raw = fixture.raw.clone();
    let () = redis::pipe()
        .zrem(fixture.key("due:main"), name)
        .zadd(fixture.key("run"), name, deadline_ms)
        .hset(fixture.key("state"), name, bytes)
        .hset(fixture.store.keys().meta(), "schema", "1")
        .query_async::<redis::Value>(&mut raw)
        .await
        .map(drop)
        .unwrap();
}

async fn open(fixture: &Fixture) -> Store {
    Store::open(&fixture.settings, &[MAIN.to_owned()], Arc::new(Unobserved)).await.unwrap()
}

#[tokio::test]
async fn what_was_claimed_or_held_is_taken_over_when_its_time_is_over() {
    let fixture = Fixture::new().await;
    for (name, flags) in [("claimed", 0), ("held", 1), ("taken over", 2)] {
        claimed_before(&fixture, name, flags, 5).await;
    }
    claimed_before(&fixture, "in time", 1, 4_000_000_000_000).await;
    let error = Store::attach(&fixture.settings).await.err().unwrap();
    assert!(error.message.contains("schema 1") && error.hint.contains("dwell run"), "{error} {}", error.hint);
    // Two instances at once.
    let (store, _) = tokio::join!(open(&fixture), open(&fixture));
    assert_eq!(store.reader.counts(&[]).await.unwrap().reserved, [4]);
    assert_eq!(fixture.place("in time").await, "held");
    assert_eq!(fixture.act(&action(Action::Finish, "in time", 90)).await, Verdict::Finished);

    let mut taken = store.queue.rescue(0, LEASE, 128, 1 << 20).await.unwrap().jobs;
    taken.sort_by(|one, other| one.id.as_str().cmp(other.id.as_str()));
    let told: Vec<_> = taken.iter().map(|lease| (lease.id.as_str(), lease.state.held, lease.state.attempt, lease.state.crashes)).collect();
    assert_eq!(told, [("claimed", false, 1, 1), ("held", true, 1, 0), ("taken over", false, 1, 1)]);
    // The next attempt has the next number.
    let back = |lease| Release { job: held(lease), pause_ms: 0, unpublished: false };
    let answers = store.queue.release(0, MAIN, &[back(&taken[0]), back(&taken[2])]).await.unwrap();
    assert_eq!(answers, [SettleResult::Settled; 2]);
    let retry = Retry { job: held(&taken[1]), wait_ms: 0, unpublished: false, dies: None, error: String::new() };
    assert_eq!(store.queue.retry(0, MAIN, &[retry]).await.unwrap(), [SettleResult::Settled]);
    let again = store.queue.claim(0, MAIN, LEASE, 128, 1 << 20).await.unwrap().jobs;
    assert!(again.len() == 3 && again.iter().all(|lease| lease.state.attempt == 2), "{again:?}");
}

#[tokio::test]
async fn an_instance_of_the_former_schema_changes_nothing_any_more() {
    let fixture = Fixture::new().await;
    for n in 0..300 {
        claimed_before(&fixture, &format!("job-{n}"), 0, 5).await;
    }
    open(&fixture).await;
    assert_eq!(fixture.store.reader.counts(&[]).await.unwrap().reserved, [300]);
    // The first command of each of its scripts on its leases.
    let mut raw = fixture.raw.clone();
    let error = redis::cmd("ZCARD").arg(fixture.key("run")).query_async::<i64>(&mut raw).await.unwrap_err();
    assert!(error.to_string().contains("WRONGTYPE"), "{error}");
    // A namespace of this schema is opened without another look.
    open(&fixture).await;
    wait_until("all are taken over", async || {
        let taken = fixture.store.queue.rescue(0, Duration::from_secs(600), 128, 1 << 20).await.unwrap();
        taken.jobs.is_empty().then_some(())
    })
    .await;
    assert_eq!(fixture.store.reader.counts(&[]).await.unwrap().reserved, [300]);
}

#[tokio::test]
async fn an_upgrade_waits_for_the_end_of_the_former_instances() {
    let fixture = Fixture::new().await;
    claimed_before(&fixture, "job", 0, 5).await;
    let (instances, now_ms) = (fixture.store.keys().instances(), fixture.store.now_ms().to_string());
    fixture.redis(&["ZADD", &instances, &now_ms, "former main"]).await;
    let error = Store::open(&fixture.settings, &[], Arc::new(Unobserved)).await.err().unwrap();
    assert!(error.class == Class::Unserved && error.message.contains("1 instances of the former version"), "{error}");
    let kept = fixture.redis(&["ZCARD", &fixture.key("run")]).await;
    assert_eq!(kept, redis::Value::Int(1), "nothing has changed");
    fixture.redis(&["ZREM", &instances, "former main"]).await;
    open(&fixture).await;
    assert_eq!(fixture.place("job").await, "held");
}

#[tokio::test]
async fn a_full_redis_is_upgraded_too() {
    let server = RedisServer::start(RedisOptions::default()).await.unwrap();
    let fixture = Fixture::on(&server.url(), 1, &[MAIN]).await;
    claimed_before(&fixture, "job", 0, 5).await;
    fixture.redis(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let store = open(&fixture).await;
    let taken = store.queue.rescue(0, LEASE, 128, 1 << 20).await.unwrap().jobs;
    assert_eq!((taken.len(), taken[0].id.as_str()), (1, "job"));
}
