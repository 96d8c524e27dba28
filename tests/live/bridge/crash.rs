//! SIGKILL of Dwell, again and again, under load.

use std::collections::HashSet;

use dwell_testkit::servers::{AppendFsync, RedisOptions};

use super::environment::Environment;

const KILLS: usize = 5;
const MAX_IN_FLIGHT: usize = 200;
/// The fewest jobs in flight that each kill hits.
const MIN_IN_FLIGHT: usize = 10;

#[tokio::test]
async fn killed_five_times_under_load_it_loses_nothing_and_repeats_only_what_was_in_flight() {
    // The lease, and so how long what was in flight waits for another owner, is five seconds more
    // than the publish timeout.
    let settings =
        format!("delivery.max_in_flight = {MAX_IN_FLIGHT}\ndelivery.publish_timeout = \"6s\"");
    let env = Environment::new("crash", RedisOptions::default(), &settings).await;
    let mut dwell = env.dwell().await;
    let load = env.load(60);
    let mut in_flight = HashSet::new();
    for _ in 0..KILLS {
        let arrived = env.ledger.lock().distinct();
        env.until_arrived(arrived + 300).await;
        let mut caught = env.freeze_in_flight(&dwell, MIN_IN_FLIGHT, &in_flight).await;
        dwell.kill().unwrap();
        // Settles and claims that were on their way took effect after their owner's end: a claim may
        // have jobs in the place of those that the frozen process had.
        let left = env.in_flight().await;
        let count = left.difference(&in_flight).count();
        assert!(count <= MAX_IN_FLIGHT, "{count} jobs were in flight");
        caught.extend(left);
        let fresh = caught.difference(&in_flight).count();
        assert!(fresh >= MIN_IN_FLIGHT, "{fresh} jobs were in flight");
        in_flight.extend(caught);
        dwell.restart().await.unwrap();
    }
    load.finish().await;
    let left = env.settled().await;
    assert_eq!(left.dead.iter().sum::<u64>(), 0);

    let ledger = env.ledger.lock();
    let copies = ledger.sound();
    let again = ledger.attempted_again();
    println!(
        "{} jobs, {} in flight at a kill, {} attempted again, {} copies",
        ledger.count(),
        in_flight.len(),
        again.len(),
        copies.len()
    );
    let stray: Vec<&str> = copies
        .keys()
        .map(String::as_str)
        .chain(again)
        .filter(|id| !in_flight.contains(*id))
        .collect();
    assert!(stray.is_empty(), "repeated, and not in flight at a kill: {stray:?}");
    assert!(copies.values().sum::<usize>() <= KILLS * MAX_IN_FLIGHT);
    assert_eq!(ledger.uncertain(), 0, "the broker was up");
}

#[tokio::test]
async fn killed_with_redis_while_it_holds_requests_it_loses_none_of_them() {
    let options = RedisOptions { appendonly: Some(AppendFsync::Always), ..RedisOptions::default() };
    let settings = "redis.durability = \"fsync\"\ndelivery.publish_timeout = \"6s\"";
    let mut env = Environment::new("crash-both", options, settings).await;
    let mut dwell = env.dwell().await;
    let load = env.load(60);
    env.until_arrived(300).await;
    env.redis.freeze().unwrap();
    env.until_held(100).await;
    // Requests on their way to Redis are lost with both: only the broker still has them.
    dwell.kill().unwrap();
    env.redis.kill().unwrap();
    env.redis.restart().await.unwrap();
    let in_flight = env.in_flight().await;
    dwell.restart().await.unwrap();
    let arrived = env.ledger.lock().distinct();
    env.until_arrived(arrived + 500).await;
    load.finish().await;
    let left = env.settled().await;

    assert_eq!(left.dead.iter().sum::<u64>(), 0);
    assert!(env.redelivered().await >= 100, "the broker had them back");
    let ledger = env.ledger.lock();
    let stray: Vec<String> =
        ledger.sound().into_keys().filter(|id| !in_flight.contains(id)).collect();
    assert!(stray.is_empty(), "repeated, and not in flight: {stray:?}");
}
