//! The Redis that holds the jobs: its mode, and what a write waits for.

use dwell_core::redacted;
use serde::{Deserialize, Serialize};

/// The kind of Redis at the URLs.
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

/// What the acknowledgement of a request waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Durability {
    /// Redis has the job in memory.
    #[serde(rename = "memory")]
    Memory,
    /// Redis has the job on disk.
    #[serde(rename = "fsync")]
    Fsync,
    /// A replica has the job too.
    #[serde(rename = "replica")]
    Replica,
    /// Redis has the job on disk, and a replica has the job too.
    #[serde(rename = "fsync+replica")]
    FsyncReplica,
}

/// Which Redis holds the jobs, under which namespace, and what a write waits for. `[redis]` of the
/// settings file has the same fields.
#[derive(Clone)]
pub struct Redis {
    /// The kind of Redis at the URLs.
    pub mode: RedisMode,
    /// One server, several masters of a cluster, or several sentinels; `redis://`, or `rediss://`
    /// for TLS. `Debug` shows them without their passwords.
    pub urls: Vec<String>,
    /// The name of the master that the sentinels watch.
    pub master: String,
    /// Prefix of every key: programs with the same namespace share their jobs.
    pub namespace: String,
    /// The number of parts that the jobs are split into, 1 to 1024; fixed when the namespace is
    /// created.
    pub buckets: u16,
    /// What the answer to a request waits for.
    pub durability: Durability,
    /// The server fsyncs each write but does not report it (managed Redis).
    pub assume_fsync: bool,
}

impl Redis {
    /// One server at this URL, with the defaults of `[redis]`: namespace `dwell`, 16 buckets, no
    /// wait for the disk or a replica.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Redis {
            mode: RedisMode::Single,
            urls: vec![url.into()],
            master: "mymaster".to_owned(),
            namespace: "dwell".to_owned(),
            buckets: 16,
            durability: Durability::Memory,
            assume_fsync: false,
        }
    }
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
