//! The options of a system.

use std::path::PathBuf;
use std::time::Duration;

use dwell::config::{Durability, RedisMode};
use dwell_testkit::servers::BrokerKind;

/// `delivery.publish_timeout`. A lease is five seconds longer: short, so that abandoned claims are
/// taken over soon.
pub(super) const PUBLISH_TIMEOUT: Duration = Duration::from_secs(3);

/// The options of a system.
#[derive(Debug, Clone)]
pub struct SystemOptions {
    /// The kind of broker.
    pub broker: BrokerKind,
    /// The kind of Redis. A Cluster and sentinels have replicas at every durability.
    pub redis: RedisMode,
    /// The number of instances that share the namespace and the broker.
    pub instances: usize,
    /// `redis.durability`. `replica` starts a replica and allows a failover.
    /// `fsync` needs a Redis with WAITAOF.
    pub durability: Durability,
    /// The program of the instances.
    pub program: PathBuf,
    /// Whether URLs are targets too, over another broker of the instances.
    pub http: bool,
    /// The rate of the limited target, jobs a second; `None`: it has no limit.
    pub limited_per_s: Option<u32>,
    /// More settings of the instances, as dotted lines (`delivery.max_in_flight = 64`).
    pub more: String,
}

impl Default for SystemOptions {
    /// One instance, on NATS, with `memory` durability; the program is `dwell` beside this one.
    fn default() -> Self {
        SystemOptions {
            broker: BrokerKind::Nats,
            redis: RedisMode::Single,
            instances: 1,
            durability: Durability::Memory,
            program: dwell_testkit::servers::find::dwell(),
            http: false,
            limited_per_s: None,
            more: String::new(),
        }
    }
}

impl SystemOptions {
    /// Whether there is a replica.
    #[must_use]
    pub fn has_replica(&self) -> bool {
        matches!(self.durability, Durability::Replica | Durability::FsyncReplica)
    }
}

/// The duration of a lease.
pub(crate) fn lease() -> Duration {
    PUBLISH_TIMEOUT + dwell::dispatch::LEASE_MARGIN
}
