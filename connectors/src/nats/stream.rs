//! Lookup of the stream of a subject, and creation of streams.

use std::time::Duration;

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::{CreateStreamErrorKind, GetStreamByNameErrorKind};
use async_nats::jetstream::stream::{
    Config as StreamConfig, DiscardPolicy, PersistenceMode, RetentionPolicy, StorageType,
};

use super::config::Config;
use super::connection::{BrokerConnection, permitted};
use super::subject::{as_name, malformed};
use crate::error::innermost;
use crate::{
    Caution, CautionKind, ConnectorError, Declared, Destination, ErrorKind, Role, show_duration_ms,
};

/// The stream of this subject (of a pattern: of any subject that matches).
pub(super) async fn find(
    connection: &BrokerConnection,
    subject: &str,
) -> Result<Option<String>, ConnectorError> {
    let asked = connection.ask_api(connection.context.stream_by_subject(subject)).await?;
    asked.map(Some).or_else(|error| match error.kind() {
        GetStreamByNameErrorKind::NotFound => Ok(None),
        GetStreamByNameErrorKind::InvalidSubject => {
            Err(connection.fail(ErrorKind::Config, &format!("`{subject}` is no subject")))
        }
        GetStreamByNameErrorKind::Request | GetStreamByNameErrorKind::JetStream(_) => {
            let failure = connection.fail(
                ErrorKind::Disconnected,
                &format!("cannot ask which stream has `{subject}`: {}", innermost(&error)),
            );
            Err(failure.hint(connection.api_hint()).because(error))
        }
    })
}

/// The cautions of the stream: losses of requests that were confirmed to their producers.
/// `is_read`: its reader exists.
pub(super) fn cautions(stream: &StreamConfig, is_read: bool) -> Vec<Caution> {
    let name = &stream.name;
    let mut cautions = Vec::new();
    let mut loses = |what: String, hint: String| {
        cautions.push(Caution {
            kind: CautionKind::Loses,
            message: format!("the stream `{name}` {what}"),
            hint,
        });
    };
    let drops_old = stream.discard == DiscardPolicy::Old;
    if stream.max_messages_per_subject > 0 && (drops_old || !stream.discard_new_per_subject) {
        let most = stream.max_messages_per_subject;
        loses(
            format!(
                "keeps {most} messages a subject (max_msgs_per_subject): a new request removes the oldest that was not read"
            ),
            format!("nats stream edit {name} --max-msgs-per-subject=-1"),
        );
    }
    for (setting, flag, bound) in [
        ("max_msgs", "max-msgs", stream.max_messages),
        ("max_bytes", "max-bytes", stream.max_bytes),
    ] {
        if bound > 0 && drops_old {
            loses(
                format!(
                    "removes the oldest request, read or not, beyond {setting} {bound} (discard old)"
                ),
                format!(
                    "nats stream edit {name} --discard=new, so that publications fail instead; or --{flag}=-1"
                ),
            );
        }
    }
    if !stream.max_age.is_zero() {
        loses(
            format!(
                "removes a request that waits longer than max_age, {}",
                show_duration_ms(u64::try_from(stream.max_age.as_millis()).unwrap_or(u64::MAX))
            ),
            format!("nats stream edit {name} --max-age=0"),
        );
    }
    if stream.retention == RetentionPolicy::Interest && !is_read {
        loses(
            "drops what nobody reads (interest retention), and Dwell's reader does not exist yet: requests before the first start are lost"
                .to_owned(),
            "start Dwell before the producers, or use a stream with work-queue or limits retention".to_owned(),
        );
    }
    if stream.storage == StorageType::Memory {
        loses(
            "is in memory: its requests are gone when the server restarts".to_owned(),
            "make a stream with file storage".to_owned(),
        );
    }
    if stream.no_ack {
        loses(
            "confirms nothing to producers (no_ack): a request that it did not store is lost without a word".to_owned(),
            format!("nats stream edit {name} --ack"),
        );
    }
    if stream.persist_mode == Some(PersistenceMode::Async) {
        loses(
            "confirms a request before it is on disk (persist_mode async): a crash of the server loses it".to_owned(),
            "make a stream with the default persist_mode".to_owned(),
        );
    }
    if stream.allow_message_ttl {
        loses(
            "removes a request, read or not, after the time in its header `Nats-TTL` (allow_msg_ttl)".to_owned(),
            "send requests without `Nats-TTL`, or make a stream without allow_msg_ttl: it cannot be turned off".to_owned(),
        );
    }
    if stream.allow_rollup {
        loses(
            "removes the earlier requests, read or not, when one comes with the header `Nats-Rollup` (allow_rollup_hdrs)".to_owned(),
            format!("nats stream edit {name} --no-allow-rollup"),
        );
    }
    let inactive = max_inactive(stream);
    if !inactive.is_zero() {
        let after = show_duration_ms(u64::try_from(inactive.as_millis()).unwrap_or(u64::MAX));
        loses(
            format!(
                "deletes a consumer, with its place, {after} after its last reader (consumer_limits.inactive_threshold)"
            ),
            "set consumer_limits.inactive_threshold of the stream to 0".to_owned(),
        );
    }
    cautions
}

/// The `inactive_threshold` that the stream gives to its consumers; zero if none.
pub(super) fn max_inactive(stream: &StreamConfig) -> Duration {
    stream.consumer_limits.as_ref().map_or(Duration::ZERO, |limits| limits.inactive_threshold)
}

/// Creates a stream for the subject if none has it.
pub(crate) async fn declare(
    config: &Config,
    to: &Destination,
    role: Role,
) -> Result<Declared, ConnectorError> {
    let subject = to.address.as_str();
    if let Some(why) = malformed(subject) {
        return Err(ConnectorError::new(ErrorKind::Config, why));
    }
    let (connection, mut server_errors) = BrokerConnection::connect(config).await?;
    permitted(&mut server_errors, make(&connection, subject, role)).await
}

async fn make(
    connection: &BrokerConnection,
    subject: &str,
    role: Role,
) -> Result<Declared, ConnectorError> {
    if find(connection, subject).await?.is_some() {
        return Ok(Declared::Existed);
    }
    // Requests are a queue: read once, and publications fail when it is full. Letters stay until
    // their owner removes them.
    let (retention, discard) = match role {
        Role::Ingest => (RetentionPolicy::WorkQueue, DiscardPolicy::New),
        Role::Letters => (RetentionPolicy::Limits, DiscardPolicy::Old),
    };
    let name = format!("DWELL_{}", as_name(subject));
    let stream = StreamConfig {
        name: name.clone(),
        subjects: vec![subject.to_owned()],
        retention,
        discard,
        storage: StorageType::File,
        ..StreamConfig::default()
    };
    match connection.ask(connection.context.create_stream(stream)).await? {
        Ok(_) => Ok(Declared::Created),
        Err(error) => {
            let kind = match error.kind() {
                CreateStreamErrorKind::JetStream(error) => refusal(error.error_code()),
                CreateStreamErrorKind::EmptyStreamName
                | CreateStreamErrorKind::InvalidStreamName
                | CreateStreamErrorKind::DomainAndExternalSet => ErrorKind::Denied,
                CreateStreamErrorKind::TimedOut
                | CreateStreamErrorKind::Response
                | CreateStreamErrorKind::ResponseParse
                | CreateStreamErrorKind::NotFound
                | CreateStreamErrorKind::JetStreamUnavailable => ErrorKind::Disconnected,
            };
            let failure = connection.fail(
                kind,
                &format!(
                    "cannot create the stream `{name}` for `{subject}`: {}",
                    innermost(&error)
                ),
            );
            Err(failure.hint("create a stream for this subject by hand").because(error))
        }
    }
}

/// The kind of an error of JetStream when a stream or a consumer is made or updated: denied if it
/// comes until somebody changes the settings or the limits of the account. Any other error passes:
/// a cluster that starts has no peers, resources are short, or the stream went between two calls.
pub(super) fn refusal(code: ErrorCode) -> ErrorKind {
    let denied = [
        ErrorCode::BAD_REQUEST,
        ErrorCode::INVALID_JSON,
        ErrorCode::REQUIRED_API_LEVEL,
        ErrorCode::NO_LIMITS,
        ErrorCode::MAXIMUM_STREAMS_LIMIT,
        ErrorCode::STREAM_INVALID_CONFIG,
        ErrorCode::STREAM_INVALID,
        ErrorCode::STREAM_NAME_EXIST,
        ErrorCode::STREAM_NAME_CONTAINS_PATH_SEPARATORS,
        ErrorCode::STREAM_REPLICAS_NOT_SUPPORTED,
        ErrorCode::STREAM_MAX_BYTES_REQUIRED,
        ErrorCode::STREAM_MAX_STREAM_BYTES_EXCEEDED,
        ErrorCode::CONSUMER_WQ_REQUIRES_EXPLICIT_ACK,
        ErrorCode::CONSUMER_WQ_MULTIPLE_UNFILTERED,
        ErrorCode::CONSUMER_WQ_CONSUMER_NOT_UNIQUE,
        ErrorCode::CONSUMER_WQ_CONSUMER_NOT_DELIVER_ALL,
        ErrorCode::CONSUMER_NAME_TOO_LONG,
        ErrorCode::CONSUMER_BAD_DURABLE_NAME,
        ErrorCode::CONSUMER_NAME_CONTAINS_PATH_SEPARATORS,
        ErrorCode::CONSUMER_CREATE_FILTER_SUBJECT_MISMATCH,
        ErrorCode::CONSUMER_CREATE_DURABLE_AND_NAME_MISMATCH,
        ErrorCode::CONSUMER_FILTER_NOT_SUBSET,
        ErrorCode::CONSUMER_MULTIPLE_FILTERS_NOT_ALLOWED,
        ErrorCode::CONSUMER_INVALID_POLICY,
        ErrorCode::CONSUMER_ACK_POLICY_INVALID,
        ErrorCode::CONSUMER_ACK_WAIT_NEGATIVE,
        ErrorCode::CONSUMER_PULL_REQUIRES_ACK,
        ErrorCode::CONSUMER_MAX_PENDING_ACK_POLICY_REQUIRED,
        ErrorCode::CONSUMER_MAX_PENDING_ACK_EXCESS,
        ErrorCode::CONSUMER_MAX_REQUEST_BATCH_EXCEEDED,
        ErrorCode::CONSUMER_INACTIVE_THRESHOLD_EXCESS,
        ErrorCode::CONSUMER_REPLICAS_EXCEEDS_STREAM,
        ErrorCode::CONSUMER_REPLICAS_SHOULD_MATCH_STREAM,
    ];
    if denied.contains(&code) { ErrorKind::Denied } else { ErrorKind::Disconnected }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_else_mends_is_denied() {
        // Invalid settings, a name in use, the limits of the account, a second reader of a queue.
        for code in [10027, 10052, 10058, 10113, 10120, 10099, 10100, 10121] {
            assert_eq!(refusal(ErrorCode(code)), ErrorKind::Denied, "{code}");
        }
        // No peers, no leader, short of resources or storage, a stream that is gone, an overlap
        // with a stream that was made meanwhile, a consumer likewise, too many consumers, which end
        // by themselves, and what is not known.
        for code in
            [10005, 10008, 10009, 10023, 10026, 10028, 10047, 10059, 10065, 10012, 10148, 0, 19999]
        {
            assert_eq!(refusal(ErrorCode(code)), ErrorKind::Disconnected, "{code}");
        }
    }
}
