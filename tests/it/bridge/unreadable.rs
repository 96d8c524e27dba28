//! What this version cannot read. Each request for such a job is rejected alone, and the rest goes
//! on. A death for an unknown reason is a death.

use dwell::job::{DeadReason, JobId};
use dwell::store::reader::lookup::JobState;
use dwell::store::record::StateRecord;
use dwell_connectors::Message;
use dwell_testkit::servers::RedisOptions;

use super::environment::{ALL, Environment, action, asking, attempt, request, verdicts};

/// The actions of messages.
const ACTIONS: [&str; 5] = ["cancel", "reschedule", "fire", "finish", "fail"];

async fn redis(env: &Environment, line: &[&[u8]]) {
    let mut link = crate::support::redis_link(env.redis.url()).await;
    let mut command = redis::cmd(std::str::from_utf8(line[0]).unwrap());
    for word in &line[1..] {
        command.arg(*word);
    }
    command.exec_async(&mut link).await.unwrap();
}

fn codes(rejected: &[Message]) -> Vec<&str> {
    rejected.iter().map(|message| message.headers.text("delayed-error").unwrap()).collect()
}

#[tokio::test]
async fn each_request_for_a_job_of_a_later_version_is_rejected_alone() {
    let env = Environment::start(&[]).await;
    for id in ["later", "cut", "garbled"] {
        env.send(request(id, "1h"));
    }
    env.taken().await;
    let store = env.store().await;
    let jobs = |id: &str| store.keys().jobs(store.keys().bucket_of(id)).as_bytes().to_vec();
    // A later version's, one that is cut off, and one whose broker nobody can have named.
    let garbled = [&b"\x01\x00"[..], &[0; 28], b"\x04\xff\x00.!", &[0; 40]].concat();
    for (id, record) in
        [("later", &b"\x03 of a later version"[..]), ("cut", b"\x01\x00"), ("garbled", &garbled)]
    {
        redis(&env, &[b"HSET", &jobs(id), id.as_bytes(), record]).await;
        for what in ACTIONS {
            let message = action(what, id);
            env.send(if what == "reschedule" {
                message.with_header("delay-for", "1h")
            } else {
                message
            });
        }
        for conflict in ["replace", "keep", "reject"] {
            env.send(request(id, "2h").with_header("delay-on-conflict", conflict));
        }
        // In the middle of them, and in the same batch.
        env.send(asking(request(&format!("beside {id}"), "1h")));
        env.send(asking(action("cancel", &format!("beside {id}"))));
    }
    env.taken().await;
    let rejected = env.arrived("delay.rejected", 24).await;
    assert_eq!(codes(&rejected), ["unreadable_job"; 24]);
    let detail = rejected[0].headers.text("delayed-error-detail").unwrap();
    assert!(detail.contains("cannot be read") && detail.contains("dwell fsck"), "{detail}");
    assert_eq!(
        verdicts(&env.arrived("replies", 6).await),
        ["added", "cancelled", "added", "cancelled", "added", "cancelled"]
    );
    assert_eq!(env.metric(r#"dwell_ingest_paused{reason="redis"}"#), 0.0);
    let mut link = crate::support::redis_link(env.redis.url()).await;
    let left: Vec<u8> = redis::cmd("HGET")
        .arg(jobs("garbled"))
        .arg("garbled")
        .query_async(&mut link)
        .await
        .unwrap();
    assert_eq!(left, garbled, "it is left as it was");
}

#[tokio::test]
async fn requests_for_a_damaged_bucket_are_rejected_and_those_for_others_stored() {
    let mut env = Environment::idle(RedisOptions::default(), &[("redis.buckets", "2")]).await;
    env.run(ALL).await;
    let store = env.store().await;
    let of_bucket = |bucket| {
        let keys = store.keys();
        (0..).map(|n| format!("job-{n}")).filter(move |name| {
            keys.bucket_of(JobId::new(name.as_str()).unwrap().as_str()) == bucket
        })
    };
    redis(&env, &[b"SET", store.keys().due(0, "main").as_bytes(), b"damage"]).await;
    for (sick, healthy) in of_bucket(0).zip(of_bucket(1)).take(20) {
        env.send(request(&sick, "1h"));
        env.send(request(&healthy, "1h"));
    }
    env.taken().await;
    let rejected = env.arrived("delay.rejected", 20).await;
    assert_eq!(codes(&rejected), ["unreadable_job"; 20]);
    for healthy in of_bucket(1).take(20) {
        env.until_state(&healthy, JobState::Scheduled).await;
    }
    assert_eq!(env.broker.published("delay.rejected").len(), 20);
}

#[tokio::test]
async fn a_job_of_a_broker_that_the_namespace_forgot_is_acted_on_all_the_same() {
    let env = Environment::start(&[]).await;
    env.send(request("forgotten", "1h"));
    env.taken().await;
    let store = env.store().await;
    let keys = store.keys();
    let bucket = keys.bucket_of("forgotten");
    let mut link = crate::support::redis_link(env.redis.url()).await;
    let record: Vec<u8> = redis::cmd("HGET")
        .arg(keys.jobs(bucket))
        .arg("forgotten")
        .query_async(&mut link)
        .await
        .unwrap();
    // `main` became `gone`, wherever it stands.
    assert_eq!(&record[30..35], b"\x04main");
    let record = [&record[..31], b"gone", &record[35..]].concat();
    redis(&env, &[b"HSET", keys.jobs(bucket).as_bytes(), b"forgotten", &record]).await;
    redis(
        &env,
        &[b"RENAME", keys.due(bucket, "main").as_bytes(), keys.due(bucket, "gone").as_bytes()],
    )
    .await;
    env.send(asking(action("cancel", "forgotten")));
    assert_eq!(verdicts(&env.arrived("replies", 1).await), ["cancelled"]);
    env.until_over("forgotten").await;
}

#[tokio::test]
async fn a_job_that_dies_for_a_reason_of_a_later_version_reaches_no_target() {
    let env = Environment::start(&[]).await;
    env.send(request("x", "1h"));
    env.taken().await;
    let store = env.store().await;
    let keys = store.keys();
    let bucket = keys.bucket_of("x");
    let mut link = crate::support::redis_link(env.redis.url()).await;
    let record: Vec<u8> =
        redis::cmd("HGET").arg(keys.jobs(bucket)).arg("x").query_async(&mut link).await.unwrap();
    let state = StateRecord { attempt: 3, ..StateRecord::of_record(&record, 1000).unwrap() };
    let mut state = state.encode();
    // The code of the reason; the last error follows.
    *state.last_mut().unwrap() = 200;
    state.extend_from_slice(b"no");
    redis(&env, &[b"HSET", keys.state(bucket).as_bytes(), b"x", &state]).await;
    redis(&env, &[b"ZADD", keys.due(bucket, "main").as_bytes(), b"1000", b"x"]).await;
    let dead = env.arrived("delay.dead", 1).await.remove(0);
    assert_eq!((dead.body.as_ref(), attempt(&dead)), (&b"x"[..], 3));
    assert_eq!(dead.headers.text("delayed-dead-reason"), Some("unknown"));
    assert_eq!(dead.headers.text("delayed-last-error"), Some("no"));
    let kept = env.until_state("x", JobState::Dead).await.state_record.unwrap();
    assert_eq!((kept.attempt, kept.reason), (3, Some(DeadReason::Unknown)));
    env.until_metric(r#"dwell_dead_total{reason="unknown"}"#, 1.0).await;
    assert!(env.broker.published("orders.a").is_empty());
}
