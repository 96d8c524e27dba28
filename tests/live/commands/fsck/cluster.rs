//! `fsck` on a Redis Cluster, where a scan of one node does not find all keys.

use std::net::TcpListener;

use dwell::config::{Redis, RedisMode};
use dwell::store::admin::fsck::{self, FsckRules, Problem as P};
use dwell_testkit::servers::{RedisOptions, RedisServer};

use crate::store::fixture::{FAR, Fixture, KEEP, MAIN, RETRY, request};
use crate::support::wait_until;

/// A cluster of one node that has every slot.
async fn cluster() -> RedisServer {
    // The port of its bus: the default is beyond the last port for many.
    let bus = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let more = vec![
        ("cluster-enabled".to_owned(), "yes".to_owned()),
        ("cluster-port".to_owned(), bus.to_string()),
    ];
    let server =
        RedisServer::start(RedisOptions { more, ..RedisOptions::default() }).await.unwrap();
    let mut raw = crate::support::redis_link(&server.url()).await;
    let () = redis::cmd("CLUSTER")
        .arg("ADDSLOTSRANGE")
        .arg(0)
        .arg(16383)
        .query_async(&mut raw)
        .await
        .unwrap();
    wait_until("the cluster is ready", async || {
        let info: String =
            redis::cmd("CLUSTER").arg("INFO").query_async(&mut raw.clone()).await.unwrap();
        info.contains("cluster_state:ok").then_some(())
    })
    .await;
    server
}

async fn repair(settings: &Redis, buckets: u16) -> Vec<(P, bool)> {
    let settings = Redis { mode: RedisMode::Cluster, buckets, ..settings.clone() };
    let rules = FsckRules { lease_ms: 20_000, retry_ms: RETRY.to_vec(), sweep: KEEP, repair: true };
    let mut told = Vec::new();
    fsck::run(&settings, rules, &mut |finding| told.push((finding.problem, finding.repaired)))
        .await
        .unwrap();
    told
}

#[tokio::test]
async fn the_number_of_buckets_is_told_by_the_jobs_in_a_cluster_too() {
    let server = cluster().await;
    let fixture = Fixture::on(&server.url(), 4, &[MAIN]).await;
    for n in 0..40 {
        fixture.put(request(&format!("job-{n}"), n, FAR)).await;
    }
    let before = fixture.dump().await;
    let meta = format!("{}:meta", fixture.settings.namespace);
    fixture.redis(&["HDEL", &meta, "buckets"]).await;
    let damaged = fixture.dump().await;
    assert_eq!(repair(&fixture.settings, 2).await, [(P::MetaBuckets, false)]);
    assert_eq!(
        fixture.dump().await,
        damaged,
        "by another number no job would be found: nothing is touched"
    );
    assert_eq!(repair(&fixture.settings, 4).await, [(P::MetaBuckets, true)]);
    assert_eq!(fixture.dump().await, before);

    fixture.redis(&["DEL", &meta]).await;
    assert_eq!(repair(&fixture.settings, 2).await, [(P::MetaMissing, false)]);
    assert_eq!(repair(&fixture.settings, 4).await, [(P::MetaMissing, true), (P::MetaBroker, true)]);
    assert_eq!(repair(&fixture.settings, 4).await, []);
}
