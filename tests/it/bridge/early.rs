//! Jobs that are claimed a moment before they are due, where that moment is not to come.

use std::collections::BTreeSet;
use std::time::Duration;

use dwell_connectors::{ErrorKind, Message};

use super::rig::{ALL, Rig, attempts, late_ms, request};
use crate::support::wait_until;

const COUNT: usize = 2000;

/// Jobs of which one is due every other ms, so that at any time a few are claimed and not due yet; once a part of them has arrived.
async fn underway(rig: &Rig) {
    for n in 0..COUNT {
        rig.send(request(&format!("job-{n}"), &format!("{}ms", 8000 + 2 * n)));
    }
    rig.taken().await;
    rig.arrived("orders.a", 100).await;
}

/// Not all has arrived: the machine was fast enough for the test.
fn there_is_more(rig: &Rig) {
    assert!(rig.broker.published("orders.a").len() < COUNT, "it came too late to show anything");
}

/// What came in the end: each job, none early; and nobody had to take one over.
async fn all_came(rig: &Rig) -> Vec<Message> {
    rig.arrived("orders.a", COUNT).await;
    assert_eq!(rig.until_empty().await, 0);
    let came = rig.broker.published("orders.a");
    assert_eq!(came.iter().map(|message| &message.body).collect::<BTreeSet<_>>().len(), COUNT);
    assert!(came.iter().all(|message| late_ms(message) >= 0));
    assert_eq!(rig.metric(r#"dwell_possible_duplicates_total{cause="rescued"}"#), 0.0);
    came
}

#[tokio::test]
async fn they_are_given_back_when_the_instance_stops() {
    let mut rig = Rig::start(&[]).await;
    underway(&rig).await;
    assert!(rig.stop(Duration::from_secs(10)).await, "all was settled");
    there_is_more(&rig);
    let store = rig.store().await;
    assert_eq!(store.counts(&[]).await.unwrap().reserved.iter().sum::<u64>(), 0);
    rig.run(ALL).await;
    assert_eq!(attempts(&all_came(&rig).await), [1; COUNT]);
}

#[tokio::test]
async fn they_are_given_back_when_the_broker_goes() {
    let rig = Rig::start(&[]).await;
    underway(&rig).await;
    rig.broker.refuse_open(ErrorKind::Disconnected);
    rig.broker.cut();
    rig.until_metric(r#"dwell_broker_connected{broker="main"}"#, 0.0).await;
    there_is_more(&rig);
    let store = rig.store().await;
    let reserved = async || store.counts(&[]).await.unwrap().reserved.iter().sum::<u64>();
    wait_until("nothing is held while the broker is away", async || (reserved().await == 0).then_some(())).await;
    rig.broker.heal();
    let again = attempts(&all_came(&rig).await).into_iter().filter(|attempt| *attempt > 1).count();
    assert_eq!(rig.metric(r#"dwell_possible_duplicates_total{cause="unknown_outcome"}"#), again as f64, "none but those that were out");
}
