//! What a start would find in Redis, changing nothing: the same questions as [`Store::open`](super::Store::open) asks, all of them answered.

use super::acl;
use super::client::RedisClient;
use super::error::StoreError;
use super::gate::{self, Wait};
use super::keys::Keys;
use super::meta::{self, Meta, ServerFacts};
use crate::config::Redis;

/// The answers, each with the error that a start would stop with.
#[derive(Debug)]
pub struct Preflight {
    /// What the server tells of itself.
    pub facts: ServerFacts,
    /// Whether it takes writes.
    pub writable: Result<(), StoreError>,
    /// Whether the user may do what Dwell does.
    pub permitted: Result<(), StoreError>,
    /// What `redis.durability` comes to.
    pub durability: Result<Wait, StoreError>,
    /// Whether it keeps what it was given when it is full.
    pub eviction: Result<(), StoreError>,
    /// The namespace; `None` where a start would make it.
    pub namespace: Result<Option<Meta>, StoreError>,
    /// How many jobs wait for each broker of it.
    pub waiting: Vec<(String, u64)>,
}

/// Surveys a Redis. `Err`: it cannot be reached, and nothing is known.
pub async fn preflight(settings: &Redis) -> Result<Preflight, StoreError> {
    let link = RedisClient::new(settings);
    let facts = meta::facts(&link).await?;
    let namespace = meta::look(&link, settings).await.and_then(|found| match found {
        Some(meta) => meta::agree(&meta, settings).map(|()| Some(meta)),
        None => Ok(None),
    });
    let waiting = match &namespace {
        Ok(Some(meta)) => waiting(&link, settings, meta).await?,
        _ => Vec::new(),
    };
    Ok(Preflight {
        waiting,
        writable: meta::refuse_replica(settings, &facts),
        permitted: acl::refuse_unpermitted(&link, &Keys::new(&settings.namespace, settings.buckets)).await,
        durability: gate::waits_of(settings, &facts),
        eviction: meta::refuse_eviction(&facts),
        namespace,
        facts,
    })
}

async fn waiting(link: &RedisClient, settings: &Redis, meta: &Meta) -> Result<Vec<(String, u64)>, StoreError> {
    let keys = Keys::new(&settings.namespace, meta.buckets);
    let mut counts: Vec<(String, u64)> = meta.brokers.iter().map(|broker| (broker.clone(), 0)).collect();
    for bucket in 0..keys.buckets() {
        let mut pipeline = redis::pipe();
        for broker in &meta.brokers {
            pipeline.cmd("ZCARD").arg(keys.due(bucket, broker));
        }
        for ((_, count), answer) in counts.iter_mut().zip(link.pipeline("counting", &pipeline).await?) {
            if let redis::Value::Int(number) = answer {
                *count += u64::try_from(number).unwrap_or(0);
            }
        }
    }
    Ok(counts)
}
