//! Properties of Java clients that librdkafka does not have, and what to write instead.

const OAUTH_ADVICE: &str = "write `sasl.oauthbearer.method` = \"oidc\", in a build that has OAuth: docs/decisions/0028 says how";

/// Each name with the advice.
const JAVA_NAMES: [(&str, &str); 26] = [
    ("sasl.jaas.config", "write `sasl.mechanism`, `sasl.username` and `sasl.password_file`"),
    ("sasl.login.callback.handler.class", OAUTH_ADVICE),
    ("sasl.client.callback.handler.class", OAUTH_ADVICE),
    (
        "ssl.truststore.location",
        "write `ssl.ca.location`, a PEM file: keytool -exportcert -rfc writes one",
    ),
    ("ssl.truststore.certificates", "write `ssl.ca.pem`, or `ssl.ca.location`, a PEM file"),
    (
        "ssl.truststore.password",
        "take it out: `ssl.ca.location` is a PEM file, which has no password",
    ),
    ("ssl.truststore.type", "take it out: `ssl.ca.location` is a PEM file"),
    ("ssl.keystore.type", "take it out: `ssl.keystore.location` is a PKCS#12 file"),
    (
        "ssl.keystore.certificate.chain",
        "write `ssl.certificate.pem`, or `ssl.certificate.location`, a PEM file",
    ),
    ("ssl.keystore.key", "write `ssl.key.location`, a PEM file, or `ssl.key.pem_file`"),
    ("ssl.protocol", "take it out: OpenSSL takes the best that both sides have"),
    ("ssl.enabled.protocols", "take it out: OpenSSL takes the best that both sides have"),
    ("max.request.size", "write `message.max.bytes`"),
    ("buffer.memory", "take it out: `delivery.max_in_flight_bytes` bounds what is under way"),
    ("max.block.ms", "take it out: `delivery.publish_timeout` ends an attempt"),
    ("max.poll.records", "take it out: `limits.max_inbound_bytes` bounds what is read"),
    ("fetch.max.wait.ms", "write `fetch.wait.max.ms`"),
    ("default.api.timeout.ms", "write `socket.timeout.ms`"),
    ("receive.buffer.bytes", "write `socket.receive.buffer.bytes`"),
    ("send.buffer.bytes", "write `socket.send.buffer.bytes`"),
    ("key.serializer", "take it out: keys and bodies are bytes"),
    ("value.serializer", "take it out: keys and bodies are bytes"),
    ("key.deserializer", "take it out: keys and bodies are bytes"),
    ("value.deserializer", "take it out: keys and bodies are bytes"),
    ("interceptor.classes", "take it out: nothing of Java runs here"),
    ("metric.reporters", "take it out: `/metrics` has the metrics"),
];

/// The advice for a name that only Java clients know.
pub(super) fn instead(name: &str) -> Option<&'static str> {
    JAVA_NAMES.iter().find(|(java, _)| *java == name).map(|(_, advice)| *advice)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use rdkafka::ClientConfig;
    use rdkafka::error::KafkaError;
    use rdkafka::types::RDKafkaConfRes;

    use super::*;

    fn refusal(name: &str) -> Option<KafkaError> {
        ClientConfig::new().set(name, "x").create_native_config().err()
    }

    #[test]
    fn librdkafka_has_none_of_the_names_and_all_that_are_written_instead() {
        for (name, advice) in JAVA_NAMES {
            assert!(
                refusal(name).is_some() && instead(name) == Some(advice),
                "librdkafka has {name}"
            );
            let words = advice.split('`').skip(1).step_by(2);
            for word in words.filter(|word| {
                !["/", "delivery.", "limits."].iter().any(|ours| word.starts_with(ours))
            }) {
                let refused = refusal(word.trim_end_matches("_file"));
                let unknown = matches!(
                    refused,
                    Some(KafkaError::ClientConfig(RDKafkaConfRes::RD_KAFKA_CONF_UNKNOWN, ..))
                );
                assert!(!unknown, "{name}: librdkafka has no {word}");
            }
        }
    }
}
