//! Rejected requests that come back in: a loop ends, and no request is lost.

use std::time::Duration;

use dwell::job::{Action, JobId};
use dwell::request::act_on;
use dwell::runtime::Roles;
use dwell::store::reader::lookup::JobState;
use dwell_connectors::Message;
use dwell_connectors::memory::Broker;

use super::environment::{ALL, Environment, request};
use crate::support::{DEADLINE, wait_until};

/// More rounds than any loop may go.
const MAX_ROUNDS: usize = 100;

/// Brings what comes on this topic back into the ingest, as a binding or a mirror does;
/// [`MAX_ROUNDS`] times at most.
fn leads_back(broker: &Broker, topic: &'static str) -> tokio::task::JoinHandle<()> {
    let broker = broker.clone();
    tokio::spawn(async move {
        for round in 0..MAX_ROUNDS {
            let message = broker.wait_published(topic, round + 1, DEADLINE).await.remove(round);
            broker.publish("delay.in", message);
        }
    })
}

#[tokio::test]
async fn a_rejected_request_that_goes_round_is_kept_among_the_dead() {
    let env = Environment::start(&[]).await;
    let loops = ["delay.rejected", "delay.dead"].map(|topic| leads_back(&env.broker, topic));
    env.send(request("x", "soon").with_header("shop", "7"));
    wait_until("the loop ends, or does not", async || {
        let rounds = env.broker.published("delay.rejected").len();
        (rounds >= MAX_ROUNDS || !env.broker.published("delay.dead").is_empty()).then_some(())
    })
    .await;
    // One rejection, the dead job, and its dead letter, which came back too.
    env.until_metric(r#"dwell_ingest_total{ingest="main",result="rejected"}"#, 3.0).await;
    env.taken().await;
    assert_eq!(
        (env.broker.published("delay.rejected").len(), env.broker.published("delay.dead").len()),
        (1, 1)
    );
    assert_eq!(env.until_empty().await, 1, "it is kept");
    let letter = env.broker.published("delay.dead").remove(0);
    let text = |name| letter.headers.text(name);
    assert_eq!(
        (text("delay-for"), text("shop"), letter.body.as_ref()),
        (Some("soon"), Some("7"), &b"x"[..])
    );
    assert_eq!(
        (text("delayed-error"), text("delayed-dead-reason")),
        (Some("bad_delay"), Some("invalid"))
    );
    assert!(text("delayed-last-error").unwrap().starts_with("bad_delay: "), "{letter:?}");
    loops.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn a_request_that_is_put_back_and_still_bad_is_kept_with_its_new_error() {
    let env = Environment::start(&[("delivery.dead", "")]).await;
    env.send(request("x", "soon"));
    let mut repaired: Message = env.arrived("delay.rejected", 1).await.remove(0);
    assert_eq!(repaired.headers.text("delayed-error"), Some("bad_delay"));
    // As somebody corrects it, and not well.
    repaired.headers.retain(|header| header.name != "delay-for");
    env.send(repaired.with_header("delay-fro", "1s"));
    env.until_metric(r#"dwell_dead_total{reason="invalid"}"#, 1.0).await;
    let store = env.store().await;
    let counts = store.reader.counts(&[]).await.unwrap();
    assert_eq!(counts.dead.iter().sum::<u64>(), 1);
    assert_eq!(env.broker.published("delay.rejected").len(), 1);
}

#[tokio::test]
async fn a_request_that_was_rejected_and_is_good_now_is_a_request() {
    let env = Environment::start(&[]).await;
    env.send(
        request("x", "0")
            .with_header("delayed-error", "bad_delay")
            .with_header("delayed-error-detail", "x"),
    );
    let came = env.arrived("orders.a", 1).await.remove(0);
    assert_eq!(
        (came.headers.text("delayed-error"), came.headers.text("delayed-error-detail")),
        (None, None)
    );
}

/// Puts a rejected request back as it is: the id of the job that keeps it.
async fn put_back(env: &Environment) -> String {
    env.send(request("x", "soon"));
    let rejected = env.arrived("delay.rejected", 1).await.remove(0);
    env.send(rejected);
    let letter = env.arrived("delay.dead", 1).await.remove(0);
    let id = letter.headers.text("delayed-id").unwrap().to_owned();
    env.until_state(&id, JobState::Dead).await;
    id
}

#[tokio::test]
async fn a_kept_request_that_is_corrected_and_still_bad_is_kept_too() {
    let env = Environment::start(&[]).await;
    let first = put_back(&env).await;
    let mut repaired = env.broker.published("delay.dead").remove(0);
    env.send(repaired.clone());
    repaired.headers.retain(|header| header.name != "delay-for");
    env.send(repaired.with_header("delay-for", "later"));
    let letter = env.arrived("delay.dead", 2).await.remove(1);
    let text = |name| letter.headers.text(name);
    assert_eq!(
        (text("delay-for"), text("delayed-error"), letter.body.as_ref()),
        (Some("later"), Some("bad_delay"), &b"x"[..])
    );
    assert_ne!(text("delayed-id"), Some(first.as_str()));
    env.taken().await;
    assert_eq!(env.until_empty().await, 2, "as it was put back first it is kept already");
}

#[tokio::test]
async fn a_kept_request_that_is_requeued_is_published_to_rejected() {
    let env = Environment::start(&[]).await;
    let id = put_back(&env).await;
    let requeue = act_on(Action::Requeue, JobId::new(id.as_str()).unwrap(), None);
    assert_eq!(
        env.store().await.jobs.act(&requeue, &[]).await.unwrap().verdict.as_str(),
        "requeued"
    );
    let requeued = env.arrived("delay.rejected", 2).await.remove(1);
    assert_eq!(
        (requeued.headers.text("delayed-error"), requeued.headers.text("delay-for")),
        (Some("bad_delay"), Some("soon"))
    );
    env.until_over(&id).await;
    // Something leads it back in.
    env.send(requeued);
    env.until_state(&id, JobState::Dead).await;
    assert_eq!(env.broker.published("delay.rejected").len(), 2);
}

#[tokio::test]
async fn a_request_whose_keeper_crashed_is_kept_all_the_same() {
    let mut env = Environment::idle(Default::default(), &[("redis.buckets", "1")]).await;
    env.run(Roles { ingest: true, dispatch: false }).await;
    env.send(request("x", "soon").with_header("delayed-error", "bad_delay"));
    env.taken().await;
    env.stop(Duration::from_secs(5)).await;
    // An instance that takes it and ends.
    let taken =
        env.store().await.jobs.claim(0, "main", Duration::from_millis(100), 1, 1).await.unwrap();
    assert_eq!(taken.jobs.len(), 1);
    env.run(ALL).await;
    let letter = env.arrived("delay.dead", 1).await.remove(0);
    assert_eq!(letter.headers.text("delayed-dead-reason"), Some("invalid"));
    assert_eq!(env.until_empty().await, 1);
    assert!(env.broker.published("delay.rejected").is_empty());
}
