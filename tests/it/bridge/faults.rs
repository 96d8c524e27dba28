//! Brokers that refuse, are away or take no letters.

use std::time::{Duration, Instant};

use dwell::store::read::Place;
use dwell_connectors::memory::Fault;
use dwell_connectors::{ErrorKind, Message};

use super::rig::{ALL, Rig, attempts, request, to};
use crate::support::{metric, wait_until};

const REFUSED: &str = r#"dwell_publish_total{broker="main",outcome="refused"}"#;
const LEASE_LOST: &str = "dwell_leases_lost_total";

fn text_of(message: &Message) -> String {
    String::from_utf8(message.body.to_vec()).unwrap()
}

#[tokio::test]
async fn a_refusing_target_burns_no_attempt_and_is_tried_more_and_more_rarely() {
    let rig = Rig::start(&[]).await;
    rig.broker.fail("orders.a", Fault::Refused);
    rig.send(request("x", "0"));
    let mut at = Vec::new();
    for times in 1..=4 {
        rig.until_metric(REFUSED, f64::from(times)).await;
        at.push(Instant::now());
        assert_eq!(rig.metric(r#"dwell_target_paused{broker="main"}"#), 1.0);
    }
    // 200 ms doubled each time, drawn from the upper half; less the time of the test's own look.
    for (pause, pair) in [100, 200, 400].into_iter().zip(at.windows(2)) {
        let took = pair[1] - pair[0];
        assert!(took + Duration::from_millis(20) >= Duration::from_millis(pause), "{took:?}, not {pause} ms");
    }
    rig.broker.heal();
    assert_eq!(attempts(&rig.arrived("orders.a", 1).await), [1]);
    rig.until_metric(r#"dwell_target_paused{broker="main"}"#, 0.0).await;
    rig.until_over("x").await;
}

#[tokio::test]
async fn a_refusing_target_starves_no_other() {
    let mut rig = Rig::idle(Default::default(), &[("delivery.max_in_flight", "128")]).await;
    rig.broker.fail("orders.a", Fault::Refused);
    for n in 0..2000 {
        rig.send(request(&format!("refused-{n}"), "0"));
    }
    rig.run(dwell::bridge::Roles { ingest: true, dispatch: false }).await;
    rig.taken().await;
    rig.stop(Duration::from_secs(5)).await;
    rig.run(ALL).await;
    wait_until("the target is found to refuse", async || (rig.metric(REFUSED) > 0.0).then_some(())).await;
    for n in 0..50 {
        rig.send(to("orders.b", &format!("healthy-{n}"), "0"));
    }
    let healthy = rig.arrived("orders.b", 50).await;
    assert!(rig.broker.published("orders.a").is_empty());
    assert_eq!(attempts(&healthy), [1; 50]);

    rig.broker.heal();
    let rest = rig.arrived("orders.a", 2000).await;
    assert!(attempts(&rest).iter().all(|attempt| *attempt == 1));
    assert_eq!(rig.until_empty().await, 0);
    assert_eq!((rig.broker.published("orders.a").len(), rig.broker.published("orders.b").len()), (2000, 50));
}

#[tokio::test]
async fn a_link_that_is_cut_makes_what_is_out_a_failed_attempt() {
    let rig = Rig::start(&[("delivery.publish_timeout", "25s")]).await;
    rig.broker.fail_times("orders.a", 20, Fault::Hold);
    for n in 0..20 {
        rig.send(request(&format!("job-{n}"), "0"));
    }
    rig.arrived("orders.a", 20).await;
    rig.broker.cut();
    let mut tries = attempts(&rig.arrived("orders.a", 40).await);
    tries.sort_unstable();
    assert_eq!((&tries[..20], &tries[20..]), (&[1; 20][..], &[2; 20][..]));
    assert_eq!(rig.until_empty().await, 0);
    assert_eq!(rig.metric(r#"dwell_possible_duplicates_total{cause="unknown_outcome"}"#), 20.0);
}

#[tokio::test]
async fn while_the_broker_is_away_nothing_is_claimed_and_no_attempt_burned() {
    let rig = Rig::start(&[]).await;
    for n in 0..100 {
        rig.send(request(&format!("job-{n}"), "400ms"));
    }
    rig.taken().await;
    rig.broker.refuse_open(ErrorKind::Disconnected);
    rig.broker.cut();
    rig.until_metric(r#"dwell_broker_connected{broker="main"}"#, 0.0).await;
    let store = rig.store().await;
    wait_until("all are overdue", async || (store.counts(&[]).await.unwrap().overdue == 100).then_some(())).await;
    let counts = store.counts(&[]).await.unwrap();
    assert_eq!((counts.reserved.iter().sum::<u64>(), counts.scheduled.iter().sum::<u64>()), (0, 100));
    let one = rig.until_place("job-0", Place::Scheduled).await;
    assert_eq!(one.state, None, "it was never claimed");
    rig.broker.heal();
    assert_eq!(attempts(&rig.arrived("orders.a", 100).await), [1; 100]);
    assert_eq!(rig.until_empty().await, 0);
    assert_eq!(rig.broker.published("orders.a").len(), 100);
}

#[tokio::test]
async fn a_dead_letter_that_nobody_takes_is_kept_in_redis_all_the_same() {
    for fault in [Fault::Refused, Fault::Unroutable, Fault::Invalid, Fault::Unknown { landed: false }] {
        let rig = Rig::start(&[]).await;
        rig.broker.fail("delay.dead", fault);
        rig.broker.fail("orders.a", Fault::Invalid);
        rig.send(request("x", "0"));
        rig.until_place("x", Place::Dead).await;
        rig.until_metric(r#"dwell_dead_total{reason="invalid"}"#, 1.0).await;
        assert!(rig.broker.published("delay.dead").is_empty());
        assert_eq!(rig.until_empty().await, 1);
    }
}

#[tokio::test]
async fn where_rejected_takes_nothing_the_ingest_pauses_says_so_and_goes_on_after() {
    let rig = Rig::start(&[]).await;
    rig.broker.fail("delay.rejected", Fault::Refused);
    rig.send(request("before", "0"));
    rig.arrived("orders.a", 1).await;
    rig.send(Message::new("no delay").with_header("delay-target", "orders.a"));
    rig.until_metric(r#"dwell_ingest_paused{reason="rejected"}"#, 1.0).await;
    rig.send(request("after", "0"));
    assert_eq!(rig.broker.published("delay.rejected").len(), 0);
    assert!(rig.broker.unacked("delay.in", "dwell") > 0);
    rig.broker.heal();
    let rejected = rig.arrived("delay.rejected", 1).await.remove(0);
    assert_eq!((rejected.body.as_ref(), rejected.headers.text("delayed-error")), (&b"no delay"[..], Some("missing_delay")));
    rig.arrived("orders.a", 2).await;
    rig.until_metric(r#"dwell_ingest_paused{reason="rejected"}"#, 0.0).await;
    rig.taken().await;
}

#[tokio::test]
async fn bad_requests_are_rejected_many_at_once_and_hold_up_no_good_one() {
    let rig = Rig::start(&[]).await;
    // One after the other they would take 40 s.
    rig.broker.fail("delay.rejected", Fault::Delay(Duration::from_millis(100)));
    for n in 0..400 {
        rig.send(Message::new(format!("bad-{n}")).with_header("delay-target", "orders.a"));
    }
    rig.send(request("good", "0"));
    let begun = Instant::now();
    rig.arrived("orders.a", 1).await;
    rig.arrived("delay.rejected", 400).await;
    rig.taken().await;
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!(rig.broker.published("delay.rejected").len(), 400);
    rig.until_metric(r#"dwell_ingest_total{ingest="main",result="rejected"}"#, 400.0).await;
}

#[tokio::test]
async fn of_bad_requests_only_those_that_were_not_taken_are_published_again() {
    let rig = Rig::start(&[]).await;
    // Of the first batch, in this order; the first of them is cut, the others come again whole.
    rig.broker.fail_times("delay.rejected", 1, Fault::Invalid);
    rig.broker.fail_times("delay.rejected", 2, Fault::Refused);
    rig.broker.fail_times("delay.rejected", 1, Fault::Unroutable);
    for n in 0..8 {
        rig.send(Message::new(format!("bad-{n}")).with_header("shop", "7"));
    }
    rig.taken().await;
    let mut rejected: Vec<String> = rig.broker.published("delay.rejected").iter().map(text_of).collect();
    rejected.sort_unstable();
    assert_eq!(rejected, (0..8).map(|n| format!("bad-{n}")).collect::<Vec<_>>());
    rig.until_metric(r#"dwell_ingest_paused{reason="rejected"}"#, 0.0).await;
    assert_eq!(rig.metric(r#"dwell_ingest_total{ingest="main",result="rejected"}"#), 8.0);
}

#[tokio::test]
async fn a_bad_request_that_is_too_large_for_rejected_is_cut_and_says_so() {
    let rig = Rig::start(&[]).await;
    rig.broker.fail("delay.rejected", Fault::TooLarge(400));
    let body = "0123456789".repeat(100);
    rig.send(Message::new(body.clone()).with_header("delay-for", "soon").with_header("shop", "7"));
    rig.send(Message::new("small").with_header("delay-for", "soon").with_header("shop", "x".repeat(400)));
    rig.send(request("after", "0"));
    rig.arrived("orders.a", 1).await;
    let mut rejected = rig.arrived("delay.rejected", 2).await;
    rejected.sort_by_key(|message| std::cmp::Reverse(message.body.len()));
    let told = |message: &Message, name: &str| message.headers.text(name).unwrap().to_owned();
    // 1000 bytes are too many, and 500; headers go first.
    assert_eq!((rejected[0].body.as_ref(), rejected[0].headers.len()), (&body.as_bytes()[..125], 2));
    assert_eq!((rejected[1].body.as_ref(), rejected[1].headers.len()), (&b"small"[..], 2));
    for (message, left_out) in rejected.iter().zip(["all 2 headers, the body from byte 125 of 1000 on", "all 2 headers"]) {
        assert_eq!(told(message, "delayed-error"), "bad_delay");
        let detail = told(message, "delayed-error-detail");
        assert!(detail.starts_with("delay-for: ") && detail.ends_with(&format!(": {left_out}")), "{detail}");
    }
    assert_eq!(rig.metric(r#"dwell_ingest_paused{reason="rejected"}"#), 0.0);
    assert_eq!(rig.metric(r#"dwell_ingest_total{ingest="main",result="rejected"}"#), 2.0);
    rig.taken().await;
}

#[tokio::test]
async fn a_bad_request_that_rejected_does_not_take_at_all_waits_and_goes_out_whole() {
    let rig = Rig::start(&[]).await;
    // As it came, without headers, and with 4, 2, 1 and no bytes of the body; then as it came again.
    rig.broker.fail_times("delay.rejected", 6, Fault::Invalid);
    rig.broker.fail("delay.rejected", Fault::Refused);
    rig.send(Message::new("no delay").with_header("delay-target", "orders.a"));
    rig.until_metric(r#"dwell_ingest_paused{reason="rejected"}"#, 1.0).await;
    rig.broker.heal();
    let rejected = rig.arrived("delay.rejected", 1).await.remove(0);
    assert_eq!((rejected.body.as_ref(), rejected.headers.text("delay-target")), (&b"no delay"[..], Some("orders.a")));
    assert!(!rejected.headers.text("delayed-error-detail").unwrap().contains("left out"));
    rig.until_metric(r#"dwell_ingest_paused{reason="rejected"}"#, 0.0).await;
    rig.taken().await;
}

#[tokio::test]
async fn a_job_that_is_cancelled_in_flight_loses_its_lease_and_nothing_else_happens() {
    let rig = Rig::start(&[]).await;
    rig.broker.fail_times("orders.a", 1, Fault::Hold);
    rig.send(request("x", "0"));
    rig.arrived("orders.a", 1).await;
    rig.send(super::rig::asking(super::rig::action("cancel", "x")));
    assert_eq!(super::rig::verdicts(&rig.arrived("replies", 1).await), ["in_flight"]);
    rig.until_over("x").await;
    assert_eq!(rig.broker.release(), 1);
    rig.until_metric(LEASE_LOST, 1.0).await;
    assert_eq!(metric(&rig.metrics.encode(), r#"dwell_cancelled_total{verdict="in_flight"}"#), 1.0);
    assert_eq!(rig.until_empty().await, 0);
}

#[tokio::test]
async fn a_job_that_is_replaced_in_flight_goes_again_by_its_new_schedule() {
    let rig = Rig::start(&[]).await;
    rig.broker.fail_times("orders.a", 1, Fault::Hold);
    rig.send(request("x", "0"));
    rig.arrived("orders.a", 1).await;
    rig.send(to("orders.b", "x", "100ms"));
    rig.taken().await;
    assert_eq!(rig.broker.release(), 1);
    assert_eq!(attempts(&rig.arrived("orders.b", 1).await), [1]);
    assert_eq!(rig.until_empty().await, 0);
    assert_eq!(rig.metric(LEASE_LOST), 1.0);
}
