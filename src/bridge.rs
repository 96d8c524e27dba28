//! All agents together: opened, running, drained. `dwell run` is this and signals; `dwell demo` and the tests run it in their own process.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use dwell_connectors::{ConnectorError, Declared, Destination, ErrorKind, Outcomes, Role, Sink, Source};
use futures_util::future::try_join_all;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::apply::Apply;
use crate::clock;
use crate::config::{Broker, Settings};
use crate::dispatch::{self, Dispatch};
use crate::fleet::{self, Fleet, Heads};
use crate::http::Readiness;
use crate::ingest::{self, Ingest};
use crate::publisher::{Publisher, Reports};
use crate::request::{Kind, Rules, destination};
use crate::rescue::Rescue;
use crate::store::Store;
use crate::store::error::{Class, StoreError};
use crate::sweep::Sweep;
use crate::telemetry::Metrics;
use crate::telemetry::trace::Traces;

/// What this instance does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Roles {
    /// Reads requests.
    pub ingest: bool,
    /// Delivers jobs.
    pub dispatch: bool,
}

/// Why it did not start.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct StartError {
    /// The settings can never work with these servers (78); else something is unreachable or missing (69).
    pub settings: bool,
    /// What failed, and where.
    pub message: String,
    /// What a person can do.
    pub mend: String,
}

impl From<StoreError> for StartError {
    fn from(error: StoreError) -> Self {
        StartError { settings: error.class == Class::Settings, message: error.message, mend: error.mend }
    }
}

impl From<ConnectorError> for StartError {
    fn from(error: ConnectorError) -> Self {
        StartError { settings: error.kind == ErrorKind::Config, message: error.message, mend: error.mend }
    }
}

/// The running agents.
pub struct Bridge {
    /// By this name the others of the namespace know it.
    instance: String,
    apply: Apply,
    store: Arc<Store>,
    /// Ingests and dispatchers: what is drained.
    workers: JoinSet<&'static str>,
    /// What the workers lean on until they have ended.
    helpers: JoinSet<&'static str>,
    stop: CancellationToken,
    give_up: CancellationToken,
    helpers_stop: CancellationToken,
}

struct Link {
    name: String,
    publisher: Publisher,
    reports: Reports,
    outcomes: Outcomes,
}

impl Bridge {
    /// Opens everything, checks that what the settings name is there (or makes it, with `declare`), and starts the agents.
    pub async fn start(
        settings: &Settings,
        roles: Roles,
        metrics: &Metrics,
        traces: &Traces,
        readiness: &Readiness,
    ) -> Result<Bridge, StartError> {
        let names: Vec<String> = settings.brokers.keys().cloned().collect();
        let opening_store = async { Store::open(&settings.redis, &names, Arc::new(metrics.clone())).await.map_err(StartError::from) };
        let (store, links) = tokio::try_join!(opening_store, open_links(settings, roles, metrics))?;
        let store = Arc::new(store);
        readiness.store_reached();

        let instance = format!("{:08x}-{}", rand::random::<u32>(), std::process::id());
        let (fleet_sender, fleet) = watch::channel(Fleet::alone(&instance));
        let (head_senders, mut head_receivers): (HashMap<_, _>, HashMap<_, _>) = links
            .iter()
            .filter(|_| roles.dispatch)
            .map(|link| {
                let (sender, receiver) = mpsc::unbounded_channel();
                ((link.name.clone(), sender), (link.name.clone(), receiver))
            })
            .unzip();
        let heads = Heads::new(store.clone(), head_senders, fleet.clone());
        let publishers: HashMap<String, Publisher> = links.iter().map(|link| (link.name.clone(), link.publisher.clone())).collect();
        let apply = Apply {
            store: store.clone(),
            heads: heads.clone(),
            metrics: metrics.clone(),
            traces: traces.clone(),
            retry_ms: settings.delivery.retry_ms.clone(),
        };
        let ingests = if roles.ingest { open_ingests(settings, &publishers, &apply, readiness).await? } else { Vec::new() };

        let mut bridge = Bridge {
            instance,
            apply,
            store: store.clone(),
            workers: JoinSet::new(),
            helpers: JoinSet::new(),
            stop: CancellationToken::new(),
            give_up: CancellationToken::new(),
            helpers_stop: CancellationToken::new(),
        };
        for (ingest, source) in ingests {
            let (stop, give_up) = (bridge.stop.clone(), bridge.give_up.clone());
            bridge.workers.spawn(async move {
                ingest.run(Some(source), stop, give_up).await;
                "an ingest"
            });
        }
        for link in links {
            let Link { name, publisher, reports, outcomes } = link;
            let (running, stop) = (publisher.clone(), bridge.helpers_stop.clone());
            bridge.helpers.spawn(async move {
                running.run(Some(outcomes), stop).await;
                "a publisher"
            });
            let Some(heads) = head_receivers.remove(&name) else { continue };
            let dead =
                Some(&settings.delivery.dead).filter(|dead| !dead.is_empty()).map(|dead| destination(Kind::of(publisher.kind()), dead));
            let parts = dispatch::Parts {
                store: store.clone(),
                broker: name,
                publisher,
                reports,
                rules: settings.delivery.clone(),
                dead,
                metrics: metrics.clone(),
                traces: traces.clone(),
                fleet: fleet.clone(),
                heads,
            };
            let (stop, give_up) = (bridge.stop.clone(), bridge.give_up.clone());
            bridge.workers.spawn(async move {
                Dispatch::new(parts).run(stop, give_up).await;
                "a dispatcher"
            });
        }
        bridge.start_helpers(settings, roles, metrics, fleet_sender, fleet, heads);
        Ok(bridge)
    }

    fn start_helpers(
        &mut self,
        settings: &Settings,
        roles: Roles,
        metrics: &Metrics,
        sender: watch::Sender<Fleet>,
        fleet: watch::Receiver<Fleet>,
        heads: Heads,
    ) {
        let sweep = Sweep::new(self.store.clone(), &settings.delivery, metrics.clone());
        let stop = self.helpers_stop.clone();
        self.helpers.spawn(async move {
            sweep.run(stop).await;
            "the sweep"
        });
        if !roles.dispatch {
            return;
        }
        let rescue = Rescue::new(self.store.clone(), settings.delivery.clone(), metrics.clone(), fleet, heads.clone());
        // What it took over it also settles, before the drain: so it stops with the workers.
        let stop = self.stop.clone();
        self.workers.spawn(async move {
            rescue.run(stop).await;
            "the rescue"
        });
        let (store, stop) = (self.store.clone(), self.stop.clone());
        self.workers.spawn(async move {
            fleet::beat(store, sender, stop).await;
            "the heartbeat"
        });
        let (redis, channel, stop) = (settings.redis.clone(), self.store.keys().wake(), self.helpers_stop.clone());
        self.helpers.spawn(async move {
            fleet::hear(redis, channel, heads, stop).await;
            "the listener"
        });
    }

    /// The store that the agents share.
    #[must_use]
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// What requests are applied with that come by another door than an ingest.
    #[must_use]
    pub fn apply(&self) -> &Apply {
        &self.apply
    }

    /// The name of this instance among those of its namespace.
    #[must_use]
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// Waits until an agent ends that never should, by a panic: what it was. The process had better end and be started again.
    pub async fn failed(&mut self) -> String {
        let ended = tokio::select! {
            Some(ended) = self.workers.join_next() => ended,
            Some(ended) = self.helpers.join_next() => ended,
            else => std::future::pending().await,
        };
        match ended {
            Ok(agent) => format!("{agent} ended by itself"),
            Err(error) => format!("an agent failed: {error}"),
        }
    }

    /// Stops reading and claiming, waits for confirms up to `drain`, gives back what is left, and ends. True where everything was settled.
    pub async fn stop(mut self, drain: Duration) -> bool {
        self.stop.cancel();
        // The last tenth is for giving back.
        let patience = drain.mul_f64(0.9);
        let mut clean = clock::timeout(patience, drained(&mut self.workers)).await.is_some();
        if !clean {
            self.give_up.cancel();
            clean = clock::timeout(drain - patience, drained(&mut self.workers)).await.is_some();
        }
        self.helpers_stop.cancel();
        let _ = clock::timeout(Duration::from_millis(200), drained(&mut self.helpers)).await;
        clean
    }
}

async fn drained(tasks: &mut JoinSet<&'static str>) {
    while let Some(ended) = tasks.join_next().await {
        if let Err(error) = ended {
            tracing::error!(%error, "an agent failed while draining");
        }
    }
}

/// Opens the link of every broker that this instance publishes to, and sees to the destinations of dead letters.
async fn open_links(settings: &Settings, roles: Roles, metrics: &Metrics) -> Result<Vec<Link>, StartError> {
    let read: BTreeSet<&str> = settings.ingest.values().map(|ingest| ingest.broker.as_str()).collect();
    let opening =
        settings.brokers.iter().filter(|(name, _)| roles.dispatch || read.contains(name.as_str())).map(|(name, broker)| async move {
            let timeout = Duration::from_millis(settings.delivery.publish_timeout_ms);
            let (publisher, reports) = Publisher::new(name, broker.connector.clone(), timeout, metrics.broker(name));
            let (sink, outcomes) = publisher.open().await?;
            for needed in needed(settings, roles, name, broker) {
                find_or_declare(broker, name, sink.as_ref(), &needed).await?;
            }
            Ok::<Link, StartError>(Link { name: name.clone(), publisher, reports, outcomes })
        });
    try_join_all(opening).await
}

/// A destination that must take messages before anything runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needed {
    /// The setting that names it.
    pub setting: String,
    /// Where.
    pub to: Destination,
    /// It is made where it is missing.
    pub declare: bool,
}

/// The destinations that are needed on this broker.
#[must_use]
pub fn needed(settings: &Settings, roles: Roles, name: &str, broker: &Broker) -> Vec<Needed> {
    let kind = Kind::of(broker.connector.kind());
    let mut needed = Vec::new();
    if roles.dispatch && !settings.delivery.dead.is_empty() {
        let declare = settings.ingest.values().any(|ingest| ingest.declare);
        needed.push(Needed { setting: "delivery.dead".to_owned(), to: destination(kind, &settings.delivery.dead), declare });
    }
    if roles.ingest {
        let of_broker = settings.ingest.iter().filter(|(_, ingest)| ingest.broker == name);
        needed.extend(of_broker.map(|(ingest_name, ingest)| Needed {
            setting: format!("ingest.{ingest_name}.rejected"),
            to: destination(kind, &ingest.rejected),
            declare: ingest.declare,
        }));
    }
    needed
}

async fn find_or_declare(broker: &Broker, name: &str, sink: &dyn Sink, needed: &Needed) -> Result<(), StartError> {
    if sink.exists(&needed.to).await? {
        return Ok(());
    }
    if !needed.declare {
        return Err(nothing_takes(broker, name, needed));
    }
    if broker.connector.declare(&needed.to, Role::Letters).await? == Declared::Created {
        tracing::info!(broker = name, destination = %needed.to, setting = needed.setting, "declared");
    }
    Ok(())
}

/// Why it does not start where this destination is missing.
#[must_use]
pub fn nothing_takes(broker: &Broker, name: &str, needed: &Needed) -> StartError {
    let place = broker.connector.place();
    StartError {
        settings: false,
        message: format!("broker `{name}` ({place}): nothing takes messages at `{}`, which {} names", needed.to, needed.setting),
        mend: "make that destination, or set declare = true in the ingest".to_owned(),
    }
}

async fn open_ingests(
    settings: &Settings,
    publishers: &HashMap<String, Publisher>,
    apply: &Apply,
    readiness: &Readiness,
) -> Result<Vec<(Ingest, Box<dyn Source>)>, StartError> {
    let bad = |message: String| StartError { settings: true, message, mend: String::new() };
    let opening = settings.ingest.iter().map(|(name, ingest)| async move {
        let broker = settings
            .brokers
            .get(&ingest.broker)
            .ok_or_else(|| bad(format!("ingest.{name}.broker: there is no [brokers.{}]", ingest.broker)))?;
        let publisher = publishers.get(&ingest.broker).ok_or_else(|| bad(format!("ingest.{name}: no link to `{}`", ingest.broker)))?;
        if ingest.declare {
            broker.connector.declare(&Destination::new(&ingest.topic), Role::Ingest).await?;
        }
        let agent = Ingest::new(ingest::Parts {
            rules: Rules::new(settings, name).map_err(bad)?,
            source: broker.connector.clone(),
            rejected: destination(Kind::of(broker.connector.kind()), &ingest.rejected),
            publisher: publisher.clone(),
            apply: apply.clone(),
            readiness: readiness.clone(),
        });
        let source = agent.open().await?;
        Ok::<_, StartError>((agent, source))
    });
    try_join_all(opening).await
}
