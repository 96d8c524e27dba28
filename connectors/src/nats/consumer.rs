//! The durable pull consumer of a source: found or created, with settings for at-least-once unless
//! acks are off.

use std::time::Duration;

use async_nats::jetstream::consumer::{self, AckPolicy, DeliverPolicy, FromConsumer, pull};
use async_nats::jetstream::context::ConsumerInfoErrorKind;
use async_nats::jetstream::stream::{
    ConsumerErrorKind, ConsumerUpdateErrorKind, RetentionPolicy, Stream,
};
use futures_util::TryStreamExt;
use tracing::info;

use super::config::Config;
use super::connection::BrokerConnection;
use super::fetch_budget::REQUEST_TTL;
use super::loop_check;
use super::stream::{cautions as stream_cautions, max_inactive, refusal};
use super::subject::as_name;
use crate::error::innermost;
use crate::{
    Acks, Caution, CautionKind, ConnectorError, ConsumerState, ErrorKind, FirstRead, SourceOptions,
    Start,
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
    Fit {
        ack_wait: Duration,
        delivered: u64,
        better: Option<Box<pull::Config>>,
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
        StoredConsumer::Fit { ack_wait, delivered, better, .. } => {
            if let Some(better) = better {
                info!(
                    stream,
                    consumer = name,
                    "consumer had a finite max_deliver, a small max_ack_pending, an inactive_threshold or bounds on requests, updating it"
                );
                connection.ask(handle.update_consumer(*better)).await?.map_err(|error| {
                    let kind = match error.kind() {
                        ConsumerUpdateErrorKind::JetStream(error) => refusal(error.error_code()),
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
                    failure.hint("delete the consumer, or name another `group`").because(error)
                })?;
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

/// The ack policy of the server.
fn policy(acks: Acks) -> AckPolicy {
    match acks {
        Acks::Explicit => AckPolicy::Explicit,
        Acks::None => AckPolicy::None,
    }
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
        StoredConsumer::Fit { better: None, .. } => ConsumerState::Exists,
        StoredConsumer::Fit { better: Some(_), .. } => ConsumerState::Changed,
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
        StoredConsumer::Fit { cautions, .. } => (true, cautions),
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
            let fit = Fit {
                connection,
                stream,
                options,
                subjects: &handle.cached_info().config.subjects,
                max_inactive: max_inactive(&handle.cached_info().config),
            };
            fit.check(&info.config)?;
            let (ack_wait, delivered) = (info.config.ack_wait, info.delivered.stream_sequence);
            StoredConsumer::Fit {
                ack_wait,
                delivered,
                cautions: fit.cautions(&info.config),
                better: fit.update(info.config)?.map(Box::new),
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

/// Checks an existing consumer.
struct Fit<'a> {
    connection: &'a BrokerConnection,
    stream: &'a str,
    options: &'a SourceOptions,
    subjects: &'a [String],
    /// The `inactive_threshold` that the stream gives to its consumers; zero if none.
    max_inactive: Duration,
}

impl Fit<'_> {
    /// Checks the settings that cannot be updated.
    fn check(&self, config: &consumer::Config) -> Result<(), ConnectorError> {
        let topic = &self.options.topic;
        let all_is_topic = self.subjects.len() == 1 && self.subjects[0] == *topic;
        let filter_fits = match (config.filter_subject.as_str(), config.filter_subjects.as_slice())
        {
            ("", []) => all_is_topic,
            ("", [one]) => one == topic,
            (one, []) => one == topic,
            _ => false,
        };
        let wrong = if config.deliver_subject.is_some() {
            "it is a push consumer".to_owned()
        } else if config.ack_policy != policy(self.options.acks) {
            match self.options.acks {
                Acks::Explicit => {
                    "its ack policy is not explicit: messages would be lost".to_owned()
                }
                Acks::None => "its ack policy is not none".to_owned(),
            }
        } else if !filter_fits {
            let filters =
                [&[config.filter_subject.clone()][..], &config.filter_subjects].concat().join(" ");
            format!("it does not read `{topic}` but `{}`", filters.trim())
        } else if config.headers_only {
            "it delivers headers only".to_owned()
        } else {
            return Ok(());
        };
        let failure = self.connection.fail(
            ErrorKind::Config,
            &format!(
                "the consumer `{}` of `{}` cannot be used: {wrong}",
                self.options.group, self.stream
            ),
        );
        Err(failure.hint("delete the consumer, or name another `group`"))
    }

    /// The risks of the consumer that no update takes away: its place is lost.
    fn cautions(&self, config: &consumer::Config) -> Vec<Caution> {
        let Fit { stream, options: SourceOptions { group, .. }, .. } = self;
        let mut cautions = Vec::new();
        let mut loses = |what: &str| {
            cautions.push(Caution {
                kind: CautionKind::Loses,
                message: format!(
                    "the consumer `{group}` of `{stream}` {what}: its place is lost, and a new one begins at `start`"
                ),
                hint: "delete the consumer once it has read all: Dwell makes a durable one with the storage of the stream"
                    .to_owned(),
            });
        };
        if config.memory_storage {
            loses("is in memory and gone when the server restarts (mem_storage)");
        }
        if config.durable_name.is_none() {
            loses("is not durable and gone soon after its last reader");
        }
        cautions
    }

    /// The update that the consumer needs; `None` if it needs none.
    fn update(&self, config: consumer::Config) -> Result<Option<pull::Config>, ConnectorError> {
        let wrong = |error: async_nats::Error| {
            self.connection
                .fail(ErrorKind::Config, &format!("the consumer `{}`: {error}", self.options.group))
        };
        let mut config = pull::Config::try_from_consumer_config(config).map_err(wrong)?;
        let needed = i64::try_from(self.options.max_unsettled).unwrap_or(i64::MAX);
        let bounded = self.options.acks == Acks::Explicit
            && config.max_ack_pending >= 0
            && config.max_ack_pending < needed;
        let short = config.max_expires > Duration::ZERO && config.max_expires < REQUEST_TTL;
        let small =
            config.max_bytes > 0 || config.max_batch > 0 && config.max_batch < needed || short;
        // Without the threshold the server would put that of the stream in its place, or of a
        // consumer that is not durable its own.
        let expires = !config.inactive_threshold.is_zero()
            && config.durable_name.is_some()
            && self.max_inactive.is_zero();
        let redelivers = config.max_deliver <= 0 && config.backoff.is_empty();
        if redelivers && !bounded && !small && !expires {
            return Ok(None);
        }
        config.max_deliver = -1;
        config.backoff = Vec::new();
        if small {
            // The limits of a request: the server would refuse all of ours.
            (config.max_bytes, config.max_batch, config.max_expires) = (0, 0, Duration::ZERO);
        }
        if expires {
            // The server would delete the consumer, with its place, while Dwell is away.
            config.inactive_threshold = Duration::ZERO;
        }
        if bounded {
            config.max_ack_pending = needed;
        }
        Ok(Some(config))
    }
}
