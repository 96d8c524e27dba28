//! Faults of Redis.

use std::time::Duration;

use dwell::clock;
use rand::RngExt;
use rand::rngs::StdRng;

use super::{Done, both, start};
use crate::chaos::system::{Error, Pair, System};

/// The interval between repeated commands.
const AGAIN: Duration = Duration::from_millis(50);
/// The longest time with two masters, if the replica is promoted before the old master is killed.
const SPLIT: Duration = Duration::from_millis(200);
/// How long a fault may take to take effect.
const EFFECT: Duration = Duration::from_secs(5);
/// Redis's default time until it answers BUSY, ms.
const BUSY_DEFAULT: &str = "5000";

pub(super) async fn kill(system: &System, hold: Duration) -> Result<Done, Error> {
    let mut pair = system.redis.pair.lock().await;
    let killed = pair.master.kill().map_err(Error::from);
    clock::sleep(hold).await;
    let started = start(async || pair.master.restart().await).await;
    both(killed, started)?;
    let done = Done::healed("redis");
    pair.in_sync().await?;
    Ok(done)
}

pub(super) async fn freeze(system: &System, hold: Duration) -> Result<Done, Error> {
    let pair = system.redis.pair.lock().await;
    pair.master.freeze()?;
    clock::sleep(hold).await;
    pair.master.thaw()?;
    let done = Done::healed("redis");
    pair.in_sync().await?;
    Ok(done)
}

pub(super) async fn restart(system: &System, hold: Duration) -> Result<Done, Error> {
    let mut pair = system.redis.pair.lock().await;
    let stopped = pair.master.stop().await.map_err(Error::from);
    clock::sleep(hold).await;
    let started = start(async || pair.master.restart().await).await;
    both(stopped, started)?;
    let done = Done::healed("redis");
    pair.in_sync().await?;
    Ok(done)
}

pub(super) async fn full(system: &System, hold: Duration) -> Result<Done, Error> {
    let pair = system.redis.pair.lock().await;
    let filled = async {
        // Subtracts the memory that does not count (buffers of replicas and of the file), then more
        // until a write is refused.
        for percent in 0..20 {
            let info = text(&pair.order(&["INFO", "memory"]).await?);
            let number = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
            let counted = number("used_memory:").unwrap_or(1).saturating_sub(number("mem_not_counted_for_evict:").unwrap_or(0));
            let most = (counted / 100 * (100 - percent)).max(1).to_string();
            pair.order(&["CONFIG", "SET", "maxmemory-policy", "noeviction", "maxmemory", &most]).await?;
            match pair.order(&["SET", "chaos-probe", "x", "PX", "1"]).await {
                Err(Error::Redis(error)) if error.code() == Some("OOM") => return Ok(format!("maxmemory {most}")),
                _ => {}
            }
        }
        Err(Error::Unexpected("redis accepted a write although it was full".to_owned()))
    };
    held(&pair, filled.await, hold, &["CONFIG", "SET", "maxmemory", "0"]).await
}

pub(super) async fn readonly(system: &System, hold: Duration) -> Result<Done, Error> {
    let pair = system.redis.pair.lock().await;
    // No server listens on this port.
    let broken = pair.order(&["REPLICAOF", "127.0.0.1", "1"]).await.map(|_| "READONLY".to_owned());
    held(&pair, broken, hold, &["REPLICAOF", "NO", "ONE"]).await
}

pub(super) async fn no_replicas(system: &System, hold: Duration) -> Result<Done, Error> {
    let pair = system.redis.pair.lock().await;
    let broken = pair.order(&["CONFIG", "SET", "min-replicas-to-write", "5"]).await.map(|_| "NOREPLICAS".to_owned());
    held(&pair, broken, hold, &["CONFIG", "SET", "min-replicas-to-write", "0"]).await
}

/// Keeps the fault for a time, then heals it by a command.
async fn held(pair: &Pair, broken: Result<String, Error>, hold: Duration, heal: &[&str]) -> Result<Done, Error> {
    if broken.is_ok() {
        clock::sleep(hold).await;
    }
    let healed = pair.order(heal).await.map(drop);
    let done = Done::healed(both(broken, healed)?);
    pair.in_sync().await?;
    Ok(done)
}

pub(super) async fn busy(system: &System, hold: Duration) -> Result<Done, Error> {
    let pair = system.redis.pair.lock().await;
    // Opened before: a new connection to a busy Redis gets only BUSY.
    let (mut busy, mut killer, mut probe) = (pair.connect().await?, pair.connect().await?, pair.connect().await?);
    pair.order(&["CONFIG", "SET", "lua-time-limit", "50"]).await?;
    let running = tokio::spawn(async move {
        // The answer is always an error: the script was killed, or the answer timed out.
        let _ = redis::cmd("EVAL").arg("while true do end").arg(0).query_async::<redis::Value>(&mut busy).await;
    });
    let began = clock::now();
    let seen = clock::timeout(EFFECT, async {
        while !matches!(redis::cmd("TIME").query_async::<redis::Value>(&mut probe).await, Err(error) if error.code() == Some("BUSY")) {
            clock::sleep(AGAIN).await;
        }
    });
    let seen = seen.await.ok_or_else(|| Error::Unexpected(format!("redis was not busy within {EFFECT:?}")));
    clock::sleep(hold.saturating_sub(began.elapsed())).await;
    let killed = clock::timeout(Duration::from_secs(20), async {
        while !running.is_finished() {
            // NOTBUSY: the script has not begun, or has ended.
            let _ = redis::cmd("SCRIPT").arg("KILL").query_async::<redis::Value>(&mut killer).await;
            clock::sleep(AGAIN).await;
        }
    });
    let killed = killed.await.ok_or_else(|| Error::Unexpected("the script that keeps Redis busy was not killed".to_owned()));
    let healed_us = clock::wall_us();
    let healed = pair.order(&["CONFIG", "SET", "lua-time-limit", BUSY_DEFAULT]).await.map(drop);
    both(seen.and(killed), healed)?;
    let done = Done { healed_us: Some(healed_us), ..Done::from("BUSY".to_owned()) };
    pair.in_sync().await?;
    Ok(done)
}

pub(super) async fn script_flush(system: &System, hold: Duration) -> Result<String, Error> {
    again(system, hold, &[&["SCRIPT", "FLUSH"]]).await
}

pub(super) async fn client_kill(system: &System, hold: Duration) -> Result<String, Error> {
    again(system, hold, &[&["CLIENT", "KILL", "TYPE", "normal"], &["CLIENT", "KILL", "TYPE", "pubsub"]]).await
}

/// Repeats commands. There is nothing to heal.
async fn again(system: &System, hold: Duration, orders: &[&[&str]]) -> Result<String, Error> {
    let pair = system.redis.pair.lock().await;
    let (until, mut times) = (clock::now() + hold, 0);
    loop {
        for order in orders {
            pair.order(order).await?;
        }
        times += 1;
        if clock::now() >= until {
            return Ok(format!("{times} times"));
        }
        clock::sleep(AGAIN).await;
    }
}

pub(super) async fn failover(system: &System, rng: &mut StdRng, hold: Duration) -> Result<Done, Error> {
    let mut pair = system.redis.pair.lock().await;
    let pair = &mut *pair;
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
        start(async || replica.restart().await).await?;
        pair.in_sync().await
    };
    let healed = healed.await;
    both(promoted, healed)?;
    let order = if promotes_first { "before" } else { "after" };
    let detail = format!("the replica was promoted {order} the master was killed; now on port {}", pair.master.port());
    Ok(Done { healed_us: Some(healed_us), ..Done::from(detail) })
}

/// Promotes the replica and kills the master.
async fn promote(pair: &mut Pair, promotes_first: bool, hold: Duration) -> Result<(), Error> {
    let Some(replica) = &pair.replica else { return Err(Error::Unexpected("there is no replica".to_owned())) };
    if promotes_first {
        crate::chaos::system::order(replica, &["REPLICAOF", "NO", "ONE"]).await?;
        clock::sleep(hold.min(SPLIT)).await;
        pair.master.kill()?;
        clock::sleep(hold).await;
    } else {
        pair.master.kill()?;
        clock::sleep(hold).await;
        crate::chaos::system::order(replica, &["REPLICAOF", "NO", "ONE"]).await?;
    }
    Ok(())
}

fn text(value: &redis::Value) -> String {
    match value {
        redis::Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        redis::Value::VerbatimString { text, .. } | redis::Value::SimpleString(text) => text.clone(),
        _ => String::new(),
    }
}
