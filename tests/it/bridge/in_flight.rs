//! Targets that limit how many attempts are out: their jobs wait for places, and nothing else does.

use std::time::{Duration, Instant};

use dwell::store::reader::lookup::JobState;
use dwell_connectors::Message;
use dwell_connectors::memory::Fault;

use super::environment::{
    ALL, Environment, action, assert_no_turn_is_early, attempts, instance, late_ms, to,
};
use crate::support::wait_until;

const LIMIT: &str = "brokers.main.limits.\"orders.a\".in_flight";

/// More than a busy machine adds to the lateness of a job. Behind a full target a job would wait as
/// long as the target is full: for ever.
const SOON_MS: i64 = 10_000;

/// A job that its consumer holds until it says so.
fn held(id: &str) -> Message {
    to("orders.a", id, "0").with_header("delay-confirm", "consumer").with_header("delay-ttr", "1h")
}

fn bodies(messages: &[Message]) -> Vec<String> {
    messages.iter().map(|message| String::from_utf8(message.body.to_vec()).unwrap()).collect()
}

fn distinct(messages: &[Message]) -> usize {
    let mut ids = bodies(messages);
    ids.sort_unstable();
    ids.dedup();
    ids.len()
}

/// Waits until a limit holds jobs back. Returns about how many.
async fn until_limited(env: &Environment) -> u64 {
    let store = env.store().await;
    wait_until("a limit holds jobs back", async || {
        let limited = store.limited().await.unwrap();
        let one = limited.iter().find(|one| one.set == "main" && one.pattern == "orders.a")?;
        (one.waiting > 0).then_some(one.waiting)
    })
    .await
}

#[tokio::test]
async fn two_instances_share_the_places_of_a_target_and_held_jobs_count() {
    let mut env = Environment::idle(Default::default(), &[(LIMIT, "3")]).await;
    env.run(ALL).await;
    let (other, other_metrics) = instance(&env.settings, ALL).await;
    (0..9).for_each(|n| env.send(held(&format!("job-{n}"))));
    (0..20).for_each(|n| env.send(to("orders.b", &format!("free-{n}"), "1s")));
    let free = env.arrived("orders.b", 20).await;
    let late = free.iter().map(late_ms).max();
    assert!(late.is_some_and(|late| late < SOON_MS), "{late:?}");
    assert!(until_limited(&env).await <= 18);
    // Whoever finishes a job does not know the limit.
    for finished in 0..9 {
        let least = (finished + 3).min(9);
        let came = bodies(&env.arrived("orders.a", least).await);
        assert_eq!(came.len(), least, "never more than three are out");
        env.send(action("finish", &came[finished]));
        env.until_over(&came[finished]).await;
    }
    assert_eq!(env.until_empty().await, 0);
    let came = env.broker.published("orders.a");
    assert_eq!((came.len(), distinct(&came)), (9, 9), "none is lost, none comes twice");
    assert_eq!(attempts(&came), [1; 9], "nothing is burned");
    let store = env.store().await;
    wait_until("nothing waits", async || store.limited().await.unwrap().is_empty().then_some(()))
        .await;
    drop((other, other_metrics));
}

#[tokio::test]
async fn places_that_come_free_are_used_at_once() {
    let set = [(LIMIT, "2"), ("redis.buckets", "4")];
    let mut env = Environment::idle(Default::default(), &set).await;
    env.run(ALL).await;
    (0..400).for_each(|n| env.send(to("orders.a", &format!("job-{n}"), "500ms")));
    let came = env.arrived("orders.a", 400).await;
    assert_eq!(env.until_empty().await, 0);
    assert_eq!((came.len(), distinct(&came)), (400, 400), "none is lost, none comes twice");
    assert_eq!(attempts(&came), [1; 400], "nothing is burned");
    let times = came.iter().map(|message| message.timestamp_ms.unwrap());
    let span = times.clone().max().unwrap() - times.min().unwrap();
    assert!(span < 20_000, "{span} ms");
}

#[tokio::test]
async fn a_long_line_fills_no_window_and_delays_no_other_target() {
    let set = [(LIMIT, "1"), ("delivery.max_in_flight", "32"), ("redis.buckets", "4")];
    let mut env = Environment::idle(Default::default(), &set).await;
    env.run(ALL).await;
    (0..600).for_each(|n| env.send(held(&format!("job-{n}"))));
    env.taken().await;
    assert!(until_limited(&env).await <= 600);
    (0..50).for_each(|n| env.send(to("orders.b", &format!("free-{n}"), "1s")));
    let free = env.arrived("orders.b", 50).await;
    let late = free.iter().map(late_ms).max();
    assert!(late.is_some_and(|late| late < SOON_MS), "{late:?}");
    assert_eq!(env.broker.published("orders.a").len(), 1);
    env.until_metric("dwell_target_limited{broker=\"main\"}", 1.0).await;
    env.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn the_places_of_a_killed_instance_come_back_with_its_leases() {
    let mut env = Environment::start(&[(LIMIT, "2")]).await;
    env.broker.fail("orders.a", Fault::Silent { landed: true });
    (0..5).for_each(|n| env.send(to("orders.a", &format!("job-{n}"), "0")));
    let out = env.arrived("orders.a", 2).await;
    env.taken().await;
    assert_eq!(out.len(), 2);
    env.crash();
    env.broker.heal();
    env.run(ALL).await;
    wait_until("each job came", async || {
        (distinct(&env.broker.published("orders.a")) == 5).then_some(())
    })
    .await;
    assert_eq!(env.until_empty().await, 0);
}

#[tokio::test]
async fn the_places_of_a_stopped_instance_come_back_at_once() {
    let mut env = Environment::start(&[(LIMIT, "2")]).await;
    (0..20).for_each(|n| env.send(to("orders.a", &format!("job-{n}"), "0")));
    env.arrived("orders.a", 1).await;
    env.taken().await;
    assert!(env.stop(Duration::from_secs(10)).await);
    let limit = dwell::store::places::PlaceLimit::of_targets("main", "orders.a", 2);
    let store = env.store().await;
    let call = dwell::store::places::PlaceCall::new(&limit);
    assert_eq!(store.places(&[call]).await.unwrap()[0].free, 2);
    env.run(ALL).await;
    env.arrived("orders.a", 20).await;
    assert_eq!(env.until_empty().await, 0);
}

#[tokio::test]
async fn a_job_that_waits_for_its_place_is_cancelled_fired_and_expires_like_any_other() {
    let env = Environment::start(&[(LIMIT, "1")]).await;
    env.send(held("first"));
    env.arrived("orders.a", 1).await;
    ["cancelled", "fired", "waiting"].into_iter().for_each(|id| env.send(held(id)));
    env.send(held("expired").with_header("delay-expire", "1s"));
    env.taken().await;
    until_limited(&env).await;
    let waiting = env.until_state("waiting", JobState::Scheduled).await;
    let late_ms = env.store().await.read_clock().await.unwrap() / 1000 - waiting.due_ms();
    assert!(late_ms >= 0, "it has its own due time, {late_ms} ms ago");
    env.send(action("cancel", "cancelled"));
    env.send(action("fire", "fired"));
    env.until_over("cancelled").await;
    let dead = env.arrived("delay.dead", 1).await.remove(0);
    assert_eq!(dead.headers.text("delayed-dead-reason"), Some("expired"));
    assert_eq!(bodies(&env.broker.published("orders.a")), ["first"], "the fired one waits, too");
    for (finished, id) in ["first", "fired"].into_iter().enumerate() {
        let came = env.arrived("orders.a", finished + 1).await;
        let last = bodies(&came).pop().unwrap();
        assert!(id == "first" || ["fired", "waiting"].contains(&last.as_str()), "{last}");
        env.send(action("finish", &last));
    }
    let came = env.arrived("orders.a", 3).await;
    assert_eq!((attempts(&came), distinct(&came)), (vec![1; 3], 3));
}

#[tokio::test]
async fn a_rate_and_a_number_of_places_apply_together() {
    let set = [
        (LIMIT, "2"),
        ("brokers.main.limits.\"orders.a\".rate", "100/s"),
        ("brokers.main.limits.\"orders.a\".burst", "1"),
    ];
    let env = Environment::start(&set).await;
    (0..60).for_each(|n| env.send(to("orders.a", &format!("job-{n}"), "0")));
    let came = env.arrived("orders.a", 60).await;
    assert_eq!(env.until_empty().await, 0);
    assert_eq!((attempts(&came), distinct(&came)), (vec![1; 60], 60));
    assert_no_turn_is_early(&came, 10);
}

#[tokio::test]
async fn a_held_job_keeps_its_place_until_its_time_to_run_is_over() {
    let env = Environment::start(&[(LIMIT, "1")]).await;
    for id in ["first", "second", "third"] {
        let job = to("orders.a", id, "0").with_header("delay-confirm", "consumer");
        env.send(job.with_header("delay-ttr", "1s"));
    }
    // Nobody answers.
    let came = env.arrived("orders.a", 4).await;
    let times: Vec<i64> = came.iter().map(|message| message.timestamp_ms.unwrap()).collect();
    let gaps: Vec<i64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.iter().all(|gap| *gap >= 1000), "two were out: {gaps:?} ms apart");
}

/// The scripts that Redis has run by their text: those of limits.
async fn scripts_of_limits(env: &Environment) -> u64 {
    let stats = env.redis.order(&["INFO", "commandstats"]).await.unwrap();
    let calls = stats.iter().find_map(|line| line.strip_prefix("cmdstat_eval:calls="));
    calls.and_then(|calls| calls.split(',').next()).map_or(0, |calls| calls.parse().unwrap())
}

#[tokio::test]
async fn while_places_cannot_be_taken_jobs_wait_and_redis_is_asked_rarely() {
    let env = Environment::start(&[(LIMIT, "5"), ("redis.buckets", "4")]).await;
    // The instance knows of free places.
    env.send(to("orders.a", "first", "0"));
    env.arrived("orders.a", 1).await;
    let key = env.store().await.keys().places("main orders.a");
    env.redis.order(&["SET", &key, "no set of places"]).await.unwrap();
    (0..20).for_each(|n| env.send(to("orders.a", &format!("job-{n}"), "0")));
    env.taken().await;
    let (before, begun) = (scripts_of_limits(&env).await, Instant::now());
    (0..20).for_each(|n| env.send(to("orders.b", &format!("free-{n}"), "1s")));
    let free = env.arrived("orders.b", 20).await;
    let late = free.iter().map(late_ms).max();
    assert!(late.is_some_and(|late| late < SOON_MS), "{late:?}");
    let asked = scripts_of_limits(&env).await - before;
    let seconds = begun.elapsed().as_secs();
    assert!(asked < 100 * (seconds + 1), "{asked} calls in {seconds} s");
    assert_eq!(env.broker.published("orders.a").len(), 1, "no job goes out without a place");
    env.redis.order(&["DEL", &key]).await.unwrap();
    let came = env.arrived("orders.a", 21).await;
    assert_eq!(env.until_empty().await, 0);
    assert_eq!((attempts(&came), distinct(&came)), (vec![1; 21], 21));
}
