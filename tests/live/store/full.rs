//! A full Redis refuses new jobs and continues to drain. Damage is an error, never a panic.

use std::time::Duration;

use dwell::job::{Action, DeadReason, Verdict};
use dwell::request::{Act, NewJob, Origin, Request};
use dwell::store::error::Class;
use dwell::store::jobs::batch::RequestRef;
use dwell::store::jobs::settle::{Bury, Completion, SettleResult};
use dwell::store::meta::SweepRules;
use dwell_testkit::servers::{RedisOptions, RedisServer};

use super::fixture::{
    FAR, Fixture, KEEP, MAIN, PAST, RETRY, action, held, id, open, request, retry,
};
use super::lossy::Lossy;

async fn memory(fixture: &Fixture) -> u64 {
    let redis::Value::BulkString(info) = fixture.redis(&["INFO", "memory"]).await else { panic!() };
    let info = String::from_utf8(info).unwrap();
    info.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap().trim().parse().unwrap()
}

#[tokio::test]
async fn a_master_that_takes_no_writes_is_left_as_a_replica_is() {
    let server = RedisServer::start(RedisOptions::default()).await.unwrap();
    let fixture = Fixture::on(&server.url(), 1, &[MAIN]).await;
    fixture.put(request("before", 1, PAST)).await;
    fixture.redis(&["CONFIG", "SET", "min-replicas-to-write", "1"]).await;
    let error = fixture.store.jobs.schedule(&[request("job", 2, PAST)]).await.unwrap_err();
    assert_eq!(error.class, Class::Readonly, "{error}");
    // Behind one address there may be another master by now.
    let connections = async || fixture.redis(&["INFO", "stats"]).await;
    let count = |info: redis::Value| {
        let redis::Value::BulkString(info) = info else { panic!() };
        let info = String::from_utf8(info).unwrap();
        info.lines()
            .find_map(|line| line.strip_prefix("total_connections_received:"))
            .unwrap()
            .trim()
            .parse::<u64>()
            .unwrap()
    };
    let before = count(connections().await);
    assert_eq!(
        fixture.store.jobs.schedule(&[request("job", 2, PAST)]).await.unwrap_err().class,
        Class::Readonly
    );
    assert!(count(connections().await) > before);
    fixture.redis(&["CONFIG", "SET", "min-replicas-to-write", "0"]).await;
    fixture.put(request("job", 2, PAST)).await;
    assert_eq!(fixture.claim().await.jobs.len(), 2);
}

fn large(n: u64) -> NewJob {
    let mut request = request(&format!("job-{n}"), n, PAST);
    request.job.body = vec![b'x'; 50_000].into();
    request
}

#[tokio::test]
async fn a_full_redis_refuses_new_jobs_and_drains() {
    let options = RedisOptions {
        maxmemory: Some("12mb".to_owned()),
        maxmemory_policy: Some("noeviction".to_owned()),
        ..RedisOptions::default()
    };
    let server = RedisServer::start(options).await.unwrap();
    let fixture = Fixture::on(&server.url(), 1, &[MAIN]).await;
    let mut stored = 0;
    let error = loop {
        match fixture.store.jobs.schedule(&[large(stored)]).await {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.class, Class::Oom, "{error}");
    assert!(stored > 50, "{stored}");
    // Nothing of the refused batch is there, also of a small one among large ones.
    let before = fixture.dump().await;
    fixture.redis(&["CONFIG", "SET", "maxmemory", "1mb"]).await;
    assert_eq!(
        fixture
            .store
            .jobs
            .schedule(&[request("small", 10_000, FAR), large(10_001)])
            .await
            .unwrap_err()
            .class,
        Class::Oom
    );
    assert_eq!(fixture.dump().await, before);

    // A Dwell that starts now opens the namespace, beats, and finds the scripts missing.
    fixture.redis(&["SCRIPT", "FLUSH"]).await;
    let late = open(&fixture.settings, &[MAIN]).await;
    assert_eq!(late.beat("late").await.unwrap(), ["late"]);
    let full = memory(&fixture).await;

    // A claim whose answer is lost is taken back.
    let lossy = Lossy::beside(&fixture).await;
    lossy.lose_a_claim(&fixture, 5, std::time::Duration::ZERO).await;
    let jobs =
        lossy.store.jobs.claim(0, MAIN, super::fixture::LEASE, 10, 1 << 20).await.unwrap().jobs;
    assert_eq!(jobs.len(), 10);
    assert!(fixture.hold(&jobs[0], 0).await && fixture.hold(&jobs[1], 1_000_000).await);
    assert!(fixture.release(&jobs[2], true).await);
    assert!(fixture.retry(&jobs[3], 1_000_000).await);
    let bury = Bury { job: held(&jobs[4]), reason: DeadReason::Invalid, error: String::new() };
    assert_eq!(fixture.store.jobs.bury(0, &[bury]).await.unwrap(), [SettleResult::Settled]);
    assert!(fixture.complete(&jobs[5]).await);
    assert_eq!(
        fixture.store.jobs.rescue(0, Duration::ZERO, 128, 1 << 20).await.unwrap().jobs.len(),
        1
    );
    let mut message = 20_000;
    let mut act = async |what, id: &str| {
        message += 1;
        fixture.act(&action(what, id, message)).await
    };
    assert_eq!(act(Action::Finish, jobs[0].id.as_str()).await, Verdict::Finished);
    assert_eq!(act(Action::Fail, jobs[1].id.as_str()).await, Verdict::Failed);
    assert_eq!(act(Action::Cancel, jobs[6].id.as_str()).await, Verdict::InFlight);
    // Actions that would grow the store are refused: also a message whose verdict must be kept, but
    // no call.
    let refused =
        [(Action::Reschedule, 2), (Action::Fire, 3), (Action::Requeue, 4), (Action::Fire, 5)];
    let mut words: Vec<_> = refused
        .iter()
        .zip(30_000..)
        .map(|((what, at), n)| action(*what, jobs[*at].id.as_str(), n))
        .collect();
    words.push(action(Action::Cancel, "nobody", 30_100));
    let before = fixture.dump().await;
    for word in &words {
        assert_eq!(
            fixture.store.jobs.act(word, RETRY).await.map_err(|error| error.class).unwrap_err(),
            Class::Oom,
            "{word:?}"
        );
    }
    for (word, verdict) in words[3..].iter().zip([Verdict::Fired, Verdict::NotFound]) {
        let origin = Origin { is_message: false, ..word.origin };
        assert_eq!(fixture.act(&Act { origin, ..word.clone() }).await, verdict);
    }
    assert_eq!(fixture.dump().await, before);
    fixture.redis(&["HDEL", &fixture.key("state"), ""]).await;
    assert!(fixture.store.admin.sweep(0, KEEP).await.unwrap().master_changed);
    loop {
        let jobs: Vec<_> = fixture.claim().await.jobs.iter().map(held).collect();
        if jobs.is_empty() {
            break;
        }
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
    assert!(memory(&fixture).await < full / 2, "{} of {full}", memory(&fixture).await);
    fixture.redis(&["CONFIG", "SET", "maxmemory", "12mb"]).await;
    assert_eq!(fixture.put(large(30_000)).await, Verdict::Added);
}

#[tokio::test]
async fn words_on_unknown_ids_do_not_grow_a_full_redis() {
    let options = RedisOptions {
        maxmemory: Some("100mb".to_owned()),
        maxmemory_policy: Some("noeviction".to_owned()),
        ..RedisOptions::default()
    };
    let server = RedisServer::start(options).await.unwrap();
    let fixture = Fixture::on(&server.url(), 1, &[MAIN]).await;
    fixture.put(request("a", 1, PAST)).await;
    fixture.redis(&["CONFIG", "SET", "maxmemory", "1mb"]).await;
    let before = memory(&fixture).await;
    for round in 0..10 {
        let words: Vec<Request> = (0..1000)
            .map(|n| {
                Request::Act(action(Action::Cancel, &format!("nobody-{n}"), 10 + round * 1000 + n))
            })
            .collect();
        let asked: Vec<RequestRef<'_>> = words.iter().map(RequestRef::from).collect();
        let answers = fixture.store.jobs.apply(&asked, RETRY).await.answers;
        assert!(
            answers.iter().all(|answer| matches!(answer, Err(error) if error.class == Class::Oom)),
            "{:?}",
            answers[0]
        );
    }
    let grown = memory(&fixture).await.saturating_sub(before);
    assert!(grown < 300_000, "10 000 words added {grown} bytes");
    assert!(fixture.complete(&fixture.claim_one().await).await);
}

#[tokio::test]
async fn a_full_redis_forgets_the_jobs_whose_window_is_over() {
    let options = RedisOptions {
        maxmemory: Some("100mb".to_owned()),
        maxmemory_policy: Some("noeviction".to_owned()),
        ..RedisOptions::default()
    };
    let server = RedisServer::start(options).await.unwrap();
    let fixture = Fixture::on(&server.url(), 1, &[MAIN]).await;
    for n in 0..20 {
        fixture.put(request(&format!("job-{n}"), n, PAST)).await;
    }
    let limit =
        async |bytes: &str| drop(fixture.redis(&["CONFIG", "SET", "maxmemory", bytes]).await);
    let rules = SweepRules { dedupe_window_ms: 60_000, ..KEEP };
    for _ in 0..2 {
        let claimed =
            fixture.store.jobs.claim(0, MAIN, super::fixture::LEASE, 10, 1 << 20).await.unwrap();
        limit("1mb").await;
        let jobs: Vec<_> = claimed.jobs.iter().map(held).collect();
        let settled = fixture.store.jobs.complete(0, &jobs, Completion::Fired).await.unwrap();
        assert!(settled.iter().all(|stood| *stood == SettleResult::Settled));
        // The window of the newer table is over, and nothing new arrives.
        limit("100mb").await;
        fixture.redis(&["HSET", &fixture.key("completed"), "", "1"]).await;
        limit("1mb").await;
        assert_eq!(fixture.store.admin.sweep(0, rules).await.unwrap().turned, 1);
        assert_eq!(
            fixture.act(&Act::new(Action::Fire, claimed.jobs[0].id.clone())).await,
            Verdict::Fired
        );
        limit("100mb").await;
    }
    assert_eq!(fixture.act(&Act::new(Action::Fire, id("job-0"))).await, Verdict::NotFound);
    // So is that of the older one.
    fixture.redis(&["HSET", &fixture.key("completed_old"), "", "1"]).await;
    limit("1mb").await;
    assert_eq!(fixture.store.admin.sweep(0, rules).await.unwrap().turned, 1);
    assert_eq!(
        fixture.redis(&["EXISTS", &fixture.key("completed"), &fixture.key("completed_old")]).await,
        redis::Value::Int(0)
    );
}

#[tokio::test]
async fn a_redis_that_evicts_jobs_is_refused() {
    for (policy, refused) in [
        ("allkeys-lru", true),
        ("allkeys-random", true),
        ("volatile-lru", false),
        ("noeviction", false),
    ] {
        let options = RedisOptions {
            maxmemory: Some("12mb".to_owned()),
            maxmemory_policy: Some(policy.to_owned()),
            ..RedisOptions::default()
        };
        let server = RedisServer::start(options).await.unwrap();
        let settings = super::fixture::settings(&server.url(), "evicts", 16);
        let opened = dwell::store::Store::open(
            &settings,
            &[],
            std::sync::Arc::new(dwell::store::Unobserved),
        )
        .await;
        match opened {
            Ok(_) => assert!(!refused, "{policy}"),
            Err(error) => assert!(
                refused && error.class == Class::Settings && error.hint.contains("noeviction"),
                "{policy}: {error}"
            ),
        }
    }
}

#[tokio::test]
async fn a_key_of_another_type_is_an_error() {
    for name in [
        "jobs",
        "state",
        "claim_deadlines",
        "claims",
        "settled",
        "held",
        "dead",
        "due:main",
        "completed",
        "completed_old",
        "applied",
        "applied_old",
    ] {
        let fixture = Fixture::new().await;
        for n in 0..4 {
            fixture.put(request(&format!("job-{n}"), n, PAST)).await;
        }
        let lease = fixture
            .store
            .jobs
            .claim(0, MAIN, super::fixture::LEASE, 1, 1)
            .await
            .unwrap()
            .jobs
            .remove(0);
        fixture.redis(&["DEL", &fixture.key(name)]).await;
        fixture.redis(&["SET", &fixture.key(name), "damage"]).await;
        let mut errors = Vec::new();
        errors.extend(fixture.store.jobs.schedule(&[request("job-1", 9, FAR)]).await.err());
        errors.extend(
            fixture.store.jobs.claim(0, MAIN, super::fixture::LEASE, 10, 1 << 20).await.err(),
        );
        errors.extend(fixture.store.jobs.rescue(0, super::fixture::LEASE, 10, 1 << 20).await.err());
        errors
            .extend(fixture.store.jobs.complete(0, &[held(&lease)], Completion::Fired).await.err());
        errors.extend(fixture.store.jobs.retry(0, MAIN, &[retry(&lease, 0)]).await.err());
        errors.extend(fixture.store.admin.sweep(0, KEEP).await.err());
        for what in [Action::Cancel, Action::Fire, Action::Fail] {
            errors.extend(fixture.store.jobs.act(&action(what, "job-2", 10), RETRY).await.err());
        }
        assert!(!errors.is_empty(), "{name}");
        for error in &errors {
            // A read outside the scripts has no script to name.
            assert!(
                matches!(error.class, Class::Script | Class::Other)
                    && error.message.contains("WRONGTYPE"),
                "{name}: {:?} {error}",
                error.class
            );
        }
        let _ = fixture.store.reader.counts(&[60]).await;
        let _ = fixture.store.reader.find(&super::fixture::id("job-3")).await;
    }
}

#[tokio::test]
async fn a_state_that_is_cut_off_holds_up_no_other_job() {
    let fixture = Fixture::new().await;
    fixture.put(request("cut", 1, PAST)).await;
    let lease = fixture.claim_one().await;
    assert!(fixture.release(&lease, false).await);
    fixture.redis(&["HSET", &fixture.key("state"), "cut", "\u{1}..."]).await;
    fixture.put(request("whole", 2, PAST)).await;
    let taken = fixture.claim().await;
    assert_eq!((taken.jobs.len(), taken.jobs[0].id.as_str(), taken.unknown), (1, "whole", 1));
    assert_eq!(fixture.place("cut").await, "due:main");
    // A new schedule of that id is refused, and the rest of its batch is not.
    let error = fixture
        .store
        .jobs
        .schedule(&[request("cut", 3, PAST), request("new", 4, FAR)])
        .await
        .unwrap_err();
    assert!(error.is_unreadable(), "{error}");
    assert_eq!(
        (fixture.place("cut").await, fixture.place("new").await),
        ("due:main".to_owned(), "due:main".to_owned())
    );
}

#[tokio::test]
async fn a_record_that_cannot_be_read_has_a_verdict_for_each_action() {
    let fixture = Fixture::new().await;
    fixture.put(request("a", 1, PAST)).await;
    let redis::Value::BulkString(mut record) =
        fixture.redis(&["HGET", &fixture.key("jobs"), "a"]).await
    else {
        panic!()
    };
    record[42..52].fill(0xc1);
    let mut link = fixture.raw.clone();
    let _: () = redis::cmd("HSET")
        .arg(fixture.key("jobs"))
        .arg("a")
        .arg(record)
        .query_async(&mut link)
        .await
        .unwrap();
    let broken = fixture.claim().await.broken.remove(0);
    let bury = Bury { job: broken.token(), reason: DeadReason::Invalid, error: broken.why };
    assert_eq!(fixture.store.jobs.bury(0, &[bury]).await.unwrap(), [SettleResult::Settled]);
    // An action that is an error is tried for ever by the ingest that read it.
    for (message, (what, verdict)) in [
        (Action::Fire, Verdict::Dead),
        (Action::Fail, Verdict::Dead),
        (Action::Cancel, Verdict::CancelledAfterAttempt),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(fixture.act(&action(what, "a", 10 + message as u64)).await, verdict, "{what:?}");
    }
}
