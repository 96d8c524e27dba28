//! Instances that end without a word, are told to end, or find damage.

use std::time::Duration;

use dwell::dispatch::LEASE_MARGIN;
use dwell::fleet::Fleet;
use dwell::job::{DeadReason, JobId};
use dwell::maintenance::rescue_options;
use dwell::runtime::Roles;
use dwell::store::Store;
use dwell::store::reader::lookup::JobState;
use dwell::telemetry::Events;
use dwell::wake_ups::WakeUps;
use dwell_connectors::memory::Fault;
use dwell_store::maintenance::rescue::Rescue;
use redis::AsyncCommands;
use tokio::sync::watch;

use super::environment::{ALL, Environment, attempt, attempts, request};
use crate::support::wait_until;

/// Owners that claim a job and are never heard of again, each rescued from, until it is rescued so
/// many times.
async fn crash_on(env: &Environment, id: &str, times: usize) {
    let store = std::sync::Arc::new(env.store().await);
    let (_, fleet) = watch::channel(Fleet::alone("test"));
    let consumers = crate::support::consumers(&store);
    let wake_ups = WakeUps::new(store.clone(), Default::default(), consumers, fleet.clone());
    let events = Events::new(env.metrics.clone());
    let options = rescue_options(&env.settings.delivery, events, wake_ups);
    let rescue = Rescue::new(store.clone(), options, fleet);
    let id = JobId::new(id).unwrap();
    let bucket = store.keys().bucket_of(id.as_str());
    for _ in 0..times {
        let claimed =
            store.jobs.claim(bucket, "main", Duration::from_millis(20), 10, 1 << 20).await.unwrap();
        assert_eq!(claimed.jobs.len(), 1);
        wait_until("it is taken over", async || {
            rescue.run_once(bucket).await.unwrap();
            store.reader.find(&id).await.unwrap().filter(|found| found.state == JobState::Scheduled)
        })
        .await;
    }
}

async fn scheduled(set: &[(&str, &str)]) -> Environment {
    let mut env = Environment::idle(Default::default(), set).await;
    env.send(request("x", "0").with_header("delay-retry", "none"));
    env.run(Roles { ingest: true, dispatch: false }).await;
    env.taken().await;
    env
}

#[tokio::test]
async fn a_job_whose_owners_crash_five_times_in_a_row_is_dead() {
    let mut env = scheduled(&[]).await;
    crash_on(&env, "x", 5).await;
    assert_eq!(env.metric(r#"dwell_possible_duplicates_total{cause="rescued"}"#), 5.0);
    env.stop(Duration::from_secs(5)).await;
    env.run(ALL).await;
    let dead = env.arrived("delay.dead", 1).await.remove(0);
    assert_eq!((attempt(&dead), dead.headers.text("delayed-dead-reason")), (5, Some("crashed")));
    assert_eq!(
        env.until_state("x", JobState::Dead).await.state_record.unwrap().reason,
        Some(DeadReason::Crashed)
    );
    env.until_metric(r#"dwell_dead_total{reason="crashed"}"#, 1.0).await;
    assert!(env.broker.published("orders.a").is_empty());
}

#[tokio::test]
async fn four_crashes_do_not_end_a_job_though_it_has_a_single_attempt() {
    let mut env = scheduled(&[]).await;
    crash_on(&env, "x", 4).await;
    env.stop(Duration::from_secs(5)).await;
    env.run(ALL).await;
    assert_eq!(attempts(&env.arrived("orders.a", 1).await), [5]);
    assert_eq!(env.until_empty().await, 0);
}

#[tokio::test]
async fn an_instance_that_hangs_for_longer_than_its_lease_burns_no_step() {
    let env = Environment::start(&[("delivery.publish_timeout", "3s")]).await;
    env.broker.fail_times("orders.a", 40, Fault::Silent { landed: true });
    for n in 0..40 {
        env.send(request(&format!("job-{n}"), "0").with_header("delay-retry", "none"));
    }
    env.arrived("orders.a", 40).await;
    // The test runs on one thread: blocking it suspends the whole instance, as SIGSTOP does, until
    // its lease has expired.
    #[allow(clippy::disallowed_methods, reason = "the hang itself, not a wait")]
    std::thread::sleep(Duration::from_secs(3) + LEASE_MARGIN + Duration::from_millis(200));
    let mut tries = attempts(&env.arrived("orders.a", 80).await);
    tries.sort_unstable();
    assert_eq!((&tries[..40], &tries[40..]), (&[1; 40][..], &[2; 40][..]));
    assert_eq!(env.until_empty().await, 0);
    assert!(env.broker.published("delay.dead").is_empty());
}

#[tokio::test]
async fn told_to_stop_it_waits_for_the_confirms_and_leaves_the_rest_untouched() {
    let mut env = Environment::start(&[("delivery.max_in_flight", "50")]).await;
    env.broker.fail_all(Fault::Delay(Duration::from_millis(300)));
    for n in 0..1000 {
        env.send(request(&format!("job-{n}"), "0"));
    }
    env.arrived("orders.a", 60).await;
    assert!(env.stop(Duration::from_secs(10)).await, "all was settled");
    let published = env.broker.published("orders.a").len();
    assert!(published < 1000);
    let store = env.store().await;
    assert_eq!(store.reader.counts(&[]).await.unwrap().reserved.iter().sum::<u64>(), 0);
    env.broker.heal();
    env.run(ALL).await;
    let came = env.arrived("orders.a", 1000).await;
    assert_eq!(env.until_empty().await, 0);
    assert_eq!((came.len(), env.broker.published("orders.a").len()), (1000, 1000));
    assert!(attempts(&came).iter().all(|attempt| *attempt == 1), "no attempt was burned");
}

#[tokio::test]
async fn what_has_no_confirm_within_the_drain_time_is_given_back() {
    let mut env = Environment::start(&[("delivery.publish_timeout", "25s")]).await;
    env.broker.fail_times("orders.a", 5, Fault::Hold);
    for n in 0..5 {
        env.send(request(&format!("job-{n}"), "0").with_header("delay-retry", "none"));
    }
    env.arrived("orders.a", 5).await;
    assert!(env.stop(Duration::from_secs(1)).await);
    assert_eq!(env.metric(r#"dwell_possible_duplicates_total{cause="unknown_outcome"}"#), 5.0);
    env.run(ALL).await;
    let came = env.arrived("orders.a", 10).await;
    assert_eq!(attempts(&came[5..]), [2; 5]);
    assert_eq!(env.until_empty().await, 0);
}

#[tokio::test]
async fn what_a_crashed_instance_had_out_is_delivered_by_the_next() {
    // More than a busy machine takes to the crash: what is out by then has no outcome.
    let mut env = Environment::start(&[("delivery.publish_timeout", "5s")]).await;
    env.broker.fail_times("orders.a", 5, Fault::Hold);
    for n in 0..5 {
        env.send(
            request(&format!("job-{n}"), "0")
                .with_header("delay-retry", "none")
                .with_header("delay-confirm", "broker"),
        );
    }
    env.arrived("orders.a", 5).await;
    env.crash();
    env.run(ALL).await;
    let came = env.arrived("orders.a", 10).await;
    assert_eq!(attempts(&came[5..]), [2; 5]);
    assert_eq!(env.until_empty().await, 0);
    assert_eq!(env.metric(r#"dwell_possible_duplicates_total{cause="rescued"}"#), 5.0);
}

#[tokio::test]
async fn damaged_records_are_buried_or_left_and_the_rest_goes_on() {
    let mut env = Environment::idle(Default::default(), &[("redis.buckets", "1")]).await;
    for id in ["metadata", "cut", "version", "nothing", "whole"] {
        env.send(request(id, "0"));
    }
    env.run(Roles { ingest: true, dispatch: false }).await;
    env.taken().await;
    let store: Store = env.store().await;
    let jobs = store.keys().jobs(0).to_owned();
    let mut link = crate::support::redis_link(env.redis.url()).await;
    let record: Vec<u8> = link.hget(&jobs, "metadata").await.unwrap();
    let mut broken = record.clone();
    broken[42..52].fill(0xc1);
    let damage = [
        ("metadata", broken),
        ("cut", record[..36].to_vec()),
        ("version", [&[99], &record[1..]].concat()),
        ("nothing", Vec::new()),
    ];
    for (id, bytes) in damage {
        link.hset::<_, _, _, ()>(&jobs, id, bytes).await.unwrap();
    }
    env.stop(Duration::from_secs(5)).await;
    env.run(ALL).await;
    env.arrived("orders.a", 1).await;
    env.send(request("later", "50ms"));
    env.arrived("orders.a", 2).await;
    env.until_metric(r#"dwell_dead_total{reason="invalid"}"#, 2.0).await;
    let mut dead: Vec<String> = link.zrange(store.keys().dead(0), 0, -1).await.unwrap();
    dead.sort_unstable();
    assert_eq!(dead, ["cut", "metadata"]);
    let left: Vec<String> = link.zrange(store.keys().due(0, "main"), 0, -1).await.unwrap();
    assert_eq!(left, ["version"], "a version that this program does not know is left in place");
}
