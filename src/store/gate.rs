//! The durability gate: calls whose answer counts only once Redis holds them as durably as `redis.durability` asks.
//!
//! WAIT and WAITAOF hold back everything that is pipelined behind them, so these calls have connections of their own. Calls and wait are one
//! pipeline; after any error, and where the wait came up short, the whole batch is sent again by the caller (never the wait alone: it covers
//! what its own connection wrote).

use std::sync::atomic::{AtomicUsize, Ordering};

use redis::{Cmd, Pipeline, Value};

use super::error::{Class, StoreError};
use super::link::Link;
use super::meta::Facts;
use crate::config::{Durability, Redis, RedisMode};

/// How long one wait may take, ms: less than the time-out of an answer.
const WAIT_MS: u64 = 3000;
/// Connections that wait side by side.
const WAITING_LINKS: usize = 4;

/// What is sent behind the calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Nothing: the answer itself is as durable as asked.
    None,
    /// WAIT for so many replicas.
    Replicas(u32),
    /// WAITAOF for the local AOF and so many replicas.
    Aof(u32),
}

/// What to wait for at this level on this server, or why the server cannot give it.
pub fn waits_of(settings: &Redis, facts: &Facts) -> Result<Wait, StoreError> {
    let refuse = |why: String, mend: &str| Err(StoreError::new(Class::Settings, format!("redis: durability: {why}")).mend(mend));
    if settings.durability == Durability::Memory {
        return Ok(Wait::None);
    }
    if settings.mode == RedisMode::Cluster {
        return refuse(
            "levels above `memory` need a connection to each master, which `mode = \"cluster\"` does not have yet".to_owned(),
            "set redis.durability = \"memory\"",
        );
    }
    let fsync = matches!(settings.durability, Durability::Fsync | Durability::FsyncReplica);
    let replicas = u32::from(matches!(settings.durability, Durability::Replica | Durability::FsyncReplica));
    if replicas > facts.replicas {
        return refuse("no replica is connected".to_owned(), "start a replica, or set redis.durability to \"memory\" or \"fsync\"");
    }
    if !fsync {
        return Ok(Wait::Replicas(replicas));
    }
    let told = settings.assume_fsync;
    if !facts.aof && !told {
        return refuse(
            format!("{} runs without AOF, so nothing is ever fsynced", facts.version),
            "set appendonly yes in redis.conf; or redis.assume_fsync = true where the server fsyncs each write but does not tell; or redis.durability = \"memory\"",
        );
    }
    if told || facts.appendfsync.as_deref() == Some("always") {
        return Ok(if replicas > 0 { Wait::Replicas(replicas) } else { Wait::None });
    }
    if facts.waitaof {
        return Ok(Wait::Aof(replicas));
    }
    refuse(
        format!("{} has no WAITAOF and appendfsync is {}", facts.version, facts.appendfsync.as_deref().unwrap_or("not to be read")),
        "set appendfsync always in redis.conf, or use Redis 7.2 or Valkey",
    )
}

/// The connections of the gate.
pub struct Gate {
    links: Vec<Link>,
    next: AtomicUsize,
    /// Or why nothing can pass: Redis cannot give the durability.
    wait: Result<Wait, StoreError>,
}

impl Gate {
    /// A gate that is not open yet; one that cannot wait as asked refuses every call.
    #[must_use]
    pub fn new(settings: &Redis, wait: Result<Wait, StoreError>) -> Self {
        let links = if matches!(wait, Ok(Wait::Replicas(_) | Wait::Aof(_))) { WAITING_LINKS } else { 1 };
        Gate { links: (0..links).map(|_| Link::new(settings)).collect(), next: AtomicUsize::new(0), wait }
    }

    /// The link that the next call shall use.
    pub fn link(&self) -> &Link {
        &self.links[self.next.fetch_add(1, Ordering::Relaxed) % self.links.len()]
    }

    /// Sends the calls and waits until they are as durable as asked; each wave of them only once the one before was applied as a whole. All
    /// answers in a row, or an error: then the caller sends all of them again.
    pub async fn pass(&self, link: &Link, doing: &str, waves: &[Vec<Cmd>]) -> Result<Vec<Value>, StoreError> {
        let wait = self.wait.clone()?;
        if link.is_cluster() {
            let mut answers = Vec::with_capacity(waves.iter().map(Vec::len).sum());
            for call in waves.iter().flatten() {
                answers.push(link.command(doing, call).await?);
            }
            return Ok(answers);
        }
        let mut pipelines = Vec::with_capacity(waves.len());
        for calls in waves {
            let mut pipeline = Pipeline::with_capacity(calls.len() + 1);
            for call in calls {
                pipeline.add_command(call.clone());
            }
            pipelines.push(pipeline);
        }
        let Some(last) = pipelines.last_mut() else { return Ok(Vec::new()) };
        let wanted = match wait {
            Wait::None => None,
            Wait::Replicas(replicas) => {
                last.cmd("WAIT").arg(replicas).arg(WAIT_MS);
                Some((0, replicas))
            }
            Wait::Aof(replicas) => {
                last.cmd("WAITAOF").arg(1).arg(replicas).arg(WAIT_MS);
                Some((1, replicas))
            }
        };
        // One connection carries them all, so that the wait covers them all.
        let mut answers = link.pipelines(doing, &pipelines).await?;
        if let Some((local, replicas)) = wanted {
            let reached = match answers.pop() {
                Some(Value::Int(replicas)) => (0, replicas),
                Some(Value::Array(counts)) => match counts.as_slice() {
                    [Value::Int(local), Value::Int(replicas)] => (*local, *replicas),
                    _ => (0, 0),
                },
                _ => (0, 0),
            };
            if reached.0 < local || reached.1 < i64::from(replicas) {
                return Err(StoreError::new(
                    Class::Timeout,
                    format!(
                        "redis: {doing}: not durable within {WAIT_MS} ms: fsynced {} of {local}, replicas {} of {replicas}",
                        reached.0, reached.1
                    ),
                ));
            }
        }
        Ok(answers)
    }
}
