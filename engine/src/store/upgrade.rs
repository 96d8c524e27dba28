//! The upgrade of a namespace from schema 1, in which each claimed job had a lease of its own.

use redis::Value;

use super::answer::micros_of;
use super::client::RedisClient;
use super::error::{Class, StoreError};
use super::fleet::ALIVE_MS;
use super::keys::Keys;
use super::meta::SCHEMA;
use super::queue::schedule::CALL_JOBS;
use super::scripts::Name;

/// The schema that this program upgrades.
pub(super) const FORMER: &str = "1";
/// The schema during an upgrade: no program of the former schema starts any more.
const BETWEEN: &str = "1>2";
/// The first write frees memory: a full Redis accepts the second one then.
const WRITE_SCHEMA: &str = "redis.call('HDEL', KEYS[1], '-') return redis.call('HSET', KEYS[1], 'schema', ARGV[1])";

/// Whether these fields of `<ns>:meta` are of the former schema; makes them those of an upgraded
/// namespace.
pub(super) fn as_upgraded(fields: &mut [(String, String)]) -> bool {
    let schema = fields.iter_mut().find(|(name, schema)| name == "schema" && [FORMER, BETWEEN].contains(&schema.as_str()));
    let is_former = schema.is_some();
    if let Some((_, schema)) = schema {
        SCHEMA.clone_into(schema);
    }
    is_former
}

/// Moves the leases of each bucket to their new form, then writes the schema. Several instances may
/// do so at once, and a repeat after an interruption goes on.
///
/// An error of class `Unserved` while instances of the former version are alive: each of their calls
/// would fail from then on, and they would reject the requests that they read.
pub(super) async fn upgrade(link: &RedisClient, keys: &Keys) -> Result<(), StoreError> {
    refuse_living(link, keys).await?;
    write_schema(link, keys, BETWEEN).await?;
    // One may have started just before.
    refuse_living(link, keys).await?;
    tracing::info!(key = keys.meta(), from = FORMER, to = SCHEMA, "upgrading the namespace");
    let source = Name::Upgrade.source(keys.buckets());
    for bucket in 0..keys.buckets() {
        let fixed = keys.fixed(bucket);
        let mut call = redis::cmd("EVAL");
        call.arg(&source).arg(fixed.len() + 1).arg(fixed.as_slice()).arg(keys.old_leases(bucket)).arg(CALL_JOBS);
        loop {
            match link.command(Name::Upgrade.as_str(), &call).await? {
                Value::Int(0) => break,
                Value::Int(_) => {}
                other => return Err(StoreError::new(Class::Script, format!("redis: upgrade answered {other:?} instead of a number"))),
            }
        }
    }
    write_schema(link, keys, SCHEMA).await
}

async fn write_schema(link: &RedisClient, keys: &Keys, schema: &str) -> Result<(), StoreError> {
    let mut writing = redis::cmd("EVAL");
    writing.arg(WRITE_SCHEMA).arg(1).arg(keys.meta()).arg(schema);
    link.command("the schema", &writing).await.map(drop)
}

async fn refuse_living(link: &RedisClient, keys: &Keys) -> Result<(), StoreError> {
    let now_ms = micros_of(link.command("TIME", &redis::cmd("TIME")).await?)? / 1000;
    let mut asking = redis::cmd("ZRANGEBYSCORE");
    asking.arg(keys.instances()).arg(now_ms - ALIVE_MS).arg("+inf");
    let alive = match link.command("the living", &asking).await? {
        Value::Array(names) => names.len(),
        _ => 0,
    };
    if alive > 0 {
        let message = format!("redis: {alive} instances of the former version use the namespace at `{}`", keys.meta());
        return Err(StoreError::new(Class::Unserved, message).hint("stop them: then this version upgrades the namespace"));
    }
    Ok(())
}
