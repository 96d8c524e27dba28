//! What the ingest answers, and that the broker's redelivery changes nothing.

use std::sync::Arc;
use std::time::Duration;

use dwell::apply::Apply;
use dwell::fleet::{Fleet, Heads};
use dwell::http::Readiness;
use dwell::ingest::{Ingest, Parts};
use dwell::publisher::Publisher;
use dwell::request::Rules;
use dwell::store::Store;
use dwell::store::read::Place;
use dwell_connectors::memory::Fault;
use dwell_connectors::{Destination, Message};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::rig::{Rig, action, asking, attempts, request, to, verdicts};
use crate::support::wait_until;

#[tokio::test]
async fn a_bad_request_is_rejected_as_it_came_with_its_code() {
    let rig = Rig::start(&[]).await;
    rig.send(request("x", "soon").with_header("shop", "7"));
    rig.send(request("y", "0").with_header("delay-fro", "1s"));
    rig.send(to("elsewhere", "z", "0"));
    rig.send(Message::new("w").with_header("delay-for", "0"));
    let rejected = rig.arrived("delay.rejected", 4).await;
    let codes: Vec<_> = rejected.iter().map(|message| message.headers.text("delayed-error").unwrap()).collect();
    assert_eq!(codes, ["bad_delay", "bad_header", "target_not_allowed", "missing_target"]);
    assert_eq!(rejected[0].body, "x");
    assert_eq!((rejected[0].headers.text("shop"), rejected[0].headers.text("delay-for")), (Some("7"), Some("soon")));
    assert!(!rejected[0].headers.text("delayed-error-detail").unwrap().is_empty());
    rig.taken().await;
    assert_eq!(rig.metric(r#"dwell_ingest_total{ingest="main",result="rejected"}"#), 4.0);
    assert_eq!(rig.until_empty().await, 0);
}

#[tokio::test]
async fn what_declare_made_and_somebody_deleted_is_made_again() {
    let rig = Rig::start(&[("ingest.main.declare", "true")]).await;
    rig.send(request("x", "1h"));
    rig.taken().await;
    rig.broker.delete("delay.in");
    wait_until("it is there again", async || format!("{:?}", rig.broker).contains("delay.in").then_some(())).await;
    rig.send(request("y", "1h"));
    rig.taken().await;
    rig.until_place("y", Place::Scheduled).await;
}

#[tokio::test]
async fn a_conflict_is_rejected_and_the_job_that_stood_stands() {
    let rig = Rig::start(&[]).await;
    rig.send(asking(request("x", "500ms")));
    rig.send(asking(to("orders.b", "x", "0").with_header("delay-on-conflict", "reject")));
    rig.send(asking(to("orders.b", "x", "0").with_header("delay-on-conflict", "keep")));
    assert_eq!(verdicts(&rig.arrived("replies", 3).await), ["added", "conflict", "kept"]);
    let rejected = rig.arrived("delay.rejected", 1).await.remove(0);
    assert_eq!((rejected.body.as_ref(), rejected.headers.text("delayed-error")), (&b"x"[..], Some("conflict")));
    rig.arrived("orders.a", 1).await;
    assert_eq!(rig.until_empty().await, 0);
    assert!(rig.broker.published("orders.b").is_empty());
}

#[tokio::test]
async fn verdicts_go_where_they_were_asked_for_and_one_that_cannot_does_not_stop_the_ingest() {
    let rig = Rig::start(&[]).await;
    // Whenever it is tried.
    rig.broker.fail_times("replies", 4, Fault::Refused);
    rig.send(asking(request("unheard", "1h")));
    rig.until_metric(r#"dwell_replies_total{ingest="main",outcome="refused"}"#, 1.0).await;
    // At first.
    rig.broker.fail_times("replies", 3, Fault::Refused);
    rig.send(asking(request("x", "1h")));
    rig.arrived("replies", 1).await;
    rig.send(asking(request("x", "2h")));
    rig.send(asking(action("reschedule", "x").with_header("delay-for", "3h")));
    rig.send(asking(action("fire", "x")));
    rig.arrived("orders.a", 1).await;
    rig.until_over("x").await;
    rig.send(asking(action("cancel", "x")));
    rig.send(asking(action("cancel", "unheard")));
    rig.send(asking(action("cancel", "unheard")));
    let replies = rig.arrived("replies", 7).await;
    assert_eq!(verdicts(&replies), ["added", "replaced", "rescheduled", "firing", "fired", "cancelled", "not_found"]);
    let first: serde_json::Value = serde_json::from_slice(&replies[0].body).unwrap();
    assert_eq!((first["id"].as_str(), first["action"].as_str()), (Some("x"), Some("schedule")));
    assert!(first["due_ms"].is_i64());
    rig.taken().await;
    let replies = |outcome: &str| rig.metric(&format!(r#"dwell_replies_total{{ingest="main",outcome="{outcome}"}}"#));
    assert_eq!((replies("refused"), replies("confirmed"), replies("unknown")), (1.0, 7.0, 0.0));
}

#[tokio::test]
async fn requests_for_one_id_are_applied_in_their_order_within_one_batch() {
    let mut rig = Rig::idle(Default::default(), &[]).await;
    for n in 0..50 {
        let id = format!("job-{n}");
        rig.send(asking(request(&id, "1h")));
        rig.send(asking(action("cancel", &id)));
        rig.send(asking(to("orders.b", &id, "200ms")));
    }
    rig.run(super::rig::ALL).await;
    assert_eq!(verdicts(&rig.arrived("replies", 150).await), ["added", "cancelled", "added"].repeat(50));
    assert_eq!(attempts(&rig.arrived("orders.b", 50).await), [1; 50]);
    assert_eq!(rig.until_empty().await, 0);
    assert!(rig.broker.published("orders.a").is_empty());
    assert_eq!(rig.broker.published("orders.b").len(), 50);
}

#[tokio::test]
async fn the_redelivery_of_a_whole_batch_changes_nothing_and_answers_the_same() {
    let mut rig = Rig::idle(Default::default(), &[("delivery.publish_timeout", "25s")]).await;
    rig.send(asking(request("stays", "1s")));
    rig.send(asking(request("again", "1h")));
    rig.send(asking(action("cancel", "again")));
    rig.send(asking(to("orders.b", "again", "1s")));
    rig.send(asking(request("gone", "1h")));
    rig.send(asking(action("cancel", "gone")));
    rig.send(asking(Message::new("nameless").with_header("delay-for", "1s").with_header("delay-target", "orders.a")));
    rig.send(asking(request("replaced", "1h")));
    rig.send(asking(request("replaced", "1s")));
    rig.send(request("bad", "soon"));
    // The last reply is not answered for: the batch is applied and cannot be acknowledged before the link is cut.
    rig.broker.fail_times("replies", 8, Fault::Delay(Duration::ZERO));
    rig.broker.fail_times("replies", 1, Fault::Hold);
    rig.run(super::rig::ALL).await;
    let first = verdicts(&rig.arrived("replies", 9).await);
    rig.broker.cut();
    let all = verdicts(&rig.arrived("replies", 18).await);
    assert_eq!(all[..9], all[9..], "{first:?}");
    assert_eq!(first, ["added", "added", "cancelled", "added", "added", "cancelled", "added", "added", "replaced"]);
    let mut came: Vec<_> = rig.arrived("orders.a", 3).await.into_iter().map(|message| message.body).collect();
    came.sort_unstable();
    assert_eq!(came, ["nameless", "replaced", "stays"]);
    rig.arrived("orders.b", 1).await;
    assert_eq!(rig.until_empty().await, 0);
    assert_eq!((rig.broker.published("orders.a").len(), rig.broker.published("orders.b").len()), (3, 1));
}

#[tokio::test]
async fn verdicts_of_a_batch_are_published_together_and_all_confirmed_before_it_is_acknowledged() {
    let mut rig = Rig::idle(Default::default(), &[("delivery.publish_timeout", "25s")]).await;
    for id in ["a", "b", "c", "d"] {
        rig.send(asking(request(id, "1h")));
    }
    rig.send(asking(action("cancel", "a")));
    rig.broker.fail_times("replies", 5, Fault::Hold);
    rig.run(super::rig::ALL).await;
    // One after the other, each would wait until the timeout of the one before.
    assert_eq!(verdicts(&rig.arrived("replies", 5).await), ["added", "added", "added", "added", "cancelled"]);
    assert_eq!(rig.broker.unacked("delay.in", "dwell"), 5);
    rig.broker.release();
    rig.taken().await;
}

#[tokio::test]
async fn a_destination_that_confirms_nothing_is_waited_for_once() {
    const UNKNOWN: &str = r#"dwell_replies_total{ingest="main",outcome="unknown"}"#;
    let rig = Rig::start(&[("delivery.publish_timeout", "15s")]).await;
    rig.broker.fail("replies", Fault::Hold);
    rig.send(asking(request("a", "1h")));
    rig.until_metric(UNKNOWN, 1.0).await;
    rig.send(asking(request("b", "1h")));
    rig.send(asking(request("c", "1h")));
    rig.arrived("replies", 3).await;
    rig.taken().await;
    assert_eq!(rig.metric(UNKNOWN), 1.0, "it was acknowledged before its verdict had an outcome");
    // Once a word comes, verdicts are waited for again.
    rig.broker.heal();
    rig.broker.release();
    rig.until_metric(r#"dwell_replies_total{ingest="main",outcome="confirmed"}"#, 2.0).await;
    rig.broker.fail_times("replies", 1, Fault::Hold);
    rig.send(asking(request("d", "1h")));
    rig.arrived("replies", 4).await;
    assert_eq!(rig.broker.unacked("delay.in", "dwell"), 1);
    rig.broker.release();
    rig.taken().await;
}

#[tokio::test]
async fn what_is_refused_behind_a_verdict_without_a_confirm_is_not_waited_for_either() {
    let mut rig = Rig::idle(Default::default(), &[("delivery.publish_timeout", "15s")]).await;
    for id in ["a", "b", "c"] {
        rig.send(asking(request(id, "1h")));
    }
    // As on RabbitMQ: one goes ahead, the others are refused while it has no confirm, and then one of them goes ahead.
    rig.broker.fail_times("replies", 1, Fault::Hold);
    rig.broker.fail_times("replies", 2, Fault::Refused);
    rig.broker.fail("replies", Fault::Hold);
    rig.run(super::rig::ALL).await;
    rig.taken().await;
    assert_eq!(rig.metric(r#"dwell_replies_total{ingest="main",outcome="unknown"}"#), 1.0, "acknowledged before the others had an outcome");
    rig.arrived("replies", 3).await;
}

#[tokio::test]
async fn a_verdict_that_may_not_have_been_taken_is_published_again() {
    let rig = Rig::start(&[]).await;
    // As when the link breaks.
    rig.broker.fail_times("replies", 1, Fault::Unknown { landed: false });
    rig.send(asking(request("a", "1h")));
    rig.taken().await;
    assert_eq!(verdicts(&rig.broker.published("replies")), ["added"]);
    assert_eq!(rig.metric(r#"dwell_replies_total{ingest="main",outcome="confirmed"}"#), 1.0);
    // Where one of two queues behind an exchange is full, every outcome is unknown: the other has no more than one copy of each.
    rig.broker.fail("replies", Fault::Unknown { landed: true });
    rig.send(asking(request("b", "1h")));
    rig.taken().await;
    assert_eq!(verdicts(&rig.broker.published("replies")), ["added", "added", "added"]);
    assert_eq!(rig.metric(r#"dwell_replies_total{ingest="main",outcome="unknown"}"#), 1.0);
}

#[tokio::test]
async fn a_verdict_waits_for_the_link_that_it_is_published_on() {
    let rig = Rig::idle(Default::default(), &[("delivery.publish_timeout", "20s")]).await;
    let store = Arc::new(Store::open(&rig.settings.redis, &["main".to_owned()], Arc::new(rig.metrics.clone())).await.unwrap());
    let (_, fleet) = watch::channel(Fleet::alone("test"));
    let source = rig.settings.brokers["main"].connector.clone();
    let (publisher, _reports) = Publisher::new("main", source.clone(), Duration::from_secs(20), None);
    let ingest = Ingest::new(Parts {
        rules: Rules::new(&rig.settings, "main").unwrap(),
        source,
        rejected: Destination::new("delay.rejected"),
        publisher: publisher.clone(),
        apply: Apply {
            heads: Heads::new(store.clone(), Default::default(), fleet),
            store,
            retry_ms: Vec::new(),
            metrics: rig.metrics.clone(),
            traces: Default::default(),
            together: Default::default(),
        },
        readiness: Readiness::new(["main"]),
    });
    let never = CancellationToken::new();
    let link = async {
        rig.until_place("x", Place::Scheduled).await;
        publisher.run(None, never.clone()).await;
    };
    tokio::select! {
        applied = ingest.apply(vec![asking(request("x", "1h"))], &never) => assert!(applied),
        () = link => unreachable!("it runs until it is told to stop"),
    }
    assert_eq!(verdicts(&rig.broker.published("replies")), ["added"]);
}
