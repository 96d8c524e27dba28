//! The parts of the upper bound, measured alone: the scripts on the same Redis without a broker,
//! the source without Redis, and a bare SET.

use std::sync::Arc;
use std::time::Duration;

use dwell_connectors::{Role, SourceOptions};
use futures_util::future::try_join_all;
use futures_util::{StreamExt, TryStreamExt, stream};

use super::fill::{self, Order};
use super::fixture::Fixture;
use super::round::body;
use super::{ARRIVAL_TIMEOUT, per_second};
use dwell::clock;
use dwell::config::Redis;
use dwell::ingest::source_options;
use dwell::request::RequestRules;
use dwell::store::call::{CALL_BYTES, CALL_JOBS};
use dwell::store::jobs::claim::ClaimedJob;
use dwell::store::jobs::settle::{ClaimToken, Completion, SettleResult};
use dwell::store::reader::redis_stats::RedisStats;
use dwell::store::{Store, Unobserved};
use dwell_testkit::environment::Result;

/// The queue that only the source reads.
const SOURCE: &str = "bench.source";
/// Batches of requests in flight at once.
const CONCURRENT_BATCHES: usize = 2;
/// Jobs in a batch: as many as an ingest passes on at once.
const JOBS_PER_BATCH: u64 = 1024;
/// The duration of a lease here.
const LEASE_TTL: Duration = Duration::from_secs(60);

/// The rate of the scripts, and the CPU time of Redis's main thread for one job, µs.
pub(super) struct Pace {
    pub(super) per_s: f64,
    pub(super) cpu_us: f64,
}

/// A separate namespace on the same Redis.
fn elsewhere(fixture: &Fixture) -> Redis {
    let redis = fixture.environment.settings().redis.clone();
    Redis { namespace: format!("{}-alone-{:08x}", redis.namespace, rand::random::<u32>()), ..redis }
}

async fn open(redis: &Redis) -> Result<Store> {
    Ok(Store::open(redis, &["main".to_owned()], Arc::new(Unobserved)).await?)
}

fn order(fixture: &Fixture, jobs: u64) -> Order {
    Order {
        jobs,
        body: fixture.options.body,
        kind: fixture.options.broker.as_str(),
        due_ms: clock::wall_ms(),
        spread_ms: 0,
    }
}

/// `claim` and `complete` of this many due jobs: all buckets in parallel over one connection.
pub(super) async fn scripts(fixture: &Fixture, jobs: u64) -> Result<Pace> {
    let redis = elsewhere(fixture);
    fill::fill(&fixture.environment, &redis, &order(fixture, jobs), fixture.options.say).await?;
    let store = open(&redis).await?;
    let before = store.reader.vitals().await?;
    let began = clock::wall_us();
    let buckets = (0..redis.buckets).map(|bucket| empty(&store, bucket));
    let done: u64 = try_join_all(buckets).await?.into_iter().sum();
    let took_us = clock::wall_us() - began;
    if done != jobs {
        return Err(format!("the scripts alone completed {done} of {jobs} jobs").into());
    }
    pace(&store, &before, jobs, took_us).await
}

async fn empty(store: &Store, bucket: u16) -> Result<u64> {
    let mut done = 0;
    loop {
        let taken = store.jobs.claim(bucket, "main", LEASE_TTL, CALL_JOBS, CALL_BYTES).await?;
        let held: Vec<ClaimToken> = taken.jobs.iter().map(ClaimedJob::token).collect();
        if !held.is_empty() {
            let stood = store.jobs.complete(bucket, &held, Completion::Fired).await?;
            done += stood.iter().filter(|stood| **stood == SettleResult::Settled).count() as u64;
        }
        if !taken.more {
            return Ok(done);
        }
    }
}

/// `schedule` of this many jobs in the batches of an ingest; the requests are parsed beforehand.
pub(super) async fn schedule(fixture: &Fixture, jobs: u64) -> Result<Pace> {
    let redis = elsewhere(fixture);
    let store = open(&redis).await?;
    let rules = RequestRules::new(fixture.environment.settings(), "main")?;
    let order = Order { due_ms: clock::wall_ms() + 3_600_000, ..order(fixture, jobs) };
    let starts: Vec<u64> =
        (0..jobs).step_by(usize::try_from(JOBS_PER_BATCH).unwrap_or(usize::MAX)).collect();
    let batches = starts
        .iter()
        .map(|from| fill::schedules(&rules, &order, *from..jobs.min(from + JOBS_PER_BATCH)))
        .collect::<Result<Vec<_>, _>>()?;
    let before = store.reader.vitals().await?;
    let began = clock::wall_us();
    stream::iter(&batches)
        .map(|batch| store.jobs.schedule(batch))
        .buffered(CONCURRENT_BATCHES)
        .try_for_each(async |_| Ok(()))
        .await?;
    pace(&store, &before, jobs, clock::wall_us() - began).await
}

/// The CPU time of Redis's main thread for one pipelined SET of the same body, µs.
pub(super) async fn set(fixture: &Fixture, keys: u64) -> Result<f64> {
    let body = body(0, 0, fixture.options.body);
    let before = fixture.store.reader.vitals().await?;
    // Removed in any case: the Redis may belong to somebody.
    let set = fixture.store.admin.set(keys, &body).await;
    let after = fixture.store.reader.vitals().await;
    fixture.store.admin.unset(keys).await?;
    set?;
    let after = after?;
    Ok((after.cpu_us - before.cpu_us) / keys.max(1) as f64)
}

/// Sends this many requests to a separate destination, reads and acknowledges them as an ingest
/// does, and returns the rate.
pub(super) async fn source(fixture: &mut Fixture, jobs: u64) -> Result<f64> {
    fixture.environment.declare(&[SOURCE], Role::Ingest).await?;
    fixture.new_round();
    fixture.send(SOURCE, jobs, clock::wall_ms()).await?;
    let settings = fixture.environment.settings();
    let own = source_options(&settings.ingest["main"], &settings.limits);
    let options = SourceOptions { topic: SOURCE.to_owned(), group: "source".to_owned(), ..own };
    let source = fixture.environment.broker().source(options).await?;
    // The rate starts at the first batch, so that neither opening nor that batch counts.
    let (mut began_us, mut first, mut read) = (0, 0, 0);
    while read < jobs {
        let Some(batch) = clock::timeout(ARRIVAL_TIMEOUT, source.recv()).await else {
            let then = format!("were read from {SOURCE}, and then none");
            return Err(format!("{read} of {jobs} messages {then}").into());
        };
        let batch = batch?;
        let count = batch.messages.len() as u64;
        source.ack(batch.id).await?;
        if read == 0 {
            (began_us, first) = (clock::wall_us(), count);
        }
        read += count;
    }
    let took_us = clock::wall_us() - began_us;
    source.close().await?;
    Ok(per_second(read - first, took_us))
}

async fn pace(store: &Store, before: &RedisStats, jobs: u64, took_us: i64) -> Result<Pace> {
    let after = store.reader.vitals().await?;
    Ok(Pace {
        per_s: per_second(jobs, took_us),
        cpu_us: (after.cpu_us - before.cpu_us) / jobs.max(1) as f64,
    })
}
