//! The events of a librdkafka client, and whether the cluster answers.
//!
//! librdkafka reconnects by itself without end, and most of its errors on the way are harmless. The
//! connection counts as lost when all known brokers are down and none answers within
//! [`BROKERS_DOWN_GRACE`]. Then the source or sink ends, and the supervisor opens another.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rdkafka::ClientContext;
use rdkafka::client::Client;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::metadata::Metadata;
use rdkafka::statistics::Statistics;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::{debug, error, trace, warn};

use super::config::{ClientRole, Config};
use super::error_log;
use super::outcome::{SendState, is_open, is_repeat};
use crate::{ConnectorError, ErrorKind};

/// The longest time to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest metadata request, before the client's events are read again.
const METADATA_TIMEOUT: Duration = Duration::from_millis(500);
/// The longest that blocking work with a client may take: more than its own timeouts together. Only
/// the opening of a source takes longer.
pub(super) const BLOCKING_TIMEOUT: Duration = Duration::from_secs(30);
/// The number of permanently failed messages after which a producer is replaced. Low enough that
/// those in flight then may fail too.
const MAX_PRODUCER_FAILURES: u32 = 20_000;
/// The time that all brokers may be down before the connection counts as lost.
pub(super) const BROKERS_DOWN_GRACE: Duration = Duration::from_secs(2);

/// Collects the events of one client.
#[derive(Default)]
pub(super) struct ClientEvents(Mutex<EventState>);

#[derive(Default)]
struct EventState {
    last: Option<String>,
    /// When all brokers were first and last reported down, since one answered.
    down: Option<(Instant, Instant)>,
    denied: Option<String>,
    /// When a sent and unconfirmed message may last have been written.
    open: Option<Instant>,
    /// When a broker last reported a duplicate sequence number of this producer.
    repeat: Option<Instant>,
    /// The number of permanently failed messages of this producer; set to the maximum if a broker
    /// knows a later epoch.
    failures: u32,
}

impl ClientEvents {
    fn hear(&self, code: Code, reason: &str) {
        debug!(?code, reason, "librdkafka reports an error");
        let mut heard = self.0.lock();
        match code {
            // This event repeats.
            Code::AllBrokersDown => {
                let now = Instant::now();
                heard.down = Some((heard.down.map_or(now, |(first, _)| first), now));
            }
            Code::Authentication
            | Code::SaslAuthenticationFailed
            | Code::UnsupportedSASLMechanism
            | Code::ClusterAuthorizationFailed => {
                heard.denied = Some(reason.to_owned());
            }
            _ => heard.last = Some(reason.to_owned()),
        }
    }

    /// The state of a producer's sends since this moment.
    pub(super) fn send_state_since(&self, moment: Instant) -> SendState {
        if self.0.lock().open.is_some_and(|last| last >= moment) {
            SendState::Open
        } else {
            SendState::Clear
        }
    }

    /// Whether a broker reported a duplicate since this moment.
    pub(super) fn repeated_since(&self, moment: Instant) -> bool {
        self.0.lock().repeat.is_some_and(|last| last >= moment)
    }

    /// Records a failed produce request, from librdkafka's log line.
    fn request_failed(&self, words: &str) {
        let mut heard = self.0.lock();
        if is_repeat(words) {
            heard.repeat = Some(Instant::now());
        }
        if is_open(words) {
            heard.open = Some(Instant::now());
        }
    }

    /// A connection was closed to purge a half-written request. Earlier requests were written
    /// completely, and librdkafka reports their messages as never sent too. It logs this line
    /// first, and log lines come before delivery reports (`RD_KAFKA_PRIO_MEDIUM`).
    fn connection_purged(&self) {
        self.0.lock().open = Some(Instant::now());
    }

    /// Records a permanently failed message.
    pub(super) fn message_failed(&self, code: Option<Code>) {
        let is_old = code == Some(Code::InvalidProducerEpoch);
        let mut heard = self.0.lock();
        if is_old && heard.failures < MAX_PRODUCER_FAILURES {
            warn!("a broker has a later epoch of this producer, replacing the producer");
        }
        heard.failures =
            if is_old { MAX_PRODUCER_FAILURES } else { heard.failures.saturating_add(1) };
    }

    /// Whether this producer must be replaced. Each permanently failed message may increase the
    /// producer's epoch, and librdkafka restarts at 0 after 32 767. Brokers then refuse the
    /// producer as outdated.
    pub(super) fn is_spent(&self) -> bool {
        self.0.lock().failures >= MAX_PRODUCER_FAILURES
    }

    /// Why the connection is lost: no broker has answered for too long. Asks the brokers for
    /// metadata to find out.
    pub(super) fn lost<C: ClientContext>(&self, client: &Client<C>) -> Option<String> {
        let (first, last) = self.0.lock().down?;
        if client.fetch_metadata(None, METADATA_TIMEOUT / 2).is_ok() {
            // Unless they went down again meanwhile.
            self.0.lock().down.take_if(|(_, latest)| *latest == last);
            return None;
        }
        (first.elapsed() >= BROKERS_DOWN_GRACE).then(|| {
            self.0.lock().last.clone().unwrap_or_else(|| "all brokers are down".to_owned())
        })
    }
}

/// The context of a client: its events, and their owner.
pub(super) struct Context<T> {
    pub(super) events: Arc<ClientEvents>,
    pub(super) of: T,
    /// The client for people. A client that is opened again has the same name.
    client: String,
}

impl<T> Context<T> {
    pub(super) fn new(config: &Config, role: ClientRole<'_>, of: T) -> Self {
        let client = format!("{role} at {}", config.place());
        Context { events: Arc::default(), of, client }
    }
}

impl<T: Send + Sync> ClientContext for Context<T> {
    /// Errors are also reported through `error`.
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        if matches!(level, RDKafkaLogLevel::Debug) {
            // Each failed request, before the delivery reports of its messages. Only writers enable
            // this log, which has many other lines.
            if facility == "REQERR" && message.contains("ProduceRequest") {
                self.events.request_failed(message);
            } else if facility == "FAIL" && message.contains("partially sent") {
                self.events.connection_purged();
            }
            trace!(facility, message, "librdkafka logs");
        } else if matches!(
            level,
            RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical
        ) {
            error_log::report(&self.client, facility, message);
        } else {
            debug!(facility, message, "librdkafka logs");
        }
    }

    fn stats(&self, _: Statistics) {}

    fn error(&self, error: KafkaError, reason: &str) {
        self.events.hear(error.rdkafka_error_code().unwrap_or(Code::Unknown), reason);
    }
}

/// The metadata of the cluster and of this topic. `poll` makes the client report its events.
pub(super) fn ask<T: Send + Sync>(
    config: &Config,
    client: &Client<Context<T>>,
    topic: Option<&str>,
    poll: impl Fn(),
) -> Result<Metadata, ConnectorError> {
    let deadline = Instant::now() + CONNECT_TIMEOUT;
    loop {
        let error = match client.fetch_metadata(topic, METADATA_TIMEOUT) {
            Ok(metadata) => return Ok(metadata),
            Err(error) => error,
        };
        poll();
        let heard = client.context().events.0.lock();
        if let Some(why) = &heard.denied {
            return Err(config
                .fail(ErrorKind::Denied, why)
                .hint("check `sasl.…` in `properties`")
                .because(error));
        }
        if heard.down.is_some() || Instant::now() >= deadline {
            let why = heard
                .last
                .clone()
                .unwrap_or_else(|| format!("no answer within {} s", CONNECT_TIMEOUT.as_secs()));
            let hint = if why.to_lowercase().contains("certificate") || why.contains("SSL") {
                "check `security.protocol` and `ssl.…` in `properties`"
            } else {
                "is the broker running, and `bootstrap` right?"
            };
            return Err(config
                .fail(ErrorKind::Disconnected, &format!("cannot connect: {why}"))
                .hint(hint)
                .because(error));
        }
    }
}

/// An error of librdkafka, by what the caller can do.
pub(super) fn failed(config: &Config, what: &str, error: KafkaError) -> ConnectorError {
    let denied = [
        Code::TopicAuthorizationFailed,
        Code::GroupAuthorizationFailed,
        Code::ClusterAuthorizationFailed,
        Code::Authentication,
        Code::SaslAuthenticationFailed,
    ];
    let (kind, hint) = match (&error, error.rdkafka_error_code()) {
        (KafkaError::ClientConfig(..) | KafkaError::ClientCreation(_), _) => {
            (ErrorKind::Config, "check `properties`")
        }
        (_, Some(Code::InconsistentGroupProtocol)) => (
            ErrorKind::Config,
            "wait until the other members leave the group, or give all members the same `partition.assignment.strategy`",
        ),
        (_, Some(Code::InvalidSessionTimeout)) => (
            ErrorKind::Config,
            "set `session.timeout.ms` in `properties` to what the broker allows (`group.max.session.timeout.ms`)",
        ),
        (_, Some(Code::FencedInstanceId)) => (
            ErrorKind::Disconnected,
            "another member of the group has the same `group.instance.id`: give each instance its own, or take it out of `properties`",
        ),
        (_, Some(code)) if denied.contains(&code) => {
            (ErrorKind::Denied, "grant the user what it needs: read, write and describe")
        }
        _ => (ErrorKind::Disconnected, ""),
    };
    config.fail(kind, &format!("{what}: {error}")).hint(hint).because(error)
}

/// Runs the work of a thread; `None` if it panicked.
pub(super) fn caught<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work))
        .inspect_err(|_| error!("a thread of a kafka client panicked, its connection is closed"))
        .ok()
}

/// Runs blocking work on a thread of its own, for at most `longest`. librdkafka's timeouts follow
/// the wall clock: if that is set back by an hour, the work takes an hour longer. A thread of the
/// runtime would then also delay the runtime's shutdown.
pub(super) async fn blocking<T: Send + 'static>(
    config: &Config,
    longest: Duration,
    work: impl FnOnce(Config) -> Result<T, ConnectorError> + Send + 'static,
) -> Result<T, ConnectorError> {
    let given_up = |why: &str| config.fail(ErrorKind::Disconnected, why);
    let ((done, result), theirs) = (oneshot::channel(), config.clone());
    let work = move || {
        if let Some(result) = caught(|| work(theirs)) {
            // A late result is dropped, and with it its client.
            let _ = done.send(result);
        }
    };
    let thread = std::thread::Builder::new().name("kafka-work".to_owned());
    thread.spawn(work).map_err(|error| given_up("cannot start a thread").because(error))?;
    match tokio::time::timeout(longest, result).await {
        Ok(result) => result.unwrap_or_else(|_| Err(given_up("the thread of the client panicked"))),
        Err(_) => {
            Err(given_up(&format!("the client did not answer within {} s", longest.as_secs())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_producer_is_spent_by_what_fails_or_by_one_word_of_a_broker() {
        let events = ClientEvents::default();
        (1..MAX_PRODUCER_FAILURES).for_each(|_| events.message_failed(Some(Code::InvalidRecord)));
        assert!(!events.is_spent());
        events.message_failed(None);
        assert!(events.is_spent());
        let events = ClientEvents::default();
        events.message_failed(Some(Code::InvalidProducerEpoch));
        assert!(events.is_spent());
    }

    #[test]
    fn a_purge_opens_nothing_and_whatever_fails_beside_it_does() {
        let (events, begun) = (ClientEvents::default(), Instant::now());
        for purged in ["queue", "flight"] {
            events.request_failed(&format!(
                "ProduceRequest failed: Local: Purged in {purged}: explicit actions Permanent"
            ));
        }
        assert_eq!(events.send_state_since(begun), SendState::Clear);
        events.request_failed(
            "ProduceRequest failed: Local: Broker transport failure: actions Retry",
        );
        assert_eq!(events.send_state_since(begun), SendState::Open);
    }
}
