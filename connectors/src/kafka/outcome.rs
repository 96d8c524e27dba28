//! What librdkafka says of a message that it did not deliver, and what that means.

use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

use crate::Outcome;

/// The size of a batch: a larger message travels alone.
const BATCH: usize = 16_384;

/// What is known of a message that was not delivered.
pub(super) struct Failed<'a> {
    pub(super) error: &'a KafkaError,
    pub(super) topic: &'a str,
    /// Body, key and headers, in bytes.
    pub(super) size: usize,
    /// All brokers were down since before it was handed over.
    pub(super) never_sent: bool,
}

/// The outcome of a message that was not delivered. The question is whether it may have landed, and what helps.
pub(super) fn outcome(failed: &Failed<'_>) -> Outcome {
    let Failed { error, topic, size, never_sent } = *failed;
    let Some(code) = error.rdkafka_error_code() else { return Outcome::Invalid(format!("`{topic}`: {error}")) };
    let why = format!("`{topic}`: {code}");
    match code {
        Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownPartition => {
            Outcome::Unroutable(format!("no topic `{topic}`: {code}"))
        }
        Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed => Outcome::Unroutable(why),
        // A batch is taken whole or not at all: a small message may have been in bad company. It tries again, as often as its schedule says.
        Code::MessageSizeTooLarge | Code::MessageBatchTooLarge if size < BATCH => {
            Outcome::Unroutable(format!("{why}: the topic takes less than a batch of {BATCH} bytes (`max.message.bytes`)"))
        }
        Code::MessageSizeTooLarge
        | Code::MessageBatchTooLarge
        | Code::InvalidMessageSize
        | Code::InvalidRecord
        | Code::InvalidDifferentRecord
        | Code::InvalidTimestamp
        | Code::InvalidTopic
        | Code::InvalidArgument
        | Code::UnsupportedForMessageFormat
        | Code::UnsupportedCompressionType => Outcome::Invalid(why),
        // By the broker's word, or because it never left: later.
        Code::NotEnoughReplicas | Code::ThrottlingQuotaExceeded | Code::PolicyViolation | Code::QueueFull | Code::KafkaStorageError => {
            Outcome::Refused(why)
        }
        // Whatever else is said, somebody has said it: the message was sent.
        Code::MessageTimedOut | Code::PurgeQueue | Code::AllBrokersDown | Code::BrokerTransportFailure if never_sent => {
            Outcome::Refused(format!("{why}: all brokers were down"))
        }
        // Too few replicas only after it was written, timeouts, lost connections, a producer that lost its place.
        _ => Outcome::Unknown(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(code: Code, size: usize, never_sent: bool) -> Outcome {
        outcome(&Failed { error: &KafkaError::MessageProduction(code), topic: "t", size, never_sent })
    }

    #[test]
    fn errors_are_decisions() {
        for (code, size, never_sent, expected) in [
            (Code::UnknownTopic, 1, false, "Unroutable"),
            (Code::UnknownTopicOrPartition, 1, true, "Unroutable"),
            (Code::MessageSizeTooLarge, 1 << 20, false, "Invalid"),
            (Code::MessageSizeTooLarge, 100, false, "Unroutable"),
            (Code::NotEnoughReplicas, 1, false, "Refused"),
            (Code::NotEnoughReplicasAfterAppend, 1, false, "Unknown"),
            (Code::MessageTimedOut, 1, false, "Unknown"),
            (Code::MessageTimedOut, 1, true, "Refused"),
            (Code::PurgeQueue, 1, true, "Refused"),
            (Code::PurgeQueue, 1, false, "Unknown"),
            (Code::PurgeInflight, 1, false, "Unknown"),
            (Code::OutOfOrderSequenceNumber, 1, false, "Unknown"),
        ] {
            let outcome = format!("{:?}", of(code, size, never_sent));
            assert!(outcome.starts_with(expected) && outcome.contains("`t`"), "{code:?} {size} {never_sent}: {outcome}");
        }
    }
}
