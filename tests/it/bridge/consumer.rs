//! Consumer confirms: reserve, finish, fail and the time to run.

use dwell::job::DeadReason;
use dwell::store::reader::lookup::JobState;
use dwell_connectors::Message;
use dwell_connectors::memory::Fault;

use super::environment::{Environment, action, asking, attempts, request, verdicts};

fn job(id: &str, ttr: &str) -> Message {
    request(id, "0").with_header("delay-confirm", "consumer").with_header("delay-ttr", ttr)
}

/// Returns the same action, with the headers that the consumer carries back.
fn carrying(word: Message, from: &Message) -> Message {
    let carried = |name| from.headers.text(name).unwrap().to_owned();
    word.with_header("delayed-due", carried("delayed-due"))
        .with_header("delayed-attempt", carried("delayed-attempt"))
}

async fn until_held(env: &Environment, id: &str) {
    crate::support::wait_until("it is held", async || {
        env.until_state(id, JobState::Reserved)
            .await
            .state_record
            .is_some_and(|state| state.held)
            .then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_job_stays_reserved_until_its_consumer_finishes_it() {
    let env = Environment::start(&[]).await;
    env.send(job("x", "1h"));
    let came = env.arrived("orders.a", 1).await.remove(0);
    until_held(&env, "x").await;
    env.send(asking(action("cancel", "nobody")));
    env.send(asking(carrying(action("finish", "x"), &came)));
    env.until_over("x").await;
    env.send(asking(action("finish", "x")));
    assert_eq!(verdicts(&env.arrived("replies", 3).await), ["not_found", "finished", "fired"]);
    assert_eq!(env.broker.published("orders.a").len(), 1);
}

#[tokio::test]
async fn fail_waits_the_next_step_and_dies_at_the_end_of_the_array() {
    let env = Environment::start(&[]).await;
    env.send(job("x", "1h"));
    for attempt in 1..=3 {
        let came = env.arrived("orders.a", attempt).await.pop().unwrap();
        until_held(&env, "x").await;
        env.send(asking(carrying(action("fail", "x"), &came)));
        env.arrived("replies", attempt).await;
    }
    assert_eq!(verdicts(&env.arrived("replies", 3).await), ["failed"; 3]);
    let dead = env.arrived("delay.dead", 1).await.remove(0);
    assert_eq!(dead.headers.text("delayed-dead-reason"), Some("failed"));
    assert_eq!(attempts(&env.broker.published("orders.a")), [1, 2, 3]);
    assert_eq!(
        env.until_state("x", JobState::Dead).await.state_record.unwrap().reason,
        Some(DeadReason::Failed)
    );
}

#[tokio::test]
async fn without_a_word_within_the_time_to_run_it_is_repeated_to_the_end_of_the_array() {
    let env = Environment::start(&[]).await;
    env.send(job("x", "100ms"));
    let dead = env.arrived("delay.dead", 1).await.remove(0);
    let tries = env.broker.published("orders.a");
    assert_eq!(attempts(&tries), [1, 2, 3]);
    let gaps: Vec<i64> = tries
        .windows(2)
        .map(|pair| pair[1].timestamp_ms.unwrap() - pair[0].timestamp_ms.unwrap())
        .collect();
    assert!(gaps[0] >= 158 && gaps[1] >= 188, "{gaps:?}: the time to run and the wait of the step");
    let ids = env.broker.dedupe_ids("orders.a");
    assert!(
        ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2],
        "a broker that drops repeats must not drop these: {ids:?}"
    );
    assert_eq!(dead.headers.text("delayed-dead-reason"), Some("retries_exhausted"));
    assert_eq!(
        dead.headers.text("delayed-last-error"),
        Some("the consumer did not finish it within the ttr")
    );
    assert_eq!(env.metric(r#"dwell_possible_duplicates_total{cause="rescued"}"#), 0.0, "no crash");
}

#[tokio::test]
async fn a_late_finish_ends_what_waits_for_its_next_attempt_and_what_is_dead() {
    let env = Environment::start(&[]).await;
    env.send(job("waits", "50ms").with_header("delay-retry", "1h"));
    env.send(job("dies", "50ms").with_header("delay-retry", "none"));
    env.arrived("orders.a", 2).await;
    env.until_state("waits", JobState::Scheduled).await;
    env.until_state("dies", JobState::Dead).await;
    env.send(asking(action("finish", "waits")));
    env.send(asking(action("finish", "dies")));
    assert_eq!(verdicts(&env.arrived("replies", 2).await), ["finished", "finished"]);
    assert_eq!(env.until_empty().await, 0);
}

#[tokio::test]
async fn a_word_for_another_schedule_or_attempt_is_stale() {
    let env = Environment::start(&[]).await;
    env.send(job("x", "1h"));
    let first = env.arrived("orders.a", 1).await.remove(0);
    until_held(&env, "x").await;
    env.send(asking(carrying(action("fail", "x"), &first)));
    env.arrived("orders.a", 2).await;
    until_held(&env, "x").await;
    // That attempt is over.
    env.send(asking(carrying(action("fail", "x"), &first)));
    // Another schedule's.
    env.send(asking(action("finish", "x").with_header("delayed-due", "12345")));
    // The schedule stands, whatever its attempt.
    env.send(asking(carrying(action("finish", "x"), &first)));
    assert_eq!(
        verdicts(&env.arrived("replies", 4).await),
        ["failed", "stale", "stale", "finished"]
    );
    assert_eq!(env.until_empty().await, 0);
}

#[tokio::test]
async fn a_finish_before_the_broker_confirmed_counts() {
    let mut env = Environment::start(&[("delivery.publish_timeout", "20s")]).await;
    env.broker.fail_times("orders.a", 1, Fault::Hold);
    env.send(job("x", "1h"));
    env.arrived("orders.a", 1).await;
    env.send(asking(action("finish", "x")));
    assert_eq!(verdicts(&env.arrived("replies", 1).await), ["finished"]);
    assert_eq!(env.broker.release(), 1);
    assert_eq!(env.until_empty().await, 0);
    assert!(env.stop(std::time::Duration::from_secs(10)).await, "all was settled");
    assert_eq!(env.broker.published("orders.a").len(), 1);
    assert_eq!(
        env.metric(r#"dwell_possible_duplicates_total{cause="lease_lost"}"#),
        0.0,
        "it went out once"
    );
}

#[tokio::test]
async fn the_hold_outlives_the_instance_that_began_it() {
    let mut env = Environment::start(&[]).await;
    env.send(job("x", "1500ms"));
    env.arrived("orders.a", 1).await;
    until_held(&env, "x").await;
    env.crash();
    env.run(super::environment::ALL).await;
    assert_eq!(attempts(&env.arrived("orders.a", 2).await), [1, 2]);
    env.send(action("finish", "x"));
    env.until_over("x").await;
}
