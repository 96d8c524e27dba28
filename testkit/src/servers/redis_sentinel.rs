//! A private Redis with Sentinel: a master, two replicas, three sentinels.

use std::path::Path;

use super::process::Process;
use super::redis::{RedisOptions, RedisServer};
use super::resp::{self, At, ask};
use super::server::{Server, ServerKind};
use super::{ServerError, find, until};

/// The name of the master.
const MASTER: &str = "mymaster";
/// The time after which a silent master counts as failed, ms.
const DOWN_AFTER_MS: u32 = 1500;
/// The longest failover, ms. The next one by the sentinels begins at the earliest after twice this
/// time.
const FAILOVER: u32 = 10_000;
const SENTINELS: usize = 3;
const REPLICAS: usize = 2;

/// A sentinel.
pub type SentinelServer = Server<Sentinel>;

/// The parts of a server of this kind alone.
#[derive(Debug)]
pub struct Sentinel {
    password: Option<String>,
}

impl ServerKind for Sentinel {
    /// Ready once the started process itself answers.
    async fn is_ready(&self, port: u16, _: &Path, pid: u32) -> bool {
        let own = ask(&At::Port(port), self.password.as_deref(), &["INFO", "server"]).await;
        own.unwrap_or_default().contains(&format!("process_id:{pid}"))
    }
}

impl SentinelServer {
    /// Runs a command and returns the lines of its answer, without protocol marks.
    async fn order(&self, words: &[&str]) -> Result<Vec<String>, ServerError> {
        resp::order(&At::Port(self.port()), self.kind.password.as_deref(), words).await
    }
}

/// A master with replicas and sentinels. All processes are killed when the value is dropped.
#[derive(Debug)]
pub struct RedisSentinel {
    /// The first server starts as the master.
    pub servers: Vec<RedisServer>,
    /// The sentinels that watch the servers.
    pub sentinels: Vec<SentinelServer>,
    /// The number of replicas.
    replicas: usize,
}

impl RedisSentinel {
    /// Starts a master and two replicas with these options, and the sentinels, and returns once the
    /// sentinels know all servers.
    pub async fn start(options: RedisOptions) -> Result<Self, ServerError> {
        RedisSentinel::with_replicas(options, REPLICAS, FAILOVER).await
    }

    /// As [`RedisSentinel::start`], with sentinels that ask for this password.
    pub async fn guarded(options: RedisOptions, password: &str) -> Result<Self, ServerError> {
        RedisSentinel::launch(options, REPLICAS, FAILOVER, Some(password)).await
    }

    /// As [`RedisSentinel::start`], with this number of replicas and this `failover-timeout`, ms.
    pub async fn with_replicas(
        options: RedisOptions,
        replicas: usize,
        failover_ms: u32,
    ) -> Result<Self, ServerError> {
        RedisSentinel::launch(options, replicas, failover_ms, None).await
    }

    async fn launch(
        options: RedisOptions,
        replicas: usize,
        failover_ms: u32,
        guard: Option<&str>,
    ) -> Result<Self, ServerError> {
        let password = options.password.clone();
        let master = RedisServer::start(options.clone()).await?;
        let port = master.port();
        let mut servers = vec![master];
        for _ in 0..replicas {
            let replica = RedisOptions { replica_of: Some(port), ..options.clone() };
            servers.push(RedisServer::start(replica).await?);
        }
        let mut sentinels = Vec::new();
        for _ in 0..SENTINELS {
            let program = options.program.clone().map_or_else(find::redis_server, Ok)?;
            let mut process = Process::new("redis-sentinel", program)?;
            let mut lines = format!(
                "port {}\nbind 127.0.0.1\ndir {}\nsentinel monitor {MASTER} 127.0.0.1 {port} 2\nsentinel down-after-milliseconds {MASTER} {DOWN_AFTER_MS}\n\
                 sentinel failover-timeout {MASTER} {failover_ms}\nsentinel parallel-syncs {MASTER} 1\n",
                process.port(),
                process.dir().display(),
            );
            if let Some(password) = &password {
                lines += &format!("sentinel auth-pass {MASTER} {password}\n");
            }
            if let Some(guard) = guard {
                lines += &format!("requirepass {guard}\n");
            }
            let file = process.write("sentinel.conf", &lines)?;
            process.set_args(vec![file, "--sentinel".to_owned()]);
            let sentinel = Sentinel { password: guard.map(str::to_owned) };
            sentinels.push(Server::started(process, sentinel).await?);
        }
        let all = RedisSentinel { servers, sentinels, replicas };
        all.whole().await?;
        Ok(all)
    }

    /// Changes the password of the servers, and that of the sentinels, and cuts every connection of
    /// a client.
    pub async fn rotate(&mut self, password: &str, guard: &str) -> Result<(), ServerError> {
        for server in &mut self.servers {
            server.rotate(password).await?;
        }
        for sentinel in &mut self.sentinels {
            sentinel.order(&["SENTINEL", "SET", MASTER, "auth-pass", password]).await?;
            sentinel.order(&["SENTINEL", "CONFIG", "SET", "sentinel-pass", guard]).await?;
            sentinel
                .order(&["ACL", "SETUSER", "default", "resetpass", &format!(">{guard}")])
                .await?;
            sentinel.kind.password = Some(guard.to_owned());
            sentinel.order(&["CLIENT", "KILL", "TYPE", "normal"]).await?;
        }
        Ok(())
    }

    /// The URLs of the sentinels, with the password of the servers if there is one.
    pub fn urls(&self) -> Vec<String> {
        let url = self.servers[0].url();
        let login = url
            .trim_start_matches("redis://")
            .rsplit_once('@')
            .map_or(String::new(), |(login, _)| format!("{login}@"));
        self.sentinels
            .iter()
            .map(|sentinel| format!("redis://{login}127.0.0.1:{}", sentinel.port()))
            .collect()
    }

    /// The index in `servers` of the master; `None` if the sentinels disagree or the master is
    /// down.
    pub async fn master(&self) -> Option<usize> {
        let at = self.named().await?;
        let role = self.servers[at].order(&["ROLE"]).await.ok()?;
        role.first().is_some_and(|role| role == "master").then_some(at)
    }

    /// The server that all sentinels name, whatever its own role.
    async fn named(&self) -> Option<usize> {
        let mut named = Vec::new();
        for sentinel in self.sentinels.iter().filter(|sentinel| sentinel.pid().is_some()) {
            let answer =
                sentinel.order(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER]).await.ok()?;
            named.push(answer.get(1)?.parse::<u16>().ok()?);
        }
        let first = *named.first()?;
        let at = self
            .servers
            .iter()
            .position(|server| server.port() == first && server.pid().is_some())?;
        named.iter().all(|port| *port == first).then_some(at)
    }

    /// Waits until every sentinel knows the others, the master and its replicas, and every replica
    /// follows that master.
    pub async fn whole(&self) -> Result<(), ServerError> {
        until("the sentinels know all servers", async || {
            let Some(master) = self.master().await else { return false };
            let port = self.servers[master].port();
            let wanted = format!(
                "status=ok,address=127.0.0.1:{port},slaves={},sentinels={SENTINELS}",
                self.replicas
            );
            for sentinel in &self.sentinels {
                let said = sentinel.order(&["INFO", "sentinel"]).await.unwrap_or_default();
                if !said.iter().any(|line| line.contains(&wanted)) {
                    return false;
                }
            }
            let info =
                self.servers[master].order(&["INFO", "replication"]).await.unwrap_or_default();
            info.iter()
                .filter(|line| line.starts_with("slave") && line.contains("state=online"))
                .count()
                == self.replicas
        })
        .await
    }

    /// Has the sentinels promote a replica of a master that is alive, and waits until they agree.
    /// Writes that the replica does not have are lost.
    pub async fn fail_over(&self) -> Result<usize, ServerError> {
        let before = self.master().await;
        let order = async |sentinel: &SentinelServer| {
            sentinel.order(&["SENTINEL", "FAILOVER", MASTER]).await
        };
        // Right after another failover the sentinels refuse.
        until("the sentinels accept a failover", async || order(&self.sentinels[0]).await.is_ok())
            .await?;
        self.failed_over(before.unwrap_or(self.servers.len())).await
    }

    /// Waits until the sentinels agree on another master. The given one may be frozen.
    pub async fn failed_over(&self, dead: usize) -> Result<usize, ServerError> {
        let another = async || {
            self.named().await.is_some_and(|at| at != dead) && self.master().await.is_some()
        };
        until("another master", another).await?;
        Ok(self.master().await.unwrap_or(dead))
    }
}
