//! What is rejected and comes back in: a loop ends, and no request is lost.

use dwell_connectors::Message;
use dwell_connectors::memory::Broker;

use super::rig::{Rig, request};
use crate::support::{DEADLINE, wait_until};

/// More rounds than any loop may go.
const MANY: usize = 100;

/// Brings what comes on this topic back into the ingest, as a binding or a mirror does; [`MANY`] times at most.
fn leads_back(broker: &Broker, topic: &'static str) -> tokio::task::JoinHandle<()> {
    let broker = broker.clone();
    tokio::spawn(async move {
        for round in 0..MANY {
            let message = broker.wait_published(topic, round + 1, DEADLINE).await.remove(round);
            broker.publish("delay.in", message);
        }
    })
}

#[tokio::test]
async fn a_rejected_request_that_goes_round_is_kept_among_the_dead() {
    let rig = Rig::start(&[]).await;
    let loops = ["delay.rejected", "delay.dead"].map(|topic| leads_back(&rig.broker, topic));
    rig.send(request("x", "soon").with_header("shop", "7"));
    wait_until("the loop ends, or does not", async || {
        let rounds = rig.broker.published("delay.rejected").len();
        (rounds >= MANY || !rig.broker.published("delay.dead").is_empty()).then_some(())
    })
    .await;
    // One rejection, what is kept, and its dead letter, which came back too.
    rig.until_metric(r#"dwell_ingest_total{ingest="main",result="rejected"}"#, 3.0).await;
    rig.taken().await;
    assert_eq!((rig.broker.published("delay.rejected").len(), rig.broker.published("delay.dead").len()), (1, 1));
    assert_eq!(rig.until_empty().await, 1, "it is kept");
    let letter = rig.broker.published("delay.dead").remove(0);
    let text = |name| letter.headers.text(name);
    assert_eq!((text("delay-for"), text("shop"), letter.body.as_ref()), (Some("soon"), Some("7"), &b"x"[..]));
    assert_eq!((text("delayed-error"), text("delayed-dead-reason")), (Some("bad_delay"), Some("invalid")));
    assert!(text("delayed-last-error").unwrap().starts_with("bad_delay: "), "{letter:?}");
    loops.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn a_request_that_is_put_back_and_still_bad_is_kept_with_its_new_error() {
    let rig = Rig::start(&[("delivery.dead", "")]).await;
    rig.send(request("x", "soon"));
    let mut mended: Message = rig.arrived("delay.rejected", 1).await.remove(0);
    assert_eq!(mended.headers.text("delayed-error"), Some("bad_delay"));
    // As somebody mends it, and not well.
    mended.headers.retain(|header| header.name != "delay-for");
    rig.send(mended.with_header("delay-fro", "1s"));
    rig.until_metric(r#"dwell_dead_total{reason="invalid"}"#, 1.0).await;
    let store = rig.store().await;
    let counts = store.counts(&[]).await.unwrap();
    assert_eq!(counts.dead.iter().sum::<u64>(), 1);
    assert_eq!(rig.broker.published("delay.rejected").len(), 1);
}

#[tokio::test]
async fn a_request_that_was_rejected_and_is_good_now_is_a_request() {
    let rig = Rig::start(&[]).await;
    rig.send(request("x", "0").with_header("delayed-error", "bad_delay").with_header("delayed-error-detail", "x"));
    let came = rig.arrived("orders.a", 1).await.remove(0);
    assert_eq!((came.headers.text("delayed-error"), came.headers.text("delayed-error-detail")), (None, None));
}
