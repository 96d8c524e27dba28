//! The system under test: Redis, a broker, instances of Dwell, and the links between them, each of
//! which can fail.

mod broker;
mod clock;
mod host;
mod instance;
pub(crate) mod jetstream;
pub(crate) mod kafka;
mod logs;
mod maker;
mod options;
mod redis;
mod settings;

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use dwell::config;
use dwell_connectors::BrokerConfig;
use dwell_testkit::servers::{BrokerKind, DwellServer};
use parking_lot::Mutex;
use rand::RngExt;
use rand::rngs::StdRng;
use tempfile::TempDir;
use tokio::task::JoinSet;

pub(crate) use self::broker::{BrokerSide, USER, classic, nats_users, queue_length, rabbitmqctl};
pub(crate) use self::clock::HostClock;
pub(crate) use self::host::{DEAD_PATH, HOOK_BROKER, Host, Manner};
use self::instance::Instance;
pub use self::maker::Maker;
pub use self::options::SystemOptions;
pub(crate) use self::options::lease;
pub(crate) use self::redis::{PASSWORD, RedisSide, Servers, open};
pub(crate) use self::settings::{
    LATE_TARGETS, LIMITED_TARGET, NEVER_TARGET, REPLY_DESTINATION, SILENT_TARGETS, SPARE_BROKER,
};
pub use crate::chaos::error::Error;
use crate::chaos::proxy::Proxy;
use crate::chaos::recorder::Recorder;

/// The number of targets.
const TARGETS: usize = 3;

/// Servers, instances and links. All processes end when the value is dropped.
pub struct System {
    options: SystemOptions,
    pub(crate) redis: RedisSide,
    pub(crate) broker: BrokerSide,
    pub(crate) instances: Vec<Instance>,
    /// The host of URLs, where they are targets.
    pub(crate) host: Option<Arc<Host>>,
    /// The clock of the instances.
    pub(crate) clock: HostClock,
    settings: config::Settings,
    /// Creates destinations.
    pub(crate) maker: Maker,
    targets: Vec<String>,
    /// Unexpected exits of instances.
    exits: Mutex<Vec<String>>,
    /// The recorder for the requests of faults.
    recorder: OnceLock<Arc<Recorder>>,
    /// Readers for the requests of faults, which outlast the faults.
    pub(crate) readers: Mutex<JoinSet<()>>,
    _folder: TempDir,
}

impl System {
    /// Starts the system, and returns once every instance is ready and every target exists.
    ///
    /// # Errors
    /// A program is missing or did not start.
    pub async fn start(options: SystemOptions) -> Result<System, Error> {
        let targets: Vec<String> = (0..TARGETS).map(|number| format!("chaos-{number}")).collect();
        let (redis, broker) = tokio::try_join!(
            RedisSide::start(&options),
            BrokerSide::start(options.broker, &targets)
        )?;
        let host = if options.http { Some(Arc::new(Host::start().await?)) } else { None };
        let text = |redis: &str, brokers: [String; 2]| {
            settings::text(&options, redis, &brokers, &targets, host.as_deref())
        };
        let straight = [broker.straight.clone(), broker.straight.clone()];
        let settings = settings::read(&text(&redis.lines(None)?, straight))?;
        let maker = Maker {
            broker: settings.brokers["main"].connector.clone(),
            nats: (broker.kind == BrokerKind::Nats).then_some(broker.port),
        };
        broker.declare(&maker, &targets).await?;
        maker.make(LIMITED_TARGET).await?;
        let folder = tempfile::tempdir().map_err(Error::io("a temporary folder"))?;
        let clock = HostClock::new(folder.path(), "instances").await?;
        let starting = (0..options.instances).map(async |_| {
            let link = proxy().await?;
            link.lead_to(redis.link.address().to_string());
            let ways = [&broker.link, &broker.spare].map(|way| broker.link_settings(way));
            let settings = text(&redis.lines(Some(&link))?, ways);
            Instance::start(options.program.clone(), &settings, &clock, link).await
        });
        let instances = futures_util::future::try_join_all(starting).await?;
        Ok(System {
            options,
            redis,
            broker,
            instances,
            host,
            clock,
            settings,
            maker,
            targets,
            exits: Mutex::default(),
            recorder: OnceLock::new(),
            readers: Mutex::default(),
            _folder: folder,
        })
    }

    /// Sets the recorder for the requests of faults. Only the first call counts.
    pub fn record_in(&self, recorder: &Arc<Recorder>) {
        self.recorder.get_or_init(|| Arc::clone(recorder));
    }

    /// The recorder for the requests of faults.
    pub(crate) fn recorder(&self) -> Result<&Arc<Recorder>, Error> {
        let missing = || Error::unexpected("nobody writes down what the fault asks for");
        self.recorder.get().ok_or_else(missing)
    }

    /// The options.
    #[must_use]
    pub fn options(&self) -> &SystemOptions {
        &self.options
    }

    /// The direct connection to the broker, without faults and with all permissions: for the
    /// load.
    #[must_use]
    pub fn broker(&self) -> &BrokerConfig {
        &self.settings.brokers["main"].connector
    }

    /// The addresses of `/v1` of all instances.
    pub(crate) fn api_addresses(&self) -> Vec<SocketAddr> {
        self.instances.iter().map(|instance| instance.http).collect()
    }

    /// The address of `/livez`, `/readyz` and `/metrics` of an instance.
    #[must_use]
    pub fn probes(&self, instance: usize) -> SocketAddr {
        self.instances[instance].probes
    }

    /// The settings of the instances with direct connections.
    #[must_use]
    pub fn settings(&self) -> &config::Settings {
        &self.settings
    }

    /// The targets of the load: subjects, topics or queues. They exist, and the instances
    /// may publish to them.
    #[must_use]
    pub fn targets(&self) -> &[String] {
        &self.targets
    }

    /// The number of jobs in leases that began before this time, wall clock, epoch µs; `None` if a
    /// master does not answer within half a second.
    pub async fn claimed_before(&self, at_us: i64) -> Option<u64> {
        let lease_us = i64::try_from(lease().as_micros()).unwrap_or(i64::MAX);
        let counted = self.redis.census.count(at_us.saturating_add(lease_us) / 1000).await;
        counted.is_complete.then_some(counted.leases.claimed)
    }

    /// The logs of all instances and servers since the start: name
    /// and text.
    #[must_use]
    pub fn logs(&self) -> Vec<(String, String)> {
        let instances = (0..).zip(&self.instances);
        let instances = instances.map(|(number, of)| (format!("dwell-{number}"), &of.dir));
        let redis = (0..).zip(&self.redis.dirs);
        let redis = redis.map(|(number, dir)| (format!("redis-{number}"), dir));
        let broker = (self.broker.kind.as_str().to_owned(), &self.broker.dir);
        let dirs = instances.chain(redis).chain([broker]);
        dirs.flat_map(|(name, dir)| logs::read(&name, dir)).collect()
    }

    /// Process ids and ports, for people.
    #[must_use]
    pub fn describe(&self) -> String {
        let SystemOptions { redis, instances, durability, .. } = &self.options;
        format!(
            "{instances} instance(s) over {}, Redis {redis:?}, durability {durability:?}",
            self.broker.kind.as_str()
        )
    }

    /// Any target of the load.
    pub(crate) fn any_target(&self, rng: &mut StdRng) -> &str {
        &self.targets[rng.random_range(0..self.targets.len())]
    }

    /// Checks whether an instance has ended by itself; not while a fault acts on it.
    pub(crate) fn look_after(&self, instance: usize) {
        if let Ok(mut server) = self.instances[instance].server.try_lock() {
            self.note_end(instance, &mut server);
        }
    }

    /// As above, before a fault that would hide the exit.
    pub(crate) fn note_end(&self, instance: usize, server: &mut DwellServer) {
        match server.ended() {
            Ok(None) => {}
            Ok(Some(status)) => {
                self.note(format!("dwell-{instance} ended by itself with {status}"))
            }
            Err(error) => self.note(format!("dwell-{instance}: {error}")),
        }
    }

    /// Records an unexpected exit.
    pub(crate) fn note(&self, what: String) {
        self.exits.lock().push(what);
    }

    /// Stops the instances by SIGTERM, which releases their claims. Returns the unexpected exits:
    /// by itself, with another code than 0, or with a panic.
    pub async fn stop_instances(&self) -> Vec<String> {
        for (number, instance) in self.instances.iter().enumerate() {
            let mut server = instance.server.lock().await;
            self.note_end(number, &mut server);
            match server.stop().await {
                Ok(Some(status)) if !status.success() => {
                    self.note(format!("dwell-{number} ended with {status} after SIGTERM"))
                }
                Ok(_) => {}
                Err(error) => self.note(format!("dwell-{number}: {error}")),
            }
        }
        for (name, log) in self.logs().iter().filter(|(name, _)| name.starts_with("dwell-")) {
            panics(log).for_each(|line| self.note(format!("{name}: {line}")));
        }
        std::mem::take(&mut *self.exits.lock())
    }

    /// Stops the instances by SIGTERM, which releases their claims. The servers are killed.
    ///
    /// # Errors
    /// An instance ended unexpectedly.
    pub async fn stop(self) -> Result<(), Error> {
        let exits = self.stop_instances().await;
        if exits.is_empty() { Ok(()) } else { Err(Error::Unexpected(exits.join("; "))) }
    }
}

/// The lines of a log with a panic.
fn panics(log: &str) -> impl Iterator<Item = &str> {
    log.lines().filter(|line| line.contains("panicked at"))
}

/// A proxy without a target yet.
async fn proxy() -> Result<Proxy, Error> {
    // Nothing listens on this port.
    Proxy::start("127.0.0.1:1").await.map_err(Error::io("a proxy"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_seen_in_a_log() {
        let log = "{\"level\":\"info\"}\nthread 'main' panicked at src/x.rs:1:2:\nno\n";
        assert_eq!(panics(log).collect::<Vec<_>>(), ["thread 'main' panicked at src/x.rs:1:2:"]);
    }
}
