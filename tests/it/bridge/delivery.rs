//! The way of a job: on time, through its retry array, to the dead letters.

use std::time::Duration;

use dwell::job::DeadReason;
use dwell::store::reader::lookup::JobState;
use dwell_connectors::memory::Fault;

use super::environment::{Environment, attempt, attempts, late_ms, request, to};

/// Two readings of one clock, each cut to ms.
const ROUNDING_TOLERANCE_MS: i64 = 2;

#[tokio::test]
async fn every_job_arrives_once_as_it_was_and_none_early() {
    let env = Environment::start(&[]).await;
    let delays = (0..500).map(|n| n * 7 % 1500);
    for (n, delay) in delays.enumerate() {
        env.send(
            request(&format!("job-{n}"), &format!("{delay}ms"))
                .with_header("traceparent", format!("00-{n}")),
        );
    }
    let mut arrived = env.arrived("orders.a", 500).await;
    assert_eq!(env.until_empty().await, 0);
    assert_eq!(env.broker.published("orders.a").len(), 500);
    arrived.sort_by_key(|message| {
        message.headers.text("traceparent").unwrap()[3..].parse::<usize>().unwrap()
    });
    for (n, message) in arrived.iter().enumerate() {
        assert_eq!(message.body, format!("job-{n}"));
        assert_eq!(message.headers.text("delayed-id"), Some(format!("job-{n}").as_str()));
        assert_eq!(
            (
                attempt(message),
                message.headers.text("delay-for"),
                message.headers.text("delay-target")
            ),
            (1, None, None)
        );
        assert!(late_ms(message) >= -ROUNDING_TOLERANCE_MS, "{} ms early", -late_ms(message));
    }
    assert_eq!(env.metric(r#"dwell_publish_total{broker="main",outcome="confirmed"}"#), 500.0);
    assert_eq!(env.metric(r#"dwell_ingest_total{ingest="main",result="scheduled"}"#), 500.0);
}

#[tokio::test]
async fn a_job_is_retried_by_its_array_and_then_dead_with_its_last_error() {
    let env = Environment::start(&[]).await;
    // Each lands and is not confirmed: so each attempt is seen.
    env.broker.fail("orders.a", Fault::Unknown { landed: true });
    env.send(request("x", "10ms").with_header("shop", "7"));
    let dead = env.arrived("delay.dead", 1).await.remove(0);
    let tries = env.broker.published("orders.a");
    assert_eq!(attempts(&tries), [1, 2, 3]);
    let gaps: Vec<i64> = tries
        .windows(2)
        .map(|pair| pair[1].timestamp_ms.unwrap() - pair[0].timestamp_ms.unwrap())
        .collect();
    assert!(
        gaps[0] >= 60 - ROUNDING_TOLERANCE_MS && gaps[1] >= 90 - ROUNDING_TOLERANCE_MS,
        "{gaps:?}"
    );
    assert!(
        env.broker.dedupe_ids("orders.a").windows(2).all(|pair| pair[0] == pair[1]),
        "a broker that drops repeats would drop these"
    );

    assert_eq!((dead.body.as_ref(), attempt(&dead)), (&b"x"[..], 3));
    assert_eq!(dead.headers.text("shop"), Some("7"));
    assert_eq!(dead.headers.text("delayed-dead-reason"), Some("retries_exhausted"));
    assert_eq!(dead.headers.text("delayed-last-error"), Some("the answer was lost"));
    assert_eq!(dead.headers.text("delayed-due"), tries[0].headers.text("delayed-due"));
    let kept = env.until_state("x", JobState::Dead).await.state_record.unwrap();
    assert_eq!(
        (kept.attempt, kept.reason, kept.last_error.as_str()),
        (3, Some(DeadReason::RetriesExhausted), "the answer was lost")
    );
    env.until_metric(r#"dwell_dead_total{reason="retries_exhausted"}"#, 1.0).await;
    assert_eq!(env.metric(r#"dwell_possible_duplicates_total{cause="unknown_outcome"}"#), 3.0);
}

#[tokio::test]
async fn a_target_that_is_not_there_is_a_failed_attempt_until_it_is_made() {
    let retry = ["50ms"; 60].join(",");
    let env = Environment::start(&[("delivery.retry", retry.as_str())]).await;
    env.send(to("orders.new", "x", "0"));
    env.send(to("orders.never", "y", "0").with_header("delay-retry", "20ms"));
    env.send(to("orders.never", "z", "0").with_header("delay-retry", "none"));
    let dead = env.arrived("delay.dead", 2).await;
    let mut ends: Vec<_> = dead
        .iter()
        .map(|letter| (letter.headers.text("delayed-id").unwrap(), attempt(letter)))
        .collect();
    ends.sort_unstable();
    assert_eq!(ends, [("y", 2), ("z", 1)], "`none` is a single attempt");
    assert!(
        dead.iter()
            .all(|letter| letter.headers.text("delayed-last-error")
                == Some("no topic `orders.never`"))
    );
    env.broker.create("orders.new");
    let came = env.arrived("orders.new", 1).await.remove(0);
    assert!(attempt(&came) > 1);
    assert_eq!(env.until_empty().await, 2);
    assert_eq!(env.metric(r#"dwell_possible_duplicates_total{cause="unknown_outcome"}"#), 0.0);
}

#[tokio::test]
async fn what_a_target_will_never_take_is_dead_at_once() {
    let env = Environment::start(&[]).await;
    env.broker.fail("orders.a", Fault::Invalid);
    env.send(request("x", "0"));
    let dead = env.arrived("delay.dead", 1).await.remove(0);
    assert_eq!((attempt(&dead), dead.headers.text("delayed-dead-reason")), (1, Some("invalid")));
    assert_eq!(dead.headers.text("delayed-last-error"), Some("`orders.a` takes no such message"));
    env.until_state("x", JobState::Dead).await;
}

#[tokio::test]
async fn an_attempt_that_did_not_land_is_made_again_and_counted_as_a_possible_duplicate() {
    let env = Environment::start(&[]).await;
    env.broker.fail_times("orders.a", 1, Fault::Unknown { landed: false });
    env.send(request("x", "0"));
    assert_eq!(attempts(&env.arrived("orders.a", 1).await), [2]);
    env.until_over("x").await;
    assert_eq!(env.metric(r#"dwell_possible_duplicates_total{cause="unknown_outcome"}"#), 1.0);
    assert_eq!(env.metric(r#"dwell_publish_total{broker="main",outcome="unknown"}"#), 1.0);
}

#[tokio::test]
async fn without_an_answer_in_time_the_attempt_has_failed() {
    let env = Environment::start(&[("delivery.publish_timeout", "2s")]).await;
    env.broker.fail_times("orders.a", 1, Fault::Silent { landed: true });
    env.send(request("x", "0"));
    assert_eq!(attempts(&env.arrived("orders.a", 2).await), [1, 2]);
    env.until_over("x").await;
}

#[tokio::test]
async fn a_short_time_to_run_ends_an_attempt_though_longer_ones_are_out() {
    let env = Environment::start(&[("delivery.publish_timeout", "25s")]).await;
    env.broker.fail("orders.b", Fault::Hold);
    env.send(to("orders.b", "long", "0"));
    env.arrived("orders.b", 1).await;
    // After this one's confirm only the long one is waited for.
    env.send(request("between", "0"));
    env.until_over("between").await;
    env.broker.fail_times("orders.a", 1, Fault::Hold);
    env.send(request("short", "0").with_header("delay-ttr", "150ms"));
    let tries = env.broker.wait_published("orders.a", 3, Duration::from_secs(20)).await;
    assert_eq!(attempts(&tries[1..]), [1, 2]);
    let waited = tries[2].timestamp_ms.unwrap() - tries[1].timestamp_ms.unwrap();
    assert!(
        (150..20_000).contains(&waited),
        "{waited} ms of a time to run of 150 ms and a wait of 60 ms"
    );
    env.broker.release();
    assert_eq!(env.until_empty().await, 0);
}

#[tokio::test]
async fn a_replaced_job_goes_once_by_its_new_schedule() {
    let env = Environment::start(&[]).await;
    env.send(request("x", "3s"));
    env.send(to("orders.b", "x", "3200ms"));
    let came = env.arrived("orders.b", 1).await;
    assert_eq!(attempts(&came), [1]);
    assert_eq!(env.until_empty().await, 0);
    assert!(env.broker.published("orders.a").is_empty());
}
