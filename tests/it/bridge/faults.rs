//! Brokers that refuse, are away or take no letters.

use std::time::{Duration, Instant};

use dwell::store::reader::lookup::JobState;
use dwell_connectors::memory::Fault;
use dwell_connectors::{ErrorKind, Message};

use super::environment::{ALL, Environment, attempts, request, to};
use crate::support::{metric, wait_until};

const REFUSED: &str = r#"dwell_publish_total{broker="main",outcome="refused"}"#;
const LEASE_LOST: &str = "dwell_leases_lost_total";

fn text_of(message: &Message) -> String {
    String::from_utf8(message.body.to_vec()).unwrap()
}

#[tokio::test]
async fn a_refusing_target_burns_no_attempt_and_is_tried_more_and_more_rarely() {
    let env = Environment::start(&[]).await;
    env.broker.fail("orders.a", Fault::Refused);
    let begun = Instant::now();
    env.send(request("x", "0"));
    // The pauses before it: 200 ms doubled each time, drawn from the upper half.
    for (times, pauses_ms) in [(1, 0), (2, 100), (3, 300), (4, 700)] {
        wait_until("it is tried again", async || {
            (env.metric(REFUSED) >= f64::from(times)).then_some(())
        })
        .await;
        let took = begun.elapsed();
        assert!(took >= Duration::from_millis(pauses_ms), "{times} tries in {took:?}");
        assert_eq!(env.metric(r#"dwell_target_paused{broker="main"}"#), 1.0);
    }
    env.broker.heal();
    assert_eq!(attempts(&env.arrived("orders.a", 1).await), [1]);
    env.until_metric(r#"dwell_target_paused{broker="main"}"#, 0.0).await;
    env.until_over("x").await;
}

#[tokio::test]
async fn a_refusing_target_starves_no_other() {
    let mut env = Environment::idle(Default::default(), &[("delivery.max_in_flight", "128")]).await;
    env.broker.fail("orders.a", Fault::Refused);
    for n in 0..2000 {
        env.send(request(&format!("refused-{n}"), "0"));
    }
    env.run(dwell::runtime::Roles { ingest: true, dispatch: false }).await;
    env.taken().await;
    env.stop(Duration::from_secs(5)).await;
    env.run(ALL).await;
    wait_until("the target is found to refuse", async || (env.metric(REFUSED) > 0.0).then_some(()))
        .await;
    for n in 0..50 {
        env.send(to("orders.b", &format!("healthy-{n}"), "0"));
    }
    let healthy = env.arrived("orders.b", 50).await;
    assert!(env.broker.published("orders.a").is_empty());
    assert_eq!(attempts(&healthy), [1; 50]);

    env.broker.heal();
    let rest = env.arrived("orders.a", 2000).await;
    assert!(attempts(&rest).iter().all(|attempt| *attempt == 1));
    assert_eq!(env.until_empty().await, 0);
    assert_eq!(
        (env.broker.published("orders.a").len(), env.broker.published("orders.b").len()),
        (2000, 50)
    );
}

#[tokio::test]
async fn a_link_that_is_cut_makes_what_is_out_a_failed_attempt() {
    let env = Environment::start(&[("delivery.publish_timeout", "25s")]).await;
    env.broker.fail_times("orders.a", 20, Fault::Hold);
    for n in 0..20 {
        env.send(request(&format!("job-{n}"), "0"));
    }
    env.arrived("orders.a", 20).await;
    env.broker.cut();
    let mut tries = attempts(&env.arrived("orders.a", 40).await);
    tries.sort_unstable();
    assert_eq!((&tries[..20], &tries[20..]), (&[1; 20][..], &[2; 20][..]));
    assert_eq!(env.until_empty().await, 0);
    assert_eq!(env.metric(r#"dwell_possible_duplicates_total{cause="unknown_outcome"}"#), 20.0);
}

#[tokio::test]
async fn while_the_broker_is_away_nothing_is_claimed_and_no_attempt_burned() {
    let env = Environment::start(&[]).await;
    for n in 0..100 {
        env.send(request(&format!("job-{n}"), "4s"));
    }
    env.taken().await;
    env.broker.refuse_open(ErrorKind::Disconnected);
    env.broker.cut();
    env.until_metric(r#"dwell_broker_connected{broker="main"}"#, 0.0).await;
    let store = env.store().await;
    wait_until("all are overdue", async || {
        (store.reader.counts(&[]).await.unwrap().overdue == 100).then_some(())
    })
    .await;
    let counts = store.reader.counts(&[]).await.unwrap();
    assert_eq!(
        (counts.reserved.iter().sum::<u64>(), counts.scheduled.iter().sum::<u64>()),
        (0, 100)
    );
    let one = env.until_state("job-0", JobState::Scheduled).await;
    assert_eq!(one.state_record, None, "it was never claimed");
    env.broker.heal();
    assert_eq!(attempts(&env.arrived("orders.a", 100).await), [1; 100]);
    assert_eq!(env.until_empty().await, 0);
    assert_eq!(env.broker.published("orders.a").len(), 100);
}

#[tokio::test]
async fn a_dead_letter_that_nobody_takes_is_kept_in_redis_all_the_same() {
    for fault in
        [Fault::Refused, Fault::Unroutable, Fault::Invalid, Fault::Unknown { landed: false }]
    {
        let env = Environment::start(&[]).await;
        env.broker.fail("delay.dead", fault);
        env.broker.fail("orders.a", Fault::Invalid);
        env.send(request("x", "0"));
        env.until_state("x", JobState::Dead).await;
        env.until_metric(r#"dwell_dead_total{reason="invalid"}"#, 1.0).await;
        assert!(env.broker.published("delay.dead").is_empty());
        assert_eq!(env.until_empty().await, 1);
    }
}

#[tokio::test]
async fn where_rejected_takes_nothing_the_ingest_pauses_says_so_and_goes_on_after() {
    let env = Environment::start(&[]).await;
    env.broker.fail("delay.rejected", Fault::Refused);
    env.send(request("before", "0"));
    env.arrived("orders.a", 1).await;
    env.send(Message::new("no delay").with_header("delay-target", "orders.a"));
    env.until_metric(r#"dwell_ingest_paused{reason="rejected"}"#, 1.0).await;
    env.send(request("after", "0"));
    assert_eq!(env.broker.published("delay.rejected").len(), 0);
    assert!(env.broker.unacked("delay.in", "dwell") > 0);
    env.broker.heal();
    let rejected = env.arrived("delay.rejected", 1).await.remove(0);
    assert_eq!(
        (rejected.body.as_ref(), rejected.headers.text("delayed-error")),
        (&b"no delay"[..], Some("missing_delay"))
    );
    env.arrived("orders.a", 2).await;
    env.until_metric(r#"dwell_ingest_paused{reason="rejected"}"#, 0.0).await;
    env.taken().await;
}

#[tokio::test]
async fn bad_requests_are_rejected_many_at_once_and_hold_up_no_good_one() {
    let env = Environment::start(&[]).await;
    // One after the other they would take 40 s.
    env.broker.fail("delay.rejected", Fault::Delay(Duration::from_millis(100)));
    for n in 0..400 {
        env.send(Message::new(format!("bad-{n}")).with_header("delay-target", "orders.a"));
    }
    env.send(request("good", "0"));
    let begun = Instant::now();
    env.arrived("orders.a", 1).await;
    env.arrived("delay.rejected", 400).await;
    env.taken().await;
    assert!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
    assert_eq!(env.broker.published("delay.rejected").len(), 400);
    env.until_metric(r#"dwell_ingest_total{ingest="main",result="rejected"}"#, 400.0).await;
}

#[tokio::test]
async fn of_bad_requests_only_those_that_were_not_taken_are_published_again() {
    let env = Environment::start(&[]).await;
    // Of the first batch, in this order; the first of them is cut, the others come again whole.
    env.broker.fail_times("delay.rejected", 1, Fault::Invalid);
    env.broker.fail_times("delay.rejected", 2, Fault::Refused);
    env.broker.fail_times("delay.rejected", 1, Fault::Unroutable);
    for n in 0..8 {
        env.send(Message::new(format!("bad-{n}")).with_header("shop", "7"));
    }
    env.taken().await;
    let mut rejected: Vec<String> =
        env.broker.published("delay.rejected").iter().map(text_of).collect();
    rejected.sort_unstable();
    assert_eq!(rejected, (0..8).map(|n| format!("bad-{n}")).collect::<Vec<_>>());
    env.until_metric(r#"dwell_ingest_paused{reason="rejected"}"#, 0.0).await;
    assert_eq!(env.metric(r#"dwell_ingest_total{ingest="main",result="rejected"}"#), 8.0);
}

#[tokio::test]
async fn a_bad_request_that_is_too_large_for_rejected_is_cut_and_says_so() {
    let env = Environment::start(&[]).await;
    env.broker.fail("delay.rejected", Fault::TooLarge(400));
    let body = "0123456789".repeat(100);
    env.send(Message::new(body.clone()).with_header("delay-for", "soon").with_header("shop", "7"));
    env.send(
        Message::new("small").with_header("delay-for", "soon").with_header("shop", "x".repeat(400)),
    );
    env.send(request("after", "0"));
    env.arrived("orders.a", 1).await;
    let mut rejected = env.arrived("delay.rejected", 2).await;
    rejected.sort_by_key(|message| std::cmp::Reverse(message.body.len()));
    let told = |message: &Message, name: &str| message.headers.text(name).unwrap().to_owned();
    // 1000 bytes are too many, and 500; headers go first.
    assert_eq!(
        (rejected[0].body.as_ref(), rejected[0].headers.len()),
        (&body.as_bytes()[..125], 2)
    );
    assert_eq!((rejected[1].body.as_ref(), rejected[1].headers.len()), (&b"small"[..], 2));
    for (message, left_out) in
        rejected.iter().zip(["all 2 headers, the body from byte 125 of 1000 on", "all 2 headers"])
    {
        assert_eq!(told(message, "delayed-error"), "bad_delay");
        let detail = told(message, "delayed-error-detail");
        assert!(
            detail.starts_with("delay-for: ") && detail.ends_with(&format!(": {left_out}")),
            "{detail}"
        );
    }
    assert_eq!(env.metric(r#"dwell_ingest_paused{reason="rejected"}"#), 0.0);
    assert_eq!(env.metric(r#"dwell_ingest_total{ingest="main",result="rejected"}"#), 2.0);
    env.taken().await;
}

#[tokio::test]
async fn a_bad_request_that_rejected_does_not_take_at_all_waits_and_goes_out_whole() {
    let env = Environment::start(&[]).await;
    // As it came, without headers, and with 4, 2, 1 and no bytes of the body; then as it came
    // again.
    env.broker.fail_times("delay.rejected", 6, Fault::Invalid);
    env.broker.fail("delay.rejected", Fault::Refused);
    env.send(Message::new("no delay").with_header("delay-target", "orders.a"));
    env.until_metric(r#"dwell_ingest_paused{reason="rejected"}"#, 1.0).await;
    env.broker.heal();
    let rejected = env.arrived("delay.rejected", 1).await.remove(0);
    assert_eq!(
        (rejected.body.as_ref(), rejected.headers.text("delay-target")),
        (&b"no delay"[..], Some("orders.a"))
    );
    assert!(!rejected.headers.text("delayed-error-detail").unwrap().contains("left out"));
    env.until_metric(r#"dwell_ingest_paused{reason="rejected"}"#, 0.0).await;
    env.taken().await;
}

#[tokio::test]
async fn a_job_that_is_cancelled_in_flight_loses_its_lease_and_nothing_else_happens() {
    let env = Environment::start(&[("delivery.publish_timeout", "20s")]).await;
    env.broker.fail_times("orders.a", 1, Fault::Hold);
    env.send(request("x", "0"));
    env.arrived("orders.a", 1).await;
    env.send(super::environment::asking(super::environment::action("cancel", "x")));
    assert_eq!(super::environment::verdicts(&env.arrived("replies", 1).await), ["in_flight"]);
    env.until_over("x").await;
    assert_eq!(env.broker.release(), 1);
    env.until_metric(LEASE_LOST, 1.0).await;
    assert_eq!(metric(&env.metrics.encode(), r#"dwell_cancelled_total{verdict="in_flight"}"#), 1.0);
    assert_eq!(env.until_empty().await, 0);
}

#[tokio::test]
async fn a_job_that_is_replaced_in_flight_goes_again_by_its_new_schedule() {
    let env = Environment::start(&[("delivery.publish_timeout", "20s")]).await;
    env.broker.fail_times("orders.a", 1, Fault::Hold);
    env.send(request("x", "0"));
    env.arrived("orders.a", 1).await;
    env.send(to("orders.b", "x", "100ms"));
    env.taken().await;
    assert_eq!(env.broker.release(), 1);
    assert_eq!(attempts(&env.arrived("orders.b", 1).await), [1]);
    assert_eq!(env.until_empty().await, 0);
    assert_eq!(env.metric(LEASE_LOST), 1.0);
}
