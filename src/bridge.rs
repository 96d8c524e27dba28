//! All agents together: opened, running, drained. `dwell run` is this and signals; `dwell demo` and the tests run it in their own process.
//!
//! - `open`: the links and the ingests, before anything runs; `needed`: the destinations that must be there.

mod needed;
mod open;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use dwell_connectors::{ConnectorError, ErrorKind};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::apply::{Apply, Together};
use crate::clock;
use crate::config::Settings;
use crate::dispatch::{self, Dispatch};
use crate::fleet::{self, Fleet, Heads};
use crate::http::Readiness;
use crate::publisher::Publisher;
use crate::request::{Kind, destination};
use crate::rescue::Rescue;
use crate::store::Store;
use crate::store::error::{Class, StoreError};
use crate::sweep::Sweep;
use crate::telemetry::Metrics;
use crate::telemetry::trace::Traces;
pub use needed::{Needed, needed, nothing_takes};
use open::{Link, open_ingests, open_links};

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
        let (fleet_sender, fleet) = watch::channel(Fleet::alone(&fleet::entry(&instance, &names)));
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
            together: Together::default(),
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
        let sweep = Sweep::new(self.store.clone(), &settings.delivery, metrics.clone(), fleet.clone());
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
