//! Jobs that are found overdue at their first attempt.

use std::time::Duration;

use dwell::runtime::Roles;
use dwell::store::reader::lookup::JobState;
use dwell_connectors::Message;
use dwell_connectors::memory::Fault;

use super::environment::{ALL, Environment, attempts, request, to};
use crate::support::wait_until;

/// Overdue by more than 50 ms, each with its policy.
async fn overdue(requests: Vec<Message>, set: &[(&str, &str)]) -> Environment {
    let mut env = Environment::idle(Default::default(), set).await;
    let count = requests.len() as u64;
    requests.into_iter().for_each(|request| env.send(request));
    env.run(Roles { ingest: true, dispatch: false }).await;
    env.taken().await;
    let store = env.store().await;
    wait_until("all are overdue", async || {
        let counts = store.reader.counts(&[]).await.unwrap();
        (counts.overdue == count && counts.next_due_ms.is_some_and(|due| counts.now_ms - due > 300))
            .then_some(())
    })
    .await;
    env.stop(Duration::from_secs(5)).await;
    env.run(ALL).await;
    env
}

fn policy(id: &str, late: &str) -> Message {
    request(id, "100ms").with_header("delay-late", late).with_header("delay-max-late", "50ms")
}

#[tokio::test]
async fn a_job_past_its_expiry_is_a_dead_letter_and_late_is_judged_first() {
    let expires = |message: Message| message.with_header("delay-expire", "100ms");
    let requests = vec![
        expires(request("expired", "100ms")),
        expires(policy("dead", "dead")),
        request("in time", "100ms").with_header("delay-expire", "1h"),
    ];
    let env = overdue(requests, &[]).await;
    env.arrived("orders.a", 1).await;
    let dead = env.arrived("delay.dead", 2).await;
    for (id, reason) in [("expired", "expired"), ("dead", "late")] {
        let letter = dead.iter().find(|letter| letter.body.as_ref() == id.as_bytes()).unwrap();
        assert_eq!(letter.headers.text("delayed-dead-reason"), Some(reason));
        assert_eq!(letter.headers.text("delayed-attempt"), Some("0"), "none was made");
        env.until_state(id, JobState::Dead).await;
    }
    env.until_metric(r#"dwell_dead_total{reason="expired"}"#, 1.0).await;
    env.until_over("in time").await;
}

#[tokio::test]
async fn each_policy_does_what_it_says() {
    let requests = vec![
        policy("fire", "fire"),
        policy("drop", "drop"),
        policy("dead", "dead"),
        to("orders.b", "plain", "100ms"),
    ];
    let env = overdue(requests, &[]).await;
    assert_eq!(attempts(&env.arrived("orders.a", 1).await), [1]);
    assert_eq!(attempts(&env.arrived("orders.b", 1).await), [1]);
    let dead = env.arrived("delay.dead", 1).await.remove(0);
    assert_eq!(
        (dead.body.as_ref(), dead.headers.text("delayed-dead-reason")),
        (&b"dead"[..], Some("late"))
    );
    assert_eq!(dead.headers.text("delayed-attempt"), Some("0"), "none was made");
    assert!(dead.headers.text("delayed-last-error").unwrap().contains("max_late is 50 ms"));
    env.until_state("dead", JobState::Dead).await;
    env.until_over("drop").await;
    env.until_over("fire").await;
    assert_eq!(env.metric("dwell_late_dropped_total"), 1.0);
    env.until_metric(r#"dwell_dead_total{reason="late"}"#, 1.0).await;
    assert_eq!(env.broker.published("orders.a").len(), 1);
}

#[tokio::test]
async fn the_settings_give_the_policy_of_those_that_bring_none() {
    let set = [("delivery.late", "drop"), ("delivery.max_late", "50ms")];
    let env = overdue(
        vec![request("x", "100ms"), request("y", "100ms").with_header("delay-max-late", "1h")],
        &set,
    )
    .await;
    assert_eq!(env.arrived("orders.a", 1).await[0].body, "y");
    env.until_over("x").await;
    assert_eq!(env.until_empty().await, 0);
    assert_eq!(env.broker.published("orders.a").len(), 1);
}

#[tokio::test]
async fn a_repeat_is_never_too_late() {
    let env = Environment::start(&[]).await;
    env.broker.fail_times("orders.a", 1, Fault::Unroutable);
    // The first attempt is in time on a busy machine too, and the second one is not.
    let job = request("x", "0").with_header("delay-late", "drop");
    env.send(job.with_header("delay-max-late", "4s").with_header("delay-retry", "5s"));
    assert_eq!(attempts(&env.arrived("orders.a", 1).await), [2]);
    env.until_over("x").await;
    assert_eq!(env.metric("dwell_late_dropped_total"), 0.0);
}
