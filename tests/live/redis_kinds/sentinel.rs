//! Redis with Sentinel: the master is killed under load.

use dwell_testkit::servers::{RedisOptions, RedisSentinel};

use super::acl;
use super::kind::{Bystanders, all_commands, jobs, lines, nothing_lost, now_ms, per_tick, rig, tell_recovery};

#[tokio::test]
async fn a_failover_loses_nothing_that_a_replica_had() {
    // As the user that the docs make for it.
    let user = acl::user("sentinel-*", &["replica", "sentinel", "fsck"]);
    let sentinel = RedisSentinel::start(RedisOptions { user, ..RedisOptions::default() }).await.unwrap();
    let lines = lines("sentinel", &acl::logged_in(&sentinel.urls()), "replica");
    let (mut rig, file) = rig("sentinel", sentinel, &lines).await;
    let bystanders = Bystanders::new(&rig.settings.redis).await;
    let (_one, _two) = tokio::join!(rig.dwell(), rig.dwell());
    all_commands(&file).await;
    let load = rig.load(per_tick());
    let share = jobs(1200) / 2;
    rig.until_arrived(share).await;

    let dead = rig.redis.master().await.unwrap();
    let killed_ms = now_ms();
    rig.redis.servers[dead].kill().unwrap();
    // One of them is gone too: those that are left are enough, and are found.
    rig.redis.sentinels[0].kill().unwrap();
    rig.redis.failed_over(dead).await.unwrap();
    let over_ms = now_ms();
    println!("sentinel: another master after {} ms", over_ms - killed_ms);
    let arrived = rig.book.lock().distinct();
    rig.until_arrived((arrived + share).max(2 * share)).await;
    load.finish().await;
    bystanders.cancel(|_| true).await;
    let left = rig.settled().await;
    assert_eq!(left.dead.iter().sum::<u64>(), 0);
    nothing_lost(&rig, "sentinel");
    tell_recovery(&rig, "sentinel", over_ms, |_| true);
    all_commands(&file).await;
}
