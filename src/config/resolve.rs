//! From what was written to [`Settings`]: units, names, references and secrets, every mistake noted and none in the way of the next.

use std::collections::BTreeMap;
use std::path::Path;

use dwell_connectors::{BrokerConfig, Destination};
use figment::error::Kind;
use figment::value::Value;
use serde::de::DeserializeOwned;

use super::layers::Layers;
use super::rules::{self, LONGEST_MS, Wrong};
use super::{Broker, Delivery, Http, Ingest, Limits, Probes, Problem, Redis, RedisMode, Settings, Shutdown, nearest, raw, secret};

/// In the order of the file.
const SECTIONS: [&str; 8] = ["redis", "brokers", "ingest", "delivery", "limits", "http", "probes", "shutdown"];
/// 49 days: the TTR stands in 32 bits of a record.
const LONGEST_TTR_MS: u64 = 49 * 24 * 3600 * 1000;
/// Redis holds at most 512 MiB in a value, and the record holds more than the body.
const LARGEST_BODY: u64 = 256 * 1024 * 1024;

/// The settings, or every problem: those found before and those found here.
pub(super) fn resolve(layers: &Layers, value: &Value, problems: Vec<Problem>) -> Result<Settings, Vec<Problem>> {
    let mut resolver = Resolver { layers, value, problems };
    let redis = resolver.redis();
    let brokers = resolver.brokers();
    let ingest = resolver.ingests(&brokers);
    let limits = resolver.limits();
    let delivery = resolver.delivery(limits.as_ref(), &brokers, &ingest);
    let (http, probes) = resolver.listeners();
    let shutdown = resolver.shutdown();

    let mut problems = resolver.problems;
    if !problems.is_empty() {
        problems.sort_by_key(|problem| SECTIONS.iter().position(|section| problem.key.split('.').next() == Some(section)));
        return Err(problems);
    }
    match (redis, delivery, limits, http, probes, shutdown) {
        (Some(redis), Some(delivery), Some(limits), Some(http), Some(probes), Some(shutdown)) => {
            Ok(Settings { redis, brokers, ingest, delivery, limits, http, probes, shutdown })
        }
        // A section is missing only where a problem was noted.
        _ => Err(problems),
    }
}

struct Resolver<'a> {
    layers: &'a Layers,
    value: &'a Value,
    problems: Vec<Problem>,
}

impl Resolver<'_> {
    fn redis(&mut self) -> Option<Redis> {
        let raw: raw::Redis = self.section("redis")?;
        self.check("redis.namespace", rules::namespace(&raw.namespace));
        let key = if raw.urls_file.is_some() { "redis.urls_file" } else { "redis.urls" };
        if raw.urls_file.is_some() && self.layers.is_set(&["redis", "urls"]) {
            self.note("redis.urls", ("`urls` and `urls_file` are both given".to_owned(), "remove one of them".to_owned()));
        }
        let urls = match &raw.urls_file {
            None => raw.urls,
            Some(file) => {
                let text = self.check(
                    key,
                    secret::read(Path::new(file)).map_err(|message| (message, "name a file that holds the URLs, one a line".to_owned())),
                )?;
                text.split(['\n', ',']).map(str::trim).filter(|url| !url.is_empty()).map(str::to_owned).collect()
            }
        };
        for (at, url) in urls.iter().enumerate() {
            let here = |(message, mend): Wrong| (if urls.len() == 1 { message } else { format!("URL {}: {message}", at + 1) }, mend);
            self.check(key, rules::redis_url(url).map_err(here));
            if urls[..at].contains(url) {
                self.note(key, (format!("URL {} stands here twice", at + 1), "remove one of them".to_owned()));
            }
        }
        match (raw.mode, urls.len()) {
            (_, 0) => self.note(key, ("there is no URL".to_owned(), "write [\"redis://127.0.0.1:6379\"]".to_owned())),
            (RedisMode::Single, 2..) => {
                self.note(
                    key,
                    (
                        format!("mode \"single\" takes one URL, here are {}", urls.len()),
                        "leave one, or set redis.mode to cluster or sentinel".to_owned(),
                    ),
                );
            }
            (RedisMode::Single | RedisMode::Cluster | RedisMode::Sentinel, _) => {}
        }
        if raw.mode == RedisMode::Sentinel {
            self.check("redis.master", rules::address(&raw.master));
        }
        Some(Redis {
            mode: raw.mode,
            urls,
            master: raw.master,
            namespace: raw.namespace,
            buckets: raw.buckets,
            durability: raw.durability,
            assume_fsync: raw.assume_fsync,
        })
    }

    fn brokers(&mut self) -> BTreeMap<String, Broker> {
        let mut brokers = BTreeMap::new();
        let names = self.names("brokers");
        if names.is_empty() && !self.layers.is_set(&["brokers"]) {
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
                self.check(&format!("{key}.allow"), rules::address(pattern));
            }
            for message in raw.connector.problems() {
                // The connector begins with the setting that it means, where it means one.
                let setting = message.strip_prefix('`').and_then(|rest| rest.split_once('`')).map_or("", |(setting, _)| setting);
                let key = if self.layers.is_set(&["brokers", &name, setting]) { format!("{key}.{setting}") } else { key.clone() };
                self.note(&key, (message, String::new()));
            }
            brokers.insert(name, Broker { connector: raw.connector, allow: raw.allow });
        }
        brokers
    }

    fn ingests(&mut self, brokers: &BTreeMap<String, Broker>) -> BTreeMap<String, Ingest> {
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
            for (field, text) in [("rejected", &raw.rejected), ("target", &raw.target)] {
                if *text == raw.topic && !text.is_empty() {
                    let wrong =
                        ("this is the topic that the ingest reads: messages would go round for ever".to_owned(), "name another".to_owned());
                    self.note(&format!("{key}.{field}"), wrong);
                }
                self.destination(&format!("{key}.{field}"), text, brokers.get(&raw.broker).map(|broker| &broker.connector));
            }
            let kind = brokers.get(&raw.broker).map_or("amqp", |broker| broker.connector.kind());
            if !raw.exchange.is_empty() && kind != "amqp" {
                self.note(&format!("{key}.exchange"), (format!("a broker of type \"{kind}\" has no exchanges"), "remove it".to_owned()));
            }
            let same = |other: &Ingest| other.broker == raw.broker && other.topic == raw.topic;
            if let Some((other, _)) = ingests.iter().find(|(_, other)| same(other)) {
                let wrong = (
                    format!("ingest.{other} reads the same topic of the same broker"),
                    "remove one of them, or read another topic".to_owned(),
                );
                self.note(&format!("{key}.topic"), wrong);
            }
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
            };
            ingests.insert(name, ingest);
        }
        ingests
    }

    fn limits(&mut self) -> Option<Limits> {
        let raw: raw::Limits = self.section("limits")?;
        let max_delay = self.check("limits.max_delay", rules::duration(&raw.max_delay, 1, LONGEST_MS));
        let max_body = self.check("limits.max_body", rules::size(&raw.max_body, 1, LARGEST_BODY));
        let max_ttr = self.check("limits.max_ttr", rules::duration(&raw.max_ttr, 1, LONGEST_TTR_MS));
        Some(Limits {
            max_delay_ms: max_delay?,
            max_body: max_body?,
            max_retries: usize::try_from(raw.max_retries).unwrap_or(usize::MAX),
            max_ttr_ms: max_ttr.and_then(|ms| u32::try_from(ms).ok())?,
        })
    }

    fn delivery(
        &mut self,
        limits: Option<&Limits>,
        brokers: &BTreeMap<String, Broker>,
        ingests: &BTreeMap<String, Ingest>,
    ) -> Option<Delivery> {
        let raw: raw::Delivery = self.section("delivery")?;
        let max_ttr_ms = limits.map_or(LONGEST_TTR_MS, |limits| limits.max_ttr_ms.into());
        let beyond =
            |(message, mend): Wrong| (message, if mend.contains("at most") { format!("{mend}, or raise limits.max_ttr") } else { mend });
        let ttr = self.check("delivery.ttr", rules::duration(&raw.ttr, 1, max_ttr_ms).map_err(beyond));
        let publish_timeout = self.check("delivery.publish_timeout", rules::duration(&raw.publish_timeout, 100, 600_000));
        let steps: Vec<Option<u64>> =
            raw.retry.iter().map(|step| self.check("delivery.retry", rules::duration(step, 0, LONGEST_MS))).collect();
        if let Some(most) = limits.map(|limits| limits.max_retries).filter(|most| steps.len() > *most) {
            self.note(
                "delivery.retry",
                (format!("{} steps, but limits.max_retries is {most}", steps.len()), "write fewer, or raise limits.max_retries".to_owned()),
            );
        }
        let max_late = match raw.max_late.trim() {
            "" => Some(None),
            text => self.check("delivery.max_late", rules::duration(text, 0, LONGEST_MS)).map(Some),
        };
        self.check("delivery.dead", rules::printable(&raw.dead));
        for broker in brokers.values() {
            self.destination("delivery.dead", &raw.dead, Some(&broker.connector));
        }
        if let Some((name, _)) = ingests.iter().find(|(_, ingest)| !raw.dead.is_empty() && ingest.topic == raw.dead) {
            self.note(
                "delivery.dead",
                (format!("ingest.{name} reads this topic: dead letters would come back"), "name another".to_owned()),
            );
        }
        let dead_retention = self.check("delivery.dead_retention", rules::duration(&raw.dead_retention, 0, LONGEST_MS));
        let dedupe_window = self.check("delivery.dedupe_window", rules::duration(&raw.dedupe_window, 1000, LONGEST_MS));
        let least = limits.map_or(1, |limits| limits.max_body);
        let too_small =
            |(message, mend): Wrong| (message, if mend.contains("at least") { format!("{mend}, which is limits.max_body") } else { mend });
        let bytes =
            self.check("delivery.max_in_flight_bytes", rules::size(&raw.max_in_flight_bytes, least, u64::MAX >> 11).map_err(too_small));
        Some(Delivery {
            ttr_ms: ttr.and_then(|ms| u32::try_from(ms).ok())?,
            publish_timeout_ms: publish_timeout?,
            retry_ms: steps.into_iter().collect::<Option<_>>()?,
            confirm: raw.confirm,
            late: raw.late,
            max_late_ms: max_late?,
            dead: raw.dead,
            dead_retention_ms: dead_retention?,
            dedupe_window_ms: dedupe_window?,
            max_in_flight: usize::try_from(raw.max_in_flight).unwrap_or(usize::MAX),
            max_in_flight_bytes: bytes?,
        })
    }

    fn listeners(&mut self) -> (Option<Http>, Option<Probes>) {
        let (Some(http), Some(probes)) = (self.section::<raw::Http>("http"), self.section::<raw::Probes>("probes")) else {
            return (None, None);
        };
        let admin = self.check("http.listen", rules::listen(&http.listen));
        let probe = self.check("probes.listen", rules::listen(&probes.listen));
        let has_token = !http.token_file.is_empty();
        if let Some(address) = admin.filter(|address| !has_token && !address.ip().is_loopback()) {
            let mend = format!("listen on 127.0.0.1:{}, or set http.token_file", address.port());
            self.note("http.listen", (format!("`{address}` can be reached from elsewhere, and there is no token"), mend));
        }
        if has_token {
            let mend = "name a file that holds the token".to_owned();
            self.check("http.token_file", secret::read(Path::new(&http.token_file)).map_err(|message| (message, mend)));
        }
        if admin.is_some_and(|address| address.port() != 0) && admin == probe {
            self.note("probes.listen", ("http.listen is the same address".to_owned(), "choose another port".to_owned()));
        }
        let token_file = has_token.then(|| http.token_file.into());
        (admin.map(|_| Http { listen: http.listen, token_file }), probe.map(|_| Probes { listen: probes.listen }))
    }

    fn shutdown(&mut self) -> Option<Shutdown> {
        let raw: raw::Shutdown = self.section("shutdown")?;
        let drain_ms = self.check("shutdown.drain", rules::duration(&raw.drain, 0, 3_600_000))?;
        Some(Shutdown { drain_ms })
    }

    /// A destination in the settings: empty, or one that the broker would let us publish to.
    fn destination(&mut self, key: &str, text: &str, broker: Option<&BrokerConfig>) {
        if text.is_empty() {
            return;
        }
        if let Some(why) = broker.and_then(|broker| broker.forbidden(&Destination::new(text))) {
            self.note(key, (format!("`{text}` cannot be published to: {why}"), "name another".to_owned()));
        }
    }

    /// The names in a table of named tables.
    fn names(&self, section: &str) -> Vec<String> {
        let dict = self.value.as_dict().and_then(|value| value.get(section)?.as_dict());
        dict.into_iter().flat_map(|dict| dict.keys().cloned()).collect()
    }

    fn section<T: DeserializeOwned + Default>(&mut self, name: &str) -> Option<T> {
        if self.value.as_dict().is_some_and(|value| value.contains_key(name)) { self.entry(name, false) } else { Some(T::default()) }
    }

    /// The table of this key. Kinds of values were checked before: what serde still refuses is a rule of a connector's own.
    fn entry<T: DeserializeOwned>(&mut self, key: &str, noted: bool) -> Option<T> {
        let value = self.value.clone().find(key)?;
        match value.deserialize() {
            Ok(entry) => Some(entry),
            Err(_) if noted => None,
            Err(error) => {
                let key = [key].into_iter().chain(error.path.iter().map(String::as_str)).collect::<Vec<_>>().join(".");
                self.note(&key, (refusal(&error.kind, &key), "write it as `dwell schema` says".to_owned()));
                None
            }
        }
    }

    fn check<T>(&mut self, key: &str, result: Result<T, Wrong>) -> Option<T> {
        result.map_err(|wrong| self.note(key, wrong)).ok()
    }

    fn note(&mut self, key: &str, (message, mend): Wrong) {
        let path: Vec<String> = key.split('.').map(str::to_owned).collect();
        self.problems.push(Problem { key: key.to_owned(), source: self.layers.source(&path), message, mend });
    }
}

/// What serde refused, without the value, which may be a secret.
fn refusal(kind: &Kind, key: &str) -> String {
    match kind {
        Kind::MissingField(name) => format!("`{name}` is missing"),
        Kind::UnknownField(name, _) => format!("there is no setting `{name}`"),
        Kind::InvalidType(_, wanted) | Kind::InvalidValue(_, wanted) | Kind::InvalidLength(_, wanted) => format!("this is not {wanted}"),
        Kind::DuplicateField(name) => format!("`{name}` stands here twice"),
        Kind::UnknownVariant(_, words) => format!("this is not one of {}", words.join(", ")),
        Kind::Message(message) if !key.split('.').any(secret::is_secret) && !key.starts_with("brokers.") => message.clone(),
        Kind::Message(_) | Kind::ISizeOutOfRange(_) | Kind::USizeOutOfRange(_) | Kind::Unsupported(_) | Kind::UnsupportedKey(..) => {
            "this cannot be read".to_owned()
        }
    }
}
