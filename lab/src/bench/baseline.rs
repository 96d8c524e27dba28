//! The parts of a ceiling, each alone: the scripts on the same Redis with no broker, and the source with no Redis. And a bare SET, as a yardstick.

use std::sync::Arc;
use std::time::Duration;

use dwell_connectors::{Role, SourceOptions};
use futures_util::future::try_join_all;
use futures_util::{StreamExt, TryStreamExt, stream};

use super::fill::{self, Order};
use super::fixture::Fixture;
use super::round::body;
use super::{TIMEOUT, per_second};
use dwell::clock;
use dwell::config::Redis;
use dwell::ingest::source_options;
use dwell::request::Rules;
use dwell::store::lease::Lease;
use dwell::store::redis_stats::RedisStats;
use dwell::store::schedule::{CALL_BYTES, CALL_JOBS};
use dwell::store::settle::{Completion, LeaseToken, SettleResult};
use dwell::store::{Store, Unobserved};
use dwell_testkit::environment::Failure;

/// Where the messages wait that the source alone reads.
const SOURCE: &str = "bench.source";
/// Batches of requests that are on their way at once.
const BATCHES: usize = 2;
/// Jobs in a batch: as many as an ingest hands over at once.
const BATCH: u64 = 1024;
/// How long a lease holds here.
const LEASE: Duration = Duration::from_secs(60);

/// How fast scripts are, and what a job costs Redis's main thread in them, µs.
pub(super) struct Pace {
    pub(super) per_s: f64,
    pub(super) cpu_us: f64,
}

/// A namespace of its own on the same Redis.
fn elsewhere(fixture: &Fixture) -> Redis {
    let redis = fixture.environment.settings().redis.clone();
    Redis { namespace: format!("{}-alone-{:08x}", redis.namespace, rand::random::<u32>()), ..redis }
}

async fn open(redis: &Redis) -> Result<Store, Failure> {
    Ok(Store::open(redis, &["main".to_owned()], Arc::new(Unobserved)).await?)
}

fn order(fixture: &Fixture, jobs: u64) -> Order {
    Order { jobs, body: fixture.options.body, kind: fixture.options.broker.as_str(), due_ms: clock::wall_ms(), spread_ms: 0 }
}

/// `claim` and `complete` of so many jobs that are due: each bucket goes its way, all of them side by side over one connection.
pub(super) async fn scripts(fixture: &Fixture, jobs: u64) -> Result<Pace, Failure> {
    let redis = elsewhere(fixture);
    fill::fill(&fixture.environment, &redis, &order(fixture, jobs), fixture.options.say).await?;
    let store = open(&redis).await?;
    let before = store.vitals().await?;
    let began = clock::wall_us();
    let buckets = (0..redis.buckets).map(|bucket| empty(&store, bucket));
    let done: u64 = try_join_all(buckets).await?.into_iter().sum();
    let took_us = clock::wall_us() - began;
    if done != jobs {
        return Err(Failure::Unexpected(format!("the scripts alone completed {done} of {jobs} jobs")));
    }
    pace(&store, &before, jobs, took_us).await
}

async fn empty(store: &Store, bucket: u16) -> Result<u64, Failure> {
    let mut done = 0;
    loop {
        let taken = store.claim(bucket, "main", LEASE, CALL_JOBS, CALL_BYTES).await?;
        let held: Vec<LeaseToken> = taken.jobs.iter().map(Lease::token).collect();
        if !held.is_empty() {
            let stood = store.complete(bucket, &held, Completion::Fired).await?;
            done += stood.iter().filter(|stood| **stood == SettleResult::Settled).count() as u64;
        }
        if !taken.more {
            return Ok(done);
        }
    }
}

/// `schedule` of so many jobs, in batches as an ingest has them; the requests are read beforehand.
pub(super) async fn schedule(fixture: &Fixture, jobs: u64) -> Result<Pace, Failure> {
    let redis = elsewhere(fixture);
    let store = open(&redis).await?;
    let rules = Rules::new(fixture.environment.settings(), "main").map_err(Failure::Unexpected)?;
    let order = Order { due_ms: clock::wall_ms() + 3_600_000, ..order(fixture, jobs) };
    let starts: Vec<u64> = (0..jobs).step_by(usize::try_from(BATCH).unwrap_or(usize::MAX)).collect();
    let batches =
        starts.iter().map(|from| fill::schedules(&rules, &order, *from..jobs.min(from + BATCH))).collect::<Result<Vec<_>, _>>()?;
    let before = store.vitals().await?;
    let began = clock::wall_us();
    stream::iter(&batches).map(|batch| store.schedule(batch)).buffered(BATCHES).try_for_each(async |_| Ok(())).await?;
    pace(&store, &before, jobs, clock::wall_us() - began).await
}

/// What one pipelined SET of the same body costs Redis's main thread, µs.
#[allow(clippy::cast_precision_loss, reason = "keys of one run")]
pub(super) async fn set(fixture: &Fixture, keys: u64) -> Result<f64, Failure> {
    let body = body(0, 0, fixture.options.body);
    let before = fixture.store.vitals().await?;
    // Taken away whatever came of it: the Redis may be somebody's.
    let set = fixture.store.set(keys, &body).await;
    let after = fixture.store.vitals().await;
    fixture.store.unset(keys).await?;
    set?;
    let after = after?;
    Ok((after.cpu_us - before.cpu_us) / keys.max(1) as f64)
}

/// Sends so many requests to a place of their own, and reads and acknowledges them as an ingest does: how many a second.
pub(super) async fn source(fixture: &mut Fixture, jobs: u64) -> Result<f64, Failure> {
    fixture.environment.declare(&[SOURCE], Role::Ingest).await?;
    fixture.new_round();
    fixture.send(SOURCE, jobs, clock::wall_ms()).await?;
    let settings = fixture.environment.settings();
    let own = source_options(&settings.ingest["main"], &settings.limits);
    let options = SourceOptions { topic: SOURCE.to_owned(), group: "source".to_owned(), ..own };
    let source = fixture.environment.broker().source(options).await?;
    // From the first batch on: opening is no part of it, and so is not the batch that ends it.
    let (mut began_us, mut first, mut read) = (0, 0, 0);
    while read < jobs {
        let Some(batch) = clock::timeout(TIMEOUT, source.recv()).await else {
            return Err(Failure::Unexpected(format!("{read} of {jobs} messages were read from {SOURCE}, and then none")));
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

#[allow(clippy::cast_precision_loss, reason = "jobs of one run")]
async fn pace(store: &Store, before: &RedisStats, jobs: u64, took_us: i64) -> Result<Pace, Failure> {
    let after = store.vitals().await?;
    Ok(Pace { per_s: per_second(jobs, took_us), cpu_us: (after.cpu_us - before.cpu_us) / jobs.max(1) as f64 })
}
