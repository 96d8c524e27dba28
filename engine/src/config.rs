//! Where jobs are kept: the Redis, its mode, and what a write waits for.

use dwell_core::redacted;
use serde::{Deserialize, Serialize};

/// What the URLs lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RedisMode {
    /// One server.
    Single,
    /// A Redis Cluster.
    Cluster,
    /// Sentinels that know the master.
    Sentinel,
}

/// What the inbound ack waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Durability {
    /// Redis has it in memory.
    #[serde(rename = "memory")]
    Memory,
    /// Redis has it on disk.
    #[serde(rename = "fsync")]
    Fsync,
    /// A replica has it too.
    #[serde(rename = "replica")]
    Replica,
    /// Redis has it on disk and a replica has it too.
    #[serde(rename = "fsync+replica")]
    FsyncReplica,
}

/// `[redis]`
#[derive(Clone)]
#[allow(missing_docs, reason = "docs/reference/settings.md explains each setting")]
pub struct Redis {
    pub mode: RedisMode,
    /// With passwords: never printed.
    pub urls: Vec<String>,
    pub master: String,
    pub namespace: String,
    pub buckets: u16,
    pub durability: Durability,
    pub assume_fsync: bool,
}

impl std::fmt::Debug for Redis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redis")
            .field("mode", &self.mode)
            .field("urls", &self.urls.iter().map(|url| redacted(url)).collect::<Vec<_>>())
            .field("master", &self.master)
            .field("namespace", &self.namespace)
            .field("buckets", &self.buckets)
            .field("durability", &self.durability)
            .field("assume_fsync", &self.assume_fsync)
            .finish()
    }
}
