//! The contract of a broker: its capabilities, its names, and how its sources and sinks are opened.

use std::borrow::Cow;
use std::time::Duration;

use async_trait::async_trait;

use crate::{
    Capabilities, ConnectorError, Destination, Header, Headers, Message, Outcomes, Sink, Source,
    SourceOptions, Value,
};

/// Use of a destination. Decides what `declare` creates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Read by an ingest.
    Ingest,
    /// Receives rejected requests or dead letters.
    Letters,
}

/// State of the consumer that a source would use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConsumerState {
    /// The consumer exists and fits.
    Exists,
    /// The consumer exists; [`Connector::source`] would update its settings.
    Changed,
    /// [`Connector::source`] would create the consumer; the messages that it would read first,
    /// where the broker tells.
    Made(Option<FirstRead>),
}

/// Messages that a new consumer would read first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FirstRead {
    /// The number of messages, at most.
    pub messages: u64,
    /// The time of the oldest message with a time, epoch ms, where known.
    pub oldest_ms: Option<i64>,
}

/// A risk that is no error: an operator should know before anything is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caution {
    /// The kind of risk.
    pub kind: CautionKind,
    /// The finding, for people.
    pub message: String,
    /// The hint for an operator.
    pub hint: String,
}

/// The kind of risk of a [`Caution`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CautionKind {
    /// Producers set the time of a message.
    ProducerTime {
        /// The broker removes messages by that time, however wrong it is, read or not.
        deletes: bool,
    },
    /// The broker drops a message that is redelivered too often.
    Drops,
    /// A message that expires before it is read is dropped, or moved to a queue that nothing reads.
    Expires,
    /// The settings of the topic or queue drop messages that were confirmed to their producers.
    Loses,
    /// The broker may hold a message back before it can be read.
    HoldsBack,
    /// The broker delivers nothing until a time, or until somebody resumes it.
    Paused,
}

/// Result of `declare`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Declared {
    /// It existed.
    Existed,
    /// It was created.
    Created,
}

/// One broker of the settings. A broker's folder implements this for its `Config`;
/// [`crate::BrokerConfig`] is the list of brokers.
#[async_trait]
pub trait Connector: std::fmt::Debug + Send + Sync {
    /// The differences between this kind of broker and others.
    fn capabilities(&self) -> &'static Capabilities;

    /// The kind of broker, as in `type`.
    fn kind(&self) -> &'static str {
        self.capabilities().kind
    }

    /// The address of the broker for people: the URL without its password.
    fn place(&self) -> String;

    /// The mistakes in these settings that show without a connection, each as a sentence.
    fn problems(&self) -> Vec<String> {
        Vec::new()
    }

    /// A destination as settings and `reply_to` fields write it.
    fn destination(&self, text: &str) -> Destination {
        Destination::new(text)
    }

    /// Whether this pattern of `allow` matches a destination that a producer names.
    fn allows(&self, pattern: &str, to: &Destination) -> bool;

    /// Why nobody may publish here: a wildcard, or a destination of the broker or of its clients
    /// (`$JS.>`, `_INBOX.>`).
    fn forbidden(&self, to: &Destination) -> Option<String>;

    /// Whether this pattern of `allow` can match several destinations.
    fn is_pattern(&self, pattern: &str) -> bool {
        self.forbidden(&Destination::new(pattern)).is_some()
    }

    /// The key of this pattern: each destination that the pattern matches has it among its keys.
    /// `None`: the pattern may match any. With many patterns the keys find the few to compare.
    fn pattern_key(&self, _pattern: &str) -> Option<String> {
        None
    }

    /// The keys of a destination; `None`: all patterns are compared.
    fn keys_of(&self, _to: &Destination) -> Option<Vec<String>> {
        None
    }

    /// The headers among these, in lower case, that other headers name as those of a hop.
    fn hop_headers(&self, _headers: &Headers) -> Vec<String> {
        Vec::new()
    }

    /// Why this is no pattern of `allow`, and what to write instead.
    fn pattern_problem(&self, _pattern: &str) -> Option<(String, String)> {
        None
    }

    /// Whether this pattern of `allow` matches any destination on this exchange.
    fn allows_exchange(&self, _pattern: &str, _exchange: &str) -> bool {
        false
    }

    /// Why an ingest cannot read this topic.
    fn unreadable(&self, _topic: &str) -> Option<String> {
        None
    }

    /// Whether a reader of this topic receives publications to the destination, as far as the names
    /// tell.
    fn reads(&self, topic: &str, to: &Destination) -> bool {
        to.exchange.is_empty() && topic == to.address
    }

    /// The endpoint with a share of the window and a pause of its own: the destination, or a URL's
    /// host.
    fn endpoint<'a>(&self, to: &'a Destination) -> Cow<'a, Destination> {
        Cow::Borrowed(to)
    }

    /// The destination for logs and errors, without parts that may be secret.
    fn shown(&self, to: &Destination) -> String {
        to.to_string()
    }

    /// The reason of a failed attempt, for logs: without text of the destination, which may hold
    /// anything.
    fn without_answer<'a>(&self, why: &'a str) -> &'a str {
        why
    }

    /// The destination of dead letters. `common`: `delivery.dead`; empty for none.
    fn dead_letters(&self, common: &str) -> Option<Destination> {
        (!common.is_empty()).then(|| self.destination(common))
    }

    /// The longest attempt by these settings, where it is shorter than `publish_timeout`.
    fn timeout(&self) -> Option<Duration> {
        None
    }

    /// Whether a header can be published here. `Ok(false)`: the header is dropped, because it would
    /// change the publication. `Err`: why the message is refused. `is_own`: the message was read
    /// from this kind of broker.
    fn carries(&self, _header: &Header, _is_own: bool) -> Result<bool, String> {
        Ok(true)
    }

    /// The system of a span about a message, by OpenTelemetry's semantic conventions.
    fn span_system(&self) -> &'static str {
        self.kind()
    }

    /// The system's own name of a publication, for spans, by OpenTelemetry's semantic conventions.
    fn span_operation(&self) -> &'static str {
        "publish"
    }

    /// The destination of a span about a message, by OpenTelemetry's semantic conventions.
    fn span_destination(&self, to: &Destination) -> String {
        to.address.clone()
    }

    /// Attributes of a span about a message that only this system has, by OpenTelemetry's semantic
    /// conventions. `group` is empty for a publication.
    fn span_attributes(
        &self,
        _to: &Destination,
        _group: &str,
        _message: &Message,
    ) -> Vec<(&'static str, Value)> {
        Vec::new()
    }

    /// Opens a source: connected, its consumer found or created, ready for `recv`. Creates a
    /// missing consumer, never a topic.
    async fn source(&self, options: SourceOptions) -> Result<Box<dyn Source>, ConnectorError>;

    /// Checks whether a source could be opened, and changes nothing. The errors are those of
    /// [`Connector::source`]: `Missing` for the topic.
    async fn inspect(&self, options: &SourceOptions) -> Result<ConsumerState, ConnectorError>;

    /// Risks of the topics and queues that a source would read, where the broker shows them.
    /// Changes nothing.
    async fn cautions(&self, _options: &SourceOptions) -> Result<Vec<Caution>, ConnectorError> {
        Ok(Vec::new())
    }

    /// Whether the target of each of these patterns of `allow` can be reached: a sentence, or the
    /// error; `None` where [`Sink::exists`] tells.
    async fn reach(&self, _patterns: &[&str]) -> Option<Vec<Result<String, ConnectorError>>> {
        None
    }

    /// Opens a sink. A publication without an answer for `publish_timeout` is reported as unknown.
    async fn sink(
        &self,
        publish_timeout: Duration,
    ) -> Result<(Box<dyn Sink>, Outcomes), ConnectorError>;

    /// Creates a missing destination; leaves an existing one unchanged.
    async fn declare(&self, to: &Destination, role: Role) -> Result<Declared, ConnectorError>;

    /// Creates the topics and queues that these options read, where missing; leaves existing ones
    /// unchanged.
    async fn declare_source(&self, options: &SourceOptions) -> Result<Declared, ConnectorError> {
        self.declare(&Destination::new(&options.topic), Role::Ingest).await
    }
}
