//! What librdkafka says of a message that it did not deliver, and what that means.

use std::sync::LazyLock;

use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

use crate::Outcome;

/// What is known of a message that was not delivered.
pub(super) struct Failed<'a> {
    pub(super) error: &'a KafkaError,
    pub(super) topic: &'a str,
    /// Body, key and headers, in bytes.
    pub(super) size: usize,
    pub(super) has_key: bool,
    /// `batch.size`, in bytes: a larger message travels alone.
    pub(super) batch: usize,
    /// How the producer fared since it was handed over.
    pub(super) send_state: SendState,
}

/// How the producer fared since a message was handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SendState {
    /// It was not handed over at all.
    Never,
    /// All that was sent and failed was refused before it was written, or nothing was sent.
    Clear,
    /// Something that was sent and failed may have been written: perhaps this message, before it was sent again.
    Open,
}

/// The outcome of a message that was not delivered. The question is whether it may have landed, and what helps.
pub(super) fn outcome(failed: &Failed<'_>) -> Outcome {
    let Failed { error, topic, size, has_key, batch, send_state } = *failed;
    let Some(code) = error.rdkafka_error_code() else { return Outcome::Invalid(format!("`{topic}`: {error}")) };
    let why = format!("`{topic}`: {code}");
    match code {
        // A batch is taken whole or not at all: a small message may have been in bad company. It tries again, as often as its schedule says.
        Code::MessageSizeTooLarge | Code::MessageBatchTooLarge if size < batch => Outcome::Unroutable(format!(
            "{why}: the topic takes less than a batch of {batch} bytes (`max.message.bytes`; `batch.size` in `properties`)"
        )),
        // Nor is it told which of a batch was invalid. What has a key is not what a compacted topic refuses.
        Code::InvalidRecord if size < batch && has_key => Outcome::Unroutable(format!("{why}: or another message of its batch")),
        Code::InvalidDifferentRecord => Outcome::Unroutable(why),
        Code::MessageSizeTooLarge
        | Code::MessageBatchTooLarge
        | Code::InvalidMessageSize
        | Code::InvalidRecord
        | Code::InvalidTimestamp
        | Code::InvalidTopic
        | Code::InvalidArgument
        | Code::UnsupportedForMessageFormat
        | Code::UnsupportedCompressionType => Outcome::Invalid(why),
        // Where a topic is gone, so is what was written to it.
        Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownPartition => {
            Outcome::Unroutable(format!("no topic `{topic}`: {code}"))
        }
        // The last answer says nothing of those before it: what lacked replicas only after it was written is refused when it is sent again.
        _ if send_state == SendState::Open => Outcome::Unknown(why),
        Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed => Outcome::Unroutable(why),
        // By the broker's word: later, by another producer where this one's epochs are used up.
        Code::NotEnoughReplicas | Code::ThrottlingQuotaExceeded | Code::PolicyViolation | Code::QueueFull | Code::InvalidProducerEpoch => {
            Outcome::Refused(why)
        }
        _ if send_state == SendState::Never => Outcome::Refused(why),
        Code::MessageTimedOut | Code::PurgeQueue | Code::AllBrokersDown | Code::BrokerTransportFailure => {
            Outcome::Refused(format!("{why}: it was never sent, the partition's broker is away"))
        }
        // A disk that broke after it was written, a producer that lost its place.
        _ => Outcome::Unknown(why),
    }
}

/// The outcome of a message that the client did not take; `None` where its queue is full.
pub(super) fn not_taken(error: &KafkaError, topic: &str) -> Option<Outcome> {
    let failed = Failed { error, topic, size: usize::MAX, has_key: true, batch: 0, send_state: SendState::Never };
    (error.rdkafka_error_code() != Some(Code::QueueFull)).then(|| outcome(&failed))
}

/// Whether a request to publish that failed with these words of librdkafka may have been written all the same. A leader that lost its office, or its
/// disk, and one that found too few replicas only afterwards have written it first. What is purged on its way is reported as such itself.
pub(super) fn is_open(words: &str) -> bool {
    static REFUSALS: LazyLock<Vec<String>> = LazyLock::new(|| {
        let refusals = [
            Code::NotEnoughReplicas,
            Code::TopicAuthorizationFailed,
            Code::ClusterAuthorizationFailed,
            Code::UnknownTopicOrPartition,
            Code::MessageSizeTooLarge,
            Code::MessageBatchTooLarge,
            Code::InvalidRecord,
            Code::PolicyViolation,
            Code::ThrottlingQuotaExceeded,
            Code::InvalidProducerEpoch,
            // Behind a gap: what was taken back from the client left one.
            Code::OutOfOrderSequenceNumber,
            Code::PurgeQueue,
            Code::PurgeInflight,
        ];
        // `NotEnoughReplicas (Broker: Not enough in-sync replicas)`: the words are those in brackets.
        let words = |code: Code| Some(format!("failed: {}: ", code.to_string().split_once(" (")?.1.strip_suffix(')')?));
        refusals.into_iter().filter_map(words).collect()
    });
    !REFUSALS.iter().any(|refusal| words.contains(refusal))
}

/// Whether a request to publish that failed with these words was called a repeat of what the broker has. librdkafka then reports its messages as
/// delivered, with offsets that it counts up from none.
pub(super) fn is_repeat(words: &str) -> bool {
    words.contains("duplicate sequence number")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(code: Code, size: usize, send_state: SendState) -> Outcome {
        outcome(&Failed { error: &KafkaError::MessageProduction(code), topic: "t", size, has_key: true, batch: 16_384, send_state })
    }

    #[test]
    fn errors_are_decisions() {
        use SendState::{Clear, Never, Open};
        for (code, size, send_state, expected) in [
            (Code::UnknownTopic, 1, Clear, "Unroutable"),
            (Code::UnknownTopicOrPartition, 1, Never, "Unroutable"),
            (Code::UnknownTopicOrPartition, 1, Open, "Unroutable"),
            (Code::MessageSizeTooLarge, 1 << 20, Open, "Invalid"),
            (Code::MessageSizeTooLarge, 100, Clear, "Unroutable"),
            (Code::InvalidRecord, 100, Clear, "Unroutable"),
            (Code::InvalidRecord, 1 << 20, Clear, "Invalid"),
            (Code::InvalidDifferentRecord, 1, Clear, "Unroutable"),
            (Code::NotEnoughReplicas, 1, Clear, "Refused"),
            (Code::NotEnoughReplicas, 1, Open, "Unknown"),
            (Code::NotEnoughReplicasAfterAppend, 1, Open, "Unknown"),
            (Code::NotEnoughReplicasAfterAppend, 1, Clear, "Unknown"),
            (Code::KafkaStorageError, 1, Clear, "Unknown"),
            (Code::MessageTimedOut, 1, Open, "Unknown"),
            (Code::MessageTimedOut, 1, Clear, "Refused"),
            (Code::InvalidProducerEpoch, 1, Clear, "Refused"),
            (Code::InvalidProducerEpoch, 1, Open, "Unknown"),
            (Code::PurgeQueue, 1, Clear, "Refused"),
            (Code::PurgeQueue, 1, Open, "Unknown"),
            (Code::PurgeInflight, 1, Clear, "Unknown"),
            (Code::OutOfOrderSequenceNumber, 1, Clear, "Unknown"),
            (Code::Fatal, 1, Never, "Refused"),
        ] {
            let outcome = format!("{:?}", of(code, size, send_state));
            assert!(outcome.starts_with(expected) && outcome.contains("`t`"), "{code:?} {size} {send_state:?}: {outcome}");
        }
    }

    #[test]
    fn a_request_that_failed_is_open_unless_it_was_refused_before_it_was_written() {
        for (words, expected) in [
            ("127.0.0.1:1/1: ProduceRequest failed: Broker: Not enough in-sync replicas: explicit actions Retry,MsgNotPersisted", false),
            ("ProduceRequest failed: Broker: Message(s) written to insufficient number of in-sync replicas: explicit actions Retry", true),
            ("ProduceRequest failed: Broker: Not leader for partition: actions Refresh,MsgNotPersisted", true),
            ("ProduceRequest failed: Local: Broker transport failure: explicit actions Refresh,MsgPossiblyPersisted", true),
            ("ProduceRequest failed: Broker: Producer attempted an operation with an old epoch: explicit actions Permanent", false),
            ("ProduceRequest failed: Broker: Topic authorization failed: explicit actions Permanent", false),
        ] {
            assert_eq!(is_open(words), expected, "{words}");
        }
    }
}
