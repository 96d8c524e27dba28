//! The required settings of an existing consumer, and the update that it needs.

use std::time::Duration;

use async_nats::datetime::{DateTime, from_nanos};
use async_nats::jetstream::consumer::{self, AckPolicy, FromConsumer, PriorityPolicy, pull};

use crate::nats::connection::BrokerConnection;
use crate::nats::fetch_budget::REQUEST_TTL;
use crate::{Acks, Caution, CautionKind, ConnectorError, ErrorKind, SourceOptions};

/// A better configuration of a consumer.
pub(super) struct Better {
    pub(super) config: pull::Config,
    /// The consumer can be read without it.
    pub(super) is_optional: bool,
}

/// The ack policy of the server.
pub(super) fn policy(acks: Acks) -> AckPolicy {
    match acks {
        Acks::Explicit => AckPolicy::Explicit,
        Acks::None => AckPolicy::None,
    }
}

/// Checks an existing consumer.
pub(super) struct ConsumerCheck<'a> {
    pub(super) connection: &'a BrokerConnection,
    pub(super) stream: &'a str,
    pub(super) options: &'a SourceOptions,
    pub(super) subjects: &'a [String],
    /// The `inactive_threshold` that the stream gives to its consumers; zero if none.
    pub(super) max_inactive: Duration,
}

impl ConsumerCheck<'_> {
    /// Checks the settings that cannot be updated.
    pub(super) fn check(&self, config: &consumer::Config) -> Result<(), ConnectorError> {
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
        } else if config.priority_policy != PriorityPolicy::None {
            // Each policy refuses a request that names no group.
            format!(
                "it delivers only to requests that name one of its priority_groups ({}), and Dwell's name none",
                config.priority_groups.join(", ")
            )
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

    /// The risks of the consumer that no update takes away: its place is lost, or it is paused.
    pub(super) fn cautions(&self, info: &consumer::Info) -> Vec<Caution> {
        let ConsumerCheck { stream, options: SourceOptions { group, .. }, .. } = self;
        let config = &info.config;
        let mut cautions = Vec::new();
        if info.paused {
            let until = config
                .pause_until
                .map_or_else(String::new, |until| format!(" until {}", show_time(until)));
            cautions.push(Caution {
                kind: CautionKind::Paused,
                message: format!(
                    "the consumer `{group}` of `{stream}` is paused{until} (pause_until): no request is read meanwhile"
                ),
                hint: format!("nats consumer resume {stream} {}", info.name),
            });
        }
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
    pub(super) fn update(
        &self,
        config: consumer::Config,
    ) -> Result<Option<Better>, ConnectorError> {
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
        let is_optional = redelivers && !bounded && !small;
        if is_optional && !expires {
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
        Ok(Some(Better { config, is_optional }))
    }
}

/// A time as RFC 3339 in UTC: `2026-01-31T12:00:00Z`.
fn show_time(time: DateTime) -> String {
    let time = from_nanos(time.unix_timestamp_nanos()).unwrap_or(time);
    format!("{}T{:02}:{:02}:{:02}Z", time.date(), time.hour(), time.minute(), time.second())
}
