//! Lookup of the stream of a subject, and creation of streams.

use async_nats::jetstream::context::{CreateStreamErrorKind, GetStreamByNameErrorKind};
use async_nats::jetstream::stream::{Config as StreamConfig, DiscardPolicy, RetentionPolicy, StorageType};

use super::config::Config;
use super::connection::{BrokerConnection, permitted};
use super::subject::{as_name, malformed};
use crate::error::innermost;
use crate::{ConnectorError, Declared, Destination, ErrorKind, Role};

/// The stream of this subject (of a pattern: of any subject that matches).
pub(super) async fn find(connection: &BrokerConnection, subject: &str) -> Result<Option<String>, ConnectorError> {
    let asked = connection.ask_api(connection.context.stream_by_subject(subject)).await?;
    asked.map(Some).or_else(|error| match error.kind() {
        GetStreamByNameErrorKind::NotFound => Ok(None),
        GetStreamByNameErrorKind::InvalidSubject => Err(connection.fail(ErrorKind::Config, &format!("`{subject}` is no subject"))),
        GetStreamByNameErrorKind::Request | GetStreamByNameErrorKind::JetStream(_) => {
            let failure =
                connection.fail(ErrorKind::Disconnected, &format!("cannot ask which stream has `{subject}`: {}", innermost(&error)));
            Err(failure.hint("is JetStream enabled on the server, for this account?").because(error))
        }
    })
}

/// Creates a stream for the subject if none has it.
pub(crate) async fn declare(config: &Config, to: &Destination, role: Role) -> Result<Declared, ConnectorError> {
    let subject = to.address.as_str();
    if let Some(why) = malformed(subject) {
        return Err(ConnectorError::new(ErrorKind::Config, why));
    }
    let (connection, mut complaints) = BrokerConnection::connect(config).await?;
    permitted(&mut complaints, make(&connection, subject, role)).await
}

async fn make(connection: &BrokerConnection, subject: &str, role: Role) -> Result<Declared, ConnectorError> {
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
                CreateStreamErrorKind::TimedOut | CreateStreamErrorKind::Response | CreateStreamErrorKind::JetStreamUnavailable => {
                    ErrorKind::Disconnected
                }
                _ => ErrorKind::Denied,
            };
            let failure = connection.fail(kind, &format!("cannot create the stream `{name}` for `{subject}`: {}", innermost(&error)));
            Err(failure.hint("create a stream for this subject by hand").because(error))
        }
    }
}
