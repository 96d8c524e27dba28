//! A failover to a replica that lost the claim: settles of lost leases change nothing, and
//! `cancelled` is not the verdict of a job that may have been published.

use dwell::job::{Action, Due, Verdict};
use dwell::store::error::Class;
use dwell::store::jobs::settle::{Completion, SettleResult};
use dwell_testkit::servers::{RedisOptions, RedisServer};

use super::fixture::{
    FAR, Fixture, LEASE, MAIN, PAST, RETRY, action, held, open, request, settings,
};
use crate::support::{redis_link, wait_until};

#[tokio::test]
async fn a_failover_that_loses_claims_loses_no_job_and_tells_no_lie() {
    let master = RedisServer::start(RedisOptions::default()).await.unwrap();
    let replica = RedisServer::start(RedisOptions {
        replica_of: Some(master.port()),
        ..RedisOptions::default()
    })
    .await
    .unwrap();
    let fixture = Fixture::on(&master.url(), 1, &[MAIN]).await;
    for (message, name) in [(1, "claimed"), (2, "completed"), (3, "cancelled")] {
        fixture.put(request(name, message, PAST)).await;
    }
    fixture.put(request("ahead", 4, FAR)).await;
    let replicas: i64 =
        redis::cmd("WAIT").arg(1).arg(20_000).query_async(&mut fixture.raw.clone()).await.unwrap();
    assert_eq!(replicas, 1);

    // The replica takes over while the master still answers: later changes are lost with the
    // master.
    let mut promoted = redis_link(&replica.url()).await;
    redis::cmd("REPLICAOF").arg("NO").arg("ONE").exec_async(&mut promoted).await.unwrap();
    let jobs = fixture.claim().await.jobs;
    let lease = |name: &str| jobs.iter().find(|lease| lease.id.as_str() == name).unwrap();
    assert!(fixture.complete(lease("completed")).await);
    drop(master);

    let store = open(&settings(&replica.url(), &fixture.settings.namespace, 1), &[MAIN]).await;
    let cancel = |name, message| action(Action::Cancel, name, message);
    assert_eq!(
        store.jobs.act(&cancel("cancelled", 10), RETRY).await.unwrap().verdict,
        Verdict::CancelledAfterAttempt
    );
    assert_eq!(
        store.jobs.act(&cancel("ahead", 11), RETRY).await.unwrap().verdict,
        Verdict::Cancelled
    );
    // A job that was due so soon after the change may have been claimed before it: nobody knows of
    // the claim.
    let seen: String = redis::cmd("HGET")
        .arg(fixture.key("state"))
        .arg("")
        .query_async(&mut promoted)
        .await
        .unwrap();
    let changed: i64 = seen.split_once(':').unwrap().1.parse().unwrap();
    let reach = i64::try_from(dwell::store::jobs::claim::MAX_CLAIM_AHEAD.as_millis()).unwrap();
    for (message, name, due, verdict) in [
        (5, "within reach", changed + reach, Verdict::CancelledAfterAttempt),
        (6, "beyond", changed + reach + 1, Verdict::Cancelled),
    ] {
        store.jobs.schedule(&[request(name, message, Due::At(due))]).await.unwrap();
        assert_eq!(
            store.jobs.act(&cancel(name, message + 10), RETRY).await.unwrap().verdict,
            verdict,
            "{name}"
        );
    }
    // Its confirm comes before the job is claimed again: it will land twice.
    let early = store.jobs.complete(0, &[held(lease("claimed"))], Completion::Fired).await.unwrap();
    assert_eq!(early, [SettleResult::TakenOver]);
    // A completed job is published once more, under the same id and generation.
    let taken = store.jobs.claim(0, MAIN, LEASE, 10, 1 << 20).await.unwrap().jobs;
    assert_eq!(taken.len(), 2);
    let again = taken.iter().find(|lease| lease.id.as_str() == "completed").unwrap();
    assert_eq!(again.state.generation, lease("completed").state.generation);
    // The owner of the lost claim cannot end the new one.
    assert_eq!(
        store.jobs.complete(0, &[held(lease("claimed"))], Completion::Fired).await.unwrap(),
        [SettleResult::TakenOver]
    );
    for lease in &taken {
        assert_eq!(
            store.jobs.complete(0, &[held(lease)], Completion::Fired).await.unwrap(),
            [SettleResult::Settled]
        );
    }
    // The inbound messages, redelivered, are known.
    let first = store
        .jobs
        .schedule(&[request("claimed", 1, PAST), request("cancelled", 3, PAST)])
        .await
        .unwrap();
    assert!(first.answers.iter().all(|answer| answer.verdict == Verdict::Added));
    assert!(store.jobs.claim(0, MAIN, LEASE, 10, 1 << 20).await.unwrap().jobs.is_empty());
}

#[tokio::test]
async fn a_server_that_is_the_master_again_may_not_know_what_the_one_between_did() {
    let first = RedisServer::start(RedisOptions::default()).await.unwrap();
    let second = RedisServer::start(RedisOptions {
        replica_of: Some(first.port()),
        ..RedisOptions::default()
    })
    .await
    .unwrap();
    let fixture = Fixture::on(&first.url(), 1, &[MAIN]).await;
    fixture.put(request("claimed", 1, PAST)).await;
    let replicas: i64 =
        redis::cmd("WAIT").arg(1).arg(20_000).query_async(&mut fixture.raw.clone()).await.unwrap();
    assert_eq!(replicas, 1);
    second.order(&["REPLICAOF", "NO", "ONE"]).await.unwrap();
    first.order(&["REPLICAOF", "127.0.0.1", &second.port().to_string()]).await.unwrap();
    wait_until("the first follows the second", async || {
        let info = first.order(&["INFO", "replication"]).await.unwrap();
        info.iter().any(|line| line == "master_link_status:up").then_some(())
    })
    .await;
    first.order(&["REPLICAOF", "NO", "ONE"]).await.unwrap();
    // The second does not know yet that it is no longer the master.
    let store = open(&settings(&second.url(), &fixture.settings.namespace, 1), &[MAIN]).await;
    assert_eq!(store.jobs.claim(0, MAIN, LEASE, 10, 1 << 20).await.unwrap().jobs.len(), 1);

    let store = open(&settings(&first.url(), &fixture.settings.namespace, 1), &[MAIN]).await;
    let cancel = action(Action::Cancel, "claimed", 10);
    assert_eq!(
        store.jobs.act(&cancel, RETRY).await.unwrap().verdict,
        Verdict::CancelledAfterAttempt
    );
}

#[tokio::test]
async fn a_master_that_became_a_replica_is_left() {
    let one = RedisServer::start(RedisOptions::default()).await.unwrap();
    let fixture = Fixture::on(&one.url(), 1, &[MAIN]).await;
    fixture.put(request("a", 1, PAST)).await;
    let other = RedisServer::start(RedisOptions::default()).await.unwrap();
    let port = other.port().to_string();
    fixture.redis(&["REPLICAOF", "127.0.0.1", &port]).await;
    let error = fixture.store.jobs.schedule(&[request("b", 2, PAST)]).await.unwrap_err();
    assert_eq!(error.class, Class::Readonly, "{error}");
    let error = fixture.store.jobs.claim(0, MAIN, LEASE, 1, 1).await.unwrap_err();
    assert!(matches!(error.class, Class::Readonly | Class::NoScript), "{error}");
    fixture.redis(&["REPLICAOF", "NO", "ONE"]).await;
    wait_until("it takes jobs again", async || {
        fixture.store.jobs.schedule(&[request("c", 3, PAST)]).await.ok()
    })
    .await;
}

/// Returns the namespace's record of its master: its run id, followed by the replication id of its
/// former master; and the time of the last change of master.
async fn known_master(fixture: &Fixture) -> (String, String) {
    let known: String = redis::cmd("HGET")
        .arg(fixture.key("state"))
        .arg("")
        .query_async(&mut fixture.raw.clone())
        .await
        .unwrap();
    let (master, changed) = known.split_once(':').unwrap();
    (master.to_owned(), changed.to_owned())
}

#[tokio::test]
async fn a_master_that_forgot_its_former_replication_id_is_the_same() {
    let fixture = Fixture::with(1, &[MAIN]).await;
    let state = fixture.key("state");
    for (message, name) in [(1, "first"), (2, "second"), (3, "third")] {
        fixture.put(request(name, message, FAR)).await;
    }
    // A cancel looks who the master is.
    let cancel = async |name, message| {
        assert_eq!(fixture.act(&action(Action::Cancel, name, message)).await, Verdict::Cancelled)
    };
    cancel("first", 11).await;
    let (run_id, changed) = known_master(&fixture).await;
    // Redis drops that id together with its backlog, and stays the same server.
    let former = "ab12".repeat(10);
    fixture.redis(&["HSET", &state, "", &format!("{run_id}{former}:{changed}")]).await;
    cancel("second", 12).await;
    assert_eq!(known_master(&fixture).await, (format!("{run_id}{former}"), changed.clone()));
    // Another run id is another server.
    fixture.redis(&["HSET", &state, "", &format!("{former}:{changed}")]).await;
    cancel("third", 13).await;
    let (now, later) = known_master(&fixture).await;
    assert_eq!(now, run_id);
    assert!(later.parse::<i64>().unwrap() > changed.parse::<i64>().unwrap());
}
