//! Targets that take messages and never confirm one.

use std::time::Duration;

use dwell::job::JobId;
use dwell::runtime::Roles;
use dwell::store::reader::lookup::JobState;
use dwell_connectors::memory::Fault;

use super::environment::{ALL, Environment, attempts, request, to};
use crate::support::wait_until;

const PAUSED: &str = r#"dwell_target_paused{broker="main"}"#;
const SILENT: Fault = Fault::Silent { landed: true };
/// Far less than a publication waits for its confirm here, and far more than anything else takes.
const SOON_TIMEOUT: Duration = Duration::from_secs(8);

/// An environment whose Redis holds these overdue jobs before it delivers.
async fn overdue(
    set: &[(&str, &str)],
    jobs: impl IntoIterator<Item = dwell_connectors::Message>,
) -> Environment {
    let mut env = Environment::idle(Default::default(), set).await;
    jobs.into_iter().for_each(|job| env.send(job));
    env.run(Roles { ingest: true, dispatch: false }).await;
    env.taken().await;
    env.stop(Duration::from_secs(5)).await;
    env
}

#[tokio::test]
async fn a_target_that_never_answers_starves_no_other() {
    let set = [("delivery.max_in_flight", "128"), ("delivery.publish_timeout", "25s")];
    let mut env = overdue(&set, (0..2000).map(|n| request(&format!("silent-{n}"), "0"))).await;
    env.broker.fail("orders.a", SILENT);
    env.run(ALL).await;
    env.arrived("orders.a", 64).await;
    for n in 0..20 {
        env.send(to("orders.b", &format!("healthy-{n}"), "0"));
    }
    let healthy = env.broker.wait_published("orders.b", 20, SOON_TIMEOUT).await;
    assert_eq!(attempts(&healthy), [1; 20]);
    assert_eq!(env.broker.published("orders.a").len(), 64, "it has half of the window");
    // One after the other, as they come: each finds a place at once.
    for n in 20..25 {
        env.send(to("orders.b", &format!("healthy-{n}"), "0"));
        env.broker.wait_published("orders.b", n + 1, SOON_TIMEOUT).await;
    }
    env.until_metric(PAUSED, 1.0).await;

    env.broker.heal();
    env.broker.cut();
    assert_eq!(env.until_empty().await, 0);
    let came = env.broker.published("orders.a");
    assert_eq!(came.len(), 2064, "only what was out when the link went was tried again");
    env.until_metric(PAUSED, 0.0).await;
}

#[tokio::test]
async fn many_targets_that_never_answer_starve_none_that_does() {
    let set = [("delivery.max_in_flight", "128"), ("delivery.publish_timeout", "25s")];
    let silent = |n: usize| format!("orders.silent-{n}");
    let env = Environment::start(&set).await;
    (0..1000).for_each(|n| env.broker.create(&silent(n)));
    env.broker.fail_all(SILENT);
    env.broker.fail("orders.b", Fault::Delay(Duration::ZERO));
    env.send(to("orders.b", "first", "0"));
    env.arrived("orders.b", 1).await;
    (0..1000).for_each(|n| env.send(to(&silent(n), &format!("silent-{n}"), "0")));
    env.taken().await;
    wait_until("they have all that they may have", async || {
        (env.broker.unanswered() >= 112).then_some(())
    })
    .await;
    for n in 1..6 {
        env.send(to("orders.b", &format!("healthy-{n}"), "0"));
        env.broker.wait_published("orders.b", n + 1, SOON_TIMEOUT).await;
    }
}

#[tokio::test]
async fn what_is_claimed_ahead_waits_and_no_more_is_published_than_may_be_in_flight() {
    let set = [
        ("delivery.max_in_flight", "16"),
        ("delivery.publish_timeout", "25s"),
        ("redis.buckets", "1"),
    ];
    let env = Environment::start(&set).await;
    // Two destinations that are known to confirm may fill the window together.
    let topic = |n: usize| ["orders.a", "orders.b"][n % 2];
    for n in 0..2 {
        env.send(to(topic(n), &format!("first-{n}"), "0"));
        env.arrived(topic(n), 1).await;
        env.until_over(&format!("first-{n}")).await;
        env.broker.fail(topic(n), SILENT);
    }
    (0..40).for_each(|n| env.send(to(topic(n), &format!("job-{n}"), "1s")));
    let store = env.store().await;
    let reserved = async || {
        let mut reserved = 0;
        for n in 0..40 {
            let found = store.reader.find(&JobId::new(format!("job-{n}")).unwrap()).await.unwrap();
            reserved += usize::from(found.is_some_and(|job| job.state == JobState::Reserved));
        }
        reserved
    };
    wait_until("half as many again are claimed", async || (reserved().await == 24).then_some(()))
        .await;
    assert_eq!(env.broker.unanswered(), 16);
    wait_until("they are given back while their leases last", async || {
        (reserved().await == 16).then_some(())
    })
    .await;
    assert_eq!(env.broker.unanswered(), 16);

    env.broker.heal();
    env.broker.cut();
    assert_eq!(env.until_empty().await, 0);
    let came = ["orders.a", "orders.b"].map(|topic| env.broker.published(topic).len());
    assert_eq!(
        came.iter().sum::<usize>(),
        2 + 40 + 16,
        "only what was out when the link went was tried again"
    );
}

#[tokio::test]
async fn one_that_confirms_nothing_is_tried_by_one_job_at_a_time_and_its_jobs_burn_no_attempt() {
    let retry = ["20ms"; 60].join(",");
    let env =
        Environment::start(&[("delivery.publish_timeout", "300ms"), ("delivery.retry", &retry)])
            .await;
    env.broker.fail("orders.a", SILENT);
    for n in 0..30 {
        env.send(request(&format!("job-{n}"), "0"));
    }
    env.until_metric(PAUSED, 1.0).await;
    wait_until("what was out has its outcome", async || {
        (env.broker.unanswered() <= 1).then_some(())
    })
    .await;
    let before = env.broker.published("orders.a").len();
    let mut most = 0;
    wait_until("it is tried again and again", async || {
        most = most.max(env.broker.unanswered());
        (env.broker.published("orders.a").len() >= before + 4).then_some(())
    })
    .await;
    assert!(most <= 1, "{most} tried it at once");

    env.broker.heal();
    assert_eq!(env.until_empty().await, 0);
    env.until_metric(PAUSED, 0.0).await;
    let last = attempts(&env.broker.published("orders.a")).into_iter().max();
    assert!(last < Some(20), "{last:?} attempts of one job");
}

#[tokio::test]
async fn what_is_handed_over_as_the_link_dies_burns_no_attempt() {
    let env = Environment::start(&[]).await;
    env.broker.stall();
    env.send(request("single", "0").with_header("delay-retry", "none"));
    env.until_state("single", JobState::Reserved).await;
    wait_until("it is handed over", async || (env.broker.waited() > 0).then_some(())).await;
    env.broker.cut();
    env.broker.heal();
    assert_eq!(attempts(&env.arrived("orders.a", 1).await), [1]);
    assert_eq!(env.until_empty().await, 0);
    assert_eq!(env.metric(r#"dwell_possible_duplicates_total{cause="unknown_outcome"}"#), 0.0);
}

#[tokio::test]
async fn a_time_to_run_that_is_shorter_than_the_way_to_a_target_pauses_it_for_nobody() {
    let env =
        Environment::start(&[("delivery.retry", "1h"), ("delivery.publish_timeout", "20s")]).await;
    env.broker.fail("orders.a", Fault::Delay(Duration::from_millis(300)));
    for n in 0..6 {
        env.send(request(&format!("short-{n}"), "0").with_header("delay-ttr", "20ms"));
    }
    env.until_metric(r#"dwell_publish_total{broker="main",outcome="unknown"}"#, 6.0).await;
    assert_eq!(env.metric(PAUSED), 0.0);
    env.send(request("patient", "0"));
    env.until_over("patient").await;
}

#[tokio::test]
async fn many_that_never_answer_and_each_differ_are_tried_by_few_in_the_end() {
    let retry = ["20ms"; 60].join(",");
    let set = [
        ("delivery.max_in_flight", "64"),
        ("delivery.publish_timeout", "1s"),
        ("delivery.retry", &retry),
    ];
    let env = Environment::start(&set).await;
    env.broker.fail_all(SILENT);
    env.broker.fail("replies", Fault::Delay(Duration::ZERO));
    for n in 0..400 {
        env.broker.create(&format!("orders.silent-{n}"));
        env.send(to(&format!("orders.silent-{n}"), &format!("silent-{n}"), "0"));
    }
    wait_until("they have all that they may have", async || {
        (env.broker.unanswered() >= 56).then_some(())
    })
    .await;
    let unknown = r#"dwell_publish_total{broker="main",outcome="unknown"}"#;
    wait_until("their time is over", async || (env.metric(unknown) >= 56.0).then_some(())).await;
    // Another pattern, never tried before.
    for n in 0..5 {
        env.send(to("replies", &format!("healthy-{n}"), "0"));
        env.broker.wait_published("replies", n + 1, SOON_TIMEOUT).await;
        wait_until("few of them are out", async || (env.broker.unanswered() <= 9).then_some(()))
            .await;
    }
}
