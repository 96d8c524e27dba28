//! Every metric moves where its cause is made, on real servers.

use std::collections::{BTreeMap, HashSet};

use dwell_connectors::{Message, Outcome};
use dwell_testkit::servers::{DwellServer, RedisOptions};
use serde_json::json;

use super::environment::{Environment, SETTLE, scraped};
use super::load::Producer;
use crate::support::{jetstream, wait_within};

const SETTINGS: &str = "delivery.publish_timeout = \"3s\"\ndelivery.retry = [\"200ms\", \"1h\"]\n\
                        schedules.yearly.schedule = \"0 0 29 2 *\"\nschedules.yearly.target = \"orders.new2\"\n\
                        schedules.paused.schedule = \"@daily\"\nschedules.paused.target = \"orders.new2\"\n\
                        schedules.paused.paused = true";
/// The series that only move where Redis or Dwell is in a state that other tests make, or by an
/// interface that this test does not open.
const ELSEWHERE: [&str; 53] = [
    // Events of jobs, which go nowhere here: `routes::audit`, `tests/it`.
    "dwell_events_dropped_total",
    // Consumers that fetch: `http::queues`, `http::long_poll`.
    r#"dwell_pop_lateness_seconds_count"#,
    r#"dwell_pop_lateness_seconds_sum"#,
    r#"dwell_redis_seconds_count{script="pop"}"#,
    r#"dwell_redis_seconds_sum{script="pop"}"#,
    r#"dwell_redis_seconds_count{script="unpop"}"#,
    r#"dwell_redis_seconds_sum{script="unpop"}"#,
    r#"dwell_redis_seconds_count{script="acknowledge"}"#,
    r#"dwell_redis_seconds_sum{script="acknowledge"}"#,
    r#"dwell_redis_seconds_count{script="purge"}"#,
    r#"dwell_redis_seconds_sum{script="purge"}"#,
    // Jobs with an end of their own, and queues that are empty again: `store`.
    r#"dwell_redis_seconds_count{script="end"}"#,
    r#"dwell_redis_seconds_sum{script="end"}"#,
    r#"dwell_redis_seconds_count{script="forget"}"#,
    r#"dwell_redis_seconds_sum{script="forget"}"#,
    // Recurring schedules: `store`.
    r#"dwell_schedule_occurrences_total{result="made"}"#,
    r#"dwell_schedule_occurrences_total{result="caught_up"}"#,
    r#"dwell_schedule_occurrences_total{result="missed"}"#,
    // An expired job, five crashes in a row; a death by a later version; an attempt that is out when it is
    // cancelled, or fails: `tests/it`.
    r#"dwell_possible_duplicates_total{cause="lease_lost"}"#,
    r#"dwell_dead_total{reason="crashed"}"#,
    r#"dwell_dead_total{reason="expired"}"#,
    r#"dwell_dead_total{reason="unknown"}"#,
    r#"dwell_cancelled_total{verdict="in_flight"}"#,
    // A frozen, a full, a failed over, a damaged Redis: `redis_away`, `tests/it`, `store`.
    r#"dwell_redis_errors_total{class="timeout"}"#,
    r#"dwell_redis_errors_total{class="oom"}"#,
    r#"dwell_redis_errors_total{class="readonly"}"#,
    r#"dwell_redis_errors_total{class="script"}"#,
    r#"dwell_redis_errors_total{class="other"}"#,
    // An answer of an error, which brokers do not give: `http_targets`.
    r#"dwell_publish_total{broker="main",outcome="failed"}"#,
    r#"dwell_replies_total{ingest="main",outcome="failed"}"#,
    // As jobs to targets that refuse: `dwell_publish_total` has them here.
    r#"dwell_replies_total{ingest="main",outcome="refused"}"#,
    r#"dwell_replies_total{ingest="main",outcome="invalid"}"#,
    r#"dwell_replies_total{ingest="main",outcome="unknown"}"#,
    // The claim whose answer is lost: `stop`. By HTTP and the command line alone.
    r#"dwell_redis_seconds_count{script="reclaim"}"#,
    r#"dwell_redis_seconds_sum{script="reclaim"}"#,
    r#"dwell_redis_seconds_count{script="requeue"}"#,
    r#"dwell_redis_seconds_sum{script="requeue"}"#,
    r#"dwell_redis_seconds_count{script="move"}"#,
    r#"dwell_redis_seconds_sum{script="move"}"#,
    r#"dwell_redis_seconds_count{script="fsck_leases"}"#,
    r#"dwell_redis_seconds_sum{script="fsck_leases"}"#,
    r#"dwell_redis_seconds_count{script="fsck_hold"}"#,
    r#"dwell_redis_seconds_sum{script="fsck_hold"}"#,
    r#"dwell_redis_seconds_count{script="fsck_counts"}"#,
    r#"dwell_redis_seconds_sum{script="fsck_counts"}"#,
    r#"dwell_redis_seconds_count{script="fsck_jobs"}"#,
    r#"dwell_redis_seconds_sum{script="fsck_jobs"}"#,
    r#"dwell_redis_seconds_count{script="fsck_adopt"}"#,
    r#"dwell_redis_seconds_sum{script="fsck_adopt"}"#,
    r#"dwell_redis_seconds_count{script="fsck_key"}"#,
    r#"dwell_redis_seconds_sum{script="fsck_key"}"#,
    r#"dwell_redis_seconds_count{script="fsck_memories"}"#,
    r#"dwell_redis_seconds_sum{script="fsck_memories"}"#,
];

fn job(id: &str, delay: &str, target: &str) -> Message {
    Message::new("twenty bytes of body")
        .with_header("delay-id", id)
        .with_header("delay-for", delay)
        .with_header("delay-target", target)
}

fn past(id: &str, late: &str) -> Message {
    let message = Message::new("")
        .with_header("delay-id", id)
        .with_header("delay-until", "2020-01-01T00:00:00Z");
    message
        .with_header("delay-target", "orders.new2")
        .with_header("delay-late", late)
        .with_header("delay-max-late", "1s")
}

fn act(action: &str, id: &str) -> Message {
    Message::new("").with_header("delay-action", action).with_header("delay-id", id)
}

async fn send(producer: &mut Producer, messages: Vec<Message>) {
    let outcomes = producer.publish(messages).await;
    assert!(outcomes.iter().all(|outcome| *outcome == Some(Outcome::Confirmed)), "{outcomes:?}");
}

async fn until(dwell: &DwellServer, series: &str, least: u64) {
    let what = format!("{series} is {least} or more");
    // Seconds come in parts.
    wait_within(SETTLE, &what, async || {
        (crate::support::metric(&dwell.metrics().await.unwrap(), series) >= least as f64)
            .then_some(())
    })
    .await;
}

/// Sums the counters and histograms of these scrapes. Returns those that are left at zero.
fn unmoved(scrapes: &[String]) -> Vec<String> {
    let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
    for line in
        scrapes.iter().flat_map(|scrape| scrape.lines()).filter(|line| !line.starts_with('#'))
    {
        let (series, value) = line.rsplit_once(' ').unwrap();
        let name = series.split('{').next().unwrap();
        if ["_total", "_count", "_sum"].iter().any(|end| name.ends_with(end)) {
            *sums.entry(series).or_default() += value.parse::<f64>().unwrap();
        }
    }
    sums.into_iter().filter(|(_, sum)| *sum == 0.0).map(|(series, _)| series.to_owned()).collect()
}

#[tokio::test]
async fn every_metric_moves_where_its_cause_is_made() {
    let mut env = Environment::new("provoked", RedisOptions::default(), SETTINGS).await;
    let port = env.nats.port();
    jetstream::make_stream(
        port,
        "FULL",
        &["orders.full"],
        json!({ "max_msgs": 1, "discard": "new" }),
    )
    .await;
    jetstream::make_stream(port, "SMALL", &["orders.small"], json!({ "max_msg_size": 10 })).await;
    jetstream::make_stream(port, "MORE", &["orders.new2"], json!({})).await;
    let dwell = env.dwell().await;
    let mut producer = env.producer();

    // The answers of targets, and the ends of jobs.
    let once = |message: Message| message.with_header("delay-retry", "none");
    let waiting = |id: &str| job(id, "0", "orders.new2").with_header("delay-confirm", "consumer");
    send(&mut producer, vec![job("full-1", "0", "orders.full"), job("full-2", "0", "orders.full")])
        .await;
    send(
        &mut producer,
        vec![job("small", "0", "orders.small"), once(job("nobody", "0", "orders.nobody"))],
    )
    .await;
    send(
        &mut producer,
        vec![job("again", "0", "orders.nobody"), past("late-1", "dead"), past("late-2", "drop")],
    )
    .await;
    send(
        &mut producer,
        vec![
            once(waiting("fails")),
            waiting("finishes"),
            job("far", "1h", "orders.new2"),
            job("far", "soon", "x"),
        ],
    )
    .await;
    send(
        &mut producer,
        vec![
            job("far", "1h", "orders.new2").with_header("delay-on-conflict", "keep"),
            job("moved", "2h", "orders.new2"),
        ],
    )
    .await;
    for (series, least) in [
        (r#"dwell_publish_total{broker="main",outcome="refused"}"#, 1),
        (r#"dwell_target_paused{broker="main"}"#, 1),
        (r#"dwell_dead_total{reason="invalid"}"#, 1),
        (r#"dwell_dead_total{reason="retries_exhausted"}"#, 1),
        (r#"dwell_dead_total{reason="late"}"#, 1),
        ("dwell_late_dropped_total", 1),
        (r#"dwell_redis_seconds_count{script="hold"}"#, 1),
        (r#"dwell_publish_total{broker="main",outcome="confirmed"}"#, 3),
        (r#"dwell_jobs{state="dead"}"#, 3),
        (r#"dwell_jobs{state="reserved"}"#, 1),
        (r#"dwell_due_within_jobs{seconds="86400"}"#, 2),
        (r#"dwell_schedules{state="active"}"#, 1),
        (r#"dwell_schedules{state="paused"}"#, 1),
    ] {
        until(&dwell, series, least).await;
    }

    // Words about jobs, and their answers.
    let asking = |message: Message, to: &str| message.with_header("delay-reply-to", to);
    send(
        &mut producer,
        vec![
            act("fail", "fails"),
            act("finish", "finishes"),
            act("reschedule", "moved").with_header("delay-for", "3h"),
        ],
    )
    .await;
    send(
        &mut producer,
        vec![
            asking(act("cancel", "far"), "replies"),
            asking(act("cancel", "nobody"), "orders.nobody"),
        ],
    )
    .await;
    send(
        &mut producer,
        vec![act("cancel", "finishes"), act("cancel", "never-was"), act("fire", "moved")],
    )
    .await;
    until(&dwell, r#"dwell_dead_total{reason="failed"}"#, 1).await;
    until(&dwell, r#"dwell_redis_seconds_count{script="fire"}"#, 1).await;

    // An instance that hangs with jobs in its hands: another takes them over, and its own settles
    // come too late.
    let other = env.dwell().await;
    let load = env.load(60);
    // The first stands still meanwhile, so that the other claims the jobs.
    dwell.freeze().unwrap();
    let of_first = env.in_flight().await;
    let frozen = env.freeze_in_flight(&other, 5, &of_first).await;
    dwell.thaw().unwrap();
    until(&dwell, r#"dwell_possible_duplicates_total{cause="rescued"}"#, 1).await;
    // The first rescues its own, too: those of the other are what counts.
    let of_other: HashSet<String> = frozen.difference(&of_first).cloned().collect();
    wait_within(SETTLE, "its jobs are taken over", async || {
        env.in_flight().await.is_disjoint(&of_other).then_some(())
    })
    .await;
    other.thaw().unwrap();
    until(&other, "dwell_leases_lost_total", 1).await;

    // A broker that says nothing, then one that is gone.
    env.freeze_in_flight(&dwell, 5, &HashSet::new()).await;
    env.nats.freeze().unwrap();
    dwell.thaw().unwrap();
    until(&dwell, r#"dwell_possible_duplicates_total{cause="unknown_outcome"}"#, 1).await;
    env.nats.kill().unwrap();
    wait_within(SETTLE, "the broker is away", async || {
        (scraped(&dwell, r#"dwell_broker_connected{broker="main"}"#).await == 0).then_some(())
    })
    .await;
    until(&dwell, "dwell_oldest_overdue_seconds", 1).await;
    env.nats.restart().await.unwrap();
    until(&dwell, r#"dwell_broker_connected{broker="main"}"#, 1).await;

    // A Redis that is gone.
    env.redis.kill().unwrap();
    until(&dwell, r#"dwell_ingest_paused{reason="redis"}"#, 1).await;
    until(&dwell, r#"dwell_redis_errors_total{class="io"}"#, 1).await;
    let scrapes = [dwell.metrics().await.unwrap(), other.metrics().await.unwrap()];
    let left = unmoved(&scrapes);
    assert!(left.iter().all(|series| ELSEWHERE.contains(&series.as_str())), "{left:#?}");
    let is_there = |series: &&str| scrapes.iter().any(|text| text.contains(*series));
    let unknown: Vec<&str> = ELSEWHERE.into_iter().filter(|series| !is_there(series)).collect();
    assert!(unknown.is_empty(), "no such series: {unknown:?}");
    drop(load);
}
