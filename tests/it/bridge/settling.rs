//! Outcomes on their way to a Redis that answers with errors, or whose answers are lost.

use std::time::Duration;

use dwell::job::JobId;
use dwell::store::Store;
use dwell_connectors::conformance::proxy::{Direction, Flow, Proxy};
use dwell_connectors::memory::Fault;
use dwell_testkit::servers::RedisOptions;

use super::environment::{ALL, Environment, action, asking, attempts, request, to, verdicts};
use crate::support::wait_until;

async fn redis(env: &Environment, line: &[&str]) {
    let mut link = crate::support::redis_link(env.redis.url()).await;
    redis::cmd(line[0]).arg(&line[1..]).query_async::<()>(&mut link).await.unwrap();
}

/// Names of jobs that are in this bucket.
fn of_bucket(store: &Store, bucket: u16) -> impl Iterator<Item = String> {
    let keys = store.keys();
    (0..).map(|n| format!("job-{n}")).filter(move |name| keys.bucket_of(name) == bucket)
}

#[tokio::test]
async fn an_outcome_that_is_settled_again_because_its_answer_was_lost_is_no_lost_lease() {
    let set = [("redis.buckets", "1"), ("delivery.publish_timeout", "20s")];
    let mut env = Environment::idle(RedisOptions::default(), &set).await;
    let straight = env.settings.redis.clone();
    let link = Proxy::start(format!("127.0.0.1:{}", env.redis.port())).await.unwrap();
    env.settings.redis.urls = vec![format!("redis://{}", link.address())];
    env.run(ALL).await;
    // Redis knows the scripts.
    env.send(request("first", "0"));
    env.arrived("orders.a", 1).await;
    env.until_over("first").await;
    env.broker.fail_times("orders.a", 1, Fault::Hold);
    env.send(request("x", "0"));
    env.arrived("orders.a", 2).await;
    // The job leaves, and Redis's answer is lost on its way.
    link.set(Direction::Down, Flow::Drop);
    assert_eq!(env.broker.release(), 1);
    let store = Store::attach(&straight).await.unwrap();
    let id = JobId::new("x").unwrap();
    wait_until("the job is over", async || {
        store.reader.find(&id).await.unwrap().is_none().then_some(())
    })
    .await;
    assert_eq!(
        env.metric(r#"dwell_redis_errors_total{class="io"}"#),
        0.0,
        "it was not settled by a second try"
    );
    link.heal();
    wait_until("the loss is seen", async || {
        (env.metric(r#"dwell_redis_errors_total{class="io"}"#) > 0.0).then_some(())
    })
    .await;
    assert!(env.stop(Duration::from_secs(10)).await, "all was settled");
    assert_eq!(env.metric("dwell_leases_lost_total"), 0.0);
    assert_eq!(env.metric(r#"dwell_possible_duplicates_total{cause="lease_lost"}"#), 0.0);
}

#[tokio::test]
async fn a_confirm_after_the_lease_is_a_possible_duplicate_where_the_same_job_goes_on() {
    let env =
        Environment::start(&[("delivery.retry", "1h"), ("delivery.publish_timeout", "25s")]).await;
    env.broker.fail_times("orders.a", 3, Fault::Hold);
    for id in ["replaced", "cancelled", "failed"] {
        env.send(request(id, "0"));
    }
    env.arrived("orders.a", 3).await;
    env.send(request("replaced", "1h"));
    env.send(asking(action("cancel", "cancelled")));
    // Its consumer is faster than the confirm: there will be another attempt.
    env.send(asking(action("fail", "failed")));
    assert_eq!(verdicts(&env.arrived("replies", 2).await), ["in_flight", "failed"]);
    assert_eq!(env.broker.release(), 3);
    env.until_metric("dwell_leases_lost_total", 3.0).await;
    assert_eq!(env.metric(r#"dwell_possible_duplicates_total{cause="lease_lost"}"#), 1.0);
}

#[tokio::test]
async fn a_bucket_that_takes_no_outcomes_holds_up_no_other() {
    let set = [("redis.buckets", "2"), ("delivery.publish_timeout", "20s")];
    let mut env = Environment::idle(RedisOptions::default(), &set).await;
    env.run(ALL).await;
    let store = env.store().await;
    let sick: Vec<String> = of_bucket(&store, 0).take(12).collect();
    // Their confirms come one after the other, so that none shares a call with another, and after the
    // damage.
    for n in 0..12 {
        env.broker.fail_times("orders.a", 1, Fault::Delay(Duration::from_millis(4000 + 30 * n)));
    }
    sick.iter().for_each(|name| env.send(request(name, "0")));
    env.arrived("orders.a", 12).await;
    let state = store.keys().state(0).to_owned();
    redis(&env, &["RENAME", &state, "aside"]).await;
    redis(&env, &["SET", &state, "damage"]).await;
    let confirmed = r#"dwell_publish_total{broker="main",outcome="confirmed"}"#;
    env.until_metric(confirmed, 12.0).await;
    let healthy = of_bucket(&store, 1).next().unwrap();
    env.send(to("orders.b", &healthy, "0"));
    env.arrived("orders.b", 1).await;
    env.until_over(&healthy).await;
    redis(&env, &["RENAME", "aside", &state]).await;
    assert_eq!(env.until_empty().await, 0);
    assert_eq!(attempts(&env.broker.published("orders.a")), [1; 12]);
}

#[tokio::test]
async fn outcomes_that_a_damaged_bucket_never_takes_leave_the_window_when_their_leases_are_over() {
    let mut env = Environment::idle(
        RedisOptions::default(),
        &[
            ("redis.buckets", "2"),
            ("delivery.max_in_flight", "12"),
            ("delivery.publish_timeout", "10s"),
        ],
    )
    .await;
    env.run(ALL).await;
    let store = env.store().await;
    // Two destinations that are known to confirm may fill the window together.
    let healthy: Vec<String> = of_bucket(&store, 1).take(3).collect();
    for (topic, name) in ["orders.a", "orders.b"].into_iter().zip(&healthy) {
        env.send(to(topic, name, "0"));
        env.arrived(topic, 1).await;
        env.until_over(name).await;
        env.broker.fail_times(topic, 6, Fault::Hold);
    }
    for (n, name) in of_bucket(&store, 0).take(12).enumerate() {
        env.send(to(["orders.a", "orders.b"][n % 2], &name, "0"));
    }
    wait_until("all are out", async || (env.broker.unanswered() == 12).then_some(())).await;
    let state = store.keys().state(0).to_owned();
    redis(&env, &["RENAME", &state, "aside"]).await;
    redis(&env, &["SET", &state, "damage"]).await;
    env.broker.release();
    env.send(to("orders.b", &healthy[2], "0"));
    // Behind twelve others that fill the window.
    env.arrived("orders.b", 8).await;
    redis(&env, &["RENAME", "aside", &state]).await;
    assert_eq!(env.until_empty().await, 0);
    let came = env.broker.published("orders.a").len() + env.broker.published("orders.b").len();
    assert_eq!(came, 3 + 24, "what was delivered is delivered again, and nothing is lost");
}
