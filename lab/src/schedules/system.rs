//! Redis, and the instances that make the occurrences: `dwell run`, or workers.

use std::path::{Path, PathBuf};

use dwell::config::RedisMode;
use dwell_testkit::environment::Result;
use dwell_testkit::servers::{DwellServer, RedisServer, find};
use dwell_testkit::usage::Usage;
use tempfile::TempDir;

use super::worker::{self, Process, Work};
use super::{QUEUE, TTR_MS};
use crate::chaos::system::Servers;
use crate::checker::Receipt;
use crate::place::{self, redis_options};

/// The number of instances.
const INSTANCES: usize = 2;

/// Redis: one server, or a master and its replica with sentinels.
pub(super) struct RedisSide(Servers);

impl RedisSide {
    pub(super) async fn start(has_sentinels: bool) -> Result<RedisSide> {
        let mode = if has_sentinels { RedisMode::Sentinel } else { RedisMode::Single };
        Ok(RedisSide(Box::pin(Servers::start(mode, false, redis_options())).await?))
    }

    /// The way of a client to it.
    pub(super) fn way(&self, receipts: PathBuf) -> Work {
        let (redis, sentinels) = match &self.0 {
            Servers::Sentinel(sentinel) => (sentinel.urls(), true),
            single => (single.all().iter().map(RedisServer::url).collect(), false),
        };
        Work { redis, sentinels, receipts }
    }

    /// Has the sentinels promote the replica of a living master.
    pub(super) async fn fail_over(&self) -> Result<()> {
        match &self.0 {
            Servers::Sentinel(sentinel) => Ok(sentinel.fail_over().await.map(drop)?),
            _ => Err("a single Redis has no replica to promote".into()),
        }
    }

    /// CPU of all servers so far, s.
    pub(super) fn cpu_s(&self) -> f64 {
        let pids = self.0.all().iter().filter_map(|server| server.pid());
        Usage::of(pids).unwrap_or_default().cpu_s()
    }
}

/// What makes the occurrences.
enum Kind {
    Sidecar(Box<DwellServer>),
    Worker(Box<Process>),
}

/// One that can be killed and started again.
pub(super) struct Instance {
    kind: Kind,
    /// CPU of the lives that ended, s.
    ended_s: f64,
}

impl Instance {
    pub(super) async fn start(&mut self) -> Result<()> {
        match &mut self.kind {
            Kind::Sidecar(server) => Ok(server.restart().await?),
            Kind::Worker(process) => Ok(process.start()?),
        }
    }

    /// SIGKILL.
    pub(super) async fn kill(&mut self) -> Result<()> {
        self.ended_s = self.cpu_s();
        match &mut self.kind {
            Kind::Sidecar(server) => place::kill(server),
            Kind::Worker(process) => process.kill().await,
        }
    }

    /// Stops it in order.
    async fn stop(&mut self) -> Result<()> {
        match &mut self.kind {
            Kind::Sidecar(server) => place::stop(server).await,
            Kind::Worker(process) => process.stop().await,
        }
    }

    /// CPU so far, s.
    pub(super) fn cpu_s(&self) -> f64 {
        let pid = match &self.kind {
            Kind::Sidecar(server) => server.pid(),
            Kind::Worker(process) => process.pid(),
        };
        self.ended_s + Usage::of(pid).unwrap_or_default().cpu_s()
    }
}

/// The instances, and the files of workers.
pub(super) struct Instances {
    pub(super) all: Vec<Instance>,
    folder: TempDir,
}

impl Instances {
    /// Starts instances of `dwell run`, or workers.
    pub(super) async fn start(redis: &RedisSide, are_workers: bool) -> Result<Instances> {
        let folder = tempfile::tempdir()?;
        let mut all = Vec::new();
        for number in 0..INSTANCES {
            let way = redis.way(receipts_of(folder.path(), number));
            let kind = if are_workers {
                Kind::Worker(Box::new(Process::new(way)))
            } else {
                let server = DwellServer::prepare(find::dwell(), &settings(&way))?;
                Kind::Sidecar(Box::new(server))
            };
            let mut instance = Instance { kind, ended_s: 0.0 };
            instance.start().await?;
            all.push(instance);
        }
        Ok(Instances { all, folder })
    }

    /// The ports of the HTTP APIs; none of workers.
    pub(super) fn ports(&self) -> Vec<u16> {
        let port = |instance: &Instance| match &instance.kind {
            Kind::Sidecar(server) => Some(server.http_port()),
            Kind::Worker(_) => None,
        };
        self.all.iter().filter_map(port).collect()
    }

    /// CPU of all so far, s.
    pub(super) fn cpu_s(&self) -> f64 {
        self.all.iter().map(Instance::cpu_s).sum()
    }

    /// Stops all in order, and returns what workers received.
    pub(super) async fn stop(mut self) -> Result<Vec<Receipt>> {
        let mut receipts = Vec::new();
        for (number, instance) in self.all.iter_mut().enumerate() {
            instance.stop().await?;
            receipts.extend(worker::receipts(&receipts_of(self.folder.path(), number))?);
        }
        Ok(receipts)
    }
}

fn receipts_of(folder: &Path, number: usize) -> PathBuf {
    folder.join(format!("receipts-{number}.jsonl"))
}

/// The settings of an instance without a broker.
fn settings(way: &Work) -> String {
    let (urls, ttr) = (&way.redis, TTR_MS);
    let (mode, durability) =
        if way.sentinels { ("sentinel", "replica") } else { ("single", "memory") };
    format!(
        "[redis]\nmode = \"{mode}\"\nurls = {urls:?}\ndurability = \"{durability}\"\n\n\
         [queues.\"{QUEUE}\"]\nttr = \"{ttr}ms\"\n"
    )
}
