//! What `/readyz` waits for, told by the agents.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;

/// Ready once every ingest reads and the store was reached. It does not follow an outage later on: a sidecar's readiness is its application's,
/// and an application that delays nothing at the moment must not be taken out because of Redis. Shutting down, it is not ready.
#[derive(Debug, Clone)]
pub struct Readiness(Arc<Mutex<BTreeSet<Waiting>>>);

/// One thing that is waited for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Waiting {
    /// The store was not reached yet.
    Store,
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
        Readiness(Arc::new(Mutex::new(ingests.chain([Waiting::Store]).collect())))
    }

    /// The store answered.
    pub fn store_reached(&self) {
        self.0.lock().remove(&Waiting::Store);
    }

    /// The ingest of this name reads.
    pub fn ingest_reads(&self, name: &str) {
        self.0.lock().remove(&Waiting::Ingest(name.to_owned()));
    }

    /// The process is about to end.
    pub fn shutting_down(&self) {
        self.0.lock().insert(Waiting::Shutdown);
    }

    /// Whether nothing is waited for.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// What is waited for; empty when ready.
    #[must_use]
    pub fn waiting(&self) -> Vec<Waiting> {
        self.0.lock().iter().cloned().collect()
    }
}

impl std::fmt::Display for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Waiting::Store => f.write_str("redis"),
            Waiting::Ingest(name) => write!(f, "ingest.{name}"),
            Waiting::Shutdown => f.write_str("shutdown"),
        }
    }
}
