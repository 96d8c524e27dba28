//! The settings of a Kafka broker.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaConfRes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::addresses::Addresses;
use super::java_names;
use super::properties::{Properties, is_secret, shown_name};
use crate::settings::secret_of;
use crate::{ConnectorError, ErrorKind};

/// The session timeout of a group member, ms; a member that leaves is removed at once.
const SESSION_TIMEOUT_MS: u64 = 9000;
/// The time that a rebalance waits for a live member that does not join, ms; all others read
/// nothing meanwhile.
const REBALANCE_MS: u64 = 30_000;
/// The interval at which a client asks for the partitions of its topics, ms: added ones are read
/// soon. The next rebalance takes seconds.
const METADATA_MS: &str = "10000";
/// The highest limit in bytes that librdkafka accepts.
const MAX_LIMIT_BYTES: usize = 2_147_483_647;

/// `[brokers.NAME]` with `type = "kafka"`: Apache Kafka, or another broker with its protocol.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The addresses to find the cluster: `host:9092`, several separated by commas. Any broker of
    /// the cluster works.
    #[serde(skip_serializing_if = "Addresses::is_empty")]
    pub bootstrap: Addresses,
    /// Properties of librdkafka, named as in its `CONFIGURATION.md`: `{ "security.protocol" =
    /// "sasl_ssl", "sasl.username" = "dwell" }`. A name that ends in `_file`
    /// (`"sasl.password_file"`) is the path of a file with the value. Properties that would break a
    /// promise of Dwell (`acks`, `enable.auto.commit`, …) are refused.
    #[serde(skip_serializing_if = "Properties::is_empty")]
    pub properties: Properties,
}

/// The share of a bound in bytes that librdkafka's own queue gets.
pub(super) fn queue_bytes(bound: usize) -> usize {
    bound / 4
}

/// The use of a client.
#[derive(Debug, Clone, Copy)]
pub(super) enum ClientRole<'a> {
    /// Reads for this group, with this many bytes of memory, librdkafka's queue included.
    Reader { group: &'a str, bytes: usize },
    /// Publishes with this timeout.
    Writer { timeout: Duration },
    /// Asks for metadata and creates topics.
    Asker,
}

impl fmt::Display for ClientRole<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientRole::Reader { group, .. } => write!(f, "reader of the group `{group}`"),
            ClientRole::Writer { .. } => f.write_str("writer"),
            ClientRole::Asker => f.write_str("asker"),
        }
    }
}

impl Config {
    /// Settings for a cluster at these addresses, for code; properties can be set afterwards.
    pub fn at(bootstrap: impl Into<String>) -> Self {
        Config { bootstrap: Addresses::new(bootstrap), properties: Properties::default() }
    }

    /// The problems of these settings that show without a connection.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.bootstrap.is_empty() {
            problems
                .push("`bootstrap` is missing: write bootstrap = \"127.0.0.1:9092\"".to_owned());
        }
        problems.extend(self.bootstrap.problem().map(|why| format!("`bootstrap`: {why}")));
        problems.extend(self.properties.refused());
        for (name, value) in self.properties.iter() {
            match read(name, value) {
                Ok((bare, value)) if !self.is_refused(bare) => {
                    problems.extend(unknown(bare, &value, is_secret(name) || name != bare))
                }
                Ok(_) => {}
                Err(error) => problems.push(error.message),
            }
        }
        problems.extend(self.without_token());
        problems
    }

    /// The problem of a login by OAuth that nobody gives a token.
    fn without_token(&self) -> Option<String> {
        let is = |name: &str, value: &str| {
            self.properties.get(name).is_some_and(|given| given.trim().eq_ignore_ascii_case(value))
        };
        let name = ["sasl.mechanism", "sasl.mechanisms"]
            .into_iter()
            .find(|name| is(name, "OAUTHBEARER"))?;
        (!is("sasl.oauthbearer.method", "oidc")).then(|| {
            format!("`properties`: `{name}` = \"OAUTHBEARER\" gets its token by `sasl.oauthbearer.method` = \"oidc\": {BUILD_HINT}")
        })
    }

    fn is_refused(&self, name: &str) -> bool {
        self.properties.refused().iter().any(|sentence| sentence.contains(&format!("`{name}`")))
    }

    /// The addresses of the cluster for people.
    #[must_use]
    pub fn place(&self) -> String {
        self.bootstrap.to_string()
    }

    /// An error with the addresses of the cluster.
    pub(super) fn fail(&self, kind: ErrorKind, what: &str) -> ConnectorError {
        ConnectorError::new(kind, format!("kafka at {}: {what}", self.place()))
    }

    /// The client configuration. Reads the files that the settings name.
    pub(super) fn client(&self, role: ClientRole<'_>) -> Result<ClientConfig, ConnectorError> {
        // First: somebody may be writing a file.
        for (name, value) in self.properties.iter() {
            read(name, value)
                .map_err(|error| self.fail(error.kind, &error.message).hint(error.hint))?;
        }
        if let Some(problem) = self.problems().into_iter().next() {
            return Err(self.fail(ErrorKind::Config, &problem));
        }
        let mut client = ClientConfig::new();
        // Writers need the result of each request, which librdkafka only logs (`debug`, below).
        let is_writer = matches!(role, ClientRole::Writer { .. });
        client.set_log_level(if is_writer {
            RDKafkaLogLevel::Debug
        } else {
            RDKafkaLogLevel::Info
        });
        // Defaults that `properties` may override. A connection closes when a request has no answer
        // for 10 s, so that a frozen broker is noticed.
        set(
            &mut client,
            &[
                ("client.id", "dwell"),
                ("socket.timeout.ms", "10000"),
                ("reconnect.backoff.max.ms", "1000"),
                ("topic.metadata.refresh.interval.ms", METADATA_MS),
            ],
        );
        if self
            .properties
            .get("security.protocol")
            .is_some_and(|protocol| protocol.to_ascii_lowercase().contains("ssl"))
        {
            // The built-in OpenSSL does not know where this system keeps its certificates.
            set(&mut client, &[("ssl.ca.location", "probe")]);
        }
        match role {
            ClientRole::Reader { bytes, .. } => {
                let queue = queue_bytes(bytes);
                set(
                    &mut client,
                    &[
                        ("session.timeout.ms", &SESSION_TIMEOUT_MS.to_string()),
                        ("heartbeat.interval.ms", "1000"),
                        ("partition.assignment.strategy", "cooperative-sticky"),
                        // librdkafka's prefetch queue. A queued message costs far more than its
                        // content, so the number is bounded too. A short backoff resumes fetching
                        // soon.
                        (
                            "queued.max.messages.kbytes",
                            &(queue / 1024).clamp(1, 2_097_151).to_string(),
                        ),
                        ("queued.min.messages", "16384"),
                        ("fetch.queue.backoff.ms", "100"),
                        // One fetch response. librdkafka requires at least its `message.max.bytes`.
                        (
                            "fetch.max.bytes",
                            &(queue / 4).clamp(1_000_000, MAX_LIMIT_BYTES - 512).to_string(),
                        ),
                        // Also the most that a zstd batch may decompress to, so it must hold the
                        // largest message.
                        (
                            "receive.message.max.bytes",
                            &(bytes + (1 << 20)).clamp(1_000_512, MAX_LIMIT_BYTES).to_string(),
                        ),
                    ],
                )
            }
            // librdkafka's own batch size: an idempotent producer has one request in flight per
            // partition, so smaller batches would carry less per round trip. Few retries: a retry
            // hides the reason, such as too few replicas, behind a timeout. The broker judges the
            // size.
            ClientRole::Writer { .. } => {
                set(
                    &mut client,
                    &[("linger.ms", "2"), ("retries", "5"), ("message.max.bytes", "1000000000")],
                );
            }
            ClientRole::Asker => {}
        }
        for (name, value) in self.properties.iter() {
            let (name, value) = read(name, value)?;
            let for_writers = ["allow.auto.create.topics", "message.max.bytes"].contains(&name);
            if !for_writers || is_writer {
                client.set(name, value);
            }
        }
        if matches!(role, ClientRole::Reader { .. }) && client.get("max.poll.interval.ms").is_none()
        {
            // librdkafka requires at least the session timeout.
            let session_ms = client
                .get("session.timeout.ms")
                .and_then(|value| value.trim().parse().ok())
                .unwrap_or(SESSION_TIMEOUT_MS);
            client.set("max.poll.interval.ms", REBALANCE_MS.max(session_ms).to_string());
        }
        if matches!(role, ClientRole::Reader { .. })
            && self.properties.get("receive.message.max.bytes").is_none()
        {
            // librdkafka requires room for a whole response and its frame.
            let bytes = |name| {
                client.get(name).and_then(|value| value.trim().parse::<usize>().ok()).unwrap_or(0)
            };
            let most = bytes("receive.message.max.bytes")
                .max(bytes("fetch.max.bytes").saturating_add(512))
                .min(MAX_LIMIT_BYTES);
            client.set("receive.message.max.bytes", most.to_string());
        }
        client.set("bootstrap.servers", self.bootstrap.joined());
        match role {
            ClientRole::Reader { group, .. } => set(
                &mut client,
                &[
                    ("group.id", group),
                    ("enable.auto.commit", "false"),
                    ("enable.auto.offset.store", "false"),
                    ("auto.offset.reset", "earliest"),
                    // The end of a partition shows which nacked messages are gone.
                    ("enable.partition.eof", "true"),
                ],
            ),
            ClientRole::Writer { timeout } => {
                let timeout = timeout.as_millis().clamp(10, 2_147_483_647);
                let debug = client
                    .get("debug")
                    .map_or_else(|| "broker".to_owned(), |theirs| format!("{theirs},broker"));
                set(
                    &mut client,
                    &[
                        ("debug", &debug),
                        ("acks", "all"),
                        ("enable.idempotence", "true"),
                        ("delivery.timeout.ms", &timeout.to_string()),
                        // A topic that the cluster does not know for this long does not exist.
                        ("topic.metadata.propagation.max.ms", &(timeout / 3).min(3000).to_string()),
                        ("partitioner", "murmur2_random"),
                        // The caller bounds the messages in flight.
                        ("queue.buffering.max.messages", "10000000"),
                        ("queue.buffering.max.kbytes", "2097151"),
                    ],
                );
            }
            // A question about a topic must not create it: AdminClient is a producer of librdkafka.
            ClientRole::Asker => set(&mut client, &[("allow.auto.create.topics", "false")]),
        }
        Ok(client)
    }
}

fn set(client: &mut ClientConfig, settings: &[(&str, &str)]) {
    for (name, value) in settings {
        client.set(*name, *value);
    }
}

/// Name and value for librdkafka; `NAME_file` names a file with the value of `NAME`.
fn read<'a>(name: &'a str, value: &'a str) -> Result<(&'a str, String), ConnectorError> {
    let Some(bare) = name.strip_suffix("_file") else { return Ok((name, value.to_owned())) };
    let file = Path::new(value);
    let setting = format!("`properties`: `{}`", shown_name(name));
    let text = secret_of(&setting, file, std::fs::read_to_string(file))?;
    Ok((bare, text))
}

/// The words of librdkafka without the parts of the value, which it quotes in several ways.
fn without_value(reason: &str, value: &str) -> String {
    const MIN_CHARS: usize = 4;
    let parts = value.split(|sign: char| sign == ',' || sign.is_whitespace());
    let mut parts: Vec<&str> = parts.filter(|part| part.chars().count() >= MIN_CHARS).collect();
    // A part may begin with another one.
    parts.sort_by_key(|part| std::cmp::Reverse(part.len()));
    parts.into_iter().fold(reason.to_owned(), |reason, part| reason.replace(part, "…"))
}

/// The hint for a librdkafka that lacks a library.
const BUILD_HINT: &str = "this program brings its own librdkafka, without libcurl and libsasl2: docs/decisions/0028 says how to build with the system's";

/// Why librdkafka rejects this property, in its own words without the value. They are left out if
/// the value is secret.
fn unknown(name: &str, value: &str, is_secret: bool) -> Option<String> {
    // librdkafka takes it, and checks the name of the host all the same.
    if name == "ssl.endpoint.identification.algorithm" && value.trim().is_empty() {
        return Some(format!(
            "`properties`: `{name}` is empty, which switches the check off in Java clients alone: write \"none\" to switch it off"
        ));
    }
    let mut config = ClientConfig::new();
    config.set(name, value);
    let error = config.create_native_config().err()?;
    if let Some(advice) = java_names::instead(name) {
        return Some(format!("`properties`: `{name}` is a property of Java clients: {advice}"));
    }
    let KafkaError::ClientConfig(kind, reason, ..) = error else {
        return Some(format!("`properties`: `{}`: {error}", shown_name(name)));
    };
    if kind == RDKafkaConfRes::RD_KAFKA_CONF_UNKNOWN {
        return Some(format!(
            "`properties`: `{}` is no property of librdkafka: see its CONFIGURATION.md",
            shown_name(name)
        ));
    }
    let lacks_a_library = ["libcurl", "GSSAPI", "SASL"].iter().any(|word| reason.contains(word));
    let reason = if is_secret {
        String::new()
    } else {
        format!(" ({})", reason.trim().replace(&format!("\"{value}\""), "\"…\""))
    };
    let hint = if name == "security.protocol" && cfg!(not(feature = "kafka-tls")) {
        "this program was built without TLS for Kafka (the feature `kafka-tls`)"
    } else if lacks_a_library {
        BUILD_HINT
    } else {
        "see CONFIGURATION.md of librdkafka"
    };
    let reason = without_value(&reason, value);
    Some(format!("`properties`: `{name}` does not take this value{reason}: {hint}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn problems(settings: serde_json::Value) -> Vec<String> {
        serde_json::from_value::<Config>(settings).unwrap().problems()
    }

    #[test]
    fn good_settings_have_no_problems() {
        let settings = serde_json::json!({"bootstrap": "a:9092, b, [::1]:9", "properties": {"linger.ms": 1, "sasl": {"username": "u"}}});
        assert_eq!(problems(settings), Vec::<String>::new());
        assert_eq!(Config::at("a:1,b:2").place(), "a:1, b:2");
    }

    #[test]
    fn each_mistake_is_named() {
        let with = |name: &str, value: &str| serde_json::json!({"bootstrap": "a:9092", "properties": {name: value}});
        let cases = [
            (serde_json::json!({}), "`bootstrap` is missing"),
            (serde_json::json!({"bootstrap": "a:99999"}), "address 1 is no host:9092"),
            (
                serde_json::json!({"bootstrap": "a:1, bob:hunter2,Rest@a:9"}),
                "log in by `properties`",
            ),
            (with("acks", "1"), "`acks` cannot be set: an attempt counts only"),
            (with("no.such", "1"), "`no.such` is no property of librdkafka"),
            (with("sasl.password=hush", ""), "`sasl.password` is no property of librdkafka"),
            (with("sasl.password hush7", ""), "`sasl.password` is no property of librdkafka"),
            (with("sasl.password/hush7", ""), "`sasl.password` is no property of librdkafka"),
            (with("sasl.password\"hush7\"", ""), "`sasl.password` is no property of librdkafka"),
            (with("sasl.passwordéhush7", ""), "`sasl.password` is no property of librdkafka"),
            (with("sasl.password\0hush7", ""), "`sasl.password`: "),
            (with("=hush7", ""), "`…` is no property of librdkafka"),
            (
                serde_json::json!({"bootstrap": "a:9092", "properties": {"sasl": {"password": {"hush7": "y"}}}}),
                "`sasl.password.…` is no property of librdkafka",
            ),
            (with("sasl.mechanism", "hush7,x"), "\"sasl.mechanisms\": …,x)"),
            (with("debug", "broker,hush7"), "`debug` does not take this value"),
            (with("linger.ms", "soon"), "`linger.ms` does not take this value (Invalid value"),
            (
                with("compression.type", "hunter2"),
                "(Invalid value \"…\" for configuration property \"compression.",
            ),
            (with("ssl.truststore.location", "/x"), "write `ssl.ca.location`"),
            (with("sasl.jaas.config", "hunter2"), "write `sasl.mechanism`"),
            (with("sasl.oauthbearer.method", "oidc"), "OAuth/OIDC depends on libcurl"),
            (with("sasl.oauthbearer.client.id", "x"), "docs/decisions/0028"),
            (with("sasl.oauthbearer.client.secret", "hush"), "docs/decisions/0028"),
            (with("sasl.oauthbearer.token.endpoint.url", "http://a"), "docs/decisions/0028"),
            (with("sasl.oauthbearer.scope", "x"), "docs/decisions/0028"),
            (with("sasl.mechanism", "OAUTHBEARER"), "docs/decisions/0028"),
            (with("sasl.login.callback.handler.class", "x"), "docs/decisions/0028"),
            (with("ssl.endpoint.identification.algorithm", ""), "write \"none\""),
            (
                with("sasl.password_file", "/nowhere/x"),
                "`sasl.password_file`: cannot read /nowhere/x",
            ),
        ];
        for (settings, expected) in cases {
            let problems = problems(settings.clone());
            assert!(
                problems.len() == 1
                    && problems[0].contains(expected)
                    && !problems[0].contains("hush"),
                "{settings}: {problems:?}"
            );
        }
    }

    #[test]
    fn what_is_promised_is_set_whatever_properties_say() {
        let mut config = Config::at("a:1");
        config.properties.set("linger.ms", "7");
        config.properties.set("session.timeout.ms", "6000");
        let writer =
            config.client(ClientRole::Writer { timeout: Duration::from_secs(15) }).unwrap();
        assert_eq!(
            (writer.get("acks"), writer.get("linger.ms"), writer.get("delivery.timeout.ms")),
            (Some("all"), Some("7"), Some("15000"))
        );
        let reader = config.client(ClientRole::Reader { group: "g", bytes: 64 << 20 }).unwrap();
        assert_eq!(
            (reader.get("session.timeout.ms"), reader.get("enable.auto.commit")),
            (Some("6000"), Some("false"))
        );
        assert_eq!(reader.get("max.poll.interval.ms"), Some("30000"));
        config.properties.set("session.timeout.ms", "45000");
        let reader = config.client(ClientRole::Reader { group: "g", bytes: 64 << 20 }).unwrap();
        assert_eq!(reader.get("max.poll.interval.ms"), Some("45000"));
    }

    #[test]
    fn a_reader_has_room_for_the_answers_that_properties_allow() {
        let mut config = Config::at("a:1");
        config.properties.set("fetch.max.bytes", "100000000");
        let reader = config.client(ClientRole::Reader { group: "g", bytes: 64 << 20 }).unwrap();
        assert_eq!(reader.get("receive.message.max.bytes"), Some("100000512"));
        assert!(reader.create::<rdkafka::consumer::BaseConsumer>().is_ok());
    }
}
