//! Faults of Redis.

use std::time::Duration;

use dwell::clock;
use dwell::config::RedisMode;
use dwell_testkit::servers::RedisServer;
use rand::RngExt;
use rand::rngs::StdRng;
use rustix::process::Signal;

use super::{Done, Injection, Outcome, back, both, held};
use crate::chaos::system::{Error, PASSWORD, Servers, System, USER, open};
use crate::chaos::wait::until;

/// The interval between repeated commands.
const REPEAT_INTERVAL: Duration = Duration::from_millis(50);
/// The longest time with two masters, if the replica is promoted before the old master is killed.
const MAX_SPLIT_DURATION: Duration = Duration::from_millis(200);
/// The longest time until a fault takes effect.
const EFFECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest time until a script is killed.
const KILL_TIMEOUT: Duration = Duration::from_secs(20);
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

/// Ends a master, by SIGKILL or by SIGTERM, and starts it again.
pub(super) async fn end(Injection { system, rng, hold }: Injection<'_>, by: Signal) -> Outcome {
    let mut servers = system.redis.servers.lock().await;
    let index = any(&servers, rng).await?;
    let server = &mut servers.all_mut()[index];
    let ended = if by == Signal::KILL { server.kill() } else { server.stop().await.map(drop) };
    servers.follow(index, None);
    let start = async || servers.all_mut()[index].restart().await;
    back(brief(system, hold), ended, start).await?;
    healed(system, &servers, "redis").await
}

pub(super) async fn freeze(Injection { system, rng, hold }: Injection<'_>) -> Outcome {
    let servers = system.redis.servers.lock().await;
    let master = &servers.all()[any(&servers, rng).await?];
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
    let master = &servers.all()[any(&servers, rng).await?];
    let key = system.redis.census.key_on(master.port()).await.unwrap_or_default();
    let filled = async {
        // Subtracts the memory that does not count (buffers of replicas and of the file), then more
        // until a write is refused.
        for percent in 0..20 {
            let info = master.order(&["INFO", "memory"]).await?;
            let number = |name: &str| -> Option<u64> {
                info.iter().find_map(|line| line.strip_prefix(name)?.parse().ok())
            };
            let counted = number("used_memory:")
                .unwrap_or(1)
                .saturating_sub(number("mem_not_counted_for_evict:").unwrap_or(0));
            let most = (counted / 100 * (100 - percent)).max(1).to_string();
            master.order(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).await?;
            master.order(&["CONFIG", "SET", "maxmemory", &most]).await?;
            let written = master.order(&["SET", &key, "x", "PX", "1"]).await;
            if written.is_err_and(|error| error.to_string().contains("OOM command")) {
                return Ok(format!("maxmemory {most}"));
            }
        }
        Err(Error::unexpected("redis accepted a write although it was full"))
    };
    let heal = master.order(&["CONFIG", "SET", "maxmemory", "0"]);
    let detail = held(hold, filled.await, async { Ok(heal.await?) }).await?;
    healed(system, &servers, detail).await
}

/// Runs a command on every master, and another one to heal it.
pub(super) async fn ordered(at: Injection<'_>, words: &[&str], heal: &[&str]) -> Outcome {
    let servers = at.system.redis.servers.lock().await;
    let masters = servers.masters().await?;
    let masters: Vec<&RedisServer> = masters.iter().map(|index| &servers.all()[*index]).collect();
    held(at.hold, order_all(&masters, words).await, order_all(&masters, heal)).await?;
    healed(at.system, &servers, words.join(" ")).await
}

/// Runs a command on each of these, even if another one refuses it.
async fn order_all(masters: &[&RedisServer], words: &[&str]) -> Result<(), Error> {
    let mut done = Ok(());
    for master in masters {
        done = done.and(master.order(words).await.map(drop));
    }
    Ok(done?)
}

pub(super) async fn busy(Injection { system, rng, hold }: Injection<'_>) -> Outcome {
    let servers = system.redis.servers.lock().await;
    let master = &servers.all()[any(&servers, rng).await?];
    // Opened before: a new connection to a busy Redis gets only BUSY.
    let (mut busy, mut killer, mut probe) =
        (open(master).await?, open(master).await?, open(master).await?);
    master.order(&["CONFIG", "SET", "lua-time-limit", "50"]).await?;
    let running = tokio::spawn(async move {
        // The answer is always an error: the script was killed, or the answer timed out.
        let _ = redis::cmd("EVAL")
            .arg("while true do end")
            .arg(0)
            .query_async::<redis::Value>(&mut busy)
            .await;
    });
    let began = clock::now();
    let seen = until(EFFECT_TIMEOUT, "redis was not busy", async || {
        let answer = redis::cmd("TIME").query_async::<redis::Value>(&mut probe).await;
        Ok(answer.is_err_and(|error| error.code() == Some("BUSY")))
    })
    .await;
    clock::sleep(hold.saturating_sub(began.elapsed())).await;
    let missed = "the script that keeps Redis busy was not killed";
    let killed = until(KILL_TIMEOUT, missed, async || {
        // NOTBUSY: the script has not begun, or has ended.
        let _ = redis::cmd("SCRIPT").arg("KILL").query_async::<redis::Value>(&mut killer).await;
        Ok(running.is_finished())
    })
    .await;
    let healed_us = clock::wall_us();
    let repaired = master.order(&["CONFIG", "SET", "lua-time-limit", DEFAULT_BUSY_MS]).await;
    both(seen.and(killed), repaired.map(drop).map_err(Error::from))?;
    let done = healed(system, &servers, "BUSY").await?;
    Ok(Done { healed_us: done.healed_us.map(|_| healed_us), ..done })
}

/// Changes the password of the instances' user and closes their connections; their files have the
/// new one after the hold. Then the same back, because a server starts with the first password.
pub(super) async fn password_rotated(Injection { system, hold, .. }: Injection<'_>) -> Outcome {
    let servers = system.redis.servers.lock().await;
    let set = async |password: &'static str| {
        let word = format!(">{password}");
        for server in servers.all() {
            server.order(&["ACL", "SETUSER", USER, "resetpass", &word]).await?;
        }
        Ok::<_, Error>(())
    };
    let write =
        |password| system.redis.logins.change(password).map_err(Error::io("a file with URLs"));
    let rotated = async {
        for password in ["second", PASSWORD] {
            set(password).await?;
            for server in servers.all() {
                server.order(&["CLIENT", "KILL", "USER", USER]).await?;
            }
            clock::sleep(hold).await;
            write(password)?;
        }
        Ok(())
    };
    let rotated = rotated.await;
    both(rotated, write(PASSWORD).and(set(PASSWORD).await))?;
    healed(system, &servers, "resetpass, and CLIENT KILL USER").await
}

/// Repeats commands. Nothing needs healing.
pub(super) async fn repeated(at: Injection<'_>, orders: &[&[&str]]) -> Outcome {
    let servers = at.system.redis.servers.lock().await;
    let (until, mut times) = (clock::now() + at.hold, 0);
    loop {
        for index in servers.masters().await? {
            for words in orders {
                servers.all()[index].order(words).await?;
            }
        }
        times += 1;
        if clock::now() >= until {
            return Ok(Done::new(format!("{times} times")));
        }
        clock::sleep(REPEAT_INTERVAL).await;
    }
}

pub(super) async fn failover(Injection { system, rng, hold }: Injection<'_>) -> Outcome {
    let mut servers = system.redis.servers.lock().await;
    let Servers::Single(pair) = &mut *servers else {
        return Err(Error::unexpected("the fault is for a single Redis"));
    };
    let [master, replica] = &mut pair[..] else {
        return Err(Error::unexpected("there is no replica"));
    };
    let promotes_first: bool = rng.random();
    let promoted = promote(master, replica, promotes_first, hold).await;
    if promoted.is_ok() {
        std::mem::swap(master, replica);
    }
    let mut healed_us = clock::wall_us();
    let healed = async {
        master.follow(None);
        if master.pid().is_none() {
            back(Duration::ZERO, Ok(()), async || master.restart().await).await?;
        }
        system.redis.lead_to(master.port());
        // WAIT succeeds again once the replica is in sync.
        healed_us = clock::wall_us();
        replica.follow(Some(master.port()));
        back(Duration::ZERO, Ok(()), async || replica.restart().await).await
    };
    let healed = healed.await;
    both(promoted, healed)?;
    let order = if promotes_first { "before" } else { "after" };
    let port = master.port();
    servers.in_sync(&system.redis.census).await?;
    let detail =
        format!("the replica was promoted {order} the master was killed; now on port {port}");
    Ok(Done { healed_us: Some(healed_us), ..Done::new(detail) })
}

/// Promotes the replica and kills the master.
async fn promote(
    master: &mut RedisServer,
    replica: &RedisServer,
    promotes_first: bool,
    hold: Duration,
) -> Result<(), Error> {
    if promotes_first {
        replica.order(&["REPLICAOF", "NO", "ONE"]).await?;
        clock::sleep(hold.min(MAX_SPLIT_DURATION)).await;
        master.kill()?;
        clock::sleep(hold).await;
    } else {
        master.kill()?;
        clock::sleep(hold).await;
        replica.order(&["REPLICAOF", "NO", "ONE"]).await?;
    }
    Ok(())
}
