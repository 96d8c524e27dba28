//! The settings that a request is judged by, laid out for parsing.

use std::collections::BTreeMap;
use std::sync::Arc;

use dwell_connectors::{BrokerConfig, Destination, Start};

use crate::config::{self, Limits, Settings};
use crate::job::Confirm;

/// What the requests of one ingest are judged by.
#[derive(Debug, Clone)]
pub struct Rules {
    /// The ingest's name in the settings.
    pub name: String,
    /// `[ingest.NAME]`
    pub ingest: config::Ingest,
    /// The kind of the ingest's broker.
    pub kind: Kind,
    /// `delivery.ttr`, ms.
    pub ttr_ms: u32,
    /// `delivery.confirm`
    pub confirm: Confirm,
    /// `[limits]`
    pub limits: Limits,
    /// `[brokers.NAME]`
    pub brokers: BTreeMap<String, BrokerRules>,
}

impl Rules {
    /// The rules of this ingest; an error where the settings know no such ingest, or not its broker.
    pub fn new(settings: &Settings, ingest: &str) -> Result<Self, String> {
        let own = settings.ingest.get(ingest).ok_or_else(|| format!("there is no [ingest.{ingest}] in the settings"))?;
        let brokers = brokers(settings);
        let kind = brokers
            .get(&own.broker)
            .map(|broker| broker.kind)
            .ok_or_else(|| format!("ingest.{ingest}.broker: there is no [brokers.{}]", own.broker))?;
        Ok(Rules {
            name: ingest.to_owned(),
            ingest: own.clone(),
            kind,
            ttr_ms: settings.delivery.ttr_ms,
            confirm: settings.delivery.confirm,
            limits: settings.limits.clone(),
            brokers,
        })
    }

    /// The rules of requests that come over HTTP. One without a broker is for that of the only ingest, or else for the only broker.
    #[must_use]
    pub fn direct(settings: &Settings) -> Self {
        let only_ingest = settings.ingest.values().next().filter(|_| settings.ingest.len() == 1).map(|ingest| &ingest.broker);
        let only_broker = settings.brokers.keys().next().filter(|_| settings.brokers.len() == 1);
        let ingest = config::Ingest {
            broker: only_ingest.or(only_broker).cloned().unwrap_or_default(),
            topic: String::new(),
            group: String::new(),
            envelope: false,
            from_receipt: true,
            declare: false,
            expired_queue: None,
            rejected: String::new(),
            target: String::new(),
            exchange: String::new(),
            missing_delay_immediate: false,
            id_from_key: false,
            hold_ms: 15_000,
            start: Start::Earliest,
            max_age_ms: None,
        };
        Rules {
            name: String::new(),
            ingest,
            kind: Kind::Direct,
            ttr_ms: settings.delivery.ttr_ms,
            confirm: settings.delivery.confirm,
            limits: settings.limits.clone(),
            brokers: brokers(settings),
        }
    }
}

fn brokers(settings: &Settings) -> BTreeMap<String, BrokerRules> {
    let rules = |(name, broker): (&String, &config::Broker)| {
        let ingest_topics =
            settings.ingest.values().filter(|ingest| ingest.broker == *name).flat_map(|ingest| ingest.reads().map(str::to_owned)).collect();
        let kind = Kind::of(broker.connector.kind());
        let naming = Arc::new(broker.connector.clone());
        (name.clone(), BrokerRules { kind, naming, allow: broker.allow.clone(), ingest_topics })
    };
    settings.brokers.iter().map(rules).collect()
}

/// What a request needs to know of one broker.
#[derive(Debug, Clone)]
pub struct BrokerRules {
    /// Its kind.
    pub kind: Kind,
    /// How it names destinations.
    pub naming: Arc<dyn Naming>,
    /// Targets that producers may reach, in the broker's own patterns.
    pub allow: Vec<String>,
    /// What the ingests on this broker read: no request may be sent there.
    pub ingest_topics: Vec<String>,
}

impl BrokerRules {
    /// Whether a pattern of the settings lets producers reach this destination.
    #[must_use]
    pub fn allows(&self, to: &Destination) -> bool {
        self.allow.iter().any(|pattern| self.naming.allows(pattern, to))
    }

    /// Whether an ingest reads this destination.
    #[must_use]
    pub fn reads(&self, to: &Destination) -> bool {
        self.ingest_topics.iter().any(|topic| reads(self.kind, &*self.naming, topic, to))
    }
}

/// Whether who reads this topic gets what is published there, as far as the names tell. On NATS a topic may be a pattern.
#[must_use]
pub fn reads(kind: Kind, naming: &dyn Naming, topic: &str, to: &Destination) -> bool {
    to.exchange.is_empty() && (*topic == to.address || kind == Kind::Nats && naming.allows(topic, to))
}

/// How a broker names destinations.
pub trait Naming: std::fmt::Debug + Send + Sync {
    /// Whether this pattern of `allow` matches.
    fn allows(&self, pattern: &str, to: &Destination) -> bool;
    /// Why nothing may ever be sent there (a wildcard, or it belongs to the broker), or `None`.
    fn forbidden(&self, to: &Destination) -> Option<String>;
}

impl Naming for BrokerConfig {
    fn allows(&self, pattern: &str, to: &Destination) -> bool {
        BrokerConfig::allows(self, pattern, to)
    }

    fn forbidden(&self, to: &Destination) -> Option<String> {
        BrokerConfig::forbidden(self, to)
    }
}

/// The kind of a broker: decides how destinations are written, what passes on, and what tells a redelivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// NATS JetStream.
    Nats,
    /// Kafka.
    Kafka,
    /// AMQP 0-9-1.
    Amqp,
    /// In this process, for tests. Named like NATS, passes everything.
    Memory,
    /// No broker: the request came over HTTP. Never a target's.
    Direct,
}

impl Kind {
    /// The kind of this word, as [`BrokerConfig::kind`] gives it.
    #[must_use]
    pub fn of(word: &str) -> Self {
        match word {
            "nats" => Kind::Nats,
            "kafka" => Kind::Kafka,
            "amqp" => Kind::Amqp,
            _ => Kind::Memory,
        }
    }

    /// The word, as in `type`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Nats => "nats",
            Kind::Kafka => "kafka",
            Kind::Amqp => "amqp",
            Kind::Memory => "memory",
            Kind::Direct => "",
        }
    }
}

/// A destination as the settings and `delay-reply-to` write it: on AMQP a queue, or `exchange/key`; else the subject or topic.
#[must_use]
pub fn destination(kind: Kind, text: &str) -> Destination {
    match text.split_once('/') {
        Some((exchange, key)) if kind == Kind::Amqp => Destination { exchange: exchange.to_owned(), address: key.to_owned() },
        _ => Destination::new(text),
    }
}
