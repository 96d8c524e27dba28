//! The sections with names: brokers, ingests, and their destinations.

use std::collections::BTreeMap;

use dwell_connectors::{BrokerConfig, Destination, FILE_HINT, Start};

use super::Resolver;
use crate::config::rules::Wrong;
use crate::config::{Broker, DeliverTo, Format, IdFrom, Ingest, Problem, nearest, rules};

impl Resolver<'_> {
    pub(super) fn brokers(&mut self) -> BTreeMap<String, Broker> {
        let mut brokers = BTreeMap::new();
        let names = self.names("brokers");
        let told = self.problems.iter().any(|problem| {
            ["brokers", "queues"].iter().any(|section| problem.key.starts_with(section))
        });
        if names.is_empty() && self.names("queues").is_empty() && !told {
            let source = self.layers.source_around(&["brokers".to_owned(), String::new()]);
            let hint = "add [brokers.main] with type, url and allow, or [queues.NAME] for consumers that fetch (config/ has examples), and \
                        name the file with --config";
            self.problems.push(Problem {
                key: "brokers".to_owned(),
                source,
                message: "there is neither a broker nor a queue".to_owned(),
                hint: hint.to_owned(),
            });
        }
        for name in names {
            let key = format!("brokers.{name}");
            self.check(&key, rules::name(&name));
            // `walk` reported what is missing or wrong; serde would report only the first.
            let noted =
                self.problems.iter().any(|problem| problem.key.starts_with(&format!("{key}.")));
            let Some(broker) = self.entry::<Broker>(&key, noted) else { continue };
            for (index, pattern) in broker.allow.iter().enumerate() {
                let wrong = rules::address(pattern).err();
                for (why, hint) in wrong.into_iter().chain(
                    broker.connector.pattern_problem(pattern).filter(|_| !pattern.is_empty()),
                ) {
                    let shown = broker.connector.shown(&Destination::new(pattern));
                    self.note_item(
                        &["brokers", &name, "allow"],
                        index,
                        (format!("pattern `{shown}`: {why}"), hint),
                    );
                }
            }
            self.check_target_limits(&name, &broker);
            for message in broker.connector.problems() {
                // A connector's message starts with the setting in backquotes, where one setting is
                // wrong.
                let setting = message
                    .strip_prefix('`')
                    .and_then(|rest| rest.split_once('`'))
                    .map_or("", |(setting, _)| setting);
                let key = if self.layers.is_set(&["brokers", &name, setting]) {
                    format!("{key}.{setting}")
                } else {
                    key.clone()
                };
                self.note(&key, with_hint(message));
            }
            brokers.insert(name, broker);
        }
        brokers
    }

    pub(super) fn ingests(
        &mut self,
        brokers: &BTreeMap<String, Broker>,
    ) -> BTreeMap<String, Ingest> {
        let known = self.names("brokers");
        let mut ingests: BTreeMap<String, Ingest> = BTreeMap::new();
        for name in self.names("ingest") {
            let key = format!("ingest.{name}");
            self.check(&key, rules::name(&name));
            // The keys of such a name would be told wrongly.
            if name.contains('.') {
                continue;
            }
            let mut ingest: Ingest = self.read(&["ingest", &name]);
            if self.layers.is_set(&["ingest", &name, "broker"]) && !known.contains(&ingest.broker) {
                let like = nearest(&ingest.broker, known.iter().map(String::as_str))
                    .map(|like| format!("did you mean \"{like}\"?"));
                let hint = like.unwrap_or_else(|| match known.is_empty() {
                    true => format!("add [brokers.{}]", ingest.broker),
                    false => format!(
                        "add [brokers.{}], or name one of: {}",
                        ingest.broker,
                        known.join(", ")
                    ),
                });
                self.note(
                    &format!("{key}.broker"),
                    (format!("there is no broker \"{}\"", ingest.broker), hint),
                );
            }
            let broker = brokers.get(&ingest.broker);
            let capabilities = broker.map(|broker| broker.connector.capabilities());
            // The rules between settings do not apply to an ingest that reads nothing.
            if let Some(broker) = capabilities.filter(|broker| !broker.sources) {
                let wrong = format!(
                    "a broker of type \"{}\" takes messages, and none can be read from it",
                    broker.kind
                );
                let hint = "name a broker that requests come in on; or remove this ingest, and send requests to POST /v1/jobs".to_owned();
                self.note(&format!("{key}.broker"), (wrong, hint));
                continue;
            }
            for (field, text) in
                [("topic", &ingest.topic), ("group", &ingest.group), ("rejected", &ingest.rejected)]
            {
                self.check(&format!("{key}.{field}"), rules::address(text));
            }
            self.check_queue_topic(&format!("{key}.deliver_to"), &ingest);
            let connector = broker.map(|broker| &broker.connector);
            for (field, text) in [("rejected", &ingest.rejected), ("target", &ingest.target)] {
                self.check_destination(&format!("{key}.{field}"), text, connector);
            }
            if let Some(queue) = ingest.expired_queue.as_deref() {
                self.check(&format!("{key}.expired_queue"), rules::printable(queue));
            }
            if let Some(broker) = broker {
                self.check_applicable(&key, &ingest, broker);
                if !ingest.exchange.is_empty() && broker.connector.capabilities().exchanges {
                    self.check_exchange(&format!("{key}.exchange"), &ingest, broker);
                }
            }
            let own_headers =
                [("due_header", &ingest.due_header), ("expire_header", &ingest.expire_header)];
            for (field, name) in own_headers {
                let Some(name) = name.as_deref() else { continue };
                self.check(&format!("{key}.{field}"), rules::header_name(name));
                if crate::request::is_read_already(name) {
                    let wrong = (
                        format!("{name} is a header that Dwell reads or sets by itself"),
                        "name a header of the producers' own".to_owned(),
                    );
                    self.note(&format!("{key}.{field}"), wrong);
                }
            }
            // The only place that names the expired queue.
            let has_expired = capabilities.is_some_and(|broker| broker.expired_queue);
            if ingest.declare && has_expired && ingest.expired_queue.is_none() {
                ingest.expired_queue = Some(format!("{}.expired", ingest.topic)).into();
            }
            self.check_read_once(&key, &ingest, &ingests);
            ingests.insert(name, ingest);
        }
        self.check_group_starts(brokers, &ingests);
        for (name, ingest) in &ingests {
            for (field, text) in [("rejected", &ingest.rejected), ("target", &ingest.target)] {
                self.check_not_read(
                    &format!("ingest.{name}.{field}"),
                    text,
                    &ingest.broker,
                    brokers,
                    &ingests,
                );
            }
        }
        ingests
    }

    /// Reports a `deliver_to = "queue"` that no request can obey.
    fn check_queue_topic(&mut self, key: &str, ingest: &Ingest) {
        if ingest.deliver_to != DeliverTo::Queue {
            return;
        }
        if ingest.format != Format::Envelope {
            let wrong = "only the topic of an envelope can be a queue, and format is \"headers\""
                .to_owned();
            self.note(
                key,
                (wrong, "remove it, and send delay-queue; or set format to envelope".to_owned()),
            );
        } else if self.names("queues").is_empty() {
            let wrong = "there is no queue: every new job would be rejected".to_owned();
            self.note(key, (wrong, "add [queues.NAME], or [queues.\"*\"] for any name".to_owned()));
        }
    }

    /// Settings of an ingest that its kind of broker does not have.
    fn check_applicable(&mut self, key: &str, ingest: &Ingest, broker: &Broker) {
        let capabilities = broker.connector.capabilities();
        let kind = capabilities.kind;
        if let Some(why) = broker.connector.unreadable(&ingest.topic) {
            self.note(
                &format!("{key}.topic"),
                (format!("this cannot be read: {why}"), "name one topic".to_owned()),
            );
        }
        if !ingest.exchange.is_empty() && !capabilities.exchanges {
            self.note(
                &format!("{key}.exchange"),
                (format!("a broker of type \"{kind}\" has no exchanges"), "remove it".to_owned()),
            );
        }
        if ingest.expired_queue.is_some() && !capabilities.expired_queue {
            let wrong = format!(
                "a broker of type \"{kind}\" cannot dead-letter expired messages to a queue"
            );
            self.note(&format!("{key}.expired_queue"), (wrong, "remove it".to_owned()));
        }
        if ingest.id_from == IdFrom::Key && !capabilities.keys {
            self.note(
                &format!("{key}.id_from"),
                (format!("messages of type \"{kind}\" have no key"), "remove it".to_owned()),
            );
        }
        if ingest.start != Start::Earliest && !capabilities.log {
            let wrong = (
                "a queue has no log: every waiting message is read".to_owned(),
                "remove it, or see max_age".to_owned(),
            );
            self.note(&format!("{key}.start"), wrong);
        }
    }

    /// Reports an exchange that is forbidden, or one that `allow` never matches: without a `target`
    /// every request would be rejected.
    fn check_exchange(&mut self, key: &str, ingest: &Ingest, broker: &Broker) {
        let (exchange, name) = (&ingest.exchange, &ingest.broker);
        let to = Destination { exchange: exchange.clone(), address: String::new() };
        if let Some(why) = broker.connector.forbidden(&to) {
            self.note(
                key,
                (
                    format!("nothing may be published to `{exchange}`: {why}"),
                    "name another".to_owned(),
                ),
            );
        } else if ingest.target.is_empty()
            && !broker
                .allow
                .iter()
                .any(|pattern| broker.connector.allows_exchange(pattern, exchange))
        {
            let wrong = format!(
                "no pattern of brokers.{name}.allow matches the exchange `{exchange}`: every request for it would be rejected"
            );
            self.note(key, (wrong, format!("add \"{exchange}/**\" to brokers.{name}.allow")));
        }
    }

    /// Reports a topic or queue that two ingests read.
    fn check_read_once(&mut self, key: &str, ingest: &Ingest, others: &BTreeMap<String, Ingest>) {
        let reader = |name: &str| {
            others.iter().find(|(_, other)| {
                other.broker == ingest.broker && other.reads().any(|read| read == name)
            })
        };
        if let Some((other, there)) = reader(&ingest.topic) {
            let what =
                if there.topic == ingest.topic { "topic" } else { "queue (`expired_queue`)" };
            let wrong = format!("ingest.{other} reads the same {what} of the same broker");
            self.note(
                &format!("{key}.topic"),
                (wrong, "remove one of them, or read another topic".to_owned()),
            );
        }
        let Some(expired) = ingest.expired_queue.as_deref() else { return };
        let twice = if expired == ingest.topic {
            Some("this ingest".to_owned())
        } else {
            reader(expired).map(|(other, _)| format!("ingest.{other}"))
        };
        if let Some(other) = twice {
            let hint = "name the queue that the dead-letter exchange of this topic's queue routes to, and no other".to_owned();
            self.note(
                &format!("{key}.expired_queue"),
                (format!("{other} reads `{expired}` too"), hint),
            );
        }
    }

    /// Where a group's members decide its start, an ingest with a start of its own needs a group of
    /// its own.
    fn check_group_starts(
        &mut self,
        brokers: &BTreeMap<String, Broker>,
        ingests: &BTreeMap<String, Ingest>,
    ) {
        let shares_start = |name: &str| {
            brokers
                .get(name)
                .is_some_and(|broker| broker.connector.capabilities().start_is_the_groups)
        };
        for (name, ingest) in ingests
            .iter()
            .filter(|(_, ingest)| ingest.start != Start::Earliest && shares_start(&ingest.broker))
        {
            let mut others = ingests.iter().filter(|(other, _)| *other != name);
            if let Some((other, _)) = others
                .find(|(_, other)| other.broker == ingest.broker && other.group == ingest.group)
            {
                let what = format!(
                    "ingest.{other} has the same group `{}`, and a group with a member ignores the start of another ingest",
                    ingest.group
                );
                self.note(
                    &format!("ingest.{name}.start"),
                    (what, format!("name another group in ingest.{name}")),
                );
            }
        }
    }

    /// Reports a destination that an ingest on this broker reads: messages would loop for ever.
    pub(super) fn check_not_read(
        &mut self,
        key: &str,
        text: &str,
        broker: &str,
        brokers: &BTreeMap<String, Broker>,
        ingests: &BTreeMap<String, Ingest>,
    ) {
        let connector = brokers.get(broker).map(|broker| &broker.connector);
        let is_read = |topic: &str| match connector {
            Some(connector) => connector.reads(topic, &connector.destination(text)),
            None => topic == text,
        };
        let of_broker =
            ingests.iter().filter(|(_, ingest)| !text.is_empty() && ingest.broker == broker);
        let mut read =
            of_broker.flat_map(|(name, ingest)| ingest.reads().map(move |topic| (name, topic)));
        if let Some((name, topic)) = read.find(|(_, topic)| is_read(topic)) {
            let wrong = format!(
                "`{text}` is read by ingest.{name} (`{topic}`): messages would loop for ever"
            );
            self.note(
                key,
                (wrong, "name a destination that no ingest reads, or a narrower topic".to_owned()),
            );
        }
    }

    /// Reports a destination that is forbidden; an empty one is allowed.
    pub(super) fn check_destination(
        &mut self,
        key: &str,
        text: &str,
        broker: Option<&BrokerConfig>,
    ) {
        if text.is_empty() {
            return;
        }
        if let Some(why) = broker.and_then(|broker| broker.forbidden(&broker.destination(text))) {
            self.note(
                key,
                (format!("nothing may be published to `{text}`: {why}"), "name another".to_owned()),
            );
        }
    }
}

/// Splits a connector's message into what is wrong and the hint.
fn with_hint(message: String) -> Wrong {
    match message.rsplit_once(": ") {
        Some((wrong, hint)) if ["write ", "keep "].iter().any(|word| hint.starts_with(word)) => {
            (wrong.to_owned(), hint.to_owned())
        }
        Some((_, why)) if message.contains(": cannot read ") && !why.is_empty() => {
            (message, FILE_HINT.to_owned())
        }
        _ => (message, "config/default.toml has an example".to_owned()),
    }
}
