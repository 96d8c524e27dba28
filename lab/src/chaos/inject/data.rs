//! Faults of Redis's data and of its disk.

use std::time::Duration;

use dwell::clock;
use dwell::store::keys::Keys;
use rand::RngExt;
use rustix::process::{Resource, Rlimit, prlimit};

use super::redis::any;
use super::{Done, Injection, Outcome, held, running};
use crate::chaos::history::Only;
use crate::chaos::system::{Error, Servers, open};
use crate::chaos::wait::until;

/// The longest time until Redis writes its file again.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// A full disk: no file of Redis may grow.
pub(super) async fn disk_full(Injection { system, rng, hold }: Injection<'_>) -> Outcome {
    let servers = system.redis.servers.lock().await;
    let master = &servers.all()[any(&servers, rng).await?];
    let pid = running(master.pid())?;
    let limit = |most: Option<u64>| {
        prlimit(Some(pid), Resource::Fsize, Rlimit { current: most, maximum: None })
            .map_err(|error| Error::Io("the limit of redis's files".to_owned(), error.into()))
    };
    held(hold, limit(Some(1)), async { limit(None) }).await?;
    let done = Done::healed("no file may grow");
    let mut connection = open(master).await?;
    until(WRITE_TIMEOUT, "redis did not write its file again", async || {
        let mut asking = redis::cmd("INFO");
        let info = asking.arg("persistence").query_async::<String>(&mut connection).await?;
        Ok(info.contains("aof_last_write_status:ok"))
    })
    .await?;
    Ok(done)
}

/// Writes invalid records that are due now. Removes the remaining ones at the end, as an operator
/// would with `dwell fsck`.
pub(super) async fn poisoned_records(Injection { system, rng, hold }: Injection<'_>) -> Outcome {
    let keys = &system.redis.census.keys;
    let noise: Vec<u8> = (0..200).map(|_| rng.random()).collect();
    let unknown = [&[250][..], &noise].concat();
    // A valid version, followed by noise.
    let known = [&[1][..], &noise].concat();
    let records = [Some(noise), Some(unknown), Some(known), Some(Vec::new()), None];
    let poisoned = records.map(|record| (format!("poison-{:016x}", rng.random::<u64>()), record));
    let servers = system.redis.servers.lock().await;
    let removed = async {
        for (id, _) in &poisoned {
            let bucket = keys.bucket_of(id);
            let mut removing = redis::pipe();
            removing.zrem(keys.due(bucket, "main"), id).ignore();
            removing.zrem(keys.held(bucket), id).ignore().zrem(keys.dead(bucket), id).ignore();
            removing.hdel(keys.jobs(bucket), id).ignore().hdel(keys.state(bucket), id).ignore();
            let mut connection = servers.connect_to(keys.claim_deadlines(bucket)).await?;
            removing.query_async::<()>(&mut connection).await?;
        }
        Ok(())
    };
    held(hold, plant(&servers, keys, &poisoned).await, removed).await?;
    Ok(Done::new(format!("{} records", poisoned.len())))
}

async fn plant(
    servers: &Servers,
    keys: &Keys,
    poisoned: &[(String, Option<Vec<u8>>)],
) -> Result<(), Error> {
    for (id, record) in poisoned {
        let bucket = keys.bucket_of(id);
        let mut connection = servers.connect_to(keys.claim_deadlines(bucket)).await?;
        let (seconds, _): (i64, i64) = redis::cmd("TIME").query_async(&mut connection).await?;
        let mut planting = redis::pipe();
        if let Some(record) = record {
            planting.hset(keys.jobs(bucket), id, record.as_slice()).ignore();
        }
        planting.zadd(keys.due(bucket, "main"), id, seconds * 1000).ignore();
        planting.query_async::<()>(&mut connection).await?;
    }
    Ok(())
}

/// Creates a missing key as a string: scripts that access it fail.
pub(super) async fn wrong_type(Injection { system, rng, hold }: Injection<'_>) -> Outcome {
    let keys = &system.redis.census.keys;
    let servers = system.redis.servers.lock().await;
    let first = rng.random_range(0..keys.buckets());
    for bucket in (first..keys.buckets()).chain(0..first) {
        let mut connection = servers.connect_to(keys.claim_deadlines(bucket)).await?;
        // Only a key that does not exist now, so that no data is lost.
        for key in &keys.fixed(bucket)[..] {
            let mut make = redis::cmd("SETNX");
            make.arg(key).arg("of another type");
            if !make.query_async::<bool>(&mut connection).await? {
                continue;
            }
            let from_us = clock::wall_us();
            clock::sleep(hold).await;
            // Only if no script has replaced the key.
            let heal = "if redis.call('TYPE', KEYS[1]).ok == 'string' then return redis.call('DEL', KEYS[1]) end return 0";
            redis::cmd("EVAL").arg(heal).arg(1).arg(key).query_async::<()>(&mut connection).await?;
            let only = Only::Bucket { number: bucket, of: keys.buckets() };
            return Ok(Done::healed_beside(format!("`{key}` was a string"), from_us, only));
        }
    }
    Err(Error::unexpected("every key of every bucket is in use"))
}
