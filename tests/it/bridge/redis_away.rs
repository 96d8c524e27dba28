//! Redis is killed, hangs or is full: the ingest holds what it read, and nothing is lost.

use std::sync::Arc;
use std::time::Duration;

use dwell::readiness::Waiting;
use dwell::store::error::Class;
use dwell::store::reader::lookup::JobState;
use dwell::store::wake_up::WakeUp;
use dwell::store::{Store, Unobserved};
use dwell_connectors::Message;
use dwell_testkit::servers::{AppendFsync, RedisOptions, find};

use super::environment::{ALL, Environment, attempts, request};
use crate::support::{DEADLINE, wait_until};

fn ids(messages: &[Message]) -> std::collections::BTreeSet<String> {
    messages.iter().map(|message| message.headers.text("delayed-id").unwrap().to_owned()).collect()
}

#[tokio::test]
async fn redis_is_killed_and_restarted_while_everything_runs() {
    let fsync = RedisOptions { appendonly: Some(AppendFsync::Always), ..RedisOptions::default() };
    let mut env = Environment::idle(
        fsync,
        &[("redis.durability", "fsync"), ("delivery.publish_timeout", "10s")],
    )
    .await;
    env.run(ALL).await;
    for n in 0..2000 {
        env.send(request(&format!("before-{n}"), &format!("{}ms", n % 1000)));
    }
    env.arrived("orders.a", 300).await;
    env.redis.kill().unwrap();
    for n in 0..500 {
        env.send(request(&format!("while-{n}"), "0"));
    }
    env.until_metric(r#"dwell_ingest_paused{reason="redis"}"#, 1.0).await;
    assert!(
        env.broker.unacked("delay.in", "dwell") >= 500,
        "nothing is acknowledged that is not stored"
    );
    env.redis.restart().await.unwrap();
    wait_until("all 2500 arrived", async || {
        (ids(&env.broker.published("orders.a")).len() == 2500).then_some(())
    })
    .await;
    assert_eq!(env.until_empty().await, 0);
    env.until_metric(r#"dwell_ingest_paused{reason="redis"}"#, 0.0).await;
    env.taken().await;
    let came = env.broker.published("orders.a");
    assert_eq!(came.len(), 2500, "the answers of settles are asked for again, not the publishes");
    assert!(attempts(&came).iter().all(|attempt| *attempt == 1));
}

#[tokio::test]
async fn a_full_redis_pauses_the_ingest_and_delivery_makes_room() {
    let full = RedisOptions {
        maxmemory: Some("5mb".to_owned()),
        maxmemory_policy: Some("noeviction".to_owned()),
        ..RedisOptions::default()
    };
    let mut env = Environment::idle(full, &[]).await;
    env.run(ALL).await;
    let body = "x".repeat(8 << 10);
    for n in 0..1000 {
        let request = Message::new(body.clone()).with_header("delay-id", format!("job-{n}"));
        env.send(request.with_header("delay-for", "4s").with_header("delay-target", "orders.a"));
    }
    env.until_metric(r#"dwell_ingest_paused{reason="redis_full"}"#, 1.0).await;
    let came = env.arrived("orders.a", 1000).await;
    assert!(attempts(&came).iter().all(|attempt| *attempt == 1));
    assert_eq!(ids(&came).len(), 1000);
    env.until_metric(r#"dwell_ingest_paused{reason="redis_full"}"#, 0.0).await;
    env.taken().await;
    assert_eq!(env.until_empty().await, 0);
    assert_eq!(env.broker.published("orders.a").len(), 1000);
}

#[tokio::test]
async fn a_right_that_is_missing_for_a_while_rejects_nothing_and_loses_nothing() {
    let newer = find::redis_server_waitaof().unwrap();
    for program in [find::redis_server().unwrap(), newer, find::valkey_server().unwrap()] {
        let mut env = Environment::idle(
            RedisOptions { program: Some(program), ..RedisOptions::default() },
            &[],
        )
        .await;
        env.run(ALL).await;
        // The first write of a script, and one in the middle: earlier writes of the script stay.
        for right in ["hset", "zadd"] {
            env.redis.order(&["ACL", "SETUSER", "default", &format!("-{right}")]).await.unwrap();
            for n in 0..20 {
                env.send(request(&format!("{right}-{n}"), "1h"));
            }
            env.until_metric(r#"dwell_ingest_paused{reason="redis"}"#, 1.0).await;
            env.redis.order(&["ACL", "SETUSER", "default", &format!("+{right}")]).await.unwrap();
            for n in 0..20 {
                env.until_state(&format!("{right}-{n}"), JobState::Scheduled).await;
            }
            env.until_metric(r#"dwell_ingest_paused{reason="redis"}"#, 0.0).await;
        }
        env.taken().await;
        assert_eq!(env.broker.published("delay.rejected").len(), 0);
    }
}

#[tokio::test]
async fn a_right_that_is_missing_is_no_refused_login_and_ends_no_connection() {
    let mut env = Environment::idle(RedisOptions::default(), &[]).await;
    // As users of Redis 7 are where nobody named channels.
    env.redis
        .order(&["ACL", "SETUSER", "dwell", "on", ">word", "~*", "resetchannels", "+@all"])
        .await
        .unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, format!("redis://dwell:word@127.0.0.1:{}", env.redis.port())).unwrap();
    env.settings.redis.urls_file = Some(file.path().to_owned());
    let store =
        Store::open(&env.settings.redis, &["main".to_owned()], Arc::new(Unobserved)).await.unwrap();
    let connections = async || {
        let clients = env.redis.order(&["CLIENT", "LIST"]).await.unwrap();
        let ours = clients.iter().filter(|client| client.contains("user=dwell "));
        ours.filter_map(|client| client.split(' ').next().map(str::to_owned)).collect::<Vec<_>>()
    };
    let before = connections().await;
    assert_eq!(before.len(), 1);
    for _ in 0..3 {
        let wake_up = WakeUp { bucket: 0, broker: "main".to_owned(), due_ms: 1 };
        let error = store.wake_others(&[wake_up]).await.unwrap_err();
        assert!(
            error.message.contains("no permissions") && error.hint.contains("the channel"),
            "{error}: {}",
            error.hint
        );
        assert_eq!(error.class, Class::Other, "{error}");
        store.read_clock().await.unwrap();
    }
    assert_eq!(connections().await, before);
    assert_eq!(env.settings.redis.refusals.now(), None);
}

#[tokio::test]
async fn a_login_that_redis_refuses_is_told_by_those_who_log_in_alone() {
    let guarded = RedisOptions { password: Some("first".to_owned()), ..RedisOptions::default() };
    let mut env = Environment::idle(guarded, &[]).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, env.redis.url()).unwrap();
    env.settings.redis.urls_file = Some(file.path().to_owned());
    let readiness = env.begin(None).await.unwrap();
    tokio::time::timeout(DEADLINE, readiness.all_reached()).await.expect("it starts");
    env.redis.rotate("second").await.unwrap();
    let refusals = env.settings.redis.refusals.clone();
    wait_until("redis refuses the login", async || refusals.now()).await;
    let listed = || {
        readiness
            .waiting()
            .into_iter()
            .find(|(what, _)| *what == Waiting::Store)
            .map(|(_, why)| why)
    };
    // The watch takes back what it listed before, each time that it looks.
    for _look in 1..=2 {
        readiness.missing(&Waiting::Store, "an outage before");
        wait_until("the watch lists nothing", async || listed().is_none().then_some(())).await;
        assert!(refusals.now().is_some());
    }
    std::fs::write(&file, env.redis.url()).unwrap();
    wait_until("redis accepts the login", async || refusals.now().is_none().then_some(())).await;
    env.send(request("x", "0"));
    env.arrived("orders.a", 1).await;
}

#[tokio::test]
async fn told_to_stop_while_redis_is_away_it_ends_in_the_drain_time_and_the_broker_keeps_what_was_not_stored()
 {
    let fsync = RedisOptions { appendonly: Some(AppendFsync::Always), ..RedisOptions::default() };
    let mut env = Environment::idle(fsync, &[("redis.durability", "fsync")]).await;
    env.run(ALL).await;
    env.redis.kill().unwrap();
    for n in 0..10 {
        env.send(request(&format!("job-{n}"), "0"));
    }
    env.until_metric(r#"dwell_ingest_paused{reason="redis"}"#, 1.0).await;
    let begun = std::time::Instant::now();
    env.stop(Duration::from_secs(1)).await;
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    assert_eq!(env.broker.unacked("delay.in", "dwell"), 10);
    env.redis.restart().await.unwrap();
    env.run(ALL).await;
    assert_eq!(ids(&env.arrived("orders.a", 10).await).len(), 10);
    assert_eq!(env.until_empty().await, 0);
}

#[tokio::test]
async fn an_ingest_that_has_read_enough_ahead_of_the_store_says_so() {
    let env = Environment::start(&[]).await;
    let paused = r#"dwell_ingest_paused{reason="backpressure"}"#;
    assert_eq!(env.metric(paused), 0.0);
    env.redis.freeze().unwrap();
    // A batch of 2048 that is being stored, one that waits for it, and one more, which cannot be
    // handed on.
    for n in 0..7000 {
        env.send(request(&format!("job-{n}"), "0"));
    }
    env.until_metric(paused, 1.0).await;
    env.redis.thaw().unwrap();
    assert_eq!(ids(&env.arrived("orders.a", 7000).await).len(), 7000);
    env.until_metric(paused, 0.0).await;
    env.taken().await;
    assert_eq!(env.until_empty().await, 0);
}
