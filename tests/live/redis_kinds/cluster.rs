//! Redis Cluster: slots that move and a master that is killed, under load.

use std::collections::HashSet;

use dwell::store::admin::fsck;
use dwell_testkit::servers::{RedisCluster, RedisOptions};

use super::acl;
use super::kind::{
    Bystanders, all_commands, env, jobs, lines, nothing_lost, now_ms, per_tick, tag, tell_recovery,
};
use crate::bridge::environment::SETTLE;
use crate::store::fixture::{KEEP, RETRY};
use crate::support::wait_within;

#[tokio::test]
async fn slots_that_move_and_a_master_that_is_killed_lose_nothing_that_replicas_had() {
    // As the user that the docs make for it.
    let user = acl::user("cluster-*", &["replica", "cluster", "fsck"]);
    let cluster =
        RedisCluster::start(RedisOptions { user, ..RedisOptions::default() }).await.unwrap();
    let lines = lines("cluster", &acl::logged_in(&cluster.urls()), "replica");
    let (mut env, file) = env("cluster", cluster, &lines).await;
    let settings = env.settings.redis.clone();
    let bystanders = Bystanders::new(&settings).await;
    let buckets = settings.buckets;
    let mut slots = Vec::new();
    let mut masters = Vec::new();
    for bucket in 0..buckets {
        let slot = env.redis.slot_of(&tag(&settings, bucket)).await.unwrap();
        slots.push(slot);
        masters.push(env.redis.master_of(slot).await.unwrap());
    }
    assert!(masters.iter().collect::<HashSet<_>>().len() > 1, "{masters:?}");

    let (_one, _two) = tokio::join!(env.dwell(), env.dwell());
    let checks = all_commands(&file).await;
    assert!(
        checks.iter().any(|check| check["detail"]
            .as_str()
            .unwrap()
            .contains("3 masters, each with 1 replicas")),
        "{checks:?}"
    );
    let load = env.load(per_tick());
    let share = jobs(1200) / 4;
    env.until_arrived(share).await;
    let meta = env.redis.slot_of(&format!("{}:meta", settings.namespace)).await.unwrap();
    let mut changed = HashSet::new();
    for (bucket, slot) in
        [(Some(0), slots[0]), (Some(1), slots[1]), (Some(2), slots[2]), (None, meta)]
    {
        let from = env.redis.master_of(slot).await.unwrap();
        env.redis.migrate(slot, (from + 1) % 3).await.unwrap();
        changed.extend(bucket);
    }
    env.redis.whole().await.unwrap();
    env.until_arrived(2 * share).await;

    let dead = env.redis.master_of(slots[0]).await.unwrap();
    let mut lost = HashSet::new();
    for (bucket, slot) in (0_u16..).zip(&slots) {
        if env.redis.master_of(*slot).await.unwrap() == dead {
            lost.insert(bucket);
        }
    }
    let killed_ms = now_ms();
    env.redis.nodes[dead].kill().unwrap();
    env.redis.failed_over(slots[0], dead).await.unwrap();
    let over_ms = now_ms();
    // Its replica has taken over, and is alone: new jobs wait until it has a replica again.
    env.redis.nodes[dead].restart().await.unwrap();
    env.redis.whole().await.unwrap();
    println!(
        "cluster: another master after {} ms, a replica for it after {} ms",
        over_ms - killed_ms,
        now_ms() - killed_ms
    );
    let arrived = env.ledger.lock().distinct();
    env.until_arrived((arrived + share).max(4 * share)).await;
    load.finish().await;
    // The bystanders wait for ever: only jobs of the runtime must come to their end.
    changed.extend(lost.iter().copied());
    bystanders.cancel(|bucket| changed.contains(&bucket)).await;
    let left = env.settled().await;
    assert_eq!(left.dead.iter().sum::<u64>(), 0);
    nothing_lost(&env, "cluster");
    tell_recovery(&env, "cluster", over_ms, |id| {
        lost.contains(&bystanders.store().keys().bucket_of(id))
    });
    all_commands(&file).await;
}

#[tokio::test]
async fn a_wake_up_reaches_who_listens_at_another_node() {
    let cluster = RedisCluster::start(RedisOptions::default()).await.unwrap();
    let settings = dwell::config::Redis {
        mode: dwell::config::RedisMode::Cluster,
        urls: cluster.urls(),
        ..crate::store::fixture::settings("", &crate::support::namespace("wakes"), 16)
    };
    let store = crate::store::fixture::open(&settings, &["main"]).await;
    let wake_ups = store
        .jobs
        .schedule(&[crate::store::fixture::request("a", 1, crate::store::fixture::FAR)])
        .await
        .unwrap()
        .wake_ups;
    for node in &cluster.nodes {
        let (sender, mut heard) = tokio::sync::mpsc::unbounded_channel();
        let at_one = dwell::config::Redis { urls: vec![node.url()], ..settings.clone() };
        let channel = store.keys().wake();
        let listening = tokio::spawn(async move {
            let _ = dwell::store::instances::listen(
                &at_one,
                &channel,
                || {},
                move |head| drop(sender.send(head)),
            )
            .await;
        });
        let head = wait_within(SETTLE, "a wake-up is heard", async || {
            store.wake_others(&wake_ups).await.unwrap();
            heard.try_recv().ok()
        })
        .await;
        assert_eq!([head], wake_ups[..]);
        listening.abort();
    }
    assert_eq!(store.beat("one").await.unwrap(), ["one"]);
}

#[tokio::test]
async fn damage_is_found_on_every_master() {
    let cluster = RedisCluster::start(RedisOptions::default()).await.unwrap();
    let settings = dwell::config::Redis {
        mode: dwell::config::RedisMode::Cluster,
        urls: cluster.urls(),
        ..crate::store::fixture::settings("", &crate::support::namespace("damage"), 16)
    };
    let store = crate::store::fixture::open(&settings, &["main"]).await;
    let mut odd = HashSet::new();
    for bucket in 0..store.keys().buckets() {
        let key = format!("{}:odd", tag(&settings, bucket));
        let master = cluster.master_of(cluster.slot_of(&key).await.unwrap()).await.unwrap();
        cluster.nodes[master].order(&["SET", &key, "x"]).await.unwrap();
        odd.insert(key);
    }
    let rules =
        fsck::FsckRules { lease_ms: 20_000, retry_ms: RETRY.to_vec(), sweep: KEEP, repair: false };
    let mut found = HashSet::new();
    fsck::run(&settings, rules, &mut |finding| {
        assert_eq!(finding.problem, fsck::Problem::UnknownKey);
        found.insert(finding.id);
    })
    .await
    .unwrap();
    assert_eq!(found, odd);
}
