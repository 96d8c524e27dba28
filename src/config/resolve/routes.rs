//! The sections that stand by name: brokers, ingests, and what they refer to.

use std::collections::BTreeMap;

use dwell_connectors::{BrokerConfig, Destination, Start};

use super::Resolver;
use crate::config::rules::Wrong;
use crate::config::{Broker, Ingest, Problem, nearest, raw, rules};
use crate::request::{Kind, destination, reads};

impl Resolver<'_> {
    pub(super) fn brokers(&mut self) -> BTreeMap<String, Broker> {
        let mut brokers = BTreeMap::new();
        let names = self.names("brokers");
        if names.is_empty() && !self.problems.iter().any(|problem| problem.key.starts_with("brokers")) {
            let source = self.layers.source_around(&["brokers".to_owned(), String::new()]);
            let mend = "add [brokers.main] with type, url and allow (config/nats.toml is an example), and name the file with --config";
            self.problems.push(Problem {
                key: "brokers".to_owned(),
                source,
                message: "there is no broker".to_owned(),
                mend: mend.to_owned(),
            });
        }
        for name in names {
            let key = format!("brokers.{name}");
            self.check(&key, rules::name(&name));
            // What is missing or wrong in it was noted before; serde would name only the first.
            let noted = self.problems.iter().any(|problem| problem.key.starts_with(&format!("{key}.")));
            let Some(raw) = self.entry::<raw::Broker>(&key, noted) else { continue };
            for pattern in &raw.allow {
                let allow = format!("{key}.allow");
                self.check(&allow, rules::address(pattern));
                if let Some(wrong) = raw.connector.pattern_problem(pattern).filter(|_| !pattern.is_empty()) {
                    self.note(&allow, wrong);
                }
            }
            for message in raw.connector.problems() {
                // The connector begins with the setting that it means, where it means one.
                let setting = message.strip_prefix('`').and_then(|rest| rest.split_once('`')).map_or("", |(setting, _)| setting);
                let key = if self.layers.is_set(&["brokers", &name, setting]) { format!("{key}.{setting}") } else { key.clone() };
                self.note(&key, with_mend(message));
            }
            brokers.insert(name, Broker { connector: raw.connector, allow: raw.allow });
        }
        brokers
    }

    pub(super) fn ingests(&mut self, brokers: &BTreeMap<String, Broker>) -> BTreeMap<String, Ingest> {
        let known = self.names("brokers");
        let mut ingests: BTreeMap<String, Ingest> = BTreeMap::new();
        for name in self.names("ingest") {
            let key = format!("ingest.{name}");
            self.check(&key, rules::name(&name));
            let Some(raw) = self.entry::<raw::Ingest>(&key, false) else { continue };
            if self.layers.is_set(&["ingest", &name, "broker"]) && !known.contains(&raw.broker) {
                let like = nearest(&raw.broker, known.iter().map(String::as_str)).map(|like| format!("did you mean \"{like}\"?"));
                let mend = like.unwrap_or_else(|| format!("add [brokers.{}], or name one of: {}", raw.broker, known.join(", ")));
                self.note(&format!("{key}.broker"), (format!("there is no broker \"{}\"", raw.broker), mend));
            }
            for (field, text) in [("topic", &raw.topic), ("group", &raw.group), ("rejected", &raw.rejected)] {
                self.check(&format!("{key}.{field}"), rules::address(text));
            }
            let connector = brokers.get(&raw.broker).map(|broker| &broker.connector);
            for (field, text) in [("rejected", &raw.rejected), ("target", &raw.target)] {
                self.destination(&format!("{key}.{field}"), text, connector);
            }
            let kind = connector.map_or("amqp", BrokerConfig::kind);
            if let Some(why) = connector.filter(|_| kind == "kafka").and_then(|kafka| kafka.forbidden(&Destination::new(&raw.topic))) {
                self.note(&format!("{key}.topic"), (format!("this cannot be read: {why}"), "name one topic".to_owned()));
            }
            if !raw.exchange.is_empty() && kind != "amqp" {
                self.note(&format!("{key}.exchange"), (format!("a broker of type \"{kind}\" has no exchanges"), "remove it".to_owned()));
            }
            let start = self.check(&format!("{key}.start"), rules::start(&raw.start)).unwrap_or_default();
            if start != Start::Earliest && connector.is_some() && kind == "amqp" {
                let wrong = ("a queue has no log: all that waits in it is read".to_owned(), "remove it, or see max_age".to_owned());
                self.note(&format!("{key}.start"), wrong);
            }
            let max_age = Some(raw.max_age.trim()).filter(|age| !age.is_empty());
            let max_age_ms = max_age.and_then(|age| self.check(&format!("{key}.max_age"), rules::duration(age, 1, rules::LONGEST_MS)));
            let same = |other: &Ingest| other.broker == raw.broker && other.topic == raw.topic;
            if let Some((other, _)) = ingests.iter().find(|(_, other)| same(other)) {
                let wrong = (
                    format!("ingest.{other} reads the same topic of the same broker"),
                    "remove one of them, or read another topic".to_owned(),
                );
                self.note(&format!("{key}.topic"), wrong);
            }
            let hold = self.check(&format!("{key}.hold"), rules::duration(&raw.hold, 1000, rules::LONGEST_MS));
            let ingest = Ingest {
                broker: raw.broker,
                topic: raw.topic,
                group: raw.group,
                envelope: raw.format == raw::Format::Envelope,
                from_receipt: raw.delay_from == raw::DelayFrom::Receipt,
                declare: raw.declare,
                rejected: raw.rejected,
                target: raw.target,
                exchange: raw.exchange,
                missing_delay_immediate: raw.missing_delay == raw::MissingDelay::Immediate,
                hold_ms: hold.unwrap_or_default(),
                start,
                max_age_ms,
            };
            ingests.insert(name, ingest);
        }
        self.begin_apart(brokers, &ingests);
        for (name, ingest) in &ingests {
            for (field, text) in [("rejected", &ingest.rejected), ("target", &ingest.target)] {
                self.not_read(&format!("ingest.{name}.{field}"), text, &ingest.broker, brokers, &ingests);
            }
        }
        ingests
    }

    /// Kafka lets nobody but its members say where a group begins. One that reads another topic too has members when this ingest joins.
    fn begin_apart(&mut self, brokers: &BTreeMap<String, Broker>, ingests: &BTreeMap<String, Ingest>) {
        let is_kafka = |name: &str| brokers.get(name).is_some_and(|broker| broker.connector.kind() == "kafka");
        for (name, ingest) in ingests.iter().filter(|(_, ingest)| ingest.start != Start::Earliest && is_kafka(&ingest.broker)) {
            let mut others = ingests.iter().filter(|(other, _)| *other != name);
            if let Some((other, _)) = others.find(|(_, other)| other.broker == ingest.broker && other.group == ingest.group) {
                let what =
                    format!("ingest.{other} is of the same group `{}`: it may be there first, and this would begin with all", ingest.group);
                self.note(&format!("ingest.{name}.start"), (what, format!("name another group in ingest.{name}")));
            }
        }
    }

    /// A destination in the settings that no ingest on this broker reads: what is sent there would go round for ever.
    pub(super) fn not_read(
        &mut self,
        key: &str,
        text: &str,
        broker: &str,
        brokers: &BTreeMap<String, Broker>,
        ingests: &BTreeMap<String, Ingest>,
    ) {
        let connector = brokers.get(broker).map(|broker| &broker.connector);
        let is_read = |topic: &str| match connector {
            Some(connector) => {
                let kind = Kind::of(connector.kind());
                reads(kind, connector, topic, &destination(kind, text))
            }
            None => topic == text,
        };
        let reader = ingests.iter().find(|(_, ingest)| !text.is_empty() && ingest.broker == broker && is_read(&ingest.topic));
        if let Some((name, ingest)) = reader {
            let wrong = format!("`{text}` is read by ingest.{name} (`{}`): messages would go round for ever", ingest.topic);
            self.note(key, (wrong, "name a destination that no ingest reads, or a narrower topic".to_owned()));
        }
    }

    /// A destination in the settings: empty, or one that the broker would let us publish to.
    pub(super) fn destination(&mut self, key: &str, text: &str, broker: Option<&BrokerConfig>) {
        if text.is_empty() {
            return;
        }
        if let Some(why) = broker.and_then(|broker| broker.forbidden(&destination(Kind::of(broker.kind()), text))) {
            self.note(key, (format!("`{text}` cannot be published to: {why}"), "name another".to_owned()));
        }
    }
}

/// What a connector says of its settings, parted into what is wrong and its mend.
fn with_mend(message: String) -> Wrong {
    match message.rsplit_once(": ") {
        Some((wrong, mend)) if ["write ", "keep "].iter().any(|word| mend.starts_with(word)) => (wrong.to_owned(), mend.to_owned()),
        Some((_, why)) if message.contains(": cannot read ") && !why.is_empty() => {
            (message, "check the path and its permissions".to_owned())
        }
        _ => (message, "write it as config/default.toml has it".to_owned()),
    }
}
