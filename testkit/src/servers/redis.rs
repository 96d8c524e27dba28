//! A private redis-server.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::process::Process;
use super::resp::{self, At, ask};
use super::server::{Server, ServerKind};
use super::{ServerError, find};
use dwell::clock;

/// `appendfsync`: when the append-only file reaches the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppendFsync {
    /// Before each answer to a write.
    Always,
    /// Every second.
    EverySec,
    /// When the operating system decides.
    No,
}

/// The options of a private Redis. Default: no persistence, no password, no limits.
#[derive(Debug, Clone, Default)]
pub struct RedisOptions {
    /// The append-only file, and when it is synced. `None`: no persistence.
    pub appendonly: Option<AppendFsync>,
    /// `maxmemory`, as in its configuration file (`64mb`).
    pub maxmemory: Option<String>,
    /// `maxmemory-policy`.
    pub maxmemory_policy: Option<String>,
    /// The port on 127.0.0.1 of the master, which has the same password. The replica is ready once
    /// it has caught up.
    pub replica_of: Option<u16>,
    /// `requirepass`, and `masterauth` for a replica. No spaces.
    pub password: Option<String>,
    /// The folder of `ca.pem`, `server.pem` and `server.key`, for a server that speaks only TLS.
    pub tls: Option<PathBuf>,
    /// A user, word by word as in the configuration file: name, `on`, password, permissions.
    pub user: Vec<String>,
    /// The program; `None`: [`find::redis_server`].
    pub program: Option<PathBuf>,
    /// More settings: name and value.
    pub more: Vec<(String, String)>,
}

/// A private redis-server.
pub type RedisServer = Server<Redis>;

/// The parts of a server of this kind alone.
#[derive(Debug)]
pub struct Redis {
    options: RedisOptions,
}

impl ServerKind for Redis {
    /// Ready once the data is loaded, the answering process is the started one, and a replica has
    /// caught up: by its own report and by the report of its master, because only then does WAIT
    /// count it.
    async fn is_ready(&self, port: u16, dir: &Path, pid: u32) -> bool {
        let own = self.info(&self.at(port, dir)).await;
        let says = |line: &str| own.iter().any(|said| said == line);
        if !says(&format!("process_id:{pid}")) || !says("loading:0") {
            return false;
        }
        let Some(master) = self.options.replica_of else { return true };
        let masters = self.info(&At::Port(master)).await;
        let online = format!("port={port},state=online");
        says("master_link_status:up")
            && masters.iter().any(|said| said.starts_with("slave") && said.contains(&online))
    }
}

impl Redis {
    /// The address without TLS.
    fn at(&self, port: u16, dir: &Path) -> At {
        if self.options.tls.is_some() { At::Socket(socket(dir)) } else { At::Port(port) }
    }

    /// The answer to INFO; empty if none comes in time.
    async fn info(&self, at: &At) -> Vec<String> {
        let answer = ask(at, self.options.password.as_deref(), &["INFO"]);
        let answer = clock::timeout(Duration::from_secs(2), answer).await;
        answer.and_then(Result::ok).unwrap_or_default()
    }
}

impl RedisServer {
    /// Starts a server and returns it ready.
    pub async fn start(options: RedisOptions) -> Result<Self, ServerError> {
        let program = options.program.clone().map_or_else(find::redis_server, Ok)?;
        let mut process = Process::new("redis-server", program)?;
        process.set_args(args(&options, process.port(), process.dir()));
        Server::started(process, Redis { options }).await
    }

    /// Makes it replicate the Redis on this port of 127.0.0.1, or none, from its next start.
    pub fn follow(&mut self, master: Option<u16>) {
        self.kind.options.replica_of = master;
        self.set_own_args();
    }

    fn set_own_args(&mut self) {
        let args = args(&self.kind.options, self.port(), self.dir());
        self.process.set_args(args);
    }

    /// `redis://127.0.0.1:PORT` or `rediss://…`, with the password if there is one.
    pub fn url(&self) -> String {
        let RedisOptions { password, tls, .. } = &self.kind.options;
        let password = password.as_ref().map_or(String::new(), |password| format!(":{password}@"));
        let scheme = if tls.is_some() { "rediss" } else { "redis" };
        format!("{scheme}://{password}127.0.0.1:{}", self.port())
    }

    /// Changes the password, and cuts every connection of a client.
    pub async fn rotate(&mut self, password: &str) -> Result<(), ServerError> {
        self.order(&["CONFIG", "SET", "masterauth", password]).await?;
        self.order(&["CONFIG", "SET", "requirepass", password]).await?;
        self.kind.options.password = Some(password.to_owned());
        self.set_own_args();
        for kind in ["normal", "pubsub"] {
            self.order(&["CLIENT", "KILL", "TYPE", kind]).await?;
        }
        Ok(())
    }

    /// Runs a command and returns the lines of its answer, without protocol marks.
    pub async fn order(&self, words: &[&str]) -> Result<Vec<String>, ServerError> {
        let at = self.kind.at(self.port(), self.dir());
        resp::order(&at, self.kind.options.password.as_deref(), words).await
    }
}

fn args(options: &RedisOptions, port: u16, dir: &Path) -> Vec<String> {
    let mut settings = vec![
        ("bind", "127.0.0.1".to_owned()),
        ("dir", dir.display().to_string()),
        ("save", String::new()),
        ("daemonize", "no".to_owned()),
        // Diskless replication delays a new replica, and sends it no writes until its first ack a
        // second later.
        ("repl-diskless-sync", "no".to_owned()),
    ];
    match &options.tls {
        None => settings.push(("port", port.to_string())),
        Some(folder) => {
            let file = |name: &str| folder.join(name).display().to_string();
            settings.extend([
                ("port", "0".to_owned()),
                ("tls-port", port.to_string()),
                ("tls-ca-cert-file", file("ca.pem")),
                ("tls-cert-file", file("server.pem")),
                ("tls-key-file", file("server.key")),
                ("tls-auth-clients", "no".to_owned()),
                ("tls-replication", "yes".to_owned()),
                ("tls-cluster", "yes".to_owned()),
                ("unixsocket", socket(dir).display().to_string()),
            ]);
        }
    }
    let fsync = options.appendonly.map(|fsync| match fsync {
        AppendFsync::Always => "always",
        AppendFsync::EverySec => "everysec",
        AppendFsync::No => "no",
    });
    settings.push(("appendonly", if fsync.is_some() { "yes" } else { "no" }.to_owned()));
    settings.extend(fsync.map(|word| ("appendfsync", word.to_owned())));
    settings.extend(options.maxmemory.iter().map(|value| ("maxmemory", value.clone())));
    settings
        .extend(options.maxmemory_policy.iter().map(|value| ("maxmemory-policy", value.clone())));
    if let Some(password) = &options.password {
        settings.extend([("requirepass", password.clone()), ("masterauth", password.clone())]);
    }
    settings.extend(options.more.iter().map(|(name, value)| (name.as_str(), value.clone())));
    let mut args: Vec<String> =
        settings.into_iter().flat_map(|(name, value)| [format!("--{name}"), value]).collect();
    if !options.user.is_empty() {
        args.push("--user".to_owned());
        args.extend(options.user.iter().cloned());
    }
    if let Some(master) = options.replica_of {
        args.extend(["--replicaof".to_owned(), "127.0.0.1".to_owned(), master.to_string()]);
    }
    args
}

/// The address without TLS of a server that speaks only TLS on its port.
fn socket(dir: &Path) -> PathBuf {
    dir.join("redis.sock")
}
