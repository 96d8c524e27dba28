//! What `/readyz` waits for, told by the agents.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

/// Ready once every ingest reads and the store was reached. It does not follow an outage later on: a sidecar's readiness is its application's,
/// and an application that delays nothing at the moment must not be taken out because of Redis. Shutting down, it is not ready.
#[derive(Debug, Clone)]
pub struct Readiness(Arc<watch::Sender<BTreeMap<Waiting, String>>>);

/// One thing that is waited for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Waiting {
    /// The store was not reached yet.
    Store,
    /// The link for publishing to this `[brokers.NAME]` was not opened yet. It is named, and readiness does not wait for it.
    Broker(String),
    /// This `[ingest.NAME]` does not read yet.
    Ingest(String),
    /// The process is about to end.
    Shutdown,
}

impl Readiness {
    /// Waits for the store and for each of these ingests.
    #[must_use]
    pub fn new<'a>(ingests: impl IntoIterator<Item = &'a str>) -> Self {
        let ingests = ingests.into_iter().map(|name| Waiting::Ingest(name.to_owned()));
        let waiting = ingests.chain([Waiting::Store]).map(|what| (what, String::new()));
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

    /// This is waited for from now on.
    pub fn waits_for(&self, what: Waiting) {
        self.0.send_modify(|waiting| {
            waiting.entry(what).or_default();
        });
    }

    /// Why this is still waited for.
    pub fn missing(&self, what: &Waiting, why: &str) {
        self.0.send_modify(|waiting| {
            if let Some(known) = waiting.get_mut(what) {
                why.clone_into(known);
            }
        });
    }

    /// This is not waited for any more.
    pub fn reached(&self, what: &Waiting) {
        self.0.send_modify(|waiting| {
            waiting.remove(what);
        });
    }

    /// Waits until nothing is waited for, not even what readiness does not wait for.
    pub async fn all_reached(&self) {
        // The sender lives in `self`.
        let _ = self.0.subscribe().wait_for(BTreeMap::is_empty).await;
    }

    /// Whether all is there that readiness waits for.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.0.borrow().keys().all(|what| matches!(what, Waiting::Broker(_)))
    }

    /// What is waited for, and why it is not there, where that is known.
    #[must_use]
    pub fn waiting(&self) -> Vec<(Waiting, String)> {
        self.0.borrow().iter().map(|(what, why)| (what.clone(), why.clone())).collect()
    }
}

impl std::fmt::Display for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Waiting::Store => f.write_str("redis"),
            Waiting::Broker(name) => write!(f, "brokers.{name}"),
            Waiting::Ingest(name) => write!(f, "ingest.{name}"),
            Waiting::Shutdown => f.write_str("shutdown"),
        }
    }
}
