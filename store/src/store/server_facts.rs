//! The facts of a server: its version, persistence, replicas and memory.

use futures_util::future::try_join_all;
use redis::Value;

use super::answer::text;
use super::client::{RedisClient, info_field, place};
use super::error::{Class, StoreError};
use crate::config::{Redis, RedisMode};

/// The facts that INFO reports about the server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerFacts {
    /// `redis` or `valkey` and its version.
    pub version: String,
    /// The server has WAITAOF (Redis 7.2, Valkey).
    pub waitaof: bool,
    /// AOF is on.
    pub aof: bool,
    /// `appendfsync`, if the user may run CONFIG GET.
    pub appendfsync: Option<String>,
    /// `maxmemory-policy`; empty if unknown.
    pub policy: String,
    /// The number of masters asked: more than one in a cluster.
    pub masters: u32,
    /// The number of connected replicas; in a cluster, of the master with the fewest.
    pub replicas: u32,
    /// `master` or `slave`.
    pub role: String,
    /// Memory used by the data, bytes.
    pub used_memory: u64,
    /// Memory limit, bytes; 0: none.
    pub max_memory: u64,
    /// Memory of the machine, bytes; 0 if unknown.
    pub system_memory: u64,
}

/// Asks the server for its facts. In a cluster, asks every master and combines the weakest values.
pub async fn facts(link: &RedisClient) -> Result<ServerFacts, StoreError> {
    let masters = link.masters().await?;
    let all = try_join_all(masters.iter().map(facts_of)).await?;
    Ok(all.into_iter().reduce(ServerFacts::weakest).unwrap_or_default())
}

impl ServerFacts {
    /// The weaker value of each fact.
    fn weakest(self, other: ServerFacts) -> ServerFacts {
        let number = |version: &str| -> Vec<u32> {
            version
                .split(|c: char| !c.is_ascii_digit())
                .filter_map(|part| part.parse().ok())
                .collect()
        };
        let fsync = |facts: &ServerFacts| {
            ["no", "everysec", "always"]
                .iter()
                .position(|word| facts.appendfsync.as_deref() == Some(word))
        };
        let danger = |policy: &str| {
            if policy.starts_with("allkeys-") { 2 } else { u8::from(policy != "noeviction") }
        };
        let full = |facts: &ServerFacts| {
            let most = if facts.max_memory > 0 { facts.max_memory } else { facts.system_memory };
            facts.used_memory.saturating_mul(1000).checked_div(most).unwrap_or(0)
        };
        let (masters, replicas) = (self.masters + other.masters, self.replicas.min(other.replicas));
        let (aof, waitaof) = (self.aof && other.aof, self.waitaof && other.waitaof);
        let version = if number(&other.version) < number(&self.version) {
            other.version.clone()
        } else {
            self.version.clone()
        };
        let appendfsync = if fsync(&other) < fsync(&self) {
            other.appendfsync.clone()
        } else {
            self.appendfsync.clone()
        };
        let policy = if danger(&other.policy) > danger(&self.policy) {
            other.policy.clone()
        } else {
            self.policy.clone()
        };
        let fuller = if full(&other) > full(&self) { other } else { self };
        ServerFacts { version, waitaof, aof, appendfsync, policy, masters, replicas, ..fuller }
    }
}

async fn facts_of(link: &RedisClient) -> Result<ServerFacts, StoreError> {
    let info = text(link.command("INFO", redis::cmd("INFO").arg("everything")).await?);
    let field = |name| info_field(&info, name).unwrap_or_default().to_owned();
    // Valkey has a field name of its own for the mode.
    if [field("redis_mode"), field("server_mode")].iter().any(|mode| mode == "sentinel") {
        return Err(StoreError::new(Class::Settings, "redis: this is a sentinel, which has no jobs: it only knows the master")
            .hint("set redis.mode = \"sentinel\", and redis.master to the name that the sentinels have for it"));
    }
    let valkey = field("valkey_version");
    let (flavour, number) =
        if valkey.is_empty() { ("redis", field("redis_version")) } else { ("valkey", valkey) };
    let mut parts = number.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let at = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    // Managed servers and ACLs often forbid CONFIG; then the value is unknown.
    let appendfsync = match link
        .command("CONFIG GET", redis::cmd("CONFIG").arg("GET").arg("appendfsync"))
        .await
    {
        Ok(Value::Array(items)) => items.into_iter().nth(1).map(text),
        Ok(Value::Map(items)) => items.into_iter().next().map(|(_, value)| text(value)),
        _ => None,
    };
    Ok(ServerFacts {
        version: format!("{flavour} {number}"),
        waitaof: at >= (7, 2),
        aof: field("aof_enabled") == "1",
        appendfsync,
        policy: field("maxmemory_policy"),
        masters: 1,
        replicas: field("connected_slaves").parse().unwrap_or(0),
        role: field("role"),
        used_memory: field("used_memory").parse().unwrap_or(0),
        max_memory: field("maxmemory").parse().unwrap_or(0),
        system_memory: field("total_system_memory").parse().unwrap_or(0),
    })
}

/// Refuses a replica, which takes no writes. In a cluster, the client leaves a former master by
/// itself.
pub fn refuse_replica(settings: &Redis, facts: &ServerFacts) -> Result<(), StoreError> {
    if facts.role == "slave" && settings.mode != RedisMode::Cluster {
        return Err(StoreError::new(
            Class::Readonly,
            format!("redis: {} is a replica: it takes no writes", place(settings)),
        )
        .hint("point redis.urls at its master, or use redis.mode = \"sentinel\""));
    }
    Ok(())
}

/// Refuses a policy that evicts keys without a time to live: it would evict jobs.
pub fn refuse_eviction(facts: &ServerFacts) -> Result<(), StoreError> {
    if facts.policy.starts_with("allkeys-") {
        return Err(StoreError::new(
            Class::Settings,
            format!("redis: maxmemory-policy is {}: a full Redis would evict jobs", facts.policy),
        )
        .hint("set maxmemory-policy noeviction: a full Redis then refuses new jobs, and Dwell continues to deliver"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_as_good_as_its_weakest_master() {
        let strong = ServerFacts {
            version: "redis 7.10.1".to_owned(),
            waitaof: true,
            aof: true,
            appendfsync: Some("always".to_owned()),
            policy: "noeviction".to_owned(),
            masters: 1,
            replicas: 2,
            role: "master".to_owned(),
            used_memory: 10,
            max_memory: 1000,
            system_memory: 0,
        };
        let weak = ServerFacts {
            version: "redis 7.2.9".to_owned(),
            appendfsync: Some("everysec".to_owned()),
            policy: "allkeys-lru".to_owned(),
            replicas: 1,
            used_memory: 5,
            max_memory: 10,
            ..strong.clone()
        };
        let wanted = ServerFacts { masters: 2, ..weak.clone() };
        assert_eq!(
            (strong.clone().weakest(weak.clone()), weak.clone().weakest(strong.clone())),
            (wanted.clone(), wanted)
        );
        let silent =
            ServerFacts { appendfsync: None, aof: false, waitaof: false, ..strong.clone() };
        let both = strong.weakest(silent);
        assert_eq!((both.appendfsync, both.aof, both.waitaof), (None, false, false));
    }
}
