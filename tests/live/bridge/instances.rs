//! Several instances on one namespace: all take part, one is killed, one sleeps through its lease,
//! one has a wrong clock.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use dwell::clock;
use dwell_testkit::servers::{DwellServer, RedisOptions};
use tempfile::TempDir;

use super::environment::{Environment, SETTLE, published, scraped};
use super::load::{Job, When};
use crate::preload::compiled;
use crate::support::wait_within;

/// A lease is five seconds more. A machine that is busy confirms after a second at times, and each
/// such job comes twice.
const SETTINGS: &str = "redis.buckets = 64\ndelivery.max_in_flight = 200\ndelivery.publish_timeout = \"4s\"";

/// How many of these jobs have not arrived.
fn missing(env: &Environment, ids: &HashSet<String>) -> usize {
    let ledger = env.ledger.lock();
    ids.iter().filter(|id| ledger.arrivals_of(id) == 0).count()
}

#[tokio::test]
async fn of_four_instances_one_is_killed_and_one_sleeps_and_every_job_arrives() {
    let env = Environment::new("four", RedisOptions::default(), SETTINGS).await;
    let mut fleet: Vec<DwellServer> = Vec::new();
    for _ in 0..4 {
        fleet.push(env.dwell().await);
    }
    let load = env.load(60);
    env.until_arrived(1500).await;
    for dwell in &fleet {
        assert!(published(dwell, "confirmed").await > 0, "all take part");
    }

    // What the others have claimed is in there too; the more is forgiven, never less.
    let mut in_flight = env.freeze_in_flight(&fleet[0], 5, &HashSet::new()).await;
    fleet[0].kill().unwrap();
    in_flight.extend(env.in_flight().await);
    let killed = Instant::now();
    wait_within(SETTLE, "what it held was taken over, delivered and settled", async || {
        (missing(&env, &in_flight) == 0 && env.in_flight().await.is_disjoint(&in_flight)).then_some(())
    })
    .await;
    println!(
        "{} jobs that were in flight at the kill were taken over and settled after {:?}; the lease is 9 s",
        in_flight.len(),
        killed.elapsed()
    );

    let rescued = async || {
        let series = r#"dwell_possible_duplicates_total{cause="rescued"}"#;
        scraped(&fleet[2], series).await + scraped(&fleet[3], series).await
    };
    let rescued_before = rescued().await;
    let asleep = put_to_sleep(&env, &fleet[1], [&fleet[2], &fleet[3]]).await;
    wait_within(SETTLE, "what it held was taken over", async || {
        (rescued().await > rescued_before && missing(&env, &asleep) == 0).then_some(())
    })
    .await;
    let log = fleet[1].dir().join("log");
    let logged = std::fs::read_to_string(&log).unwrap().len();
    fleet[1].thaw().unwrap();
    // What it slept over is in its hands, or in the answer to a claim or a settlement, which comes too
    // late when it wakes.
    wait_within(SETTLE, "it finds that it lost them", async || {
        let log = std::fs::read_to_string(&log).unwrap();
        let is_answer_lost = ["claiming failed", "settling failed"].iter().any(|line| log[logged..].contains(line));
        (is_answer_lost || scraped(&fleet[1], "dwell_leases_lost_total").await > 0).then_some(())
    })
    .await;
    let before = published(&fleet[1], "confirmed").await;
    wait_within(SETTLE, "it takes part again", async || (published(&fleet[1], "confirmed").await > before + 20).then_some(())).await;
    load.finish().await;
    let left = env.settled().await;

    assert_eq!(left.dead.iter().sum::<u64>(), 0);
    let ledger = env.ledger.lock();
    let copies = ledger.sound_where(&asleep);
    in_flight.extend(asleep);
    println!("{} jobs, {} copies", ledger.count(), copies.len());
    let stray: Vec<&String> = copies.keys().filter(|id| !in_flight.contains(*id)).collect();
    assert!(stray.is_empty(), "repeated, and not in flight at a fault: {stray:?}");
    assert_eq!(ledger.uncertain(), 0, "the broker was up");
}

/// Longer than any attempt of an instance that runs: it has its confirm or gave up after
/// `publish_timeout`. Shorter than a lease.
const AN_ATTEMPT: Duration = Duration::from_secs(7);

/// Stops an instance, by SIGSTOP, that has jobs in flight: all that were in flight at a stop. Who
/// has claimed a job is not told, so it is seen by what is left when the others have ended what
/// they had.
async fn put_to_sleep(env: &Environment, sleeper: &DwellServer, others: [&DwellServer; 2]) -> HashSet<String> {
    let confirmed = async || published(others[0], "confirmed").await + published(others[1], "confirmed").await;
    let mut ids = HashSet::new();
    wait_within(SETTLE, "it has jobs in flight of its own", async || {
        ids.extend(env.freeze_in_flight(sleeper, 5, &HashSet::new()).await);
        let (stopped, before) = (Instant::now(), confirmed().await);
        let is_own = wait_within(SETTLE, "the others end what they had", async || {
            let none_left = env.in_flight().await.is_disjoint(&ids);
            let others_are_through = stopped.elapsed() > AN_ATTEMPT && confirmed().await >= before + 100;
            (none_left || others_are_through).then_some(!none_left)
        })
        .await;
        if !is_own {
            sleeper.thaw().unwrap();
        }
        is_own.then_some(())
    })
    .await;
    ids
}

#[tokio::test]
async fn instances_whose_clocks_are_a_minute_wrong_fire_nothing_early_and_lose_nothing() {
    let folder = TempDir::new().unwrap();
    // That of the campaigns: the wall clock is wrong by as many seconds as a file says.
    let library = compiled(folder.path(), "lab/src/chaos/system/clock.c");
    let env = Environment::new("clock", RedisOptions::default(), SETTINGS).await;
    let mut fleet = Vec::new();
    for offset in ["-60", "60", ""] {
        let mut dwell = env.prepared();
        // The wall clock alone: a host's is set, its monotonic one never jumps.
        if !offset.is_empty() {
            let file = folder.path().join(offset);
            std::fs::write(&file, offset).unwrap();
            dwell.set_env([("LD_PRELOAD", library.to_str().unwrap()), ("CHAOS_CLOCK_OFFSET", file.to_str().unwrap())]);
        }
        dwell.restart().await.unwrap();
        let log = std::fs::read_to_string(dwell.dir().join("log")).unwrap();
        let line: serde_json::Value = log.lines().find_map(|line| serde_json::from_str(line).ok()).unwrap();
        let said_ms = dwell::units::parse_time_ms(line["timestamp"].as_str().unwrap()).unwrap();
        assert_eq!((clock::wall_ms() - said_ms).abs() > 45_000, !offset.is_empty(), "its clock is {offset:?}: {line}");
        fleet.push(dwell);
    }
    let load = env.load(60);
    env.until_arrived(800).await;
    let due_ms = clock::wall_ms() + 2500;
    let named: Vec<Job> = (0..200).map(|n| Job { id: format!("named-{n}"), when: When::At(due_ms) }).collect();
    env.producer().send(&named).await;
    load.finish().await;
    let left = env.settled().await;
    assert_eq!(left.dead.iter().sum::<u64>(), 0);
    for dwell in &fleet {
        assert!(published(dwell, "confirmed").await > 0, "all take part");
    }
    let ledger = env.ledger.lock();
    assert_eq!((ledger.sound().len(), ledger.attempts_burned(), ledger.uncertain()), (0, 0, 0), "nothing early, lost or repeated");
}
