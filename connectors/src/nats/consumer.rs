//! The durable pull consumer of a source: found or created, with settings for at-least-once unless
//! acks are off.

mod check;

use std::time::Duration;

use async_nats::jetstream::consumer::{DeliverPolicy, pull};
use async_nats::jetstream::context::ConsumerInfoErrorKind;
use async_nats::jetstream::stream::{
    ConsumerErrorKind, ConsumerUpdateErrorKind, RetentionPolicy, Stream,
};
use futures_util::TryStreamExt;
use tracing::{info, warn};

use self::check::{Better, ConsumerCheck, policy};
use super::config::Config;
use super::connection::BrokerConnection;
use super::loop_check;
use super::stream::{cautions as stream_cautions, max_inactive, refusal};
use super::subject::as_name;
use crate::error::innermost;
use crate::{
    Acks, Caution, ConnectorError, ConsumerState, ErrorKind, FirstRead, SourceOptions, Start,
};

/// The time after which the server redelivers an unsettled message without a sign of progress.
const ACK_WAIT: Duration = Duration::from_secs(30);
/// The lowest `max_ack_pending`, for all readers of the group together. Each reader has a bound of
/// its own, so this only has to be high enough.
const MIN_ACK_PENDING: usize = 65_536;

/// The parts of a consumer that a source needs.
pub(super) struct Consumer {
    pub(super) stream: String,
    pub(super) name: String,
    /// The subject that the consumer reads.
    pub(super) topic: String,
    pub(super) ack_wait: Duration,
    /// The last sequence that the server had delivered to any reader when the source opened.
    pub(super) delivered: u64,
}

/// The state of the consumer: missing, or its settings and an update for them.
enum StoredConsumer {
    Missing,
    Usable {
        ack_wait: Duration,
        delivered: u64,
        better: Option<Box<Better>>,
        cautions: Vec<Caution>,
    },
}

/// Finds or creates the consumer on this stream.
pub(super) async fn ensure(
    connection: &BrokerConnection,
    stream: &str,
    config: &Config,
    options: &SourceOptions,
) -> Result<Consumer, ConnectorError> {
    let name = as_name(&options.group);
    let (handle, there) = find(connection, stream, config, options).await?;
    let (ack_wait, delivered) = match there {
        StoredConsumer::Usable { ack_wait, delivered, better, .. } => {
            if let Some(Better { config: better, is_optional }) = better.map(|better| *better) {
                info!(
                    stream,
                    consumer = name,
                    "consumer had a finite max_deliver, a small max_ack_pending, an inactive_threshold or bounds on requests, updating it"
                );
                let updated = async {
                    let updated =
                        connection.ask(handle.update_consumer(better)).await?.map_err(|error| {
                            let kind = match error.kind() {
                                ConsumerUpdateErrorKind::JetStream(error) => {
                                    refusal(error.error_code())
                                }
                                ConsumerUpdateErrorKind::InvalidConsumerType
                                | ConsumerUpdateErrorKind::InvalidName => ErrorKind::Denied,
                                ConsumerUpdateErrorKind::TimedOut
                                | ConsumerUpdateErrorKind::Request
                                | ConsumerUpdateErrorKind::DoesNotExist
                                | ConsumerUpdateErrorKind::Other => ErrorKind::Disconnected,
                            };
                            let failure = connection.fail(
                                kind,
                                &format!(
                                    "cannot update the consumer `{name}` of `{stream}`: {}",
                                    innermost(&error)
                                ),
                            );
                            failure
                                .hint("delete the consumer, or name another `group`")
                                .because(error)
                        });
                    updated.map(|_| ())
                };
                match updated.await {
                    Err(error) if is_optional => {
                        warn!(stream, consumer = name, %error, "the server will delete the consumer, with its place, while nobody reads it");
                    }
                    updated => updated?,
                }
            }
            (ack_wait, delivered)
        }
        StoredConsumer::Missing => {
            let ack_wait = config.ack_wait.unwrap_or(ACK_WAIT);
            let pending = match options.acks {
                Acks::Explicit => {
                    i64::try_from(options.max_unsettled.saturating_mul(4).max(MIN_ACK_PENDING))
                        .unwrap_or(i64::MAX)
                }
                Acks::None => 0,
            };
            let wanted = pull::Config {
                durable_name: Some(name.clone()),
                deliver_policy: begin(connection, options.start)?,
                ack_policy: policy(options.acks),
                ack_wait,
                max_deliver: -1,
                filter_subject: options.topic.clone(),
                max_ack_pending: pending,
                ..pull::Config::default()
            };
            let made = connection.ask(handle.create_consumer(wanted)).await?.map_err(|error| {
                let kind = match error.kind() {
                    ConsumerErrorKind::JetStream(error) => refusal(error.error_code()),
                    ConsumerErrorKind::InvalidConsumerType | ConsumerErrorKind::InvalidName => ErrorKind::Denied,
                    ConsumerErrorKind::TimedOut | ConsumerErrorKind::Request | ConsumerErrorKind::Other => ErrorKind::Disconnected,
                };
                let failure = connection.fail(kind, &format!("cannot create the consumer `{name}` on `{stream}`: {}", innermost(&error)));
                failure.hint("on a work-queue stream each subject has one consumer: name that one as `group`, or delete it").because(error)
            })?;
            (ack_wait, made.cached_info().delivered.stream_sequence)
        }
    };
    Ok(Consumer {
        stream: stream.to_owned(),
        name,
        topic: options.topic.clone(),
        ack_wait,
        delivered,
    })
}

/// The state that [`ensure`] would find, and the change that it would make.
pub(super) async fn inspect(
    connection: &BrokerConnection,
    stream: &str,
    config: &Config,
    options: &SourceOptions,
) -> Result<ConsumerState, ConnectorError> {
    let (handle, there) = find(connection, stream, config, options).await?;
    Ok(match there {
        StoredConsumer::Missing => {
            ConsumerState::Made(Some(first_read(connection, &handle, options).await?))
        }
        StoredConsumer::Usable { better: None, .. } => ConsumerState::Exists,
        StoredConsumer::Usable { better: Some(_), .. } => ConsumerState::Changed,
    })
}

/// The risks of the stream and of its consumer.
pub(super) async fn cautions(
    connection: &BrokerConnection,
    stream: &str,
    config: &Config,
    options: &SourceOptions,
) -> Result<Vec<Caution>, ConnectorError> {
    let (handle, there) = find(connection, stream, config, options).await?;
    let (is_read, of_consumer) = match there {
        StoredConsumer::Missing => (false, Vec::new()),
        StoredConsumer::Usable { cautions, .. } => (true, cautions),
    };
    let mut cautions = stream_cautions(&handle.cached_info().config, is_read);
    cautions.extend(of_consumer);
    Ok(cautions)
}

/// The start of a new consumer.
fn begin(connection: &BrokerConnection, start: Start) -> Result<DeliverPolicy, ConnectorError> {
    Ok(match start {
        Start::Earliest => DeliverPolicy::All,
        Start::Latest => DeliverPolicy::New,
        Start::At(ms) => {
            let start_time = async_nats::datetime::from_nanos(i128::from(ms) * 1_000_000);
            let start_time = start_time.map_err(|_| {
                connection.fail(ErrorKind::Config, &format!("{ms} ms is not a valid start time"))
            })?;
            DeliverPolicy::ByStartTime { start_time }
        }
    })
}

/// The messages that a new consumer would read first. The server counts by subject, not by time.
async fn first_read(
    connection: &BrokerConnection,
    stream: &Stream,
    options: &SourceOptions,
) -> Result<FirstRead, ConnectorError> {
    let topic = &options.topic;
    let wrong = |error: &(dyn std::error::Error + 'static)| {
        connection.fail(
            ErrorKind::Disconnected,
            &format!("cannot count the messages of `{topic}`: {}", innermost(error)),
        )
    };
    let mut subjects = match options.start {
        Start::Latest => return Ok(FirstRead::default()),
        Start::Earliest | Start::At(_) => connection
            .ask(stream.info_with_subjects(topic))
            .await?
            .map_err(|error| wrong(&error))?,
    };
    let mut messages = 0;
    while let Some((_, count)) =
        connection.ask(subjects.try_next()).await?.map_err(|error| wrong(&error))?
    {
        messages += u64::try_from(count).unwrap_or(u64::MAX);
    }
    if messages == 0 {
        return Ok(FirstRead::default());
    }
    // The message may be gone by now.
    let oldest = connection.ask(stream.get_first_raw_message_by_subject(topic, 1)).await?.ok();
    let oldest_ms = oldest
        .and_then(|message| i64::try_from(message.time.unix_timestamp_nanos() / 1_000_000).ok());
    let oldest_ms = match options.start {
        Start::At(ms) => oldest_ms.map(|oldest| oldest.max(ms)),
        Start::Earliest | Start::Latest => oldest_ms,
    };
    Ok(FirstRead { messages, oldest_ms })
}

async fn find(
    connection: &BrokerConnection,
    stream: &str,
    config: &Config,
    options: &SourceOptions,
) -> Result<(Stream, StoredConsumer), ConnectorError> {
    let name = as_name(&options.group);
    if name.is_empty() {
        return Err(connection.fail(ErrorKind::Config, "the group is empty"));
    }
    let handle = connection.ask(connection.context.get_stream(stream)).await?.map_err(|error| {
        connection
            .fail(
                ErrorKind::Disconnected,
                &format!("cannot read the state of the stream `{stream}`: {}", innermost(&error)),
            )
            .because(error)
    })?;
    let mut filter = options.topic.as_str();
    let there = match connection.ask(handle.consumer_info(&name)).await? {
        Ok(info) => {
            let is_filtered =
                !(info.config.filter_subject.is_empty() && info.config.filter_subjects.is_empty());
            filter = if is_filtered { filter } else { ">" };
            let existing = ConsumerCheck {
                connection,
                stream,
                options,
                subjects: &handle.cached_info().config.subjects,
                max_inactive: max_inactive(&handle.cached_info().config),
            };
            existing.check(&info.config)?;
            let (ack_wait, delivered) = (info.config.ack_wait, info.delivered.stream_sequence);
            StoredConsumer::Usable {
                ack_wait,
                delivered,
                cautions: existing.cautions(&info),
                better: existing.update(info.config)?.map(Box::new),
            }
        }
        Err(error) if error.kind() == ConsumerInfoErrorKind::NotFound => {
            let is_queue = handle.cached_info().config.retention == RetentionPolicy::WorkQueue;
            if is_queue && options.start != Start::Earliest {
                let failure = connection.fail(
                    ErrorKind::Config,
                    &format!("`{stream}` is a work queue: a reader starts with all messages in it"),
                );
                return Err(failure.hint("leave out `start`"));
            }
            StoredConsumer::Missing
        }
        Err(error) => {
            let failure = connection.fail(
                ErrorKind::Disconnected,
                &format!(
                    "cannot read the state of the consumer `{name}` of `{stream}`: {}",
                    innermost(&error)
                ),
            );
            return Err(failure.because(error));
        }
    };
    loop_check::check(
        config,
        connection,
        &handle.cached_info().config,
        filter,
        &options.publishes_to,
    )
    .await?;
    Ok((handle, there))
}
