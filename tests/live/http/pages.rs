//! Paged lists while jobs come and go: no job that exists throughout is missing or listed twice.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use dwell::job::{Action, DeadReason, Due};
use dwell::store::Store;
use dwell::store::jobs::settle::{Bury, SettleResult};
use serde_json::Value;

use super::sidecar::Sidecar;
use crate::commands::fixture::Fixture;
use crate::store::fixture::{LEASE, MAIN, PAST, action, held, open, request, settings};

/// The standing jobs; `DWELL_PAGES` says another number.
const STANDING_JOBS: usize = 5_000;
/// The jobs that come and go per second meanwhile.
const JOBS_PER_SECOND: u64 = 1_000;
/// Epoch ms, not within the life of a test.
const FAR: i64 = 4_000_000_000_000;

fn standing() -> usize {
    std::env::var("DWELL_PAGES").ok().map_or(STANDING_JOBS, |text| text.parse().unwrap())
}

/// Stores this many jobs.
async fn put(store: &Store, count: usize, due: impl Fn(usize) -> i64) {
    for chunk in (0..count).collect::<Vec<_>>().chunks(1000) {
        let requests: Vec<_> = chunk
            .iter()
            .map(|n| request(&format!("stands-{n:06}"), *n as u64, Due::At(due(*n))))
            .collect();
        store.jobs.schedule(&requests).await.unwrap();
    }
}

/// Adds and cancels jobs among those that stand, until told to stop: how many.
async fn come_and_go(
    store: Arc<Store>,
    stop: Arc<AtomicBool>,
    due: impl Fn(u64) -> i64,
    done: Arc<AtomicU64>,
) {
    let mut ticks = tokio::time::interval(Duration::from_millis(50));
    let per_tick = JOBS_PER_SECOND / 20;
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        ticks.tick().await;
        let ids: Vec<u64> = (number..number + per_tick).collect();
        number += per_tick;
        // Before, between and behind those that stand, of one due time too.
        let name = |n: &u64| {
            ["a", "stands-001", "z"][(n % 3) as usize].to_owned() + &format!("-comes-{n:08}")
        };
        let requests: Vec<_> =
            ids.iter().map(|n| request(&name(n), 1 << 40 | n, Due::At(due(*n)))).collect();
        store.jobs.schedule(&requests).await.unwrap();
        for n in &ids {
            store.jobs.act(&action(Action::Cancel, &name(n), 1 << 41 | n), &[]).await.unwrap();
        }
        done.fetch_add(per_tick, Ordering::Relaxed);
    }
}

/// Every id by pages of this size.
fn all(sidecar: &Sidecar, limit: usize, longest: &mut Duration) -> Vec<String> {
    all_of(sidecar, "scheduled", limit, longest)
}

fn all_of(sidecar: &Sidecar, state: &str, limit: usize, longest: &mut Duration) -> Vec<String> {
    let mut ids = Vec::new();
    let mut cursor = String::new();
    loop {
        let begun = std::time::Instant::now();
        let answer = sidecar.get(&format!("/v1/jobs?state={state}&limit={limit}{cursor}"));
        *longest = (*longest).max(begun.elapsed());
        assert_eq!(answer.status, 200, "{answer:?}");
        let page: Value = answer.json();
        let jobs = page["jobs"].as_array().unwrap();
        assert!(jobs.len() <= limit);
        ids.extend(jobs.iter().map(|job| job["id"].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return ids,
        }
    }
}

async fn nothing_is_missing_or_twice(due: fn(u64) -> i64) {
    let count = standing();
    let fixture = Fixture::new().await;
    let sidecar = Sidecar::start(&fixture, "").await;
    let store = Arc::new(open(&settings(&fixture.redis.url(), "dwell", 16), &[MAIN]).await);
    put(&store, count, |n| due(n as u64)).await;
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let coming = tokio::spawn(come_and_go(store.clone(), stop.clone(), due, done.clone()));
    let mut longest = Duration::ZERO;
    for limit in [1000, 333] {
        let before = done.load(Ordering::Relaxed);
        let ids = tokio::task::block_in_place(|| all(&sidecar, limit, &mut longest));
        let stands: Vec<&String> =
            ids.iter().filter(|id| id.starts_with("stands-") && !id.contains("comes")).collect();
        let different: HashSet<&&String> = stands.iter().collect();
        assert_eq!((stands.len(), different.len()), (count, count), "pages of {limit}");
        let every: HashSet<&String> = ids.iter().collect();
        assert_eq!(every.len(), ids.len(), "nothing is twice, not even of what comes and goes");
        crate::support::wait_until("some have come and gone", async || {
            (done.load(Ordering::Relaxed) > before).then_some(())
        })
        .await;
    }
    stop.store(true, Ordering::Relaxed);
    coming.await.unwrap();
    eprintln!(
        "{count} jobs, {} came and went meanwhile; the longest page took {longest:?}",
        done.load(Ordering::Relaxed)
    );
    let ids = tokio::task::block_in_place(|| all(&sidecar, 1000, &mut longest));
    let in_order: Vec<String> = {
        let mut keys: Vec<(i64, String)> =
            (0..count).map(|n| (due(n as u64), format!("stands-{n:06}"))).collect();
        keys.sort();
        keys.into_iter().map(|(_, id)| id).collect()
    };
    assert!(ids == in_order, "by due time, then by id");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn jobs_of_one_due_time_are_listed_once_while_others_come_and_go() {
    nothing_is_missing_or_twice(|_| FAR).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn jobs_of_spread_due_times_are_listed_once_while_others_come_and_go() {
    nothing_is_missing_or_twice(|n| FAR + i64::try_from(n.wrapping_mul(7919) % 1000).unwrap())
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_job_that_cannot_be_read_does_not_end_the_list_before_the_others() {
    let fixture = Fixture::new().await;
    let sidecar = Sidecar::run(&fixture.settings(true), "", &["--no-dispatch"]).await;
    let store = open(&settings(&fixture.redis.url(), "dwell", 16), &[MAIN]).await;
    for number in 0..9 {
        let id = format!("dead-{number}");
        store.jobs.schedule(&[request(&id, number, PAST)]).await.unwrap();
        let bucket = store.keys().bucket_of(&id);
        let lease = crate::store::fixture::one_of(
            store.jobs.claim(bucket, MAIN, LEASE, 1, 1 << 20).await.unwrap(),
        );
        let bury = Bury { job: held(&lease), reason: DeadReason::Invalid, error: String::new() };
        assert_eq!(store.jobs.bury(bucket, &[bury]).await.unwrap(), [SettleResult::Settled]);
    }
    let mut raw = crate::support::redis_link(&fixture.redis.url()).await;
    let jobs = store.keys().jobs(store.keys().bucket_of("dead-1")).to_owned();
    let _: () = redis::cmd("HSET")
        .arg(jobs)
        .arg("dead-1")
        .arg("no record")
        .query_async(&mut raw)
        .await
        .unwrap();
    let mut longest = Duration::ZERO;
    for limit in [1, 2, 3, 100] {
        let ids = tokio::task::block_in_place(|| all_of(&sidecar, "dead", limit, &mut longest));
        let rest: Vec<String> =
            (0..9).filter(|number| *number != 1).map(|number| format!("dead-{number}")).collect();
        assert_eq!(ids, rest, "pages of {limit}");
    }
}
