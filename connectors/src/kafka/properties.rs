//! librdkafka properties from the settings: which are forbidden, and which are secret.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error as _, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The properties that Dwell sets itself, and why another value would break a promise.
const RESERVED_PROPERTIES: [(&str, &str); 30] = [
    ("acks", "an attempt counts only when all in-sync replicas have the message"),
    ("request.required.acks", "an attempt counts only when all in-sync replicas have the message"),
    ("enable.idempotence", "a retry inside the client would publish twice"),
    ("enable.gapless.guarantee", "one lost message would stop all others"),
    ("transactional.id", "each message is an attempt of its own"),
    ("transaction.timeout.ms", "each message is an attempt of its own"),
    ("delivery.timeout.ms", "it is `publish_timeout`"),
    ("message.timeout.ms", "it is `publish_timeout`"),
    ("partitioner", "keys go to the partition that Java clients choose (murmur2_random)"),
    ("queue.buffering.max.messages", "`max_in_flight` bounds what is under way"),
    ("queue.buffering.max.kbytes", "`max_in_flight_bytes` bounds what is under way"),
    ("delivery.report.only.error", "every message needs its confirm"),
    ("produce.offset.report", "every message needs its confirm"),
    ("enable.auto.commit", "an offset is committed when its message is stored"),
    ("auto.commit.enable", "an offset is committed when its message is stored"),
    ("auto.commit.interval.ms", "an offset is committed when its message is stored"),
    ("enable.auto.offset.store", "an offset is committed when its message is stored"),
    ("offset.store.method", "offsets live with the group, on the broker"),
    ("offset.store.path", "offsets live with the group, on the broker"),
    ("offset.store.sync.interval.ms", "offsets live with the group, on the broker"),
    ("auto.offset.reset", "a request that was sent before the first start would be skipped"),
    ("enable.partition.eof", "the end of a partition is no message"),
    ("group.id", "it is the ingest's `group`"),
    ("group.protocol", "only the classic protocol holds what is paused"),
    ("bootstrap.servers", "it is `bootstrap`"),
    ("metadata.broker.list", "it is `bootstrap`"),
    ("isolation.level", "an aborted message was never sent"),
    ("plugin.library.paths", "no foreign code is loaded"),
    ("enable.sasl.oauthbearer.unsecure.jwt", "it is for tests"),
    ("test.mock.num.brokers", "it is for tests"),
];

/// Properties of librdkafka by name. Every output hides secrets, serialization included.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Properties(BTreeMap<String, String>);

impl Properties {
    /// Sets a property.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.0.insert(name.into(), value.into());
    }

    /// The value under this name.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Names and values, sorted by name. The value of `NAME_file` is the path of a file with the
    /// value of `NAME`.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The properties that may not be set, each as a sentence.
    pub(super) fn refused(&self) -> Vec<String> {
        let reason = |name: &str| {
            RESERVED_PROPERTIES
                .iter()
                .find(|(ours, _)| *ours == name.trim_end_matches("_file"))
                .map(|(_, why)| *why)
        };
        let refused = self.0.keys().filter_map(|name| Some((name, reason(name)?)));
        refused
            .map(|(name, why)| format!("`properties`: `{name}` cannot be set: {why}; take it out"))
            .collect()
    }
}

/// A name for people. A value may stand in it by mistake: behind a sign that no name has, or as a
/// name in the table of a secret.
pub(super) fn shown_name(name: &str) -> String {
    let is_foreign = |sign: char| !sign.is_ascii_alphanumeric() && !"._-".contains(sign);
    let name = name.trim_start();
    let name = &name[..name.find(is_foreign).unwrap_or(name.len())];
    if name.is_empty() {
        return "…".to_owned();
    }
    let is_whole = |before: &&str| {
        ["password", "secret", "passphrase", "key.pem"].iter().any(|end| before.ends_with(end))
    };
    let secret = name.match_indices('.').map(|(at, _)| &name[..at]).find(is_whole);
    secret.map_or_else(|| name.to_owned(), |before| format!("{before}.…"))
}

/// Whether the value of this property is secret.
pub(super) fn is_secret(name: &str) -> bool {
    let named = [
        "password",
        "secret",
        "key.pem",
        "private.key",
        "token",
        "sasl.oauthbearer.config",
        "jaas",
        "passphrase",
    ];
    !name.ends_with("_file")
        && named.iter().any(|part| name.contains(part))
        && !name.ends_with(".url")
        && !name.ends_with(".location")
}

impl<'a> FromIterator<(&'a str, &'a str)> for Properties {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(iter: I) -> Self {
        Properties(
            iter.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        )
    }
}

impl fmt::Debug for Properties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.shown()).finish()
    }
}

impl Properties {
    fn shown(&self) -> impl Iterator<Item = (String, &str)> {
        self.iter()
            .map(|(name, value)| (shown_name(name), if is_secret(name) { "***" } else { value }))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for Properties {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.shown())
    }
}

impl<'de> Deserialize<'de> for Properties {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut all = BTreeMap::new();
        flatten("", BTreeMap::<String, Form>::deserialize(deserializer)?, &mut all)
            .map_err(D::Error::custom)?;
        Ok(Properties(all))
    }
}

/// The form of a value in the settings. A table comes from a dotted name without quotes:
/// `properties.sasl.username = "dwell"`.
#[derive(Deserialize)]
#[serde(untagged)]
enum Form {
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    Table(BTreeMap<String, Form>),
    Other(IgnoredAny),
}

/// Adds the properties of a table; otherwise the sentence about the one that is none.
fn flatten(
    before: &str,
    table: BTreeMap<String, Form>,
    all: &mut BTreeMap<String, String>,
) -> Result<(), String> {
    for (name, form) in table {
        let name = if before.is_empty() { name } else { format!("{before}.{name}") };
        let value = match form {
            Form::Bool(value) => value.to_string(),
            Form::Integer(value) => value.to_string(),
            Form::Float(value) if value.is_finite() => value.to_string(),
            Form::Text(value) => value,
            Form::Table(table) => {
                flatten(&name, table, all)?;
                continue;
            }
            Form::Float(_) | Form::Other(IgnoredAny) => {
                return Err(format!("`{}` is no text, number, true or false", shown_name(&name)));
            }
        };
        all.insert(name, value);
    }
    Ok(())
}

impl JsonSchema for Properties {
    fn schema_name() -> Cow<'static, str> {
        "KafkaProperties".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "object", "additionalProperties": {"description": "A text, a number, true or false."}})
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn names_come_with_quotes_or_without() {
        let text = serde_json::json!({"sasl.username": "a", "sasl": {"mechanism": "PLAIN"}, "linger.ms": 1.5, "retries": 5, "check.crcs": true});
        let properties: Properties = serde_json::from_value(text).unwrap();
        let all: Vec<_> = properties.iter().collect();
        assert_eq!(
            all,
            [
                ("check.crcs", "true"),
                ("linger.ms", "1.5"),
                ("retries", "5"),
                ("sasl.mechanism", "PLAIN"),
                ("sasl.username", "a")
            ]
        );
        let wrong = serde_json::json!({"linger.ms": 5, "sasl": {"username": ["bob"]}});
        let error = serde_json::from_value::<Properties>(wrong).unwrap_err().to_string();
        assert!(error.contains("`sasl.username` is no text") && !error.contains("bob"), "{error}");
        let wrong = serde_json::json!({"sasl.password=hunter2": ["x"]});
        let error = serde_json::from_value::<Properties>(wrong).unwrap_err().to_string();
        assert!(error.contains("`sasl.password` is no text"), "{error}");
    }

    #[test]
    fn secrets_are_not_shown() {
        let names = [
            "sasl.password",
            "ssl.key.password",
            "ssl.keystore.password",
            "ssl.key.pem",
            "sasl.oauthbearer.client.secret",
            "sasl.jaas.config",
        ];
        let properties: Properties =
            names.iter().map(|name| (*name, "hunter2")).chain([("client.id", "shown")]).collect();
        let text = format!("{properties:?} {}", serde_json::to_string(&properties).unwrap());
        assert!(
            !text.contains("hunter2") && text.contains("shown") && text.contains("***"),
            "{text}"
        );
        let properties: Properties =
            [("sasl.password_file", "/run/password"), ("ssl.key.location", "/run/key")]
                .into_iter()
                .collect();
        assert!(format!("{properties:?}").contains("/run/password"));
        // A value that stands in the name by mistake.
        let properties: Properties = [("sasl.password=hunter2", "")].into_iter().collect();
        let text = format!("{properties:?} {}", serde_json::to_string(&properties).unwrap());
        assert!(text.contains("sasl.password") && !text.contains("hunter2"), "{text}");
    }

    #[test]
    fn what_would_break_a_promise_is_refused_with_its_reason() {
        let properties: Properties = [
            ("acks", "0"),
            ("enable.auto.commit", "true"),
            ("transactional.id_file", "/x"),
            ("linger.ms", "1"),
        ]
        .into_iter()
        .collect();
        let refused = properties.refused();
        assert_eq!(refused.len(), 3);
        assert!(refused[0].contains("`acks`") && refused[0].contains("replicas"), "{refused:?}");
    }
}
