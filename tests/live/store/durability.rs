//! The durability wait: the demand of each level on each server, refusals, and a wait that falls
//! short.

use std::path::PathBuf;
use std::sync::Arc;

use dwell::config::{Durability, Redis};
use dwell::job::{Action, Verdict};
use dwell::store::client::RedisClient;
use dwell::store::error::{Class, StoreError};
use dwell::store::gate::{Wait, waits_of};
use dwell::store::{Store, Unobserved, server_facts};
use dwell_testkit::servers::{AppendFsync, RedisOptions, RedisServer, find};

use super::fixture::{FAR, MAIN, PAST, RETRY, action, open, request, settings};
use crate::support::redis_link;

fn at(server: &RedisServer, durability: Durability) -> Redis {
    Redis { durability, ..settings(&server.url(), "gate", 4) }
}

async fn wait_of(settings: &Redis) -> Result<Wait, StoreError> {
    waits_of(settings, &server_facts::facts(&RedisClient::new(settings)).await.unwrap())
}

async fn start(program: Option<PathBuf>, appendonly: Option<AppendFsync>) -> RedisServer {
    RedisServer::start(RedisOptions { program, appendonly, ..RedisOptions::default() })
        .await
        .unwrap()
}

async fn replica_of(master: &RedisServer, program: Option<PathBuf>) -> RedisServer {
    RedisServer::start(RedisOptions {
        program,
        replica_of: Some(master.port()),
        ..RedisOptions::default()
    })
    .await
    .unwrap()
}

/// Returns the number of calls of this command that the server got.
async fn calls(server: &RedisServer, command: &str) -> u64 {
    let stats: String = redis::cmd("INFO")
        .arg("commandstats")
        .query_async(&mut redis_link(&server.url()).await)
        .await
        .unwrap();
    let line = stats
        .lines()
        .find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")))
        .unwrap_or("0,");
    line.split(',').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn fsync_needs_a_server_that_fsyncs_before_it_answers_or_can_be_waited_for() {
    let always = start(None, Some(AppendFsync::Always)).await;
    let facts =
        server_facts::facts(&RedisClient::new(&at(&always, Durability::Fsync))).await.unwrap();
    let of = |waitaof| {
        waits_of(
            &at(&always, Durability::Fsync),
            &server_facts::ServerFacts { waitaof, ..facts.clone() },
        )
        .unwrap()
    };
    // Where it can be waited for, it is: who takes over may be set up otherwise.
    assert_eq!([of(false), of(true)], [Wait::None, Wait::Aof(0)]);

    // A Redis that has no WAITAOF; a newer one on this machine would be waited for instead.
    let everysec = start(None, Some(AppendFsync::EverySec)).await;
    let facts =
        server_facts::facts(&RedisClient::new(&at(&everysec, Durability::Fsync))).await.unwrap();
    assert_eq!((facts.aof, facts.appendfsync.as_deref()), (true, Some("everysec")));
    let old = server_facts::ServerFacts { waitaof: false, ..facts };
    let error = waits_of(&at(&everysec, Durability::Fsync), &old).unwrap_err();
    assert!(error.class == Class::Settings && error.message.contains("everysec"), "{error}");
    assert!(
        error.hint.contains("appendfsync always") && error.hint.contains("7.2"),
        "{}",
        error.hint
    );
    let assumed = Redis { assume_fsync: true, ..at(&everysec, Durability::Fsync) };
    assert_eq!(waits_of(&assumed, &old).unwrap(), Wait::None);

    let memory = start(None, None).await;
    let error = wait_of(&at(&memory, Durability::Fsync)).await.unwrap_err();
    assert!(
        error.class == Class::Settings && error.hint.contains("appendonly yes"),
        "{error} {}",
        error.hint
    );
    assert_eq!(wait_of(&at(&memory, Durability::Memory)).await.unwrap(), Wait::None);
    let error = Store::open(&at(&memory, Durability::Fsync), &[], Arc::new(Unobserved))
        .await
        .err()
        .unwrap();
    assert_eq!(error.class, Class::Settings);
}

#[tokio::test]
async fn what_was_stored_under_fsync_is_there_after_a_kill() {
    let mut server = start(None, Some(AppendFsync::Always)).await;
    let store = open(&at(&server, Durability::Fsync), &[MAIN]).await;
    let batch: Vec<_> = (0..100).map(|n| request(&format!("job-{n}"), n, FAR)).collect();
    store.jobs.schedule(&batch).await.unwrap();
    store.jobs.act(&action(Action::Cancel, "job-0", 1000), RETRY).await.unwrap();
    server.kill().unwrap();
    server.restart().await.unwrap();
    let store = open(&at(&server, Durability::Fsync), &[MAIN]).await;
    assert_eq!(store.reader.counts(&[]).await.unwrap().scheduled.iter().sum::<u64>(), 99);
    assert_eq!((calls(&server, "wait").await, calls(&server, "waitaof").await), (0, 0));
}

#[tokio::test]
async fn where_there_is_waitaof_it_is_waited_for() {
    let program = find::redis_server_waitaof().unwrap();
    let server = start(Some(program.clone()), Some(AppendFsync::EverySec)).await;
    assert_eq!(wait_of(&at(&server, Durability::Fsync)).await.unwrap(), Wait::Aof(0));
    let store = open(&at(&server, Durability::Fsync), &[MAIN]).await;
    assert_eq!(
        store.jobs.schedule(&[request("a", 1, FAR)]).await.unwrap().answers[0].verdict,
        Verdict::Added
    );
    let before = calls(&server, "waitaof").await;
    assert!(before > 0);
    assert_eq!(
        store.jobs.act(&action(Action::Cancel, "a", 2), RETRY).await.unwrap().verdict,
        Verdict::Cancelled
    );
    assert!(calls(&server, "waitaof").await > before);

    assert!(wait_of(&at(&server, Durability::FsyncReplica)).await.is_err());
    let _replica = RedisServer::start(RedisOptions {
        program: Some(program),
        appendonly: Some(AppendFsync::EverySec),
        replica_of: Some(server.port()),
        ..RedisOptions::default()
    })
    .await
    .unwrap();
    assert_eq!(wait_of(&at(&server, Durability::FsyncReplica)).await.unwrap(), Wait::Aof(1));
    let store = open(&at(&server, Durability::FsyncReplica), &[MAIN]).await;
    assert_eq!(
        store.jobs.schedule(&[request("b", 3, FAR)]).await.unwrap().answers[0].verdict,
        Verdict::Added
    );
}

#[tokio::test]
async fn scores_read_the_same_on_every_server() {
    // Newer servers write round numbers as 4e+12.
    let server = start(Some(find::redis_server_waitaof().unwrap()), None).await;
    let fixture = super::fixture::Fixture::on(&server.url(), 1, &[MAIN]).await;
    fixture.put(request("a", 1, FAR)).await;
    fixture.put(request("b", 2, PAST)).await;
    assert_eq!(fixture.one(request("a", 1, FAR)).await.due_ms, Some(4_000_000_000_000));
    let taken = fixture.claim().await;
    assert_eq!((taken.jobs.len(), taken.next_ms), (1, Some(4_000_000_000_000)));
    assert!(fixture.hold(&taken.jobs[0], 4_000_000).await);
    assert!(
        fixture
            .store
            .jobs
            .rescue(0, super::fixture::LEASE, 10, 1 << 20)
            .await
            .unwrap()
            .next_ms
            .is_some()
    );
    assert_eq!(
        fixture.store.reader.counts(&[]).await.unwrap().next_due_ms,
        Some(4_000_000_000_000)
    );
    assert_eq!(fixture.act(&action(Action::Finish, "b", 3)).await, Verdict::Finished);
    assert_eq!(fixture.act(&action(Action::Cancel, "a", 4)).await, Verdict::Cancelled);
}

#[tokio::test]
async fn a_replica_is_waited_for_and_one_that_hangs_is_an_error_that_heals_itself() {
    let master = start(None, None).await;
    let error = wait_of(&at(&master, Durability::Replica)).await.unwrap_err();
    assert!(error.class == Class::Readonly && error.hint.contains("start a replica"), "{error}");

    let replica = replica_of(&master, None).await;
    let gated = at(&master, Durability::Replica);
    assert_eq!(wait_of(&gated).await.unwrap(), Wait::Replicas(1));
    let store = open(&gated, &[MAIN]).await;
    let batch: Vec<_> = (0..10).map(|n| request(&format!("job-{n}"), n, FAR)).collect();
    let first = store.jobs.schedule(&batch[..5]).await.unwrap().answers;
    assert!(calls(&master, "wait").await > 0);
    let there: i64 = redis::cmd("EXISTS")
        .arg(store.keys().jobs(store.keys().bucket_of("job-0")))
        .query_async(&mut redis_link(&replica.url()).await)
        .await
        .unwrap();
    assert_eq!(there, 1);

    replica.freeze().unwrap();
    let error = store.jobs.schedule(&batch).await.unwrap_err();
    assert!(error.class == Class::Timeout && error.message.contains("replicas 0 of 1"), "{error}");
    let cancel = action(Action::Cancel, "job-9", 1000);
    let error = store.jobs.act(&cancel, RETRY).await.unwrap_err();
    assert_eq!(error.class, Class::Timeout, "{error}");
    // Claims do not wait.
    store.jobs.claim(0, MAIN, super::fixture::LEASE, 10, 1 << 20).await.unwrap();
    replica.thaw().unwrap();

    let again = crate::support::wait_until("the replica acknowledges again", async || {
        store.jobs.schedule(&batch).await.ok()
    })
    .await
    .answers;
    assert_eq!(again[..5], first);
    assert!(again.iter().all(|answer| answer.verdict == Verdict::Added));
    // The cancel was applied the first time, and is told so now.
    assert_eq!(store.jobs.act(&cancel, RETRY).await.unwrap().verdict, Verdict::Cancelled);
}

#[tokio::test]
async fn a_verdict_that_is_told_again_is_as_durable_as_one_that_is_new() {
    // Newer servers wait for the writes of the connection itself, and a verdict that is told again
    // may come over another.
    let told_again = async |program: Option<PathBuf>| {
        let master = start(program.clone(), None).await;
        let replica = replica_of(&master, program).await;
        let gated = at(&master, Durability::Replica);
        crate::support::wait_until("the replica", async || wait_of(&gated).await.ok()).await;
        let store = open(&gated, &[MAIN]).await;
        for number in 0..8 {
            store.jobs.schedule(&[request(&format!("job-{number}"), number, FAR)]).await.unwrap();
        }
        replica.freeze().unwrap();
        let (cancel, late) = (action(Action::Cancel, "job-0", 1000), [request("late", 8, FAR)]);
        assert!(
            store.jobs.act(&cancel, RETRY).await.is_err()
                && store.jobs.schedule(&late).await.is_err()
        );
        let acts =
            futures_util::future::join_all((0..4).map(|_| store.jobs.act(&cancel, RETRY))).await;
        assert!(acts.iter().all(Result::is_err), "no replica has it: {acts:?}");
        let schedules =
            futures_util::future::join_all((0..4).map(|_| store.jobs.schedule(&late))).await;
        assert!(schedules.iter().all(Result::is_err), "no replica has it: {schedules:?}");
        replica.thaw().unwrap();
        let cancelled = crate::support::wait_until("the replica again", async || {
            store.jobs.act(&cancel, RETRY).await.ok()
        })
        .await;
        assert_eq!(cancelled.verdict, Verdict::Cancelled);
        assert_eq!(store.jobs.schedule(&late).await.unwrap().answers[0].verdict, Verdict::Added);
    };
    tokio::join!(told_again(None), told_again(Some(find::redis_server_waitaof().unwrap())));
}
