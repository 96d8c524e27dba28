//! Jobs that are claimed a moment before they are due, where that moment is not to come.

use std::collections::BTreeSet;
use std::time::Duration;

use dwell_connectors::{ErrorKind, Message};

use super::environment::{ALL, Environment, attempts, late_ms, request};
use crate::support::wait_until;

const JOB_COUNT: usize = 2000;

/// Jobs of which one is due every other ms, so that at any time a few are claimed and not due yet;
/// once a part of them has arrived.
async fn underway(env: &Environment) {
    for n in 0..JOB_COUNT {
        env.send(request(&format!("job-{n}"), &format!("{}ms", 8000 + 2 * n)));
    }
    env.taken().await;
    env.arrived("orders.a", 100).await;
}

/// Not all has arrived: the machine was fast enough for the test.
fn there_is_more(env: &Environment) {
    assert!(
        env.broker.published("orders.a").len() < JOB_COUNT,
        "it came too late to show anything"
    );
}

/// Returns the messages that came in the end: each job, none early, and none taken over.
async fn all_came(env: &Environment) -> Vec<Message> {
    env.arrived("orders.a", JOB_COUNT).await;
    assert_eq!(env.until_empty().await, 0);
    let came = env.broker.published("orders.a");
    assert_eq!(came.iter().map(|message| &message.body).collect::<BTreeSet<_>>().len(), JOB_COUNT);
    assert!(came.iter().all(|message| late_ms(message) >= 0));
    assert_eq!(env.metric(r#"dwell_possible_duplicates_total{cause="rescued"}"#), 0.0);
    came
}

#[tokio::test]
async fn they_are_given_back_when_the_instance_stops() {
    let mut env = Environment::start(&[]).await;
    underway(&env).await;
    assert!(env.stop(Duration::from_secs(10)).await, "all was settled");
    there_is_more(&env);
    let store = env.store().await;
    assert_eq!(store.reader.counts(&[]).await.unwrap().reserved.iter().sum::<u64>(), 0);
    env.run(ALL).await;
    assert_eq!(attempts(&all_came(&env).await), [1; JOB_COUNT]);
}

#[tokio::test]
async fn they_are_given_back_when_the_broker_goes() {
    let env = Environment::start(&[]).await;
    underway(&env).await;
    env.broker.refuse_open(ErrorKind::Disconnected);
    env.broker.cut();
    env.until_metric(r#"dwell_broker_connected{broker="main"}"#, 0.0).await;
    there_is_more(&env);
    let store = env.store().await;
    let reserved = async || store.reader.counts(&[]).await.unwrap().reserved.iter().sum::<u64>();
    wait_until("nothing is held while the broker is away", async || {
        (reserved().await == 0).then_some(())
    })
    .await;
    env.broker.heal();
    let again = attempts(&all_came(&env).await).into_iter().filter(|attempt| *attempt > 1).count();
    assert_eq!(
        env.metric(r#"dwell_possible_duplicates_total{cause="unknown_outcome"}"#),
        again as f64,
        "none but those that were out"
    );
}
