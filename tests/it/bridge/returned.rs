//! What is rejected and comes back in: a loop ends, and no request is lost.

use dwell::store::read::Place;
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
    // Three rejections, what is kept, and its dead letter, which came back too.
    rig.until_metric(r#"dwell_ingest_total{ingest="main",result="rejected"}"#, 5.0).await;
    rig.taken().await;
    assert_eq!((rig.broker.published("delay.rejected").len(), rig.broker.published("delay.dead").len()), (3, 1));
    assert_eq!(rig.until_empty().await, 1, "it is kept");
    let letter = rig.broker.published("delay.dead").remove(0);
    let text = |name| letter.headers.text(name);
    assert_eq!((text("delay-for"), text("shop"), letter.body.as_ref()), (Some("soon"), Some("7"), &b"x"[..]));
    assert_eq!((text("delayed-error"), text("delayed-dead-reason")), (Some("bad_delay"), Some("invalid")));
    assert!(text("delayed-last-error").unwrap().starts_with("bad_delay: "), "{letter:?}");
    loops.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn a_request_that_is_put_back_and_still_bad_is_rejected_anew_and_at_last_kept() {
    let rig = Rig::start(&[("delivery.dead", "")]).await;
    rig.send(request("x", "soon"));
    for (times, code) in [("1", "bad_delay"), ("2", "bad_header"), ("3", "bad_delay")] {
        let count: usize = times.parse().unwrap();
        let rejected = rig.arrived("delay.rejected", count).await.remove(count - 1);
        let text = |name| rejected.headers.text(name);
        assert_eq!((text("delayed-error"), text("delayed-rejections")), (Some(code), Some(times)));
        // As somebody mends it, and not well.
        let mut mended: Message = rejected.clone();
        mended.headers.retain(|header| !header.name.starts_with("delay-for") && header.name != "delay-fro");
        rig.send(if times == "1" { mended.with_header("delay-fro", "1s") } else { mended.with_header("delay-for", "soon") });
    }
    rig.until_metric(r#"dwell_dead_total{reason="invalid"}"#, 1.0).await;
    let store = rig.store().await;
    let dead = wait_until("it is kept", async || {
        let counts = store.counts(&[]).await.unwrap();
        (counts.dead.iter().sum::<u64>() == 1).then_some(Place::Dead)
    });
    assert_eq!(dead.await, Place::Dead);
    assert_eq!(rig.broker.published("delay.rejected").len(), 3);
}

#[tokio::test]
async fn a_request_that_was_rejected_and_is_good_now_is_a_request() {
    let rig = Rig::start(&[]).await;
    rig.send(request("x", "0").with_header("delayed-error", "bad_delay").with_header("delayed-rejections", "99"));
    let came = rig.arrived("orders.a", 1).await.remove(0);
    assert_eq!((came.headers.text("delayed-error"), came.headers.text("delayed-rejections")), (None, None));
}
