//! What librdkafka says about its connections, and whether the cluster answers.
//!
//! librdkafka reconnects by itself and for ever, and most of what it says on the way is no news. The connection counts as lost when every broker it knows
//! is down and none answers within [`GRACE`]: then the value ends, and the supervisor above opens another.

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

use super::config::Config;
use super::outcome::{SendState, is_open, is_repeat};
use crate::{ConnectorError, ErrorKind};

/// The longest that connecting may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How long one look at the cluster may take before what the client said meanwhile is listened to.
const LOOK: Duration = Duration::from_millis(500);
/// The longest that any work with a client may take: more than all of its own waits.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Messages that fail for good before a producer is replaced; those that are out by then may fail too.
const EPOCHS: u32 = 20_000;
/// How long all brokers may be down before the connection counts as lost.
pub(super) const GRACE: Duration = Duration::from_secs(2);

/// Listens to one client.
#[derive(Default)]
pub(super) struct ClientEvents(Mutex<EventState>);

#[derive(Default)]
struct EventState {
    last: Option<String>,
    /// When all brokers were first and last said to be down, since one answered.
    down: Option<(Instant, Instant)>,
    denied: Option<String>,
    /// When a message that was sent and not confirmed may last have been written.
    open: Option<Instant>,
    /// When a broker last called what this producer sent a repeat.
    repeat: Option<Instant>,
    /// Messages of this producer that failed for good; all there may be where a broker knows a later epoch of it.
    failures: u32,
}

impl ClientEvents {
    fn hear(&self, code: Code, reason: &str) {
        debug!(?code, reason, "librdkafka reports an error");
        let mut heard = self.0.lock();
        match code {
            // It is said again and again.
            Code::AllBrokersDown => {
                let now = Instant::now();
                heard.down = Some((heard.down.map_or(now, |(first, _)| first), now));
            }
            Code::Authentication | Code::SaslAuthenticationFailed | Code::UnsupportedSASLMechanism | Code::ClusterAuthorizationFailed => {
                heard.denied = Some(reason.to_owned());
            }
            _ => heard.last = Some(reason.to_owned()),
        }
    }

    /// How a producer fared since this moment.
    pub(super) fn send_state_since(&self, moment: Instant) -> SendState {
        if self.0.lock().open.is_some_and(|last| last >= moment) { SendState::Open } else { SendState::Clear }
    }

    /// Whether a broker called something a repeat since this moment.
    pub(super) fn repeated_since(&self, moment: Instant) -> bool {
        self.0.lock().repeat.is_some_and(|last| last >= moment)
    }

    /// A request to publish failed, with these words of librdkafka.
    fn request_failed(&self, words: &str) {
        let mut heard = self.0.lock();
        if is_repeat(words) {
            heard.repeat = Some(Instant::now());
        }
        if is_open(words) {
            heard.open = Some(Instant::now());
        }
    }

    /// A connection was given up to take back a request that was half written. The requests before that one were written whole, and librdkafka reports
    /// their messages as never sent too. It writes this line first, and log lines come before reports (`RD_KAFKA_PRIO_MEDIUM`).
    fn connection_purged(&self) {
        self.0.lock().open = Some(Instant::now());
    }

    /// A message failed for good.
    pub(super) fn message_failed(&self, code: Option<Code>) {
        let is_old = code == Some(Code::InvalidProducerEpoch);
        let mut heard = self.0.lock();
        if is_old && heard.failures < EPOCHS {
            warn!("a broker knows a later epoch of this producer, another one takes its place");
        }
        heard.failures = if is_old { EPOCHS } else { heard.failures.saturating_add(1) };
    }

    /// Whether this producer is to be replaced: each message that fails for good may raise its epoch, and librdkafka begins again at 0 after 32 767.
    /// Brokers refuse what they then hold for an older producer.
    pub(super) fn is_spent(&self) -> bool {
        self.0.lock().failures >= EPOCHS
    }

    /// Why the connection is lost, where it is: no broker has answered for too long. Looks for a moment while that is open.
    pub(super) fn lost<C: ClientContext>(&self, client: &Client<C>) -> Option<String> {
        let (first, last) = self.0.lock().down?;
        if client.fetch_metadata(None, LOOK / 2).is_ok() {
            // Unless they went again meanwhile.
            self.0.lock().down.take_if(|(_, latest)| *latest == last);
            return None;
        }
        (first.elapsed() >= GRACE).then(|| self.0.lock().last.clone().unwrap_or_else(|| "all brokers are down".to_owned()))
    }
}

/// The context of a client: its ear, and whom its events are for.
pub(super) struct Context<T> {
    pub(super) events: Arc<ClientEvents>,
    pub(super) of: T,
}

impl<T> Context<T> {
    pub(super) fn new(of: T) -> Self {
        Context { events: Arc::default(), of }
    }
}

impl<T: Send + Sync> ClientContext for Context<T> {
    /// What matters of these comes as an error as well.
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        if matches!(level, RDKafkaLogLevel::Debug) {
            // Each failure of a request, before what it means for its messages. Only writers are told, and of many other things.
            if facility == "REQERR" && message.contains("ProduceRequest") {
                self.events.request_failed(message);
            } else if facility == "FAIL" && message.contains("partially sent") {
                self.events.connection_purged();
            }
            trace!(facility, message, "librdkafka says");
        } else if matches!(level, RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical) {
            warn!(facility, message, "librdkafka is in trouble");
        } else {
            debug!(facility, message, "librdkafka says");
        }
    }

    fn stats(&self, _: Statistics) {}

    fn error(&self, error: KafkaError, reason: &str) {
        self.events.hear(error.rdkafka_error_code().unwrap_or(Code::Unknown), reason);
    }
}

/// What the cluster says of itself, and of this topic. `poll` lets the client tell its ear what went wrong.
pub(super) fn ask<T: Send + Sync>(
    config: &Config,
    client: &Client<Context<T>>,
    topic: Option<&str>,
    poll: impl Fn(),
) -> Result<Metadata, ConnectorError> {
    let deadline = Instant::now() + CONNECT;
    loop {
        let error = match client.fetch_metadata(topic, LOOK) {
            Ok(metadata) => return Ok(metadata),
            Err(error) => error,
        };
        poll();
        let heard = client.context().events.0.lock();
        if let Some(why) = &heard.denied {
            return Err(config.fail(ErrorKind::Denied, why).hint("check `sasl.…` in `properties`").because(error));
        }
        if heard.down.is_some() || Instant::now() >= deadline {
            let why = heard.last.clone().unwrap_or_else(|| format!("no answer within {} s", CONNECT.as_secs()));
            let hint = if why.to_lowercase().contains("certificate") || why.contains("SSL") {
                "check `security.protocol` and `ssl.…` in `properties`"
            } else {
                "is the broker running, and `bootstrap` right?"
            };
            return Err(config.fail(ErrorKind::Disconnected, &format!("cannot connect: {why}")).hint(hint).because(error));
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
        (KafkaError::ClientConfig(..) | KafkaError::ClientCreation(_), _) => (ErrorKind::Config, "check `properties`"),
        (_, Some(Code::InconsistentGroupProtocol)) => (
            ErrorKind::Config,
            "wait until the other members leave the group, or give all members the same `partition.assignment.strategy`",
        ),
        (_, Some(Code::InvalidSessionTimeout)) => {
            (ErrorKind::Config, "set `session.timeout.ms` in `properties` to what the broker allows (`group.max.session.timeout.ms`)")
        }
        (_, Some(code)) if denied.contains(&code) => (ErrorKind::Denied, "grant the user what it needs: read, write and describe"),
        _ => (ErrorKind::Disconnected, ""),
    };
    config.fail(kind, &format!("{what}: {error}")).hint(hint).because(error)
}

/// Runs the work of a thread that others wait for; `None` where it panicked.
pub(super) fn caught<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).inspect_err(|_| error!("a thread of a kafka client panicked, its link is given up")).ok()
}

/// Runs work that blocks, on a thread of its own; given up after [`PATIENCE`]. librdkafka waits by the wall clock: where that is set back by an hour
/// meanwhile, the work takes an hour longer. It must not hold up the end of the runtime either, as a thread of that would.
pub(super) async fn blocking<T: Send + 'static>(
    config: &Config,
    work: impl FnOnce(Config) -> Result<T, ConnectorError> + Send + 'static,
) -> Result<T, ConnectorError> {
    let given_up = |why: &str| config.fail(ErrorKind::Disconnected, why);
    let ((done, result), theirs) = (oneshot::channel(), config.clone());
    let work = move || {
        if let Some(result) = caught(|| work(theirs)) {
            // What comes too late is dropped, and so closed.
            let _ = done.send(result);
        }
    };
    let thread = std::thread::Builder::new().name("kafka-work".to_owned());
    thread.spawn(work).map_err(|error| given_up("cannot start a thread").because(error))?;
    match tokio::time::timeout(TIMEOUT, result).await {
        Ok(result) => result.unwrap_or_else(|_| Err(given_up("the work with the client failed"))),
        Err(_) => Err(given_up(&format!("the client stood still for {} s", TIMEOUT.as_secs()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_producer_is_spent_by_what_fails_or_by_one_word_of_a_broker() {
        let events = ClientEvents::default();
        (1..EPOCHS).for_each(|_| events.message_failed(Some(Code::InvalidRecord)));
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
            events.request_failed(&format!("ProduceRequest failed: Local: Purged in {purged}: explicit actions Permanent"));
        }
        assert_eq!(events.send_state_since(begun), SendState::Clear);
        events.request_failed("ProduceRequest failed: Local: Broker transport failure: actions Retry");
        assert_eq!(events.send_state_since(begun), SendState::Open);
    }
}
