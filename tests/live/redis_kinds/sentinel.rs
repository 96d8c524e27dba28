//! Redis with Sentinel: the master is killed under load.

use dwell_testkit::servers::{RedisOptions, RedisSentinel};

use super::acl;
use super::kind::{
    Bystanders, all_commands, env, jobs, lines, nothing_lost, now_ms, per_tick, tell_recovery,
};

#[tokio::test]
async fn a_failover_loses_nothing_that_a_replica_had() {
    // As the user that the docs make for it.
    let user = acl::user("sentinel-*", &["replica", "sentinel", "fsck"]);
    let sentinel =
        RedisSentinel::start(RedisOptions { user, ..RedisOptions::default() }).await.unwrap();
    let lines = lines("sentinel", &acl::logged_in(&sentinel.urls()), "replica");
    let (mut env, file) = env("sentinel", sentinel, &lines).await;
    let bystanders = Bystanders::new(&env.settings.redis).await;
    let (_one, _two) = tokio::join!(env.dwell(), env.dwell());
    all_commands(&file).await;
    let load = env.load(per_tick());
    let share = jobs(1200) / 2;
    env.until_arrived(share).await;

    let dead = env.redis.master().await.unwrap();
    let killed_ms = now_ms();
    env.redis.servers[dead].kill().unwrap();
    // One of them is gone too: the rest is enough, and is found.
    env.redis.sentinels[0].kill().unwrap();
    env.redis.failed_over(dead).await.unwrap();
    let over_ms = now_ms();
    println!("sentinel: another master after {} ms", over_ms - killed_ms);
    let arrived = env.ledger.lock().distinct();
    env.until_arrived((arrived + share).max(2 * share)).await;
    load.finish().await;
    bystanders.cancel(|_| true).await;
    let left = env.settled().await;
    assert_eq!(left.dead.iter().sum::<u64>(), 0);
    nothing_lost(&env, "sentinel");
    tell_recovery(&env, "sentinel", over_ms, |_| true);
    all_commands(&file).await;
}
