//! The durability gate on a cluster: each master waits for its own replica, and a batch follows its slots.

use std::collections::HashMap;

use dwell::config::{Durability, Redis, RedisMode};
use dwell::job::{Action, Verdict};
use dwell::servers::{RedisCluster, RedisOptions};
use dwell::store::Store;
use dwell::store::error::Class;

use super::kind::tag;
use crate::store::bed::{FAR, MAIN, RETRY, action, open, request, settings};
use crate::support::{namespace, wait_until};

const BUCKETS: u16 = 16;

async fn gated(cluster: &RedisCluster) -> (Redis, Store) {
    let settings = Redis {
        mode: RedisMode::Cluster,
        urls: cluster.urls(),
        durability: Durability::Replica,
        ..settings("", &namespace("gate"), BUCKETS)
    };
    let store = open(&settings, &[MAIN]).await;
    (settings, store)
}

/// An id of each bucket.
fn ids(store: &Store) -> HashMap<u16, String> {
    let mut ids = HashMap::new();
    for number in 0.. {
        let id = format!("job-{number}");
        ids.entry(store.keys().bucket_of(&id)).or_insert(id);
        if ids.len() == usize::from(BUCKETS) {
            break;
        }
    }
    ids
}

#[tokio::test]
async fn a_replica_that_hangs_holds_back_what_its_own_master_was_given() {
    let cluster = RedisCluster::start(RedisOptions::default()).await.unwrap();
    let (settings, store) = gated(&cluster).await;
    let ids = ids(&store);
    // Each of them, over as many connections as the gate has.
    for round in 0..4 {
        let all: Vec<_> = ids.values().zip(0..).map(|(id, n)| request(&format!("{id}-{round}"), 100 * round + n, FAR)).collect();
        assert!(store.schedule(&all).await.unwrap().answers.iter().all(|answer| answer.verdict == Verdict::Added));
    }
    let mut of_master: HashMap<usize, Vec<&String>> = HashMap::new();
    for (bucket, id) in &ids {
        let master = cluster.master_of(cluster.slot_of(&tag(&settings, *bucket)).await.unwrap()).await.unwrap();
        of_master.entry(master).or_default().push(id);
    }
    for master in of_master.keys() {
        let stats = cluster.nodes[*master].order(&["INFO", "commandstats"]).await.unwrap();
        let waits = stats.iter().find_map(|line| line.strip_prefix("cmdstat_wait:calls=")?.split(',').next()?.parse::<u32>().ok());
        assert!(waits >= Some(4), "{stats:?}");
    }
    let mut masters = of_master.keys().copied();
    let (held, free) = (masters.next().unwrap(), masters.next().unwrap());
    let own = cluster.nodes[held].order(&["INFO", "replication"]).await.unwrap();
    let replica = cluster.nodes.iter().find(|node| own.iter().any(|line| line.contains(&format!("port={},", node.port())))).unwrap();
    replica.freeze().unwrap();
    let batch = [request(of_master[&held][0], 1000, FAR), request(of_master[&free][0], 1001, FAR)];
    let error = store.schedule(&batch).await.unwrap_err();
    let place = format!("127.0.0.1:{} within", cluster.nodes[held].port());
    assert!(error.class == Class::Timeout && error.message.contains(&place) && error.message.contains("replicas 0 of 1"), "{error}");
    store.schedule(&[request(of_master[&free][1], 1002, FAR)]).await.unwrap();
    // What is told again is as durable as what is new, whichever connection it comes over.
    let again = futures_util::future::join_all((0..4).map(|_| store.schedule(&batch[..1]))).await;
    assert!(again.iter().all(Result::is_err), "{again:?}");
    let cancel = action(Action::Cancel, of_master[&held][0], 1003);
    assert_eq!(store.act(&cancel, RETRY).await.unwrap_err().class, Class::Timeout);
    replica.thaw().unwrap();
    let cancelled = wait_until("the replica acknowledges again", async || store.act(&cancel, RETRY).await.ok()).await;
    assert_eq!(cancelled.verdict, Verdict::Cancelled);
    let answers = wait_until("both are stored", async || store.schedule(&batch).await.ok()).await.answers;
    assert!(answers.iter().all(|answer| answer.verdict == Verdict::Added), "as they were answered before: {answers:?}");
}

#[tokio::test]
async fn a_batch_follows_slots_that_moved_and_scripts_that_were_forgotten() {
    let cluster = RedisCluster::start(RedisOptions::default()).await.unwrap();
    let (settings, store) = gated(&cluster).await;
    let ids = ids(&store);
    let batch =
        |round: u64| ids.values().zip(0..).map(|(id, n)| request(&format!("{id}-{round}"), 100 * round + n, FAR)).collect::<Vec<_>>();
    // Every connection of the gate has its map.
    for round in 0..4 {
        store.schedule(&batch(round)).await.unwrap();
    }
    let moved = [0, 5, 10];
    for bucket in moved {
        let slot = cluster.slot_of(&tag(&settings, bucket)).await.unwrap();
        let from = cluster.master_of(slot).await.unwrap();
        cluster.migrate(slot, (from + 1) % 3).await.unwrap();
    }
    for round in 4..8 {
        for node in &cluster.nodes[..3] {
            node.order(&["SCRIPT", "FLUSH"]).await.unwrap();
        }
        let answers = store.schedule(&batch(round)).await.unwrap().answers;
        assert!(answers.iter().all(|answer| answer.verdict == Verdict::Added), "{answers:?}");
    }
    let counts = store.counts(&[]).await.unwrap();
    assert_eq!(counts.scheduled.iter().sum::<u64>(), 8 * u64::from(BUCKETS), "each once");
    // What was stored before the slots moved is there, in those too.
    let first: Vec<String> = ids.values().map(|id| format!("{id}-0")).collect();
    assert!(first.iter().any(|id| moved.contains(&store.keys().bucket_of(id))), "none of {first:?} moved");
    for (message, id) in (5000..).zip(&first) {
        let cancel = action(Action::Cancel, id, message);
        assert_eq!(store.act(&cancel, RETRY).await.unwrap().verdict, Verdict::Cancelled, "{id}");
    }
}

#[tokio::test]
async fn a_slot_on_its_way_holds_its_own_bucket_back_and_no_other() {
    let cluster = RedisCluster::start(RedisOptions::default()).await.unwrap();
    let (settings, store) = gated(&cluster).await;
    let ids = ids(&store);
    store.schedule(&[request(&ids[&3], 1, FAR)]).await.unwrap();
    let slot = cluster.slot_of(&tag(&settings, 3)).await.unwrap();
    let from = cluster.master_of(slot).await.unwrap();
    let (source, target) = (&cluster.nodes[from], &cluster.nodes[(from + 1) % 3]);
    let [source_id, target_id] = [source.order(&["CLUSTER", "MYID"]).await.unwrap(), target.order(&["CLUSTER", "MYID"]).await.unwrap()];
    target.order(&["CLUSTER", "SETSLOT", &slot.to_string(), "IMPORTING", &source_id[0]]).await.unwrap();
    source.order(&["CLUSTER", "SETSLOT", &slot.to_string(), "MIGRATING", &target_id[0]]).await.unwrap();
    let error = store.schedule(&[request(&ids[&3], 2, FAR)]).await.unwrap_err();
    assert_eq!(error.class, Class::Unserved, "{error}");
    store.schedule(&[request(&ids[&4], 3, FAR)]).await.unwrap();
    cluster.migrate(slot, (from + 1) % 3).await.unwrap();
    let answer = wait_until("it has arrived", async || store.schedule(&[request(&ids[&3], 2, FAR)]).await.ok()).await.answers[0];
    assert_eq!(answer.verdict, Verdict::Replaced);
}

#[tokio::test]
async fn a_job_alone_in_its_bucket_is_not_lost_under_a_slot_that_leaves() {
    let cluster = RedisCluster::start(RedisOptions::default()).await.unwrap();
    let (settings, store) = gated(&cluster).await;
    let ids = ids(&store);
    let id = &ids[&3];
    store.schedule(&[request(id, 1, FAR)]).await.unwrap();
    let slot = cluster.slot_of(&tag(&settings, 3)).await.unwrap();
    let from = cluster.master_of(slot).await.unwrap();
    let (source, target) = (&cluster.nodes[from], &cluster.nodes[(from + 1) % 3]);
    // Each key of the bucket is there: nothing is missing as the script begins.
    let key = |name: &str| format!("{}:{name}", tag(&settings, 3));
    for name in ["state", "gone", "gone_old", "acts", "acts_old"] {
        source.order(&["HSET", &key(name), "x", ""]).await.unwrap();
    }
    for name in ["run", "dead"] {
        source.order(&["ZADD", &key(name), "9999999999999", "x"]).await.unwrap();
    }
    let [source_id, target_id] = [source.order(&["CLUSTER", "MYID"]).await.unwrap(), target.order(&["CLUSTER", "MYID"]).await.unwrap()];
    target.order(&["CLUSTER", "SETSLOT", &slot.to_string(), "IMPORTING", &source_id[0]]).await.unwrap();
    source.order(&["CLUSTER", "SETSLOT", &slot.to_string(), "MIGRATING", &target_id[0]]).await.unwrap();
    // What became empty under the script would be refused to it.
    assert_eq!(store.act(&action(Action::Fire, id, 2), RETRY).await.unwrap().verdict, Verdict::Firing);
    let due = source.order(&["ZCARD", &key("due:main")]).await.unwrap();
    assert_eq!(due, ["1"], "the job still waits");
}
