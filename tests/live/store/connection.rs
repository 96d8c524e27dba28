//! The connection to Redis: it breaks and is replaced; scripts that the server has forgotten; the
//! checks of a namespace.

use std::sync::Arc;

use dwell::config::Redis;
use dwell::job::{Action, Verdict};
use dwell::store::error::Class;
use dwell::store::{Store, Unobserved, instances};
use dwell_testkit::servers::{AppendFsync, RedisOptions, RedisServer};

use super::fixture::{
    FAR, Fixture, KEEP, MAIN, PAST, RETRY, action, id, open, request, settings, target_on,
};
use crate::support::{namespace, wait_until};

#[tokio::test]
async fn a_server_that_forgot_the_scripts_is_given_them_again() {
    let server = RedisServer::start(RedisOptions::default()).await.unwrap();
    let fixture = Fixture::on(&server.url(), 1, &[MAIN]).await;
    for round in 0..2 {
        fixture.redis(&["SCRIPT", "FLUSH"]).await;
        assert_eq!(fixture.put(request("a", 10 * round + 1, PAST)).await, Verdict::Added);
        fixture.redis(&["SCRIPT", "FLUSH"]).await;
        let lease = fixture.claim_one().await;
        assert!(fixture.retry(&lease, 0).await);
        fixture.redis(&["SCRIPT", "FLUSH"]).await;
        assert_eq!(
            fixture.act(&action(Action::Finish, "a", 10 * round + 2)).await,
            Verdict::Finished
        );
        fixture.store.admin.sweep(0, KEEP).await.unwrap();
    }
}

#[tokio::test]
async fn a_store_that_is_opened_has_seen_the_clock_of_redis() {
    let server = RedisServer::start(RedisOptions::default()).await.unwrap();
    let fixture = Fixture::on(&server.url(), 1, &[MAIN]).await;
    let redis::Value::BulkString(stats) = fixture.redis(&["INFO", "commandstats"]).await else {
        panic!()
    };
    let stats = String::from_utf8(stats).unwrap();
    // No script ran yet that would tell it.
    assert!(
        !stats.contains("cmdstat_evalsha:") && stats.contains("cmdstat_time:calls=1,"),
        "{stats}"
    );
}

#[tokio::test]
async fn a_namespace_that_no_broker_joined_yet_can_be_looked_at() {
    let fixture = Fixture::with(2, &[]).await;
    let preflight = dwell::store::admin::preflight::preflight(&fixture.settings).await.unwrap();
    assert_eq!((preflight.namespace.is_ok(), preflight.waiting), (true, Vec::new()));
}

#[tokio::test]
async fn a_batch_over_many_buckets_loads_its_script_once_it_is_missing() {
    let server = RedisServer::start(RedisOptions::default()).await.unwrap();
    let fixture = Fixture::on(&server.url(), 16, &[MAIN]).await;
    let batch: Vec<_> = (0..500).map(|n| request(&format!("job-{n}"), n, FAR)).collect();
    let answers = fixture.store.jobs.schedule(&batch).await.unwrap().answers;
    assert!(answers.iter().all(|answer| answer.verdict == Verdict::Added));
}

/// Asks until the store answers: errors on the way must be of a broken link.
async fn comes_back(fixture: &Fixture) {
    wait_until("the store answers again", async || {
        match fixture.store.reader.find(&id("nobody")).await {
            Ok(found) => {
                assert!(found.is_none());
                Some(())
            }
            Err(error) => {
                assert!(
                    matches!(error.class, Class::Io | Class::Timeout)
                        || error.message.contains("LOADING"),
                    "{:?} {error}",
                    error.class
                );
                None
            }
        }
    })
    .await;
}

#[tokio::test]
async fn the_link_is_rebuilt_after_a_restart_and_nothing_is_lost() {
    let mut server = RedisServer::start(RedisOptions {
        appendonly: Some(AppendFsync::Always),
        ..RedisOptions::default()
    })
    .await
    .unwrap();
    let fixture = Fixture::on(&server.url(), 1, &[MAIN]).await;
    fixture.put(request("due", 1, PAST)).await;
    fixture.put(request("ahead", 2, FAR)).await;
    server.kill().unwrap();
    let error = fixture.store.jobs.schedule(&[request("b", 3, FAR)]).await.unwrap_err();
    assert_eq!(error.class, Class::Io, "{error}");
    assert!(error.message.contains("redis"), "{error}");
    let error = fixture.store.jobs.claim(0, MAIN, super::fixture::LEASE, 1, 1).await.unwrap_err();
    assert_eq!(error.class, Class::Io, "{error}");
    server.restart().await.unwrap();
    comes_back(&fixture).await;
    assert_eq!(fixture.put(request("b", 3, FAR)).await, Verdict::Added);
    // It is another process: jobs that were due before may have been claimed in the part that it
    // lost.
    assert_eq!(
        fixture.act(&action(Action::Cancel, "due", 4)).await,
        Verdict::CancelledAfterAttempt
    );
    assert_eq!(fixture.act(&action(Action::Cancel, "ahead", 5)).await, Verdict::Cancelled);
}

#[tokio::test]
async fn a_killed_connection_costs_one_call_at_most() {
    let server = RedisServer::start(RedisOptions::default()).await.unwrap();
    let fixture = Fixture::on(&server.url(), 1, &[MAIN]).await;
    let message = std::cell::Cell::new(0);
    for _ in 0..5 {
        fixture.redis(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
        comes_back(&fixture).await;
        wait_until("a schedule goes through again", async || {
            message.set(message.get() + 1);
            fixture.store.jobs.schedule(&[request("a", message.get(), FAR)]).await.ok()
        })
        .await;
    }
    assert_eq!(fixture.place("a").await, "due:main");
}

#[tokio::test]
async fn a_frozen_server_times_out_and_its_claim_is_taken_back() {
    let server = RedisServer::start(RedisOptions::default()).await.unwrap();
    let fixture = Fixture::on(&server.url(), 1, &[MAIN]).await;
    // The server knows the script.
    fixture.claim().await;
    fixture.put(request("a", 1, PAST)).await;
    server.freeze().unwrap();
    let error =
        fixture.store.jobs.claim(0, MAIN, super::fixture::LEASE, 10, 1 << 20).await.unwrap_err();
    assert_eq!(error.class, Class::Timeout, "{error}");
    server.thaw().unwrap();
    wait_until("the claim of the frozen server shows", async || {
        (fixture.place("a").await == "lease").then_some(())
    })
    .await;
    let lease = fixture.claim_one().await;
    assert_eq!(lease.state.attempt, 1);
}

#[tokio::test]
async fn a_namespace_keeps_its_number_of_buckets_and_knows_its_brokers() {
    let fixture = Fixture::with(4, &[MAIN]).await;
    let open_as = async |settings: &Redis| {
        Store::open(settings, &["b".to_owned(), "a".to_owned()], Arc::new(Unobserved)).await
    };
    let error = open_as(&Redis { buckets: 16, ..fixture.settings.clone() }).await.err().unwrap();
    assert!(
        error.class == Class::Settings && error.hint.contains("redis.buckets = 4"),
        "{error} {}",
        error.hint
    );
    assert_eq!(*open_as(&fixture.settings).await.unwrap().brokers(), ["a", "b", "main"]);
    let attached = Store::attach(&Redis { buckets: 16, ..fixture.settings.clone() }).await.unwrap();
    assert_eq!((attached.keys().buckets(), attached.brokers().len()), (4, 3));
    let error = Store::attach(&Redis { namespace: namespace("none"), ..fixture.settings.clone() })
        .await
        .err()
        .unwrap();
    assert!(error.class == Class::Settings && error.message.contains("no namespace"), "{error}");
    fixture.redis(&["HSET", &fixture.store.keys().meta(), "schema", "1000"]).await;
    let error = open_as(&fixture.settings).await.err().unwrap();
    assert!(error.class == Class::Settings && error.message.contains("schema 1000"), "{error}");
}

#[tokio::test]
async fn a_namespace_that_redis_lost_is_made_again_and_nobody_forgets_its_own_brokers() {
    let server = RedisServer::start(RedisOptions::default()).await.unwrap();
    let fixture = Fixture::on(&server.url(), 4, &[MAIN]).await;
    fixture.redis(&["FLUSHALL"]).await;
    let younger = open(&fixture.settings, &["other"]).await;
    let mut elsewhere = request("a", 1, FAR);
    elsewhere.job.target = target_on("other");
    younger.jobs.schedule(&[elsewhere]).await.unwrap();
    // The namespace that the store reads now does not name its own broker any more.
    assert_eq!(fixture.put(request("a", 2, FAR)).await, Verdict::Replaced);
    assert_eq!(*fixture.store.brokers(), ["main", "other"]);

    fixture.redis(&["FLUSHALL"]).await;
    fixture.store.rejoin().await.unwrap();
    let attached = Store::attach(&fixture.settings).await.unwrap();
    assert_eq!(
        (attached.keys().buckets(), attached.brokers().to_vec()),
        (4, vec!["main".to_owned()])
    );
    // An attached store only reads and makes no namespace.
    fixture.redis(&["FLUSHALL"]).await;
    assert_eq!(attached.rejoin().await.unwrap_err().class, Class::Settings);
}

#[tokio::test]
async fn errors_name_the_server_without_its_password() {
    let url = "redis://someone:hidden-word@127.0.0.1:1";
    let error =
        Store::open(&settings(url, "nowhere", 16), &[], Arc::new(Unobserved)).await.err().unwrap();
    assert!(
        error.message.contains("redis://someone:***@127.0.0.1:1")
            && !error.message.contains("hidden-word"),
        "{error}"
    );
    assert!(!error.hint.is_empty());
    let server = RedisServer::start(RedisOptions {
        password: Some("open-sesame".to_owned()),
        ..RedisOptions::default()
    })
    .await
    .unwrap();
    let bare = format!("redis://127.0.0.1:{}", server.port());
    let error = Store::open(&settings(&bare, "nowhere", 16), &[], Arc::new(Unobserved))
        .await
        .err()
        .unwrap();
    assert!(error.message.contains("NOAUTH"), "{error}");
    let wrong = format!("redis://:wrong-word@127.0.0.1:{}", server.port());
    let error = Store::open(&settings(&wrong, "nowhere", 16), &[], Arc::new(Unobserved))
        .await
        .err()
        .unwrap();
    assert!(
        error.hint.contains("password") && !error.message.contains("wrong-word"),
        "{error} {}",
        error.hint
    );
    open(&settings(&server.url(), "here", 16), &[MAIN]).await;
}

#[tokio::test]
async fn the_fleet_knows_its_living_and_wakes_them() {
    let fixture = Fixture::new().await;
    assert_eq!(fixture.store.beat("one").await.unwrap(), ["one"]);
    assert_eq!(fixture.store.beat("two").await.unwrap(), ["one", "two"]);
    fixture.redis(&["ZADD", &fixture.store.keys().instances(), "1000", "long-dead"]).await;
    assert_eq!(fixture.store.beat("one").await.unwrap(), ["one", "two"]);
    assert_eq!(
        fixture.redis(&["ZCARD", &fixture.store.keys().instances()]).await,
        redis::Value::Int(2)
    );
    fixture.store.leave("one").await.unwrap();
    assert_eq!(fixture.store.beat("two").await.unwrap(), ["two"]);

    let (sender, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let (settings, channel) = (fixture.settings.clone(), fixture.store.keys().wake());
    let listening = tokio::spawn(async move {
        let _ = instances::listen(
            &settings,
            &channel,
            || {},
            move |head| {
                let _ = sender.send(head);
            },
        )
        .await;
    });
    let request = request("a", 1, FAR);
    let wake_ups = fixture.store.jobs.schedule(&[request]).await.unwrap().wake_ups;
    let head = wait_until("a wake-up is heard", async || {
        fixture.store.wake_others(&wake_ups).await.unwrap();
        heard.try_recv().ok()
    })
    .await;
    assert_eq!([head], wake_ups[..]);
    listening.abort();
}

#[tokio::test]
async fn counts_are_of_all_buckets() {
    let fixture = Fixture::with(4, &[MAIN, "other"]).await;
    let mut batch: Vec<_> =
        (0..20).map(|n| request(&format!("job-{n}"), n, if n < 5 { PAST } else { FAR })).collect();
    batch[19].job.target = target_on("other");
    batch[18].due = dwell::job::Due::In(30_000);
    let soon = fixture.store.jobs.schedule(&batch).await.unwrap().answers[18].due_ms;
    let counts = fixture.store.reader.counts(&[60, 3600]).await.unwrap();
    assert_eq!(counts.scheduled.iter().sum::<u64>(), 20);
    assert_eq!(counts.brokers, [("main".to_owned(), 19), ("other".to_owned(), 1)]);
    assert_eq!((counts.overdue, counts.within), (5, vec![6, 6]));
    assert_eq!(counts.next_due_ms, Some(1_000_000_000_000));
    assert!(soon.unwrap() > counts.now_ms);
    let _ = fixture.store.jobs.act(&action(Action::Fire, "nobody", 99), RETRY).await.unwrap();
}
