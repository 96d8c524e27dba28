//! Targets with limits: their jobs wait for turns, and nothing else does.

use std::time::Duration;

use dwell_connectors::Message;

use super::environment::{
    ALL, Environment, action, assert_no_turn_is_early, attempts, instance, late_ms, to,
};
use crate::support::wait_until;

/// 100 a second, one at a time.
const RATE: [(&str, &str); 2] = [
    ("brokers.main.limits.\"orders.a\".rate", "100/s"),
    ("brokers.main.limits.\"orders.a\".burst", "1"),
];
/// Many jobs for one window, and places for few.
const SMALL: [(&str, &str); 2] = [("delivery.max_in_flight", "32"), ("redis.buckets", "4")];

fn jobs(topic: &str, count: usize, delay: &str) -> Vec<Message> {
    (0..count).map(|n| to(topic, &format!("{topic}-{n}"), delay)).collect()
}

/// When the messages arrived, ms, in order.
fn times(messages: &[Message]) -> Vec<i64> {
    let mut times: Vec<i64> =
        messages.iter().map(|message| message.timestamp_ms.unwrap()).collect();
    times.sort_unstable();
    times
}

/// The most of these times that lie within so many ms.
fn most_within(times: &[i64], span_ms: i64) -> usize {
    let from = |at: usize| times[at..].iter().take_while(move |time| **time < times[at] + span_ms);
    (0..times.len()).map(|at| from(at).count()).max().unwrap_or_default()
}

fn ids(messages: &[Message]) -> usize {
    let mut ids: Vec<&[u8]> = messages.iter().map(|message| &message.body[..]).collect();
    ids.sort_unstable();
    ids.dedup();
    ids.len()
}

#[tokio::test]
async fn two_instances_share_the_turns_of_a_target_and_no_other_waits() {
    let mut env = Environment::idle(Default::default(), &[&RATE[..], &SMALL[..]].concat()).await;
    env.run(ALL).await;
    let (other, other_metrics) = instance(&env.settings, ALL).await;
    for job in jobs("orders.a", 300, "1s").into_iter().chain(jobs("orders.b", 50, "1100ms")) {
        env.send(job);
    }
    env.taken().await;
    let free = env.arrived("orders.b", 50).await;
    assert!(env.broker.published("orders.a").len() < 200, "the others still wait");
    let store = env.store().await;
    let limited = store.limited().await.unwrap();
    assert_eq!(limited.len(), 1, "{limited:?}");
    assert_eq!((limited[0].set.as_str(), limited[0].pattern.as_str()), ("main", "orders.a"));
    assert!((1..=300).contains(&limited[0].waiting), "{limited:?}");

    let came = env.arrived("orders.a", 300).await;
    assert_eq!(env.until_empty().await, 0);
    assert_eq!((came.len(), ids(&came), ids(&free)), (300, 300, 50), "none lost, none twice");
    assert_eq!(attempts(&came), [1; 300], "nothing is burned");
    // A turn may be used late, never early.
    assert_no_turn_is_early(&came, 10);
    let times = times(&came);
    let span = times[299] - times[0];
    assert!(span < 12_000, "300 at 100 a second take 3 s, not {span} ms");
    wait_until("nothing waits for its turn", async || {
        store.limited().await.unwrap().is_empty().then_some(())
    })
    .await;
    drop((other, other_metrics));
}

/// The calls that settled jobs in another way than as delivered.
fn sent_back(env: &Environment) -> f64 {
    let metrics = env.metrics.encode();
    let series = ["release", "settle"]
        .map(|script| format!("dwell_redis_seconds_count{{script=\"{script}\"}} "));
    let counts = metrics
        .lines()
        .filter_map(|line| series.iter().find_map(|name| line.strip_prefix(&**name)));
    counts.map(|count| count.parse::<f64>().unwrap()).sum()
}

#[tokio::test]
async fn a_limit_that_is_not_reached_sends_no_job_back() {
    for (limit, value) in [("rate", "1000000/s"), ("in_flight", "5000")] {
        let limit = format!("brokers.main.limits.\"orders.a\".{limit}");
        let env = Environment::start(&[(&limit, value)]).await;
        // Jobs go back if the machine stands still for 250 ms: this does not happen in each round.
        let mut back = Vec::new();
        for round in 1..=5 {
            let before = sent_back(&env);
            (0..1500).for_each(|n| env.send(to("orders.a", &format!("{round}-{n}"), "1s")));
            let came = env.arrived("orders.a", 1500 * round).await;
            assert_eq!((ids(&came), env.until_empty().await), (1500 * round, 0), "{limit}");
            back.push(sent_back(&env) - before);
            if back.ends_with(&[0.0]) {
                break;
            }
        }
        assert!(back.ends_with(&[0.0]), "{limit}: calls that sent jobs back, by round: {back:?}");
    }
}

#[tokio::test]
async fn lateness_counts_from_the_turn() {
    let env = Environment::start(&RATE).await;
    jobs("orders.a", 400, "0").into_iter().for_each(|job| env.send(job));
    let came = env.arrived("orders.a", 400).await;
    assert!(came.iter().map(late_ms).max().is_some_and(|late| late >= 3_000), "they waited");
    env.until_metric("dwell_lateness_seconds_count", 400.0).await;
    // About 800 s. Where the machine stands still, a turn is used up to two seconds late.
    let waited_s = came.iter().map(late_ms).sum::<i64>() as f64 / 1000.0;
    let late_s = env.metric("dwell_lateness_seconds_sum");
    assert!(late_s < waited_s / 2.0, "{late_s} s late, and they waited {waited_s} s together");
}

#[tokio::test]
async fn the_jobs_of_a_killed_instance_have_their_turns() {
    let mut env = Environment::start(&RATE).await;
    jobs("orders.a", 200, "0").into_iter().for_each(|job| env.send(job));
    env.arrived("orders.a", 20).await;
    env.taken().await;
    env.crash();
    env.run(ALL).await;
    env.broker.wait_published("orders.a", 200, Duration::from_secs(40)).await;
    assert_eq!(env.until_empty().await, 0);
    assert_eq!(ids(&env.broker.published("orders.a")), 200, "none is lost");
}

#[tokio::test]
async fn the_turns_that_pass_during_a_stop_do_not_come_all_at_once() {
    let mut env = Environment::start(&RATE).await;
    jobs("orders.a", 600, "0").into_iter().for_each(|job| env.send(job));
    env.arrived("orders.a", 20).await;
    env.taken().await;
    assert!(env.stop(Duration::from_secs(10)).await, "all was settled");
    let before = env.broker.published("orders.a").len();
    assert!(before < 250, "{before} of 600 before the stop");
    let store = env.store().await;
    wait_until("the turns that were taken pass", async || {
        store.limited().await.unwrap().is_empty().then_some(())
    })
    .await;
    let over_us = store.read_clock().await.unwrap() + 2_000_000;
    wait_until("none of them can be used any more", async || {
        (store.read_clock().await.unwrap() > over_us).then_some(())
    })
    .await;
    env.run(ALL).await;
    let came = env.arrived("orders.a", 600).await;
    assert_eq!(env.until_empty().await, 0);
    assert_eq!((came.len(), ids(&came)), (600, 600), "none lost, none twice");
    assert_eq!(attempts(&came), [1; 600], "nothing is burned");
    // Those of a second, and of two before, which a machine that stood still uses late.
    let most = most_within(&times(&came), 1000);
    assert!(most <= 310, "{most} within a second: the jobs take other turns");
}

#[tokio::test]
async fn a_job_that_waits_for_its_turn_is_cancelled_and_fired_like_any_other() {
    let set = [
        ("brokers.main.limits.\"orders.a\".rate", "20/m"),
        ("brokers.main.limits.\"orders.a\".burst", "1"),
    ];
    let env = Environment::start(&set).await;
    jobs("orders.a", 3, "0").into_iter().for_each(|job| env.send(job));
    env.taken().await;
    env.arrived("orders.a", 1).await;
    let left = |came: &[Message]| {
        (0..3)
            .map(|n| format!("orders.a-{n}"))
            .filter(|id| came.iter().all(|message| message.body != id.as_bytes()))
            .collect::<Vec<_>>()
    };
    let waiting = left(&env.broker.published("orders.a"));
    env.send(action("fire", &waiting[0]));
    env.send(action("cancel", &waiting[1]));
    env.taken().await;
    assert_eq!(env.until_empty().await, 0);
    let came = env.broker.published("orders.a");
    assert_eq!((came.len(), left(&came)), (2, vec![waiting[1].clone()]));
    // The fired one waits all the same.
    assert_no_turn_is_early(&came, 3_000);
}

#[tokio::test]
async fn jobs_that_are_over_before_their_turn_hold_no_other_one_back() {
    let set = [
        ("brokers.main.limits.\"orders.a\".rate", "6/m"),
        ("brokers.main.limits.\"orders.a\".burst", "1"),
    ];
    let env = Environment::start(&set).await;
    env.send(to("orders.a", "first", "0"));
    env.arrived("orders.a", 1).await;
    for n in 0..40 {
        let job = to("orders.a", &format!("over-{n}"), "0");
        let late = |job: Message| {
            job.with_header("delay-late", "drop").with_header("delay-max-late", "500ms")
        };
        env.send(if n % 2 == 0 { job.with_header("delay-expire", "500ms") } else { late(job) });
    }
    env.arrived("delay.dead", 20).await;
    env.taken().await;
    env.send(to("orders.a", "last", "0"));
    let came = env.arrived("orders.a", 2).await;
    assert_eq!(env.until_empty().await, 20, "the others were dropped");
    let times = times(&came);
    assert!(times[1] - times[0] < 25_000, "it has the next turn but few: {times:?}");
}
