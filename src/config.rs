//! The settings: file, then environment, then flags.

use std::collections::BTreeMap;
use std::path::PathBuf;

use dwell_connectors::BrokerConfig;

use crate::job::{Confirm, Late};

/// All settings, checked.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `[redis]`
    pub redis: Redis,
    /// `[brokers.NAME]`
    pub brokers: BTreeMap<String, Broker>,
    /// `[ingest.NAME]`
    pub ingest: BTreeMap<String, Ingest>,
    /// `[delivery]`
    pub delivery: Delivery,
    /// `[limits]`
    pub limits: Limits,
    /// `[http]`
    pub http: Http,
    /// `[probes]`
    pub probes: Probes,
    /// `[shutdown]`
    pub shutdown: Shutdown,
}

/// `redis.mode`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the words of the contract")]
pub enum RedisMode {
    Single,
    Cluster,
    Sentinel,
}

/// `redis.durability`: what the inbound ack waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the words of the contract")]
pub enum Durability {
    Memory,
    Fsync,
    Replica,
    FsyncReplica,
}

/// `[redis]`
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the words of the contract")]
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

/// `[brokers.NAME]`
#[derive(Debug, Clone)]
pub struct Broker {
    /// The connector and its own settings.
    pub connector: BrokerConfig,
    /// Targets that producers may reach.
    pub allow: Vec<String>,
}

/// `[ingest.NAME]`
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the words of the contract")]
pub struct Ingest {
    pub broker: String,
    pub topic: String,
    pub group: String,
    /// `format = "envelope"`
    pub envelope: bool,
    /// `delay_from = "receipt"`
    pub from_receipt: bool,
    pub declare: bool,
    pub rejected: String,
    pub target: String,
    pub exchange: String,
    /// `missing_delay = "immediate"`
    pub missing_delay_immediate: bool,
}

/// `[delivery]`; durations in ms.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the words of the contract")]
pub struct Delivery {
    pub ttr_ms: u32,
    pub publish_timeout_ms: u64,
    pub retry_ms: Vec<u64>,
    pub confirm: Confirm,
    pub late: Late,
    pub max_late_ms: Option<u64>,
    pub dead: String,
    pub dead_retention_ms: u64,
    pub dedupe_window_ms: u64,
    pub max_in_flight: usize,
    pub max_in_flight_bytes: u64,
}

/// `[limits]`
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the words of the contract")]
pub struct Limits {
    pub max_delay_ms: u64,
    pub max_body: u64,
    pub max_retries: usize,
    pub max_ttr_ms: u32,
}

/// `[http]`
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the words of the contract")]
pub struct Http {
    pub listen: String,
    pub token_file: Option<PathBuf>,
}

/// `[probes]`
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the words of the contract")]
pub struct Probes {
    pub listen: String,
}

/// `[shutdown]`
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the words of the contract")]
pub struct Shutdown {
    pub drain_ms: u64,
}
