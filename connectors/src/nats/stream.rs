//! Lookup of the stream of a subject, and creation of streams.

use async_nats::jetstream::context::{CreateStreamErrorKind, GetStreamByNameErrorKind};
use async_nats::jetstream::stream::{
    Config as StreamConfig, DiscardPolicy, RetentionPolicy, StorageType,
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
            Err(failure
                .hint("is JetStream enabled on the server, for this account?")
                .because(error))
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
    cautions
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
                CreateStreamErrorKind::TimedOut
                | CreateStreamErrorKind::Response
                | CreateStreamErrorKind::JetStreamUnavailable => ErrorKind::Disconnected,
                _ => ErrorKind::Denied,
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
