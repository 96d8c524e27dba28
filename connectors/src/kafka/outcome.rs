//! The outcome of a message that librdkafka did not deliver.

use std::sync::LazyLock;

use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

use crate::Outcome;

/// The facts about a message that was not delivered.
pub(super) struct Failed<'a> {
    pub(super) error: &'a KafkaError,
    pub(super) topic: &'a str,
    /// Body, key and headers, in bytes.
    pub(super) size: usize,
    pub(super) has_key: bool,
    /// `batch.size`, in bytes: a larger message travels alone.
    pub(super) batch: usize,
    /// The state of the producer's sends since the message was handed over.
    pub(super) send_state: SendState,
}

/// The state of a producer's sends since a message was handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SendState {
    /// The message was not handed over.
    Never,
    /// Nothing was sent, or every failed request was refused before it was written.
    Clear,
    /// A failed request may have been written: perhaps with this message, before a retry.
    Open,
}

/// The outcome of a message that was not delivered: may it have been stored, and what helps?
pub(super) fn outcome(failed: &Failed<'_>) -> Outcome {
    let Failed { error, topic, size, has_key, batch, send_state } = *failed;
    let Some(code) = error.rdkafka_error_code() else {
        return Outcome::Invalid(format!("`{topic}`: {error}"));
    };
    let why = format!("`{topic}`: {code}");
    match code {
        // A batch is stored as a whole or not at all, so another message of the batch may be to
        // blame. The job's retry array decides about further attempts.
        Code::MessageSizeTooLarge | Code::MessageBatchTooLarge if size < batch => {
            Outcome::Unroutable(format!(
                "{why}: the topic accepts less than a batch of {batch} bytes (`max.message.bytes`; `batch.size` in `properties`)"
            ))
        }
        // The broker does not say which message of a batch was invalid. A compacted topic does not
        // refuse a message with a key.
        Code::InvalidRecord if size < batch && has_key => {
            Outcome::Unroutable(format!("{why}: or another message of its batch"))
        }
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
        // If the topic is gone, so is everything written to it.
        Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownPartition => {
            Outcome::Unroutable(format!("no topic `{topic}`: {code}"))
        }
        // The last answer says nothing about earlier requests: a message that lacked replicas only
        // after it was written is refused when it is sent again.
        _ if send_state == SendState::Open => Outcome::Unknown(why),
        Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed => {
            Outcome::Unroutable(why)
        }
        // Refused by the broker for now; by another producer if this one's epochs are used up.
        Code::NotEnoughReplicas
        | Code::ThrottlingQuotaExceeded
        | Code::PolicyViolation
        | Code::QueueFull
        | Code::InvalidProducerEpoch => Outcome::Refused(why),
        _ if send_state == SendState::Never => Outcome::Refused(why),
        Code::MessageTimedOut
        | Code::PurgeQueue
        | Code::AllBrokersDown
        | Code::BrokerTransportFailure => {
            Outcome::Refused(format!("{why}: it was never sent, the partition's broker is away"))
        }
        // For example a disk that failed after the write, or a lost sequence number.
        _ => Outcome::Unknown(why),
    }
}

/// The outcome of a message that librdkafka did not accept; `None` if its queue is full.
pub(super) fn not_taken(error: &KafkaError, topic: &str) -> Option<Outcome> {
    let failed = Failed {
        error,
        topic,
        size: usize::MAX,
        has_key: true,
        batch: 0,
        send_state: SendState::Never,
    };
    (error.rdkafka_error_code() != Some(Code::QueueFull)).then(|| outcome(&failed))
}

/// Whether a produce request that failed with this log line may have been written. A leader that
/// lost its role, or its disk, or that found too few replicas only afterwards, has written the
/// request first. librdkafka reports a message purged in flight as such.
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
            // After a gap in the sequence that a purge left.
            Code::OutOfOrderSequenceNumber,
            Code::PurgeQueue,
            Code::PurgeInflight,
        ];
        // `NotEnoughReplicas (Broker: Not enough in-sync replicas)`: the log has the text in
        // parentheses.
        let words = |code: Code| {
            Some(format!("failed: {}: ", code.to_string().split_once(" (")?.1.strip_suffix(')')?))
        };
        refusals.into_iter().filter_map(words).collect()
    });
    !REFUSALS.iter().any(|refusal| words.contains(refusal))
}

/// Whether the broker reported a duplicate in this failed produce request. librdkafka then reports
/// its messages as delivered, with offsets that no broker gave.
pub(super) fn is_repeat(words: &str) -> bool {
    words.contains("duplicate sequence number")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(code: Code, size: usize, send_state: SendState) -> Outcome {
        outcome(&Failed {
            error: &KafkaError::MessageProduction(code),
            topic: "t",
            size,
            has_key: true,
            batch: 16_384,
            send_state,
        })
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
            assert!(
                outcome.starts_with(expected) && outcome.contains("`t`"),
                "{code:?} {size} {send_state:?}: {outcome}"
            );
        }
    }

    #[test]
    fn a_request_that_failed_is_open_unless_it_was_refused_before_it_was_written() {
        for (words, expected) in [
            (
                "127.0.0.1:1/1: ProduceRequest failed: Broker: Not enough in-sync replicas: explicit actions Retry,MsgNotPersisted",
                false,
            ),
            (
                "ProduceRequest failed: Broker: Message(s) written to insufficient number of in-sync replicas: explicit actions Retry",
                true,
            ),
            (
                "ProduceRequest failed: Broker: Not leader for partition: actions Refresh,MsgNotPersisted",
                true,
            ),
            (
                "ProduceRequest failed: Local: Broker transport failure: explicit actions Refresh,MsgPossiblyPersisted",
                true,
            ),
            (
                "ProduceRequest failed: Broker: Producer attempted an operation with an old epoch: explicit actions Permanent",
                false,
            ),
            (
                "ProduceRequest failed: Broker: Topic authorization failed: explicit actions Permanent",
                false,
            ),
        ] {
            assert_eq!(is_open(words), expected, "{words}");
        }
    }
}
