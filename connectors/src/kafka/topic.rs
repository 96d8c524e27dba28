//! Topics: existence, creation, and rules of names.

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::Client;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use std::time::Duration;

use super::config::{ClientRole, Config};
use super::connection::{BLOCKING_TIMEOUT, Context, ask, blocking, failed};
use crate::{
    Caution, CautionKind, ConnectorError, Declared, Destination, ErrorKind, Role, show_duration_ms,
};

/// The longest wait for the creation of a topic.
const CREATE_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest name of a topic.
const MAX_NAME_CHARS: usize = 249;

impl ConsumerContext for Context<()> {}

/// Whether the topic exists. Uses a client of its own that never creates a topic by asking.
pub(super) async fn exists(config: &Config, topic: &str) -> Result<bool, ConnectorError> {
    let topic = topic.to_owned();
    blocking(config, BLOCKING_TIMEOUT, move |config| {
        let context = Context::new(&config, ClientRole::Asker, ());
        let consumer: BaseConsumer<Context<()>> = config
            .client(ClientRole::Asker)?
            .create_with_context(context)
            .map_err(|error| failed(&config, "cannot create a client", error))?;
        partitions(&config, consumer.client(), &topic, || drop(consumer.poll(Duration::ZERO)))
            .map(|count| count.is_some())
    })
    .await
}

/// The number of partitions; `None` if the topic does not exist.
pub(super) fn partitions<T: Send + Sync>(
    config: &Config,
    client: &Client<Context<T>>,
    topic: &str,
    poll: impl Fn(),
) -> Result<Option<usize>, ConnectorError> {
    let metadata = ask(config, client, Some(topic), poll)?;
    let Some(found) = metadata.topics().iter().find(|found| found.name() == topic) else {
        return Ok(None);
    };
    match found.error().map(Code::from) {
        None | Some(Code::LeaderNotAvailable) => Ok(Some(found.partitions().len())),
        Some(Code::UnknownTopicOrPartition | Code::InvalidTopic | Code::UnknownTopic) => Ok(None),
        Some(code) => Err(failed(
            config,
            &format!("cannot describe the topic `{topic}`"),
            KafkaError::MetadataFetch(code),
        )),
    }
}

/// Creates a missing topic, with the broker's default partitions and replicas.
pub(crate) async fn declare(
    config: &Config,
    to: &Destination,
    _: Role,
) -> Result<Declared, ConnectorError> {
    let topic = to.address.as_str();
    if let Some(why) = malformed(topic) {
        return Err(ConnectorError::new(ErrorKind::Config, why));
    }
    if exists(config, topic).await? {
        return Ok(Declared::Existed);
    }
    let declared = make(config, topic).await?;
    // The controller has the topic; the other brokers learn of it later.
    let begun = tokio::time::Instant::now();
    while !exists(config, topic).await? && begun.elapsed() < CREATE_TIMEOUT {}
    Ok(declared)
}

async fn make(config: &Config, topic: &str) -> Result<Declared, ConnectorError> {
    let (topic, runtime) = (topic.to_owned(), tokio::runtime::Handle::current());
    blocking(config, BLOCKING_TIMEOUT, move |config| {
        let admin: AdminClient<Context<()>> = config
            .client(ClientRole::Asker)?
            .create_with_context(Context::new(&config, ClientRole::Asker, ()))
            .map_err(|error| failed(&config, "cannot create a client", error))?;
        let wanted = NewTopic::new(&topic, -1, TopicReplication::Fixed(-1));
        let options = AdminOptions::new()
            .request_timeout(Some(CREATE_TIMEOUT))
            .operation_timeout(Some(CREATE_TIMEOUT));
        let wrong = |error: KafkaError| {
            config
                .fail(refusal(&error), &format!("cannot create the topic `{topic}`: {error}"))
                .hint("create the topic by hand")
                .because(error)
        };
        let made = runtime.block_on(admin.create_topics([&wanted], &options)).map_err(wrong)?;
        match made.into_iter().next() {
            Some(Err((_, Code::TopicAlreadyExists))) => Ok(Declared::Existed),
            Some(Err((_, code))) => Err(wrong(KafkaError::AdminOp(code))),
            Some(Ok(_)) | None => Ok(Declared::Created),
        }
    })
    .await
}

/// The kind of a failed creation: denied if it fails until somebody changes the settings, a right
/// or a policy. Any other failure passes: a cluster that starts has too few brokers for its
/// replicas, and a quota is full.
fn refusal(error: &KafkaError) -> ErrorKind {
    let code = match error {
        // `rdkafka_error_code` has no code for it.
        KafkaError::AdminOp(code) => Some(*code),
        error => error.rdkafka_error_code(),
    };
    let denied = [
        Code::TopicAuthorizationFailed,
        Code::ClusterAuthorizationFailed,
        Code::Authentication,
        Code::SaslAuthenticationFailed,
        Code::UnsupportedSASLMechanism,
        Code::PolicyViolation,
        Code::InvalidTopic,
        Code::InvalidPartitions,
        Code::InvalidConfig,
        Code::InvalidRequest,
        Code::InvalidArgument,
        Code::UnsupportedVersion,
        Code::UnsupportedFeature,
    ];
    match code {
        Some(code) if denied.contains(&code) => ErrorKind::Denied,
        _ => ErrorKind::Disconnected,
    }
}

/// A topic that keeps messages shorter than this loses requests of a long weekend without Dwell.
/// Kafka's default is a week.
const MIN_RETENTION_MS: u64 = 96 * 3_600_000;
/// The setting that says whose clock a message has the time of.
const TIMESTAMP_TYPE_SETTING: &str = "message.timestamp.type";
/// The setting that bounds how far that time may be behind the broker's; unbounded by default.
const TIMESTAMP_BEFORE_SETTING: &str = "message.timestamp.before.max.ms";
/// The same of brokers before 3.6; newer ones obey it only where the other is at its default.
const TIMESTAMP_DIFFERENCE_SETTING: &str = "message.timestamp.difference.max.ms";
/// The default of both.
const UNBOUNDED_MS: u64 = i64::MAX.unsigned_abs();

/// The losses of requests that were confirmed to their producers. `value`: of a setting of the
/// topic.
fn losses(topic: &str, value: impl Fn(&str) -> Option<String>) -> Vec<Caution> {
    let mut cautions = Vec::new();
    let mut loses = |what: String, hint: &str| {
        cautions.push(Caution {
            kind: CautionKind::Loses,
            message: format!("`{topic}` {what}"),
            hint: hint.to_owned(),
        });
    };
    if cleans_by(&value, "compact") {
        loses(
            "is compacted (cleanup.policy): of requests with one key only the newest is sure to be read".to_owned(),
            "set cleanup.policy=delete on the topic, unless the key is the id of the job (id_from = \"key\")",
        );
    }
    if cleans_by(&value, "delete") {
        if let Some(ms) = value("retention.ms")
            .and_then(|ms| ms.parse::<u64>().ok())
            .filter(|ms| *ms < MIN_RETENTION_MS)
        {
            loses(
                format!(
                    "removes a request after {} (retention.ms), read or not",
                    show_duration_ms(ms)
                ),
                "set retention.ms of the topic to a week (604800000)",
            );
        }
        if let Some(bytes) = value("retention.bytes").and_then(|bytes| bytes.parse::<u64>().ok()) {
            let what = format!(
                "removes the oldest requests of a partition, read or not, beyond {bytes} bytes (retention.bytes)"
            );
            loses(
                what,
                "set retention.bytes=-1 on the topic, and retention.ms to a week (604800000)",
            );
        }
    }
    cautions
}

/// Whether the `cleanup.policy` of the topic has this word.
fn cleans_by(value: &impl Fn(&str) -> Option<String>, word: &str) -> bool {
    let policy = value("cleanup.policy").unwrap_or_default();
    policy.split(',').any(|policy| policy.trim() == word)
}

/// The caution for a topic whose times are those of its producers' clocks. Retention goes by these
/// times too, whatever `retention.ms` is: to Kafka, seconds are milliseconds of January 1970.
fn producer_time(topic: &str, value: impl Fn(&str) -> Option<String>) -> Option<Caution> {
    if value(TIMESTAMP_TYPE_SETTING)? != "CreateTime" {
        return None;
    }
    let ms = |name: &str| value(name).and_then(|ms| ms.parse::<u64>().ok());
    // The broker refuses a time that is that far from its own.
    let bound = ms(TIMESTAMP_BEFORE_SETTING)
        .filter(|most| *most < UNBOUNDED_MS)
        .or_else(|| ms(TIMESTAMP_DIFFERENCE_SETTING));
    let is_refused = |retention: u64| bound.is_some_and(|most| most < retention);
    let deletes = cleans_by(&value, "delete")
        && ms("retention.ms").is_some_and(|retention| !is_refused(retention));
    let mut message = format!(
        "`{topic}` is of type CreateTime: the time of a message is that of its producer's clock"
    );
    if deletes {
        message.push_str(
            ", and its retention (retention.ms) counts from it: where that clock is behind, or writes seconds for milliseconds, requests are removed early or at once, read or not",
        );
    }
    Some(Caution {
        kind: CautionKind::ProducerTime { deletes },
        message,
        hint: format!("set {TIMESTAMP_TYPE_SETTING}=LogAppendTime on the topic"),
    })
}

/// The caution for a topic whose settings this user may not see.
fn unseen(topic: &str) -> Caution {
    Caution {
        kind: CautionKind::Loses,
        message: format!(
            "`{topic}` may lose requests before they are read (cleanup.policy compact, a short retention), and may have the times of its producers' clocks: this user may not see its settings"
        ),
        hint: "grant DescribeConfigs on the topic".to_owned(),
    }
}

/// The risks of the topic: the clock that sets the timestamps, and the losses.
pub(crate) async fn cautions(config: &Config, topic: &str) -> Result<Vec<Caution>, ConnectorError> {
    let (topic, runtime) = (topic.to_owned(), tokio::runtime::Handle::current());
    blocking(config, BLOCKING_TIMEOUT, move |config| {
        let admin: AdminClient<Context<()>> = config
            .client(ClientRole::Asker)?
            .create_with_context(Context::new(&config, ClientRole::Asker, ()))
            .map_err(|error| failed(&config, "cannot create a client", error))?;
        let options = AdminOptions::new().request_timeout(Some(CREATE_TIMEOUT));
        let described =
            runtime.block_on(admin.describe_configs(&[ResourceSpecifier::Topic(&topic)], &options));
        let described = described.map_err(|error| {
            failed(&config, &format!("cannot read the settings of `{topic}`"), error)
        })?;
        let resource = match described.into_iter().next() {
            Some(Ok(resource)) if !resource.entries.is_empty() => resource,
            // Every topic has settings. rdkafka 0.39 does not read the error of a resource
            // (`rd_kafka_ConfigResource_error`): a refusal is an answer without entries, and so is a
            // missing topic, of which there is nothing to say.
            _ => {
                let found = partitions(&config, admin.inner(), &topic, || {})?;
                return Ok(found.map(|_| unseen(&topic)).into_iter().collect());
            }
        };
        let value = |name: &str| resource.get(name).and_then(|entry| entry.value.clone());
        Ok(producer_time(&topic, value).into_iter().chain(losses(&topic, value)).collect())
    })
    .await
}

/// Whether a pattern matches a topic: `*` matches any characters.
pub(crate) fn allows(pattern: &str, to: &Destination) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = to.address.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// Why nobody may publish here: no topic, a pattern, or a topic of the cluster.
pub(crate) fn forbidden(to: &Destination) -> Option<String> {
    let topic = &to.address;
    malformed(topic).or_else(|| {
        topic.starts_with("__").then(|| format!("`{topic}` belongs to the cluster or its clients"))
    })
}

/// Why this is no name of a topic.
pub(super) fn malformed(topic: &str) -> Option<String> {
    let shown = topic.escape_debug();
    if topic.is_empty() {
        return Some("the topic is empty".to_owned());
    }
    if topic.contains('*') {
        return Some(format!("`{shown}` is a pattern, not a topic"));
    }
    if topic.len() > MAX_NAME_CHARS {
        return Some(format!(
            "`{shown}` is no topic: it is longer than {MAX_NAME_CHARS} characters"
        ));
    }
    (!topic.chars().all(is_plain) || topic == "." || topic == "..").then(|| {
        format!("`{shown}` is no topic: a name has only ASCII letters, digits, `.`, `_` and `-`")
    })
}

/// Why no topic matches this pattern, and what to write instead.
pub(crate) fn pattern_problem(pattern: &str) -> Option<(String, String)> {
    let fits = pattern.chars().all(|letter| letter == '*' || is_plain(letter));
    (!fits).then(|| {
        let why = format!("no topic has the characters of `{}`", pattern.escape_debug());
        let hint = "write ASCII letters, digits, `.`, `_` and `-`; `*` is any characters";
        (why, hint.to_owned())
    })
}

/// Whether the name of a topic may have this character.
fn is_plain(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_else_mends_is_denied() {
        for code in [
            Code::TopicAuthorizationFailed,
            Code::ClusterAuthorizationFailed,
            Code::SaslAuthenticationFailed,
            Code::PolicyViolation,
            Code::InvalidConfig,
            Code::InvalidTopic,
        ] {
            // The code of one topic, and of the whole request.
            for error in [KafkaError::AdminOp(code), KafkaError::Global(code)] {
                assert_eq!(refusal(&error), ErrorKind::Denied, "{error}");
            }
        }
        for code in [
            Code::InvalidReplicationFactor,
            Code::ThrottlingQuotaExceeded,
            Code::Unknown,
            Code::OperationTimedOut,
            Code::RequestTimedOut,
            Code::BrokerTransportFailure,
            Code::NotController,
            Code::LeaderNotAvailable,
        ] {
            for error in [KafkaError::AdminOp(code), KafkaError::Global(code)] {
                assert_eq!(refusal(&error), ErrorKind::Disconnected, "{error}");
            }
        }
        assert_eq!(refusal(&KafkaError::Canceled), ErrorKind::Disconnected);
    }

    #[test]
    fn a_star_is_any_characters() {
        for (pattern, topic, expected) in [
            ("orders", "orders", true),
            ("orders", "orders.close", false),
            ("orders.*", "orders.close", true),
            ("orders.*", "orders.eu.close", true),
            ("orders.*", "orders.", true),
            ("orders.*", "orders", false),
            ("*", "orders", true),
            ("*.close", "orders.close", true),
            ("*.close", "orders.closed", false),
            ("o*s*e", "orders.close", true),
            ("o*ss*e", "orders.close", false),
            ("ab*ba", "aba", false),
            ("", "a", false),
        ] {
            assert_eq!(allows(pattern, &Destination::new(topic)), expected, "{pattern} {topic}");
        }
    }

    #[test]
    fn a_pattern_that_matches_no_topic_is_a_problem() {
        for pattern in ["orders/*", "a b", "ünter.*", "orders.>", "a\0"] {
            assert!(pattern_problem(pattern).is_some(), "{pattern}");
        }
        for pattern in ["orders", "orders.*", "*", "o*s*e", "A-1_b.c"] {
            assert_eq!(pattern_problem(pattern), None, "{pattern}");
        }
    }

    #[test]
    fn a_topic_that_keeps_messages_for_less_than_a_long_weekend_loses_requests() {
        const HOUR: u64 = 3_600_000;
        // Kafka's default is a week.
        for (hours, is_told) in [(1, true), (72, true), (95, true), (96, false), (7 * 24, false)] {
            let value = |name: &str| match name {
                "cleanup.policy" => Some("delete".to_owned()),
                "retention.ms" => Some((hours * HOUR).to_string()),
                _ => None,
            };
            assert_eq!(losses("orders", value).len(), usize::from(is_told), "{hours} hours");
        }
    }

    #[test]
    fn a_topic_that_removes_requests_by_the_clocks_of_producers_is_told() {
        const NEVER: &str = "9223372036854775807";
        const WEEK: &str = "604800000";
        const BEFORE: &str = "message.timestamp.before.max.ms";
        const DIFFERENCE: &str = "message.timestamp.difference.max.ms";
        for (kind, policy, retention, bound, expected) in [
            ("CreateTime", "delete", WEEK, (BEFORE, NEVER), Some(true)),
            ("CreateTime", "compact,delete", WEEK, (DIFFERENCE, NEVER), Some(true)),
            ("CreateTime", "delete", WEEK, (BEFORE, WEEK), Some(true)),
            ("CreateTime", "delete", WEEK, (BEFORE, "3600000"), Some(false)),
            ("CreateTime", "delete", WEEK, (DIFFERENCE, "3600000"), Some(false)),
            ("CreateTime", "delete", "-1", (BEFORE, NEVER), Some(false)),
            ("CreateTime", "compact", WEEK, (BEFORE, NEVER), Some(false)),
            ("LogAppendTime", "delete", WEEK, (BEFORE, NEVER), None),
        ] {
            let value = |name: &str| match name {
                TIMESTAMP_TYPE_SETTING => Some(kind.to_owned()),
                "cleanup.policy" => Some(policy.to_owned()),
                "retention.ms" => Some(retention.to_owned()),
                name => (name == bound.0).then(|| bound.1.to_owned()),
            };
            let caution = producer_time("orders", value);
            let case = format!("{kind} {policy} {retention} {bound:?}: {caution:?}");
            let told = caution.as_ref().map(|caution| caution.message.contains("retention.ms"));
            assert_eq!(told, expected, "{case}");
            let kind = expected.map(|deletes| CautionKind::ProducerTime { deletes });
            assert_eq!(caution.map(|caution| caution.kind), kind, "{case}");
        }
        assert_eq!(producer_time("orders", |_| None), None);
        // Newer brokers obey the old setting only where the new one is at its default.
        let both = |name: &str| match name {
            TIMESTAMP_TYPE_SETTING => Some("CreateTime".to_owned()),
            "cleanup.policy" => Some("delete".to_owned()),
            "retention.ms" => Some(WEEK.to_owned()),
            BEFORE => Some("2592000000".to_owned()),
            DIFFERENCE => Some("3600000".to_owned()),
            _ => None,
        };
        let caution = producer_time("orders", both).unwrap();
        assert_eq!(caution.kind, CautionKind::ProducerTime { deletes: true });
    }

    #[test]
    fn what_is_not_ours_is_forbidden() {
        let long = "a".repeat(250);
        for topic in [
            "",
            "a b",
            "orders.*",
            "^orders",
            "__consumer_offsets",
            "__x",
            ".",
            "..",
            "ünter",
            "a/b",
            "a\0",
            long.as_str(),
        ] {
            assert!(forbidden(&Destination::new(topic)).is_some(), "{topic}");
        }
        for topic in ["orders", "orders.close", "_x", "A-1_b.c", "..."] {
            assert_eq!(forbidden(&Destination::new(topic)), None, "{topic}");
        }
    }
}
