//! Checks Redis as a start does, without changing anything: makes all checks of
//! [`Store::open`](crate::store::Store::open), even after one has failed.

use crate::config::Redis;
use crate::store::acl;
use crate::store::client::RedisClient;
use crate::store::error::StoreError;
use crate::store::gate::{self, Wait};
use crate::store::keys::Keys;
use crate::store::meta::{self, Meta};
use crate::store::server_facts::{self, ServerFacts};

/// The result of each check, or the error that a start would stop with.
#[derive(Debug)]
pub struct Preflight {
    /// The facts that INFO reports.
    pub facts: ServerFacts,
    /// Whether the server accepts writes.
    pub writable: Result<(), StoreError>,
    /// Whether the user has the permissions that Dwell needs.
    pub permitted: Result<(), StoreError>,
    /// The wait that gives `redis.durability`.
    pub durability: Result<Wait, StoreError>,
    /// Whether a full server keeps all keys.
    pub eviction: Result<(), StoreError>,
    /// The namespace; `None` if a start would create it.
    pub namespace: Result<Option<Meta>, StoreError>,
    /// The number of waiting jobs of each broker in the namespace.
    pub waiting: Vec<(String, u64)>,
}

/// Makes all checks. `Err`: Redis cannot be reached, and nothing is known.
pub async fn preflight(settings: &Redis) -> Result<Preflight, StoreError> {
    let link = RedisClient::new(settings);
    let facts = server_facts::facts(&link).await?;
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
        writable: server_facts::refuse_replica(settings, &facts),
        permitted: acl::refuse_unpermitted(
            &link,
            &Keys::new(&settings.namespace, settings.buckets),
        )
        .await,
        durability: gate::waits_of(settings, &facts),
        eviction: server_facts::refuse_eviction(&facts),
        namespace,
        facts,
    })
}

async fn waiting(
    link: &RedisClient,
    settings: &Redis,
    meta: &Meta,
) -> Result<Vec<(String, u64)>, StoreError> {
    let keys = Keys::new(&settings.namespace, meta.buckets);
    let mut counts: Vec<(String, u64)> =
        meta.brokers.iter().map(|broker| (broker.clone(), 0)).collect();
    for bucket in 0..keys.buckets() {
        let mut pipeline = redis::pipe();
        for broker in &meta.brokers {
            pipeline.cmd("ZCARD").arg(keys.due(bucket, broker));
        }
        for ((_, count), answer) in
            counts.iter_mut().zip(link.pipeline("counting", &pipeline).await?)
        {
            if let redis::Value::Int(number) = answer {
                *count += u64::try_from(number).unwrap_or(0);
            }
        }
    }
    Ok(counts)
}
