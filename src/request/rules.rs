//! The settings that apply to a request, arranged for parsing.

use std::collections::BTreeMap;
use std::sync::Arc;

use dwell_connectors::{Allow, BrokerConfig, Capabilities, Destination};

use super::full_queues::FullQueues;
use crate::config::{self, DelayFrom, Limits, Queues, Settings};
use crate::job::Confirm;

/// The settings that apply to the requests of one ingest.
#[derive(Debug, Clone)]
pub struct RequestRules {
    /// The ingest's name in the settings.
    pub name: String,
    /// `[ingest.NAME]`
    pub ingest: config::Ingest,
    /// The kind of broker that the ingest reads; `None` for requests over HTTP and from the command
    /// line.
    pub source: Option<&'static Capabilities>,
    /// `delivery.ttr`, ms.
    pub ttr_ms: u32,
    /// `delivery.confirm`
    pub confirm: Confirm,
    /// `[limits]`
    pub limits: Limits,
    /// `[brokers.NAME]`
    pub brokers: BTreeMap<String, BrokerRules>,
    /// `[queues.NAME]`
    pub queues: Arc<Queues>,
    /// The queues that take no new jobs. The default says that all do: who counts the jobs puts the
    /// shared gauge here.
    pub full_queues: FullQueues,
}

impl RequestRules {
    /// The rules of this ingest; an error where the settings lack the ingest or its broker.
    pub fn new(settings: &Settings, ingest: &str) -> Result<Self, String> {
        let own = settings
            .ingest
            .get(ingest)
            .ok_or_else(|| format!("there is no [ingest.{ingest}] in the settings"))?;
        let brokers = brokers(settings);
        let source = brokers.get(&own.broker).map(BrokerRules::capabilities).ok_or_else(|| {
            format!("ingest.{ingest}.broker: there is no [brokers.{}]", own.broker)
        })?;
        Ok(RequestRules {
            name: ingest.to_owned(),
            ingest: own.clone(),
            source: Some(source),
            ttr_ms: settings.delivery.ttr.stored_ms(),
            confirm: settings.delivery.confirm,
            limits: settings.limits.clone(),
            brokers,
            queues: settings.queues.clone(),
            full_queues: FullQueues::default(),
        })
    }

    /// The rules of requests over HTTP. The default broker is that of the only ingest, or else the
    /// only broker.
    #[must_use]
    pub fn direct(settings: &Settings) -> Self {
        let only_ingest = settings
            .ingest
            .values()
            .next()
            .filter(|_| settings.ingest.len() == 1)
            .map(|ingest| &ingest.broker);
        let only_broker = settings.brokers.keys().next().filter(|_| settings.brokers.len() == 1);
        let ingest = config::Ingest {
            broker: only_ingest.or(only_broker).cloned().unwrap_or_default(),
            topic: String::new(),
            group: String::new(),
            delay_from: DelayFrom::Receipt,
            rejected: String::new(),
            ..config::Ingest::default()
        };
        RequestRules {
            name: String::new(),
            ingest,
            source: None,
            ttr_ms: settings.delivery.ttr.stored_ms(),
            confirm: settings.delivery.confirm,
            limits: settings.limits.clone(),
            brokers: brokers(settings),
            queues: settings.queues.clone(),
            full_queues: FullQueues::default(),
        }
    }

    /// The kind of broker that the requests come from, as [`crate::job::Job::origin`] names it.
    #[must_use]
    pub fn origin(&self) -> &'static str {
        self.source.map_or("", |source| source.kind)
    }
}

fn brokers(settings: &Settings) -> BTreeMap<String, BrokerRules> {
    let rules = |(name, broker): (&String, &config::Broker)| {
        let ingest_topics = settings
            .ingest
            .values()
            .filter(|ingest| ingest.broker == *name)
            .flat_map(|ingest| ingest.reads().map(str::to_owned))
            .collect();
        let connector = Arc::new(broker.connector.clone());
        let allow = Allow::new(&*broker.connector, &broker.allow);
        (name.clone(), BrokerRules { connector, allow, ingest_topics })
    };
    settings.brokers.iter().map(rules).collect()
}

/// The settings of one broker that apply to requests.
#[derive(Debug, Clone)]
pub struct BrokerRules {
    /// The names and capabilities of the broker.
    pub connector: Arc<BrokerConfig>,
    /// The targets that producers may use, in the broker's own patterns.
    pub allow: Allow,
    /// The topics that ingests on this broker read. No request may target them.
    pub ingest_topics: Vec<String>,
}

impl BrokerRules {
    /// Returns the features of the broker.
    #[must_use]
    pub fn capabilities(&self) -> &'static Capabilities {
        self.connector.capabilities()
    }

    /// Whether a pattern of `allow` matches this destination.
    #[must_use]
    pub fn allows(&self, to: &Destination) -> bool {
        self.allow.find(&**self.connector, to).is_some()
    }

    /// Whether an ingest reads this destination.
    #[must_use]
    pub fn reads(&self, to: &Destination) -> bool {
        self.ingest_topics.iter().any(|topic| self.connector.reads(topic, to))
    }
}
