//! The load that an idle fleet puts on its Redis.

use std::time::Duration;

use dwell_testkit::servers::{DwellServer, RedisOptions};
use redis::aio::MultiplexedConnection;

use super::environment::{Environment, SETTLE};
use crate::support::wait_within;

/// The work of a Redis between two looks.
#[derive(Debug)]
struct RedisLoad {
    /// Calls of clients a second: scripts, and commands outside of them.
    calls: f64,
    /// Part of a core.
    core: f64,
}

async fn info(link: &mut MultiplexedConnection, section: &str) -> String {
    redis::cmd("INFO").arg(section).query_async(link).await.unwrap()
}

async fn look(link: &mut MultiplexedConnection) -> (f64, f64) {
    let number = |text: &str, name: &str| -> f64 {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .map_or(0.0, |value| value.trim().parse().unwrap())
    };
    let cpu = info(link, "cpu").await;
    let calls = info(link, "commandstats").await;
    let calls_of = |name: &str| -> f64 {
        let line =
            calls.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")));
        line.map_or(0.0, |line| line.split(',').next().unwrap().parse().unwrap())
    };
    let asked = [
        "evalsha",
        "time",
        "zcard",
        "zcount",
        "zrange",
        "zrangebyscore",
        "zremrangebyscore",
        "zadd",
        "publish",
        "hgetall",
        "hget",
        "ping",
    ];
    (
        asked.map(calls_of).iter().sum(),
        number(&cpu, "used_cpu_user_main_thread") + number(&cpu, "used_cpu_sys_main_thread"),
    )
}

/// Starts this many instances with nothing to do. Returns their load on Redis over this time, and
/// their memory, KiB each.
async fn idle(instances: usize, span: Duration) -> (RedisLoad, u64) {
    let env = Environment::new("idle", RedisOptions::default(), "").await;
    let mut fleet: Vec<DwellServer> = Vec::new();
    for _ in 0..instances {
        fleet.push(env.dwell().await);
    }
    let mut link = crate::support::redis_link(env.redis.url()).await;
    let last = &fleet[instances - 1];
    let knows = format!("\"instances\":{instances},");
    wait_within(SETTLE, "they know of each other", async || {
        let log = |dwell: &DwellServer| std::fs::read_to_string(dwell.dir().join("log")).unwrap();
        (instances == 1 || log(&fleet[0]).contains(&knows) && log(last).contains(&knows))
            .then_some(())
    })
    .await;
    let (before, began) = (look(&mut link).await, std::time::Instant::now());
    tokio::time::sleep(span).await;
    let (after, took) = (look(&mut link).await, began.elapsed().as_secs_f64());
    let memory =
        fleet.iter().map(|dwell| resident(dwell.pid().unwrap())).sum::<u64>() / instances as u64;
    (RedisLoad { calls: (after.0 - before.0) / took, core: (after.1 - before.1) / took }, memory)
}

/// KiB in memory.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap()
}

/// The floor poll, rescues and sweeps are the fleet's, whatever its size; heartbeats and gauges
/// each instance's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_fleet_asks_little_more_of_redis_than_one_instance() {
    let (asked, _) = idle(6, Duration::from_secs(5)).await;
    // One alone: 64 polls of buckets, 16 looks for leases and their clock, which a script reads
    // too, 26 counts for the gauges, and 32 looks for due schedules with their clock a second.
    println!("{asked:?}");
    // Six ask 1150 to 1200 times; where each did the work of the fleet, they would ask several times
    // as often.
    assert!((100.0..1500.0).contains(&asked.calls), "{asked:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement: DWELL_IDLE_INSTANCES of processes for ten seconds"]
async fn what_an_idle_fleet_asks_of_redis() {
    let instances = std::env::var("DWELL_IDLE_INSTANCES").map_or(20, |text| text.parse().unwrap());
    let (asked, memory) = idle(instances, Duration::from_secs(12)).await;
    println!(
        "{instances} idle instances: {:.0} calls/s, {:.2} % of a core of Redis; {memory} KiB each",
        asked.calls,
        asked.core * 100.0
    );
}
