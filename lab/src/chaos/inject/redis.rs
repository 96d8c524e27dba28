//! Faults of Redis.

use std::time::Duration;

use dwell::clock;
use dwell::config::RedisMode;
use dwell_testkit::servers::RedisServer;
use rand::RngExt;
use rand::rngs::StdRng;

use super::{Done, Injection, Outcome, both, start, within};
use crate::chaos::system::{Error, PASSWORD, Pair, Servers, System, USER, open, order};

/// The interval between repeated commands.
const REPEAT_INTERVAL: Duration = Duration::from_millis(50);
/// The longest time with two masters, if the replica is promoted before the old master is killed.
const MAX_SPLIT_DURATION: Duration = Duration::from_millis(200);
/// The longest time until a fault takes effect.
const EFFECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Redis's default time until it answers BUSY, ms.
const DEFAULT_BUSY_MS: &str = "5000";

/// The longest hold where another server may be promoted: the master is back before that is due.
const MAX_BRIEF_HOLD: Duration = Duration::from_millis(500);

/// The index of a random master.
pub(super) async fn any(servers: &Servers, rng: &mut StdRng) -> Result<usize, Error> {
    let masters = servers.masters().await?;
    Ok(masters[rng.random_range(0..masters.len())])
}

/// The time that a master is down or frozen.
fn brief(system: &System, hold: Duration) -> Duration {
    if system.options().redis == RedisMode::Single { hold } else { hold.min(MAX_BRIEF_HOLD) }
}

pub(super) async fn kill(Injection { system, rng, hold }: Injection<'_>) -> Outcome {
    let mut servers = system.redis.servers.lock().await;
    let index = any(&servers, rng).await?;
    let killed = servers.server_mut(index).kill().map_err(Error::from);
    clock::sleep(brief(system, hold)).await;
    back(system, &mut servers, index, killed).await
}

pub(super) async fn restart(Injection { system, rng, hold }: Injection<'_>) -> Outcome {
    let mut servers = system.redis.servers.lock().await;
    let index = any(&servers, rng).await?;
    let stopped = servers.server_mut(index).stop().await.map(drop).map_err(Error::from);
    clock::sleep(brief(system, hold)).await;
    back(system, &mut servers, index, stopped).await
}

/// Starts the master again.
async fn back(
    system: &System,
    servers: &mut Servers,
    index: usize,
    broken: Result<(), Error>,
) -> Outcome {
    servers.follow(index, None);
    let started = start(async || servers.server_mut(index).restart().await).await;
    both(broken, started)?;
    healed(system, servers, "redis").await
}

pub(super) async fn freeze(Injection { system, rng, hold }: Injection<'_>) -> Outcome {
    let servers = system.redis.servers.lock().await;
    let master = servers.server(any(&servers, rng).await?);
    master.freeze()?;
    clock::sleep(brief(system, hold)).await;
    master.thaw()?;
    healed(system, &servers, "redis").await
}

/// Healed now, and returned once the replicas are in sync. If another server can be promoted, the
/// end is the time of that.
async fn healed(system: &System, servers: &Servers, detail: impl Into<String>) -> Outcome {
    let done = Done::healed(detail);
    servers.in_sync(&system.redis.census).await?;
    let is_single = system.options().redis == RedisMode::Single;
    Ok(Done { healed_us: done.healed_us.filter(|_| is_single), ..done })
}

pub(super) async fn full(Injection { system, rng, hold }: Injection<'_>) -> Outcome {
    let servers = system.redis.servers.lock().await;
    let master = servers.server(any(&servers, rng).await?);
    let is_cluster = system.options().redis == RedisMode::Cluster;
    let key = system.redis.census.key_on(master.port(), is_cluster).await.unwrap_or_default();
    let filled = async {
        // Subtracts the memory that does not count (buffers of replicas and of the file), then more
        // until a write is refused.
        for percent in 0..20 {
            let info = text(&order(master, &["INFO", "memory"]).await?);
            let number = |name: &str| {
                info.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
            };
            let counted = number("used_memory:")
                .unwrap_or(1)
                .saturating_sub(number("mem_not_counted_for_evict:").unwrap_or(0));
            let most = (counted / 100 * (100 - percent)).max(1).to_string();
            order(master, &["CONFIG", "SET", "maxmemory-policy", "noeviction", "maxmemory", &most])
                .await?;
            match order(master, &["SET", &key, "x", "PX", "1"]).await {
                Err(Error::Redis(error)) if error.code() == Some("OOM") => {
                    return Ok(format!("maxmemory {most}"));
                }
                _ => {}
            }
        }
        Err(Error::Unexpected("redis accepted a write although it was full".to_owned()))
    };
    held(system, &servers, &[master], filled.await, hold, &["CONFIG", "SET", "maxmemory", "0"])
        .await
}

pub(super) async fn readonly(Injection { system, hold, .. }: Injection<'_>) -> Outcome {
    let servers = system.redis.servers.lock().await;
    let master = servers.server(0);
    // No server listens on this port.
    let broken =
        order(master, &["REPLICAOF", "127.0.0.1", "1"]).await.map(|_| "READONLY".to_owned());
    held(system, &servers, &[master], broken, hold, &["REPLICAOF", "NO", "ONE"]).await
}

pub(super) async fn no_replicas(Injection { system, hold, .. }: Injection<'_>) -> Outcome {
    let servers = system.redis.servers.lock().await;
    let masters: Vec<&RedisServer> =
        servers.masters().await?.into_iter().map(|index| servers.server(index)).collect();
    let mut broken = Ok("NOREPLICAS".to_owned());
    for master in &masters {
        broken = broken.and(
            order(master, &["CONFIG", "SET", "min-replicas-to-write", "5"])
                .await
                .map(|_| "NOREPLICAS".to_owned()),
        );
    }
    held(system, &servers, &masters, broken, hold, &["CONFIG", "SET", "min-replicas-to-write", "0"])
        .await
}

/// Keeps the fault for a time, then heals it by a command to each of these.
async fn held(
    system: &System,
    servers: &Servers,
    masters: &[&RedisServer],
    broken: Result<String, Error>,
    hold: Duration,
    heal: &[&str],
) -> Outcome {
    let repaired = async {
        let mut repaired = Ok(());
        for master in masters {
            repaired = repaired.and(order(master, heal).await.map(drop));
        }
        repaired
    };
    let detail = super::held(hold, broken, repaired).await?;
    healed(system, servers, detail).await
}

pub(super) async fn busy(Injection { system, rng, hold }: Injection<'_>) -> Outcome {
    let servers = system.redis.servers.lock().await;
    let master = servers.server(any(&servers, rng).await?);
    // Opened before: a new connection to a busy Redis gets only BUSY.
    let (mut busy, mut killer, mut probe) =
        (open(master).await?, open(master).await?, open(master).await?);
    order(master, &["CONFIG", "SET", "lua-time-limit", "50"]).await?;
    let running = tokio::spawn(async move {
        // The answer is always an error: the script was killed, or the answer timed out.
        let _ = redis::cmd("EVAL")
            .arg("while true do end")
            .arg(0)
            .query_async::<redis::Value>(&mut busy)
            .await;
    });
    let began = clock::now();
    let seen = async {
        while !matches!(redis::cmd("TIME").query_async::<redis::Value>(&mut probe).await, Err(error) if error.code() == Some("BUSY"))
        {
            clock::sleep(REPEAT_INTERVAL).await;
        }
        Ok(())
    };
    let seen = within(EFFECT_TIMEOUT, "redis was not busy", seen).await;
    clock::sleep(hold.saturating_sub(began.elapsed())).await;
    let killed = async {
        while !running.is_finished() {
            // NOTBUSY: the script has not begun, or has ended.
            let _ = redis::cmd("SCRIPT").arg("KILL").query_async::<redis::Value>(&mut killer).await;
            clock::sleep(REPEAT_INTERVAL).await;
        }
        Ok(())
    };
    let missed = "the script that keeps Redis busy was not killed";
    let killed = within(Duration::from_secs(20), missed, killed).await;
    let healed_us = clock::wall_us();
    let repaired =
        order(master, &["CONFIG", "SET", "lua-time-limit", DEFAULT_BUSY_MS]).await.map(drop);
    both(seen.and(killed), repaired)?;
    let done = healed(system, &servers, "BUSY").await?;
    Ok(Done { healed_us: done.healed_us.map(|_| healed_us), ..done })
}

pub(super) async fn script_flush(Injection { system, hold, .. }: Injection<'_>) -> Outcome {
    again(system, hold, &[&["SCRIPT", "FLUSH"]]).await
}

pub(super) async fn client_kill(Injection { system, hold, .. }: Injection<'_>) -> Outcome {
    again(
        system,
        hold,
        &[&["CLIENT", "KILL", "TYPE", "normal"], &["CLIENT", "KILL", "TYPE", "pubsub"]],
    )
    .await
}

/// Changes the password of the instances' user and closes their connections; their files have the
/// new one after the hold. Then the same back, because a server starts with the first password.
pub(super) async fn password_rotated(Injection { system, hold, .. }: Injection<'_>) -> Outcome {
    let servers = system.redis.servers.lock().await;
    let rotated = async {
        for password in ["second", PASSWORD] {
            let word = format!(">{password}");
            for index in 0..servers.count() {
                order(servers.server(index), &["ACL", "SETUSER", USER, "resetpass", &word]).await?;
                order(servers.server(index), &["CLIENT", "KILL", "USER", USER]).await?;
            }
            clock::sleep(hold).await;
            system.redis.logins.change(password).map_err(Error::io("a file with URLs"))?;
        }
        Ok("resetpass, and CLIENT KILL USER".to_owned())
    };
    let rotated = rotated.await;
    let repaired = async {
        system.redis.logins.change(PASSWORD).map_err(Error::io("a file with URLs"))?;
        for index in 0..servers.count() {
            order(
                servers.server(index),
                &["ACL", "SETUSER", USER, "resetpass", &format!(">{PASSWORD}")],
            )
            .await?;
        }
        Ok(())
    };
    let detail = both(rotated, repaired.await)?;
    healed(system, &servers, detail).await
}

/// Repeats commands. Nothing needs healing.
async fn again(system: &System, hold: Duration, orders: &[&[&str]]) -> Outcome {
    let servers = system.redis.servers.lock().await;
    let (until, mut times) = (clock::now() + hold, 0);
    loop {
        for index in servers.masters().await? {
            for words in orders {
                order(servers.server(index), words).await?;
            }
        }
        times += 1;
        if clock::now() >= until {
            return Ok(format!("{times} times").into());
        }
        clock::sleep(REPEAT_INTERVAL).await;
    }
}

pub(super) async fn failover(Injection { system, rng, hold }: Injection<'_>) -> Outcome {
    let mut servers = system.redis.servers.lock().await;
    let pair = servers.pair()?;
    let promotes_first: bool = rng.random();
    let promoted = promote(pair, promotes_first, hold).await;
    let mut healed_us = clock::wall_us();
    let healed = async {
        let Some(replica) = &mut pair.replica else { return Ok(()) };
        if promoted.is_ok() {
            std::mem::swap(&mut pair.master, replica);
        }
        pair.master.follow(None);
        if pair.master.pid().is_none() {
            start(async || pair.master.restart().await).await?;
        }
        system.redis.lead_to(pair.master.port());
        // WAIT succeeds again once the replica is in sync.
        healed_us = clock::wall_us();
        replica.follow(Some(pair.master.port()));
        start(async || replica.restart().await).await
    };
    let healed = healed.await;
    both(promoted, healed)?;
    let order = if promotes_first { "before" } else { "after" };
    let detail = format!(
        "the replica was promoted {order} the master was killed; now on port {}",
        pair.master.port()
    );
    servers.in_sync(&system.redis.census).await?;
    Ok(Done { healed_us: Some(healed_us), ..Done::from(detail) })
}

/// Promotes the replica and kills the master.
async fn promote(pair: &mut Pair, promotes_first: bool, hold: Duration) -> Result<(), Error> {
    let Some(replica) = &pair.replica else {
        return Err(Error::Unexpected("there is no replica".to_owned()));
    };
    if promotes_first {
        order(replica, &["REPLICAOF", "NO", "ONE"]).await?;
        clock::sleep(hold.min(MAX_SPLIT_DURATION)).await;
        pair.master.kill()?;
        clock::sleep(hold).await;
    } else {
        pair.master.kill()?;
        clock::sleep(hold).await;
        order(replica, &["REPLICAOF", "NO", "ONE"]).await?;
    }
    Ok(())
}

fn text(value: &redis::Value) -> String {
    match value {
        redis::Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        redis::Value::VerbatimString { text, .. } | redis::Value::SimpleString(text) => {
            text.clone()
        }
        _ => String::new(),
    }
}
