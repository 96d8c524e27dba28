//! Jobs that wait for places, on a private Redis.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::time::Duration;

use dwell_connectors::Destination;
use dwell_testkit::servers::{RedisOptions, RedisServer};

use super::*;
use crate::clock;
use crate::config::Redis;
use crate::job::{Due, Job};
use crate::policy::limit::mark_of;
use crate::request::NewJob;
use crate::store::Unobserved;
use crate::store::jobs::claim::ClaimedJob;
use crate::store::jobs::settle::Release;

const MINUTE: Duration = Duration::from_secs(60);

/// The scripts that Redis has run by their text: those of limits.
async fn scripts_of_limits(server: &RedisServer) -> u64 {
    let stats = server.order(&["INFO", "commandstats"]).await.unwrap();
    let calls = stats.iter().find_map(|line| line.strip_prefix("cmdstat_eval:calls="));
    calls.and_then(|calls| calls.split(',').next()).map_or(0, |calls| calls.parse().unwrap())
}

/// Claims all jobs that are due.
async fn claim_all(store: &Store) -> Vec<ClaimedJob> {
    let mut jobs = Vec::new();
    loop {
        let claim = store.jobs.claim(0, "main", MINUTE, CALL_JOBS, 1 << 20).await.unwrap();
        if claim.jobs.is_empty() {
            return jobs;
        }
        jobs.extend(claim.jobs);
    }
}

#[tokio::test]
async fn many_jobs_of_one_bucket_are_called_by_several_short_calls() {
    let server = RedisServer::start(RedisOptions::default()).await.unwrap();
    let settings = Redis { buckets: 1, ..Redis::new(server.url()) };
    let store = Store::open(&settings, &["main".to_owned()], Arc::new(Unobserved)).await.unwrap();
    let new_job = |number: usize| {
        let job = Job::new("main", Destination::new("a"), "x");
        NewJob::new(job, Due::In(0)).id(format!("job-{number}").parse().unwrap())
    };
    let new_jobs: Vec<NewJob> = (0..300).map(new_job).collect();
    store.jobs.schedule(&new_jobs).await.unwrap();
    let claimed = claim_all(&store).await;
    assert_eq!(claimed.len(), 300);

    // All go back to due for want of a place.
    let now_us = store.read_clock().await.unwrap();
    let turn = Turn::new(now_us + 60_000_000, now_us, mark_of("main a in_flight"));
    for jobs in claimed.chunks(CALL_JOBS) {
        let release = |job: &ClaimedJob| {
            let mut job = job.token();
            job.state.turn = turn;
            Release { job, pause_ms: 60_000, unpublished: true }
        };
        let releases: Vec<Release> = jobs.iter().map(release).collect();
        store.jobs.release(0, "main", &releases).await.unwrap();
    }
    assert_eq!(claim_all(&store).await.len(), 0, "they wait");

    let at = clock::now() + MINUTE;
    let park = |job: &ClaimedJob| Parked { bucket: 0, id: job.id.clone(), turn, at };
    let parked: Vec<Parked> = claimed.iter().map(park).collect();
    let before = scripts_of_limits(&server).await;
    let PlaceWork::Hastened(due) = Work::hasten(parked).run(&store, "main").await else {
        panic!("another answer than that of jobs that were called");
    };
    let calls = scripts_of_limits(&server).await - before;
    assert_eq!((calls, due), (3, vec![0]), "at most 128 jobs a call");
    assert_eq!(claim_all(&store).await.len(), 300, "each of them is due");
}
