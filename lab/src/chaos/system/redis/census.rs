//! The content of Redis: jobs in leases and held jobs by bucket, and the master of each bucket.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use dwell::clock;
use dwell::config::RedisMode;
use dwell::store::keys::Keys;
use futures_util::future::join_all;
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{Value, from_redis_value};

use super::connect;
use crate::chaos::history::Leases;

/// The time-out of a query: a frozen server does not answer.
const QUERY_TIMEOUT: Duration = Duration::from_millis(500);

/// Asks the masters. The census needs no lock: faults hold the servers for their whole duration.
pub(crate) struct Census {
    mode: RedisMode,
    urls: Vec<String>,
    pub(crate) keys: Keys,
    /// The masters at the last complete count.
    links: Mutex<Vec<Link>>,
}

/// A connection to a server.
struct Link {
    port: u16,
    connection: MultiplexedConnection,
}

/// The answer of a server that is the master of these buckets.
struct Master {
    link: Link,
    buckets: Vec<u16>,
    leases: Leases,
}

/// The answer of all masters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) leases: Leases,
    /// Every bucket was counted.
    pub(crate) is_complete: bool,
}

impl Census {
    pub(super) fn new(mode: RedisMode, urls: Vec<String>, keys: Keys) -> Census {
        Census { mode, urls, keys, links: Mutex::default() }
    }

    /// The held jobs, and the leases that end before this time, epoch ms.
    pub(crate) async fn count(&self, before_ms: i64) -> Counted {
        let known = std::mem::take(&mut *self.links.lock());
        let links = if known.is_empty() { self.links().await } else { known };
        let masters = self.masters(links, before_ms).await;
        let covered: usize = masters.iter().map(|master| master.buckets.len()).sum();
        let is_complete = covered == usize::from(self.keys.buckets());
        let mut leases = Leases::default();
        masters.iter().for_each(|master| leases += master.leases);
        // After a fault of a master, the masters are looked up anew.
        if is_complete {
            *self.links.lock() = masters.into_iter().map(|master| master.link).collect();
        }
        Counted { leases, is_complete }
    }

    /// The port of the master of each bucket; `None` while a bucket has no master, or two.
    pub(crate) async fn owners(&self) -> Option<Vec<u16>> {
        let mut owners = BTreeMap::new();
        for Master { link, buckets, .. } in self.masters(self.links().await, 0).await {
            for bucket in buckets {
                if owners.insert(bucket, link.port).is_some() {
                    return None;
                }
            }
        }
        (owners.len() == usize::from(self.keys.buckets())).then(|| owners.into_values().collect())
    }

    /// A key that the master on this port may write; `None` if it has no bucket.
    pub(crate) async fn key_on(&self, port: u16) -> Option<String> {
        if self.mode != RedisMode::Cluster {
            return Some("chaos-probe".to_owned());
        }
        let masters = self.masters(self.links().await, 0).await;
        let master = masters.iter().find(|master| master.link.port == port)?;
        Some(self.key_in(*master.buckets.first()?))
    }

    /// A key of this bucket that Dwell does not use.
    pub(crate) fn key_in(&self, bucket: u16) -> String {
        self.keys.fixed(bucket)[0].replace(":claim_deadlines", ":chaos-probe")
    }

    /// Connections to the servers that can be reached.
    async fn links(&self) -> Vec<Link> {
        let links = self.urls.iter().map(async |url| {
            let port = url.rsplit(':').next()?.parse().ok()?;
            let connecting = clock::timeout(QUERY_TIMEOUT, connect(url, QUERY_TIMEOUT));
            Some(Link { port, connection: connecting.await?.ok()? })
        });
        join_all(links).await.into_iter().flatten().collect()
    }

    /// Those of the servers that are masters of buckets.
    async fn masters(&self, links: Vec<Link>, before_ms: i64) -> Vec<Master> {
        let asked = links.into_iter().map(async |link| {
            clock::timeout(QUERY_TIMEOUT, self.ask(link, before_ms)).await.flatten()
        });
        join_all(asked).await.into_iter().flatten().collect()
    }

    /// Asks a server for all buckets. In a Cluster it refuses those of other masters.
    async fn ask(&self, mut link: Link, before_ms: i64) -> Option<Master> {
        let mut pipeline = redis::pipe();
        pipeline.cmd("ROLE");
        for bucket in 0..self.keys.buckets() {
            pipeline
                .cmd("ZRANGEBYSCORE")
                .arg(self.keys.claim_deadlines(bucket))
                .arg("-inf")
                .arg(format!("({before_ms}"));
            pipeline.cmd("HGETALL").arg(self.keys.settled(bucket));
            pipeline.cmd("ZCARD").arg(self.keys.held(bucket));
        }
        let count = pipeline.len();
        let answers = link.connection.send_packed_commands(&pipeline, 0, count).await.ok()?;
        let mut answers = answers.into_iter();
        let role: Vec<Value> = from_redis_value(answers.next()?).ok()?;
        let role: String = from_redis_value(role.into_iter().next()?).ok()?;
        // A single Redis that a fault makes a replica stays the master of all.
        if self.mode == RedisMode::Sentinel && role != "master" {
            return None;
        }
        let (mut leases, mut buckets) = (Leases::default(), Vec::new());
        for bucket in 0..self.keys.buckets() {
            let (ended, left, held) = (answers.next()?, answers.next()?, answers.next()?);
            let (Ok(ended), Ok(left), Ok(held)) = (
                from_redis_value::<Vec<Vec<u8>>>(ended),
                from_redis_value::<HashMap<Vec<u8>, Vec<u8>>>(left),
                from_redis_value::<u64>(held),
            ) else {
                continue;
            };
            buckets.push(bucket);
            leases.held += held;
            for bits in ended.iter().filter_map(|nonce| left.get(nonce)) {
                let (inside, is_half) = inside(bits);
                leases.claimed += inside;
                leases.leases += 1;
                leases.half_settled += u64::from(is_half);
            }
        }
        (!buckets.is_empty()).then_some(Master { link, buckets, leases })
    }
}

/// The number of jobs in a lease, and whether another job has surely left the lease. The first 8
/// bytes are followed by a bit for each job, set once the job has left. The bits past the last job
/// are set too, so that only a set bit below a job that is inside is surely that of a job.
fn inside(left: &[u8]) -> (u64, bool) {
    let bits = left.get(8..).unwrap_or_default();
    let (mut inside, mut seen_gone, mut is_half) = (0, false, false);
    for position in 0..bits.len() * 8 {
        let has_left = bits[position / 8] >> (position % 8) & 1 == 1;
        is_half |= seen_gone && !has_left;
        seen_gone |= has_left;
        inside += u64::from(!has_left);
    }
    (inside, is_half)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_half_settled_where_a_job_has_left_before_another() {
        let lease = |bits: &[u8]| inside(&[&[0; 8][..], bits].concat());
        assert_eq!(lease(&[0b1111_1000]), (3, false), "three jobs, and the bits past them");
        assert_eq!(lease(&[0b1111_1010]), (2, true));
        assert_eq!(lease(&[0b1111_1111]), (0, false));
        assert_eq!(lease(&[0b1111_1111, 0b1111_1110]), (1, true));
        assert_eq!(inside(&[]), (0, false));
    }
}
