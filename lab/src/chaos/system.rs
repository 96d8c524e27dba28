//! The system under test: Redis, a broker, instances of Dwell, and the links between them, each of
//! which can fail.

mod broker;
mod clock;
mod error;
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
use tempfile::TempDir;
use tokio::task::JoinSet;

pub(crate) use self::broker::{BrokerSide, USER, classic, nats_users, queue_length, rabbitmqctl};
pub(crate) use self::clock::HostClock;
pub use self::error::Error;
pub(crate) use self::host::{DEAD_PATH, HOOK_BROKER, Host, Manner};
use self::instance::Instance;
pub use self::maker::Maker;
pub use self::options::SystemOptions;
pub(crate) use self::redis::{PASSWORD, Pair, RedisSide, Servers, open, order};
pub(crate) use self::settings::{SILENT_TARGETS, SPARE_BROKER};
use crate::chaos::proxy::Proxy;
use crate::chaos::recorder::Recorder;

/// Servers, instances and links. All processes end when the value is dropped.
pub struct System {
    options: SystemOptions,
    pub(crate) redis: RedisSide,
    pub(crate) broker: BrokerSide,
    pub(crate) instances: Vec<Instance>,
    /// The host of URLs, where they are targets.
    host: Option<Arc<Host>>,
    /// The clock of the instances.
    pub(crate) clock: HostClock,
    settings: config::Settings,
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
        let targets: Vec<String> =
            (0..options.targets).map(|number| format!("chaos-{number}")).collect();
        let (redis, broker) = tokio::try_join!(
            RedisSide::start(&options),
            BrokerSide::start(options.broker, &targets)
        )?;
        let host = if options.http { Some(Arc::new(Host::start().await?)) } else { None };
        let hook = host.as_deref().map_or_else(String::new, |host| settings::hook(&options, host));
        let straight = [broker.straight_settings(), broker.straight_settings()];
        let straight = settings::text(&options, &redis.lines(None)?, &straight, &targets) + &hook;
        let settings = settings::read(&straight)?;
        broker.declare(&settings.brokers["main"].connector, &targets).await?;
        let folder = tempfile::tempdir().map_err(Error::io("a temporary folder"))?;
        let clock = HostClock::new(folder.path(), "instances").await?;
        let ways = [broker.link_settings(&broker.link), broker.link_settings(&broker.spare)];
        let starting = (0..options.instances).map(async |_| {
            let link = proxy().await?;
            link.lead_to(redis.link.address().to_string());
            let through =
                settings::text(&options, &redis.lines(Some(&link))?, &ways, &targets) + &hook;
            Instance::start(options.program.clone(), &through, &clock, link).await
        });
        let instances = futures_util::future::try_join_all(starting).await?;
        let (exits, recorder, readers) = (Mutex::default(), OnceLock::new(), Mutex::default());
        Ok(System {
            options,
            redis,
            broker,
            instances,
            host,
            clock,
            settings,
            targets,
            exits,
            recorder,
            readers,
            _folder: folder,
        })
    }

    /// Sets the recorder for the requests of faults. Only the first call counts.
    pub fn record_in(&self, recorder: &Arc<Recorder>) {
        self.recorder.get_or_init(|| Arc::clone(recorder));
    }

    /// The recorder for the requests of faults.
    pub(crate) fn recorder(&self) -> Result<&Arc<Recorder>, Error> {
        self.recorder.get().ok_or_else(|| {
            Error::Unexpected("nobody writes down what the fault asks for".to_owned())
        })
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

    /// The address of `/v1` of an instance.
    #[must_use]
    pub fn http(&self, instance: usize) -> SocketAddr {
        self.instances[instance].http
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

    /// The direct connection to the current Redis master, without faults.
    #[must_use]
    pub fn store_settings(&self) -> &config::Redis {
        &self.settings.redis
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
        let lease_us = i64::try_from(self.options.lease().as_micros()).unwrap_or(i64::MAX);
        let counted = self.redis.census.count(at_us.saturating_add(lease_us) / 1000).await;
        counted.is_complete.then_some(counted.leases.claimed)
    }

    /// The logs of all instances and servers since the start: name
    /// and text.
    #[must_use]
    pub fn logs(&self) -> Vec<(String, String)> {
        let instances = self
            .instances
            .iter()
            .enumerate()
            .map(|(number, instance)| (format!("dwell-{number}"), instance.dir.clone()));
        let servers = self
            .redis
            .dirs()
            .into_iter()
            .chain([(self.broker.kind().as_str().to_owned(), self.broker.dir().to_owned())]);
        instances.chain(servers).flat_map(|(name, dir)| logs::read(&name, &dir)).collect()
    }

    /// Process ids and ports, for people.
    #[must_use]
    pub fn describe(&self) -> String {
        let SystemOptions { redis, instances, durability, .. } = &self.options;
        format!(
            "{instances} instance(s) over {}, Redis {redis:?}, durability {durability:?}",
            self.broker.kind().as_str()
        )
    }

    /// The host of URLs, where they are targets.
    pub(crate) fn host(&self) -> Option<&Arc<Host>> {
        self.host.as_ref()
    }

    /// Creates destinations.
    #[must_use]
    pub fn maker(&self) -> Maker {
        Maker {
            broker: self.broker().clone(),
            nats: (self.broker.kind() == BrokerKind::Nats).then(|| self.broker.port()),
        }
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
        let logs =
            self.instances.iter().enumerate().flat_map(|(number, instance)| {
                logs::read(&format!("dwell-{number}"), &instance.dir)
            });
        let panics = logs.flat_map(|(name, text)| {
            panics(&text).map(|line| format!("{name}: {line}")).collect::<Vec<_>>()
        });
        self.exits.lock().iter().cloned().chain(panics).collect()
    }

    /// Stops all processes in order: the instances by SIGTERM, which releases their claims.
    ///
    /// # Errors
    /// A process did not end, or an instance ended unexpectedly.
    pub async fn stop(self) -> Result<(), Error> {
        let exits = self.stop_instances().await;
        self.stop_servers().await?;
        if exits.is_empty() { Ok(()) } else { Err(Error::Unexpected(exits.join("; "))) }
    }

    /// Stops the servers; remaining instances are killed on drop.
    ///
    /// # Errors
    /// A process did not end.
    pub async fn stop_servers(self) -> Result<(), Error> {
        self.broker.stop().await?;
        self.redis.stop().await
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
