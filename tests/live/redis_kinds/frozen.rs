//! Redis Cluster with a frozen master (SIGSTOP), which keeps its connections and answers nothing.

use dwell::clock;
use dwell_testkit::servers::{RedisCluster, RedisOptions};

use super::kind::{env, jobs, lines, nothing_lost, per_tick, tag};
use crate::bridge::environment::SETTLE;
use crate::bridge::load::{Job, When};
use crate::support::{jetstream, wait_within};

#[tokio::test]
async fn a_master_that_hangs_under_load_is_left_for_its_replica_and_loses_nothing() {
    let cluster = RedisCluster::start(RedisOptions::default()).await.unwrap();
    let lines = lines("cluster", &cluster.urls(), "replica");
    let (env, _file) = env("frozen", cluster, &lines).await;
    let slot = env.redis.slot_of(&tag(&env.settings.redis, 0)).await.unwrap();
    let (_one, _two) = tokio::join!(env.dwell(), env.dwell());
    let load = env.load(per_tick());
    let share = jobs(1200) / 4;
    env.until_arrived(share).await;
    let frozen = env.redis.master_of(slot).await.unwrap();
    env.redis.nodes[frozen].freeze().unwrap();
    env.redis.failed_over(slot, frozen).await.unwrap();
    // It comes back as a replica: jobs for the new master wait until it has one.
    env.redis.nodes[frozen].thaw().unwrap();
    env.redis.whole().await.unwrap();
    let arrived = env.ledger.lock().distinct();
    env.until_arrived(arrived + share).await;
    load.finish().await;
    let left = env.settled().await;
    assert_eq!(left.dead.iter().sum::<u64>(), 0);
    nothing_lost(&env, "a frozen master");
}

#[tokio::test]
async fn buckets_of_other_masters_are_delivered_while_one_hangs() {
    let more =
        ["cluster-require-full-coverage no", "cluster-replica-no-failover yes"].map(|line| {
            line.split_once(' ').map(|(name, value)| (name.to_owned(), value.to_owned())).unwrap()
        });
    let cluster =
        RedisCluster::start(RedisOptions { more: more.into(), ..RedisOptions::default() })
            .await
            .unwrap();
    // So many that the buckets of one master, tried in turn, would keep the others waiting for
    // minutes.
    let lines = format!("{}\nredis.buckets = 512", lines("cluster", &cluster.urls(), "memory"));
    let (env, _file) = env("hangs", cluster, &lines).await;
    let _dwell = env.dwell().await;
    let store = env.store().await;
    let mut frozen = Vec::new();
    for bucket in 0..store.keys().buckets() {
        let slot = env.redis.slot_of(&tag(&env.settings.redis, bucket)).await.unwrap();
        frozen.push(env.redis.master_of(slot).await.unwrap() == 0);
    }
    let due_ms = clock::wall_ms() + 20_000;
    let jobs: Vec<Job> =
        (0..1500).map(|n| Job { id: format!("job-{n}"), when: When::At(due_ms) }).collect();
    env.producer().send(&jobs).await;
    let port = env.nats.port();
    wait_within(SETTLE, "every request is taken", async || {
        (jetstream::messages(port, "REQUESTS").await == 0).then_some(())
    })
    .await;
    let living: Vec<&str> = jobs
        .iter()
        .map(|job| &*job.id)
        .filter(|id| !frozen[usize::from(store.keys().bucket_of(id))])
        .collect();
    env.redis.nodes[0].freeze().unwrap();
    assert!(clock::wall_ms() < due_ms, "too slow a machine: the jobs were due before");
    wait_within(SETTLE, "the other masters' jobs are delivered", async || {
        let ledger = env.ledger.lock();
        living.iter().all(|id| ledger.arrivals_of(id) > 0).then_some(())
    })
    .await;
    let others = jobs.len() - living.len();
    assert!(
        others > 0 && env.ledger.lock().distinct() == living.len(),
        "{others} wait for the master that hangs"
    );
    env.redis.nodes[0].thaw().unwrap();
    env.redis.whole().await.unwrap();
    let left = env.settled().await;
    assert_eq!(left.dead.iter().sum::<u64>(), 0);
    nothing_lost(&env, "one master hangs");
}
