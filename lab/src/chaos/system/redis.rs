//! Redis, its replica if there is one, and the two links to the master: that of the instances, and
//! a direct one without faults.

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dwell::clock;
use dwell::config::Durability;
use dwell_testkit::servers::{AppendFsync, RedisOptions, RedisServer, find};
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{Value, from_redis_value};
use tempfile::TempDir;

use super::settings::NAMESPACE;
use super::{Error, HostClock, SystemOptions, proxy};
use crate::chaos::proxy::Proxy;

/// The time-out of a query of the state.
const ASK: Duration = Duration::from_millis(500);
/// The time-out of a command.
const ORDER: Duration = Duration::from_secs(10);

/// Redis and its links.
pub(crate) struct RedisSide {
    /// Locked by a fault for its whole duration.
    pub(crate) pair: tokio::sync::Mutex<Pair>,
    /// The link of all instances.
    pub(crate) link: Proxy,
    /// The link of all other clients to the current master.
    service: Proxy,
    /// The clock of the master and the replica.
    pub(crate) clock: HostClock,
    asking: Mutex<Option<MultiplexedConnection>>,
    dirs: Vec<(String, PathBuf)>,
    _folder: TempDir,
}

/// A master and its replica.
pub(crate) struct Pair {
    pub(crate) master: RedisServer,
    pub(crate) replica: Option<RedisServer>,
}

impl RedisSide {
    pub(super) async fn start(options: &SystemOptions) -> Result<Self, Error> {
        let folder = tempfile::tempdir().map_err(Error::io("a temporary folder"))?;
        let fsync = matches!(options.durability, Durability::Fsync | Durability::FsyncReplica);
        let program = if fsync { find::redis_server_waitaof()? } else { find::redis_server()? };
        let clock = HostClock::new(folder.path(), "redis").await?;
        // With `everysec`, during a sync, Redis may answer up to two seconds before it writes. If
        // killed then, it loses data that the operating system never got, which no promise of Dwell
        // covers. Here the operating system has each write before the answer.
        let appendonly = if fsync { AppendFsync::EverySec } else { AppendFsync::No };
        let settings = RedisOptions {
            appendonly: Some(appendonly),
            program: Some(survivor(folder.path(), &program, &clock)?),
            // After a short absence a replica catches up without a full synchronisation.
            more: vec![("repl-backlog-size".to_owned(), "64mb".to_owned()), ("repl-timeout".to_owned(), "5".to_owned())],
            ..RedisOptions::default()
        };
        let mut master = RedisServer::start(settings.clone()).await?;
        master.keep_logs();
        let mut dirs = vec![("redis-0".to_owned(), master.dir().to_owned())];
        let mut replica = None;
        if options.has_replica() {
            let mut server = RedisServer::start(RedisOptions { replica_of: Some(master.port()), ..settings }).await?;
            server.keep_logs();
            dirs.push(("redis-1".to_owned(), server.dir().to_owned()));
            replica = Some(server);
        }
        let side = RedisSide {
            link: proxy().await?,
            service: proxy().await?,
            clock,
            asking: Mutex::default(),
            dirs,
            _folder: folder,
            pair: tokio::sync::Mutex::new(Pair { master, replica }),
        };
        let port = side.pair.lock().await.master.port();
        side.lead_to(port);
        Ok(side)
    }

    /// The URL for all other clients.
    pub(super) fn service_url(&self) -> String {
        format!("redis://{}", self.service.address())
    }

    pub(super) fn dirs(&self) -> Vec<(String, PathBuf)> {
        self.dirs.clone()
    }

    /// Directs both links to this port of 127.0.0.1, and resets open connections.
    pub(crate) fn lead_to(&self, port: u16) {
        self.link.lead_to(format!("127.0.0.1:{port}"));
        self.service.lead_to(format!("127.0.0.1:{port}"));
    }

    /// The number of jobs that are held, or in leases that end before this time, epoch ms;
    /// [`i64::MAX`] for all.
    pub(super) async fn reserved(&self, buckets: u16, before_ms: i64) -> Option<u64> {
        let count = async {
            let known = self.asking.lock().take();
            let mut connection = match known {
                Some(connection) => connection,
                None => connect(&self.service_url(), ASK).await.ok()?,
            };
            let mut pipeline = redis::pipe();
            for bucket in 0..buckets {
                let key = |name: &str| format!("{{{NAMESPACE}:{bucket:02}}}:{name}");
                pipeline.cmd("ZRANGEBYSCORE").arg(key("lent")).arg("-inf").arg(format!("({before_ms}"));
                pipeline.cmd("HGETALL").arg(key("left"));
                pipeline.cmd("ZCOUNT").arg(key("held")).arg("-inf").arg(format!("({before_ms}"));
            }
            let mut answers = pipeline.query_async::<Vec<Value>>(&mut connection).await.ok()?.into_iter();
            let mut count = 0;
            while let (Some(ended), Some(left), Some(held)) = (answers.next(), answers.next(), answers.next()) {
                let ended: Vec<Vec<u8>> = from_redis_value(ended).ok()?;
                let left: HashMap<Vec<u8>, Vec<u8>> = from_redis_value(left).ok()?;
                // After 8 bytes, a bit per job that has left the lease.
                let jobs = |nonce| left.get(nonce).map_or(0, |left| left.iter().skip(8).map(|bits| u64::from(bits.count_zeros())).sum());
                count += ended.iter().map(jobs).sum::<u64>() + from_redis_value::<u64>(held).ok()?;
            }
            // A connection is reused only after an answer.
            *self.asking.lock() = Some(connection);
            Some(count)
        };
        clock::timeout(ASK, count).await.flatten()
    }

    pub(super) async fn stop(self) -> Result<(), Error> {
        let mut pair = self.pair.into_inner();
        if let Some(replica) = &mut pair.replica {
            replica.stop().await?;
        }
        pair.master.stop().await?;
        Ok(())
    }
}

impl Pair {
    /// A direct connection to the master, without a proxy.
    pub(crate) async fn connect(&self) -> Result<MultiplexedConnection, Error> {
        Ok(connect(&self.master.url(), ORDER).await?)
    }

    /// Runs a command on the master.
    pub(crate) async fn order(&self, words: &[&str]) -> Result<redis::Value, Error> {
        order(&self.master, words).await
    }

    /// Waits until the replica, if there is one, is in sync.
    pub(crate) async fn in_sync(&self) -> Result<(), Error> {
        if self.replica.is_none() {
            return Ok(());
        }
        let waited = clock::timeout(Duration::from_secs(60), async {
            loop {
                // One replica, within a second.
                if let Ok(redis::Value::Int(1..)) = self.order(&["WAIT", "1", "1000"]).await {
                    return;
                }
                clock::sleep(Duration::from_millis(50)).await;
            }
        });
        waited.await.ok_or_else(|| Error::Unexpected("the replica was not in sync within a minute".to_owned()))
    }
}

/// Runs a command on this Redis.
pub(crate) async fn order(server: &RedisServer, words: &[&str]) -> Result<redis::Value, Error> {
    let mut connection = connect(&server.url(), ORDER).await?;
    let mut command = redis::Cmd::new();
    command.arg(words);
    Ok(command.query_async(&mut connection).await?)
}

async fn connect(url: &str, limit: Duration) -> Result<MultiplexedConnection, redis::RedisError> {
    let config = redis::AsyncConnectionConfig::new().set_connection_timeout(Some(limit)).set_response_timeout(Some(limit));
    redis::Client::open(url)?.get_multiplexed_async_connection_with_config(&config).await
}

/// A start script for Redis: with the clock that can jump, and without the signal that would end
/// Redis at a file size limit. The limit then causes write errors, as a full disk does.
fn survivor(folder: &Path, program: &Path, clock: &HostClock) -> Result<PathBuf, Error> {
    let path = folder.join("redis-server");
    let quoted = |text: String| format!("'{}'", text.replace('\'', r"'\''"));
    let clock: String = clock.environment().into_iter().map(|(name, value)| format!("export {name}={}\n", quoted(value))).collect();
    let program = quoted(program.display().to_string());
    std::fs::write(&path, format!("#!/bin/sh\ntrap '' XFSZ\n{clock}exec {program} \"$@\"\n"))
        .map_err(Error::io("the start script of redis"))?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).map_err(Error::io("the start script of redis"))?;
    Ok(path)
}
