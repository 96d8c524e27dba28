//! Redis of any kind. A single one and its replica, if there is one, have two links to the master:
//! that of the instances, and a direct one without faults. Clients of a Cluster and of sentinels
//! are told the addresses of the servers, so that no proxy is between.

mod census;
mod login;
mod servers;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dwell::config::{Durability, RedisMode};
use dwell::store::keys::Keys;
use dwell_testkit::servers::{AppendFsync, RedisOptions, RedisServer, find};
use redis::aio::MultiplexedConnection;
use tempfile::TempDir;

pub(crate) use self::census::Census;
use self::login::Logins;
pub(crate) use self::login::PASSWORD;
pub(crate) use self::servers::Servers;
use super::settings::NAMESPACE;
use super::{Error, HostClock, SystemOptions, proxy};
use crate::chaos::proxy::Proxy;
use crate::words::word;

/// The time-out of a command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);
/// The number of buckets: that of the settings where they name none.
const BUCKETS: u16 = 16;

/// Redis and its links.
pub(crate) struct RedisSide {
    /// Locked by a fault for its whole duration.
    pub(crate) servers: tokio::sync::Mutex<Servers>,
    /// The link of all instances to a single Redis.
    pub(crate) link: Proxy,
    /// The link of all other clients to the current master of a single Redis.
    service: Proxy,
    /// The clock of a single Redis and its replica.
    pub(crate) clock: HostClock,
    pub(crate) census: Census,
    pub(crate) logins: Logins,
    mode: RedisMode,
    urls: Vec<String>,
    /// The folder of each server.
    pub(super) dirs: Vec<PathBuf>,
    folder: TempDir,
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
        // After a short absence a replica catches up without a full synchronisation.
        let more = [("repl-backlog-size", "64mb"), ("repl-timeout", "5")];
        let settings = RedisOptions {
            appendonly: Some(appendonly),
            program: Some(survivor(folder.path(), &program, &clock)?),
            more: more.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            user: Logins::user(),
            ..RedisOptions::default()
        };
        let starting = Servers::start(options.redis, options.has_replica(), settings);
        let servers = Box::pin(starting).await?;
        let (link, service) = (proxy().await?, proxy().await?);
        let mut reachable: Vec<String> = servers.all().iter().map(RedisServer::url).collect();
        let urls = match &servers {
            Servers::Single(_) => {
                reachable = vec![format!("redis://{}", service.address())];
                reachable.clone()
            }
            Servers::Cluster(cluster) => cluster.urls(),
            Servers::Sentinel(sentinel) => sentinel.urls(),
        };
        let side = RedisSide {
            link,
            service,
            clock,
            census: Census::new(options.redis, reachable, Keys::new(NAMESPACE, BUCKETS)),
            logins: Logins::default(),
            mode: options.redis,
            urls,
            dirs: servers.all().iter().map(|server| server.dir().to_owned()).collect(),
            folder,
            servers: tokio::sync::Mutex::new(servers),
        };
        side.lead_to(side.servers.lock().await.all()[0].port());
        Ok(side)
    }

    /// The lines of `[redis]`: for clients without faults, or for an instance, over its link.
    pub(super) fn lines(&self, through: Option<&Proxy>) -> Result<String, Error> {
        let is_single = self.mode == RedisMode::Single;
        let urls = match through {
            None => format!("urls = {:?}", self.urls),
            Some(link) => {
                let own = || vec![format!("redis://{}", link.address())];
                let urls = if is_single { own() } else { self.urls.clone() };
                let file = self.folder.path().join(format!("urls-{}", link.address().port()));
                self.logins.add(file.clone(), urls).map_err(Error::file(&file))?;
                format!("urls_file = {file:?}")
            }
        };
        let mode = word(&self.mode);
        let master =
            if self.mode == RedisMode::Sentinel { "redis.master = \"mymaster\"\n" } else { "" };
        Ok(format!("{master}redis.mode = \"{mode}\"\nredis.{urls}\nredis.buckets = {BUCKETS}"))
    }

    /// Directs both links to this port of 127.0.0.1, and resets open connections.
    pub(crate) fn lead_to(&self, port: u16) {
        self.link.lead_to(format!("127.0.0.1:{port}"));
        self.service.lead_to(format!("127.0.0.1:{port}"));
    }
}

/// A direct connection to this Redis, without a proxy.
pub(crate) async fn open(server: &RedisServer) -> Result<MultiplexedConnection, Error> {
    Ok(connect(&server.url(), COMMAND_TIMEOUT).await?)
}

async fn connect(url: &str, limit: Duration) -> Result<MultiplexedConnection, redis::RedisError> {
    let config = redis::AsyncConnectionConfig::new()
        .set_connection_timeout(Some(limit))
        .set_response_timeout(Some(limit));
    redis::Client::open(url)?.get_multiplexed_async_connection_with_config(&config).await
}

/// A start script for Redis: with the clock that can jump, and without the signal that would end
/// Redis at a file size limit. The limit then causes write errors, as a full disk does.
fn survivor(folder: &Path, program: &Path, clock: &HostClock) -> Result<PathBuf, Error> {
    let path = folder.join("redis-server");
    let quoted = |text: String| format!("'{}'", text.replace('\'', r"'\''"));
    let clock: String = clock
        .environment()
        .into_iter()
        .map(|(name, value)| format!("export {name}={}\n", quoted(value)))
        .collect();
    let program = quoted(program.display().to_string());
    std::fs::write(&path, format!("#!/bin/sh\ntrap '' XFSZ\n{clock}exec {program} \"$@\"\n"))
        .and_then(|()| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)))
        .map_err(Error::file(&path))?;
    Ok(path)
}
