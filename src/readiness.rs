//! The state behind `/readyz`, set by the agents.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

/// Ready once every ingest reads and the store was reached, until shutdown. A later outage does not
/// change it: a sidecar's readiness is that of its application, which must not be taken out of
/// service because Redis is away.
#[derive(Debug, Clone)]
pub struct Readiness(Arc<watch::Sender<BTreeMap<Waiting, String>>>);

/// What is waited for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Waiting {
    /// The store was not reached yet.
    Store,
    /// The connection for publishing to this `[brokers.NAME]` was not opened yet. It is listed, but
    /// does not block readiness.
    Broker(String),
    /// This `[ingest.NAME]` does not read yet.
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

    /// Waits for this from now on.
    pub fn waits_for(&self, what: Waiting) {
        self.0.send_modify(|waiting| {
            waiting.entry(what).or_default();
        });
    }

    /// Records why this is still waited for.
    pub fn missing(&self, what: &Waiting, why: &str) {
        self.0.send_modify(|waiting| {
            if let Some(known) = waiting.get_mut(what) {
                why.clone_into(known);
            }
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
        self.0.borrow().keys().all(|what| matches!(what, Waiting::Broker(_)))
    }

    /// What is waited for, and why, if known.
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
            Waiting::Api => f.write_str("http"),
            Waiting::Shutdown => f.write_str("shutdown"),
        }
    }
}
