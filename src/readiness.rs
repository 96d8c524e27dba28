//! The state behind `/readyz`, set by the agents.

mod outage;

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

pub use outage::Outage;

/// Ready once every ingest reads and the store was reached, until shutdown. A later outage is
/// listed, and does not change it: a sidecar's readiness is that of its application, which must not
/// be taken out of service because Redis is away.
#[derive(Debug, Clone)]
pub struct Readiness(Arc<watch::Sender<BTreeMap<Waiting, Entry>>>);

/// Something that is waited for.
#[derive(Debug, Clone, Default)]
struct Entry {
    /// Why, if known.
    why: String,
    /// Whether readiness waits for it.
    blocks: bool,
}

/// A thing that readiness waits for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Waiting {
    /// The store was not reached yet.
    Store,
    /// The connection for publishing to this `[brokers.NAME]` is not open. It is listed, but does
    /// not block readiness.
    Broker(String),
    /// A destination that settings name is missing at this broker. It is listed, but does not block
    /// readiness.
    Destination {
        /// The setting: `delivery.dead`.
        setting: String,
        /// The broker.
        broker: String,
    },
    /// This `[ingest.NAME]` does not read yet, or not any more.
    Ingest(String),
    /// The API of `[http]` does not answer yet.
    Api,
    /// The process is about to end.
    Shutdown,
}

impl Readiness {
    /// Waits for the store and for these ingests.
    #[must_use]
    pub fn new<'a>(ingests: impl IntoIterator<Item = &'a str>) -> Self {
        let ingests = ingests.into_iter().map(|name| Waiting::Ingest(name.to_owned()));
        let waiting = ingests
            .chain([Waiting::Store])
            .map(|what| (what, Entry { blocks: true, ..Entry::default() }));
        Readiness(Arc::new(watch::Sender::new(waiting.collect())))
    }

    /// The store answered.
    pub fn store_reached(&self) {
        self.reached(&Waiting::Store);
    }

    /// The ingest of this name reads.
    pub fn ingest_reads(&self, name: &str) {
        self.reached(&Waiting::Ingest(name.to_owned()));
    }

    /// The process is about to end.
    pub fn shutting_down(&self) {
        self.waits_for(Waiting::Shutdown);
    }

    /// Waits for this from now on.
    pub fn waits_for(&self, what: Waiting) {
        let blocks = !matches!(what, Waiting::Broker(_) | Waiting::Destination { .. });
        self.0.send_modify(|waiting| waiting.entry(what).or_default().blocks |= blocks);
    }

    /// Records why this is waited for. A thing that nobody waited for before is listed, and does
    /// not block readiness.
    pub fn missing(&self, what: &Waiting, why: &str) {
        self.0.send_modify(|waiting| {
            why.clone_into(&mut waiting.entry(what.clone()).or_default().why)
        });
    }

    /// Stops waiting for this.
    pub fn reached(&self, what: &Waiting) {
        self.0.send_modify(|waiting| {
            waiting.remove(what);
        });
    }

    /// Waits until nothing is waited for, including what does not block readiness.
    pub async fn all_reached(&self) {
        // The sender lives in `self`.
        let _ = self.0.subscribe().wait_for(BTreeMap::is_empty).await;
    }

    /// Whether everything is there that blocks readiness.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        !self.0.borrow().values().any(|entry| entry.blocks)
    }

    /// Returns the things that are waited for, each with the reason, if known.
    #[must_use]
    pub fn waiting(&self) -> Vec<(Waiting, String)> {
        self.0.borrow().iter().map(|(what, entry)| (what.clone(), entry.why.clone())).collect()
    }
}

impl std::fmt::Display for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Waiting::Store => f.write_str("redis"),
            Waiting::Broker(name) => write!(f, "brokers.{name}"),
            Waiting::Destination { setting, .. } => f.write_str(setting),
            Waiting::Ingest(name) => write!(f, "ingest.{name}"),
            Waiting::Api => f.write_str("http"),
            Waiting::Shutdown => f.write_str("shutdown"),
        }
    }
}
