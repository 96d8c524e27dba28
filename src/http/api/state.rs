//! The state that the calls of `/v1` share.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::feed::Feed;
use super::guard::Guard;
use super::rates::Rates;
use crate::apply::Apply;
use crate::clock;
use crate::config::{Limits, QueueRules, Settings};
use crate::queues::QueueService;
use crate::readiness::Readiness;
use crate::request::{FullQueues, RequestRules};
use crate::runtime::Roles;

/// The state of the calls. Clones share it.
#[derive(Clone)]
pub struct Api {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) apply: Apply,
    pub(super) queues: QueueService,
    pub(super) rules: RequestRules,
    pub(super) rates: Rates,
    pub(super) readiness: Readiness,
    pub(super) about: About,
    pub(super) feed: Feed,
    pub(super) guard: Guard,
}

/// The facts that an instance reports about itself.
#[derive(Debug, Clone)]
pub(super) struct About {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) started_ms: i64,
    pub(super) roles: Roles,
    /// By broker: its kind, and whether this instance publishes to it.
    pub(super) brokers: BTreeMap<String, (&'static str, bool)>,
    /// Targets or queues have limits.
    pub(super) has_limits: bool,
    /// By ingest: its broker and its source.
    pub(super) ingests: BTreeMap<String, (String, String)>,
}

/// The parts that [`Api::new`] needs.
pub struct Parts<'a> {
    /// The settings.
    pub settings: &'a Settings,
    /// The roles of this instance.
    pub roles: Roles,
    /// The instance's name.
    pub instance: &'a str,
    /// Applies requests to the store.
    pub apply: Apply,
    /// The queues, and their consumers.
    pub queues: QueueService,
    /// The queues that are full.
    pub full_queues: FullQueues,
    /// Counts per second.
    pub rates: Rates,
    /// The state that `/readyz` reports.
    pub readiness: Readiness,
    /// The guard that admits callers.
    pub guard: Guard,
    /// Ends the event streams.
    pub stop: CancellationToken,
}

impl Api {
    /// The API of an instance.
    #[must_use]
    pub fn new(parts: Parts<'_>) -> Self {
        let Parts {
            settings,
            roles,
            instance,
            apply,
            queues,
            full_queues,
            rates,
            readiness,
            guard,
            stop,
        } = parts;
        let linked = |name: &String| {
            roles.dispatch || settings.ingest.values().any(|ingest| ingest.broker == *name)
        };
        let brokers = settings
            .brokers
            .iter()
            .map(|(name, broker)| (name.clone(), (broker.connector.kind(), linked(name))));
        let ingests = settings.ingest.iter().filter(|_| roles.ingest);
        let about = About {
            name: instance.to_owned(),
            namespace: settings.redis.namespace.clone(),
            started_ms: clock::wall_ms(),
            roles,
            brokers: brokers.collect(),
            has_limits: settings.brokers.values().any(|broker| !broker.limits.is_empty())
                || settings.queues.iter().any(QueueRules::is_limited),
            ingests: ingests
                .map(|(name, ingest)| (name.clone(), (ingest.broker.clone(), ingest.topic.clone())))
                .collect(),
        };
        let rules = RequestRules { full_queues, ..RequestRules::direct(settings) };
        let inner =
            Inner { apply, queues, rules, rates, readiness, about, feed: Feed::new(stop), guard };
        Api { inner: Arc::new(inner) }
    }

    /// The guard that admits callers.
    pub(in crate::http) fn guard(&self) -> &Guard {
        &self.inner.guard
    }

    /// The limits of requests.
    pub(in crate::http) fn limits(&self) -> &Limits {
        &self.inner.rules.limits
    }
}
