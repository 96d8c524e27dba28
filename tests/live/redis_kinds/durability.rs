//! The durability wait on a cluster: each master waits for its own replica, and a batch follows its
//! slots.

use std::collections::HashMap;

use dwell::config::{Durability, Redis, RedisMode};
use dwell::job::{Action, DeadReason, Due, Verdict};
use dwell::store::Store;
use dwell::store::error::Class;
use dwell::store::jobs::settle::{Bury, SettleResult};
use dwell_testkit::servers::{RedisCluster, RedisOptions, RedisServer, find};

use super::kind::tag;
use crate::store::fixture::{FAR, LEASE, MAIN, PAST, RETRY, action, held, open, request, settings};
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
        let all: Vec<_> = ids
            .values()
            .zip(0..)
            .map(|(id, n)| request(&format!("{id}-{round}"), 100 * round + n, FAR))
            .collect();
        assert!(
            store
                .jobs
                .schedule(&all)
                .await
                .unwrap()
                .answers
                .iter()
                .all(|answer| answer.verdict == Verdict::Added)
        );
    }
    let mut of_master: HashMap<usize, Vec<&String>> = HashMap::new();
    for (bucket, id) in &ids {
        let master = cluster
            .master_of(cluster.slot_of(&tag(&settings, *bucket)).await.unwrap())
            .await
            .unwrap();
        of_master.entry(master).or_default().push(id);
    }
    for master in of_master.keys() {
        let stats = cluster.nodes[*master].order(&["INFO", "commandstats"]).await.unwrap();
        let waits = stats.iter().find_map(|line| {
            line.strip_prefix("cmdstat_wait:calls=")?.split(',').next()?.parse::<u32>().ok()
        });
        assert!(waits >= Some(4), "{stats:?}");
    }
    let mut masters = of_master.keys().copied();
    let (held, free) = (masters.next().unwrap(), masters.next().unwrap());
    let own = cluster.nodes[held].order(&["INFO", "replication"]).await.unwrap();
    let replica = cluster
        .nodes
        .iter()
        .find(|node| own.iter().any(|line| line.contains(&format!("port={},", node.port()))))
        .unwrap();
    replica.freeze().unwrap();
    let batch = [request(of_master[&held][0], 1000, FAR), request(of_master[&free][0], 1001, FAR)];
    let error = store.jobs.schedule(&batch).await.unwrap_err();
    let place = format!("127.0.0.1:{} within", cluster.nodes[held].port());
    assert!(
        error.class == Class::Timeout
            && error.message.contains(&place)
            && error.message.contains("replicas 0 of 1"),
        "{error}"
    );
    store.jobs.schedule(&[request(of_master[&free][1], 1002, FAR)]).await.unwrap();
    // A repeated answer is as durable as a new one, whichever connection it comes over.
    let again =
        futures_util::future::join_all((0..4).map(|_| store.jobs.schedule(&batch[..1]))).await;
    assert!(again.iter().all(Result::is_err), "{again:?}");
    let cancel = action(Action::Cancel, of_master[&held][0], 1003);
    assert_eq!(store.jobs.act(&cancel, RETRY).await.unwrap_err().class, Class::Timeout);
    replica.thaw().unwrap();
    let cancelled = wait_until("the replica acknowledges again", async || {
        store.jobs.act(&cancel, RETRY).await.ok()
    })
    .await;
    assert_eq!(cancelled.verdict, Verdict::Cancelled);
    let answers = wait_until("both are stored", async || store.jobs.schedule(&batch).await.ok())
        .await
        .answers;
    assert!(
        answers.iter().all(|answer| answer.verdict == Verdict::Added),
        "as they were answered before: {answers:?}"
    );
}

#[tokio::test]
async fn a_batch_follows_slots_that_moved_and_scripts_that_were_forgotten() {
    let cluster = RedisCluster::start(RedisOptions::default()).await.unwrap();
    let (settings, store) = gated(&cluster).await;
    let ids = ids(&store);
    let batch = |round: u64| {
        ids.values()
            .zip(0..)
            .map(|(id, n)| request(&format!("{id}-{round}"), 100 * round + n, FAR))
            .collect::<Vec<_>>()
    };
    // Every connection of the gate has its map.
    for round in 0..4 {
        store.jobs.schedule(&batch(round)).await.unwrap();
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
        let answers = store.jobs.schedule(&batch(round)).await.unwrap().answers;
        assert!(answers.iter().all(|answer| answer.verdict == Verdict::Added), "{answers:?}");
    }
    let counts = store.reader.counts(&[]).await.unwrap();
    assert_eq!(counts.scheduled.iter().sum::<u64>(), 8 * u64::from(BUCKETS), "each once");
    // Jobs that were stored before the slots moved are still there, also in the moved slots.
    let first: Vec<String> = ids.values().map(|id| format!("{id}-0")).collect();
    assert!(
        first.iter().any(|id| moved.contains(&store.keys().bucket_of(id))),
        "none of {first:?} moved"
    );
    for (message, id) in (5000..).zip(&first) {
        let cancel = action(Action::Cancel, id, message);
        assert_eq!(
            store.jobs.act(&cancel, RETRY).await.unwrap().verdict,
            Verdict::Cancelled,
            "{id}"
        );
    }
}

#[tokio::test]
async fn a_batch_follows_a_failover_after_which_the_old_master_lives_on_as_a_replica() {
    let cluster = RedisCluster::start(RedisOptions::default()).await.unwrap();
    let (settings, store) = gated(&cluster).await;
    let ids = ids(&store);
    let batch = |round: u64| {
        ids.values()
            .zip(0..)
            .map(|(id, n)| request(&format!("{id}-{round}"), 100 * round + n, FAR))
            .collect::<Vec<_>>()
    };
    // Every connection of the gate is open, and none is lost.
    for round in 0..4 {
        store.jobs.schedule(&batch(round)).await.unwrap();
    }
    let master =
        cluster.master_of(cluster.slot_of(&tag(&settings, 0)).await.unwrap()).await.unwrap();
    cluster.fail_over(master).await.unwrap();
    cluster.whole().await.unwrap();
    for round in 4..8 {
        let stored = wait_until("the new master is found", async || {
            store.jobs.schedule(&batch(round)).await.ok()
        })
        .await;
        assert!(
            stored.answers.iter().all(|answer| answer.verdict == Verdict::Added),
            "{:?}",
            stored.answers
        );
    }
}

#[tokio::test]
async fn a_slot_on_its_way_holds_its_own_bucket_back_and_no_other() {
    let cluster = RedisCluster::start(RedisOptions::default()).await.unwrap();
    let (settings, store) = gated(&cluster).await;
    let ids = ids(&store);
    store.jobs.schedule(&[request(&ids[&3], 1, FAR)]).await.unwrap();
    let (slot, from) = begin_to_leave(&cluster, &settings, 3).await;
    let error = store.jobs.schedule(&[request(&ids[&3], 2, FAR)]).await.unwrap_err();
    assert_eq!(error.class, Class::Unserved, "{error}");
    store.jobs.schedule(&[request(&ids[&4], 3, FAR)]).await.unwrap();
    cluster.migrate(slot, (from + 1) % 3).await.unwrap();
    let answer = wait_until("it has arrived", async || {
        store.jobs.schedule(&[request(&ids[&3], 2, FAR)]).await.ok()
    })
    .await
    .answers[0];
    assert_eq!(answer.verdict, Verdict::Replaced);
}

#[tokio::test]
async fn a_job_alone_in_its_bucket_is_not_lost_under_a_slot_that_leaves() {
    let cluster = RedisCluster::start(RedisOptions::default()).await.unwrap();
    let (settings, store) = gated(&cluster).await;
    let ids = ids(&store);
    let id = &ids[&3];
    store.jobs.schedule(&[request(id, 1, FAR)]).await.unwrap();
    let source = every_key_is_there(&cluster, &settings, 3).await;
    begin_to_leave(&cluster, &settings, 3).await;
    // Redis would refuse a key that the script has emptied.
    assert_eq!(
        store.jobs.act(&action(Action::Fire, id, 2), RETRY).await.unwrap().verdict,
        Verdict::Firing
    );
    let due = source.order(&["ZCARD", &format!("{}:due:main", tag(&settings, 3))]).await.unwrap();
    assert_eq!(due, ["1"], "the job still waits");
}

#[tokio::test]
async fn memories_that_are_full_turn_over_only_once_a_slot_that_leaves_has_arrived() {
    const FILL: &str = "for n = 1, 65537 do redis.call('HSET', KEYS[1], 'message ' .. n, 'not_found:') end return 1";
    let newer = find::redis_server_waitaof().unwrap();
    for program in [None, Some(newer)] {
        let cluster =
            RedisCluster::start(RedisOptions { program, ..RedisOptions::default() }).await.unwrap();
        let (settings, store) = gated(&cluster).await;
        let (buckets, ids) = (store.keys(), (0..).map(|number| format!("job-{number}")));
        let ids: Vec<String> = ids.filter(|id| buckets.bucket_of(id) == 3).take(4).collect();
        store.jobs.schedule(&[request(&ids[3], 1, PAST)]).await.unwrap();
        let lease = store.jobs.claim(3, MAIN, LEASE, 1, 1 << 20).await.unwrap().jobs.remove(0);
        let bury = Bury { job: held(&lease), reason: DeadReason::Invalid, error: String::new() };
        assert_eq!(store.jobs.bury(3, &[bury]).await.unwrap(), [SettleResult::Settled]);
        for (message, id) in (2..).zip(&ids[..3]) {
            store.jobs.schedule(&[request(id, message, Due::At(3_900_000_000_000))]).await.unwrap();
        }
        let source = every_key_is_there(&cluster, &settings, 3).await;
        let key = |name: &str| format!("{}:{name}", tag(&settings, 3));
        source.order(&["EVAL", FILL, "1", &key("applied")]).await.unwrap();
        let (slot, from) = begin_to_leave(&cluster, &settings, 3).await;

        let replaced = store.jobs.schedule(&[request(&ids[0], 10, FAR)]).await.unwrap().answers[0];
        assert_eq!(replaced.verdict, Verdict::Replaced);
        assert_eq!(
            store.jobs.act(&action(Action::Reschedule, &ids[1], 11), RETRY).await.unwrap().verdict,
            Verdict::Rescheduled
        );
        let fired = store.jobs.act(&action(Action::Fire, &ids[2], 12), RETRY).await.unwrap();
        assert_eq!(fired.verdict, Verdict::Firing);
        assert_eq!(
            store.jobs.act(&action(Action::Requeue, &ids[3], 13), RETRY).await.unwrap().verdict,
            Verdict::Requeued
        );
        for (id, due_ms) in [
            (&ids[0], 4_000_000_000_000),
            (&ids[1], 4_000_000_000_000),
            (&ids[2], fired.due_ms.unwrap()),
        ] {
            assert_eq!(
                source.order(&["ZSCORE", &key("due:main"), id]).await.unwrap(),
                [due_ms.to_string()],
                "{id}"
            );
        }
        assert_eq!(
            source.order(&["HGET", &key("applied_old"), "x"]).await.unwrap(),
            [""],
            "nothing is forgotten yet"
        );

        let target = (from + 1) % 3;
        cluster.migrate(slot, target).await.unwrap();
        let cancel = action(Action::Cancel, &ids[0], 14);
        let cancelled =
            wait_until("it has arrived", async || store.jobs.act(&cancel, RETRY).await.ok()).await;
        assert_eq!(cancelled.verdict, Verdict::Cancelled);
        let older = cluster.nodes[target].order(&["HLEN", &key("applied_old")]).await.unwrap()[0]
            .parse::<u64>()
            .unwrap();
        assert!((65_538..65_600).contains(&older), "{older}: they turn now");
    }
}

/// Puts something into each key of a bucket, so that none is missing as a script begins: the master
/// that has them.
async fn every_key_is_there<'a>(
    cluster: &'a RedisCluster,
    settings: &Redis,
    bucket: u16,
) -> &'a RedisServer {
    let slot = cluster.slot_of(&tag(settings, bucket)).await.unwrap();
    let source = &cluster.nodes[cluster.master_of(slot).await.unwrap()];
    let key = |name: &str| format!("{}:{name}", tag(settings, bucket));
    for name in [
        "state",
        "completed",
        "completed_old",
        "applied",
        "applied_old",
        "claims",
        "settled",
        "queues",
        "schedules",
    ] {
        source.order(&["HSET", &key(name), "x", ""]).await.unwrap();
    }
    for name in ["held", "claim_deadlines", "dead", "ends"] {
        source.order(&["ZADD", &key(name), "9999999999999", "x"]).await.unwrap();
    }
    source
}

/// The slot of a bucket begins to leave for the next master: the slot, and the master that it
/// leaves.
async fn begin_to_leave(cluster: &RedisCluster, settings: &Redis, bucket: u16) -> (u16, usize) {
    let slot = cluster.slot_of(&tag(settings, bucket)).await.unwrap();
    let from = cluster.master_of(slot).await.unwrap();
    let (source, target) = (&cluster.nodes[from], &cluster.nodes[(from + 1) % 3]);
    let [source_id, target_id] = [
        source.order(&["CLUSTER", "MYID"]).await.unwrap(),
        target.order(&["CLUSTER", "MYID"]).await.unwrap(),
    ];
    target
        .order(&["CLUSTER", "SETSLOT", &slot.to_string(), "IMPORTING", &source_id[0]])
        .await
        .unwrap();
    source
        .order(&["CLUSTER", "SETSLOT", &slot.to_string(), "MIGRATING", &target_id[0]])
        .await
        .unwrap();
    (slot, from)
}
