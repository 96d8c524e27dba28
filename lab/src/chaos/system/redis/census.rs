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
    /// The slot of each bucket, in a Cluster.
    slots: Vec<u16>,
    links: Mutex<Vec<Link>>,
}

/// A connection to a master and its buckets.
struct Link {
    port: u16,
    connection: MultiplexedConnection,
    buckets: Vec<u16>,
}

/// The answer of all masters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) leases: Leases,
    /// Every bucket was counted.
    pub(crate) is_complete: bool,
}

impl Census {
    pub(super) fn new(mode: RedisMode, urls: Vec<String>, keys: Keys, slots: Vec<u16>) -> Census {
        Census { mode, urls, keys, slots, links: Mutex::default() }
    }

    /// The held jobs, and the leases that end before this time, epoch ms.
    pub(crate) async fn count(&self, before_ms: i64) -> Counted {
        let known = std::mem::take(&mut *self.links.lock());
        let links = if known.is_empty() { self.links().await } else { known };
        let answers = join_all(links.into_iter().map(async |mut link| {
            let counted = clock::timeout(QUERY_TIMEOUT, self.ask(&mut link, before_ms))
                .await
                .and_then(Result::ok);
            (counted, link)
        }));
        let (mut leases, mut covered, mut answered) = (Leases::default(), 0, Vec::new());
        for (counted, link) in answers.await {
            if let Some(counted) = counted {
                leases += counted;
                covered += link.buckets.len();
                answered.push(link);
            }
        }
        let is_complete = covered == usize::from(self.keys.buckets());
        // After a fault of a master, the masters are looked up anew.
        if is_complete {
            *self.links.lock() = answered;
        }
        Counted { leases, is_complete }
    }

    /// The port of the master of each bucket; `None` while a bucket has no master, or two.
    pub(crate) async fn owners(&self) -> Option<Vec<u16>> {
        let mut owners = BTreeMap::new();
        for Link { port, buckets, .. } in self.links().await {
            for bucket in buckets {
                if owners.insert(bucket, port).is_some() {
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
        let links = self.links().await;
        let bucket = links.iter().find(|link| link.port == port)?.buckets.first().copied()?;
        Some(self.key_in(bucket))
    }

    /// A key of this bucket that Dwell does not use.
    pub(crate) fn key_in(&self, bucket: u16) -> String {
        self.keys.fixed(bucket)[0].replace(":claim_deadlines", ":chaos-probe")
    }

    async fn links(&self) -> Vec<Link> {
        let links = self.urls.iter().map(|url| clock::timeout(QUERY_TIMEOUT, self.link(url)));
        join_all(links).await.into_iter().flatten().flatten().collect()
    }

    /// A link to the server at this URL, if it is a master of buckets.
    async fn link(&self, url: &str) -> Option<Link> {
        let port = url.rsplit(':').next()?.parse().ok()?;
        let mut connection = connect(url, QUERY_TIMEOUT).await.ok()?;
        let all = 0..self.keys.buckets();
        let buckets: Vec<u16> = match self.mode {
            RedisMode::Single => all.collect(),
            RedisMode::Sentinel => {
                let role: Vec<Value> =
                    redis::cmd("ROLE").query_async(&mut connection).await.ok()?;
                let role: String = from_redis_value(role.into_iter().next()?).ok()?;
                (role == "master").then(|| all.collect())?
            }
            RedisMode::Cluster => {
                let nodes: String =
                    redis::cmd("CLUSTER").arg("NODES").query_async(&mut connection).await.ok()?;
                let ranges = own_slots(&nodes)?;
                let owns = |bucket: &u16| {
                    ranges.iter().any(|(first, last)| {
                        (*first..=*last).contains(&self.slots[usize::from(*bucket)])
                    })
                };
                all.filter(owns).collect()
            }
        };
        (!buckets.is_empty()).then_some(Link { port, connection, buckets })
    }

    async fn ask(&self, link: &mut Link, before_ms: i64) -> Result<Leases, redis::RedisError> {
        let mut pipeline = redis::pipe();
        for bucket in &link.buckets {
            pipeline
                .cmd("ZRANGEBYSCORE")
                .arg(self.keys.claim_deadlines(*bucket))
                .arg("-inf")
                .arg(format!("({before_ms}"));
            pipeline.cmd("HGETALL").arg(self.keys.settled(*bucket));
            pipeline.cmd("ZCARD").arg(self.keys.held(*bucket));
        }
        let mut answers =
            pipeline.query_async::<Vec<Value>>(&mut link.connection).await?.into_iter();
        let mut sum = Leases::default();
        while let (Some(ended), Some(left), Some(held)) =
            (answers.next(), answers.next(), answers.next())
        {
            let ended: Vec<Vec<u8>> = from_redis_value(ended)?;
            let left: HashMap<Vec<u8>, Vec<u8>> = from_redis_value(left)?;
            sum.held += from_redis_value::<u64>(held)?;
            for bits in ended.iter().filter_map(|nonce| left.get(nonce)) {
                let (inside, is_half) = inside(bits);
                sum.claimed += inside;
                sum.leases += 1;
                sum.half_settled += u64::from(is_half);
            }
        }
        Ok(sum)
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

/// The ranges of slots that a node says it has itself; `None` for a replica.
fn own_slots(nodes: &str) -> Option<Vec<(u16, u16)>> {
    let own = nodes.lines().find(|line| line.contains("myself"))?;
    let words: Vec<&str> = own.split(' ').collect();
    if !words.get(2)?.split(',').any(|flag| flag == "master") {
        return None;
    }
    let range = |word: &&str| {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        Some((first.parse().ok()?, last.parse().ok()?))
    };
    Some(words.iter().skip(8).filter_map(range).collect())
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

    #[test]
    fn a_master_says_which_slots_it_has() {
        let nodes = "a 127.0.0.1:1@2 master - 0 0 1 connected 0-99\nb 127.0.0.1:3@4 myself,master - 0 0 2 connected 100-199 300 [7->-a]\n";
        assert_eq!(own_slots(nodes), Some(vec![(100, 199), (300, 300)]));
        assert_eq!(own_slots("b 127.0.0.1:3@4 myself,slave a 0 0 2 connected"), None);
    }
}
