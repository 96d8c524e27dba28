//! One connection to one server, opened on first use and rebuilt when it breaks. It never retries a call.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use parking_lot::RwLock;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, ConnectionInfo, Pipeline, Value};

use super::endpoint;
use crate::clock;
use crate::config::Redis;
use crate::store::error::{Class, StoreError};

/// How long to wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long to wait for an answer: AOF rewrites and forks pause a busy Redis for more than the client library's 500 ms.
pub(in crate::store) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// After this many answers in a row that did not come, the connection counts as half-open and is rebuilt.
const TIMEOUTS_MAX: u32 = 2;

/// To whom.
#[derive(Debug, Clone)]
pub(super) enum To {
    /// The one of the settings: its only server, or the master that the sentinels name.
    Named(Redis),
    /// A node of a cluster.
    Node(Box<ConnectionInfo>),
}

/// One connection, cheap to clone.
#[derive(Clone)]
pub(in crate::store) struct Connection {
    inner: Arc<Inner>,
}

struct Inner {
    to: To,
    current: RwLock<Option<Live>>,
    /// How the last try to open it failed; who opens it holds this.
    opening: tokio::sync::Mutex<Option<StoreError>>,
    /// How many tries failed.
    failures: AtomicU64,
    timeouts: AtomicU32,
}

#[derive(Clone)]
struct Live {
    connection: MultiplexedConnection,
    /// Tells this connection from the next.
    generation: u64,
}

impl Connection {
    /// A wire that is not open yet.
    pub(super) fn new(to: To) -> Self {
        let (current, opening) = (RwLock::new(None), tokio::sync::Mutex::new(None));
        Connection { inner: Arc::new(Inner { to, current, opening, failures: AtomicU64::new(0), timeouts: AtomicU32::new(0) }) }
    }

    /// Whether both are the same connection.
    pub(super) fn is(&self, other: &Connection) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Where it leads, for people.
    pub(in crate::store) fn place(&self) -> String {
        match &self.inner.to {
            To::Named(settings) => super::place(settings),
            To::Node(info) => info.addr().to_string(),
        }
    }

    /// Sends one command.
    pub(super) async fn command(&self, doing: &str, command: &Cmd) -> Result<Value, StoreError> {
        let mut live = self.live().await?;
        self.over(doing, &mut live, command).await
    }

    async fn over(&self, doing: &str, live: &mut Live, command: &Cmd) -> Result<Value, StoreError> {
        let answer = clock::timeout(RESPONSE_TIMEOUT, live.connection.req_packed_command(command)).await;
        self.judge(doing, live.generation, answer.map(|answer| answer.and_then(refusal)))
    }

    /// Sends a pipeline. Every answer; the first error of any is the error of all.
    pub(super) async fn pipeline(&self, doing: &str, pipeline: &Pipeline) -> Result<Vec<Value>, StoreError> {
        self.waves(doing, std::slice::from_ref(pipeline), None).await?.into_iter().collect()
    }

    /// Sends waves of calls one after the other, each only where no call of the one before it is to be sent again; all over one connection, so
    /// that the `wait` at the end of the last covers them all: it is sent also where a wave held the later ones back. An answer for each, which of
    /// what was not sent is the error that held it back.
    pub(in crate::store) async fn waves(
        &self,
        doing: &str,
        waves: &[Pipeline],
        wait: Option<&Cmd>,
    ) -> Result<Vec<Result<Value, StoreError>>, StoreError> {
        let mut live = self.live().await?;
        let count = waves.iter().map(Pipeline::len).sum();
        let mut answers: Vec<Result<Value, StoreError>> = Vec::with_capacity(count);
        for (at, wave) in waves.iter().enumerate() {
            let begun = answers.len();
            let answer = clock::timeout(RESPONSE_TIMEOUT, live.connection.req_packed_commands(wave, 0, wave.len())).await;
            for value in self.judge(doing, live.generation, answer)? {
                answers.push(self.judge(doing, live.generation, Some(refusal(value))));
            }
            let errors = || answers[begun..].iter().filter_map(|answer| answer.as_ref().err()).filter(|error| !error.is_unreadable());
            // What can be sent again at once must not overtake what cannot.
            let held_back = errors().find(|error| !error.was_not_run()).or_else(|| errors().next()).cloned();
            if let Some(error) = held_back.filter(|_| at + 1 < waves.len()) {
                answers.resize(count, Err(error));
                if let (Some(wait), Some(last)) = (wait, answers.last_mut()) {
                    *last = Ok(self.over(doing, &mut live, wait).await?);
                }
                break;
            }
        }
        Ok(answers)
    }

    async fn live(&self) -> Result<Live, StoreError> {
        let current = self.inner.current.read().clone();
        match current {
            Some(live) => Ok(live),
            // Rare, and its future is large and deep.
            None => self.open().boxed().await,
        }
    }

    async fn open(&self) -> Result<Live, StoreError> {
        let failures = self.inner.failures.load(Ordering::Acquire);
        let mut failed = self.inner.opening.lock().await;
        if let Some(live) = self.inner.current.read().clone() {
            return Ok(live);
        }
        // Who waited while a try failed takes its error: behind a server that hangs, the last of many would wait for as many tries.
        if let Some(error) = failed.as_ref().filter(|_| self.inner.failures.load(Ordering::Acquire) != failures) {
            return Err(error.clone());
        }
        let connection = match clock::timeout(CONNECT_TIMEOUT, self.connect()).await {
            Some(result) => result,
            None => {
                let message = format!("redis: no connection to {} within {CONNECT_TIMEOUT:?}", self.place());
                Err(StoreError::new(Class::Timeout, message))
            }
        };
        let connection = connection.inspect_err(|error| {
            *failed = Some(error.clone());
            self.inner.failures.fetch_add(1, Ordering::Release);
        })?;
        let live = Live { connection, generation: rand::random() };
        self.inner.timeouts.store(0, Ordering::Relaxed);
        *self.inner.current.write() = Some(live.clone());
        Ok(live)
    }

    async fn connect(&self) -> Result<MultiplexedConnection, StoreError> {
        let failed = |error: redis::RedisError| endpoint::refused(&self.place(), &error);
        let client = match &self.inner.to {
            To::Named(settings) => endpoint::client(settings).await?,
            To::Node(info) => redis::Client::open((**info).clone()).map_err(failed)?,
        };
        let config = redis::AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(RESPONSE_TIMEOUT))
            .set_pipeline_buffer_size(1024);
        client.get_multiplexed_async_connection_with_config(&config).await.map_err(failed)
    }

    fn judge<T>(&self, doing: &str, generation: u64, answer: Option<Result<T, redis::RedisError>>) -> Result<T, StoreError> {
        let error = match answer {
            Some(Ok(value)) => {
                self.inner.timeouts.store(0, Ordering::Relaxed);
                return Ok(value);
            }
            Some(Err(error)) => {
                let unusable = error.is_unrecoverable_error();
                let mut error = StoreError::from_redis(doing, &error);
                error.unanswered = unusable || matches!(error.class, Class::Io | Class::Timeout);
                if unusable || matches!(error.class, Class::Io | Class::Readonly) {
                    self.drop_connection(generation);
                }
                error
            }
            None => {
                let message = format!("redis: {doing}: no answer from {} within {RESPONSE_TIMEOUT:?}", self.place());
                StoreError { unanswered: true, ..StoreError::new(Class::Timeout, message) }
            }
        };
        if error.class == Class::Timeout && self.inner.timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= TIMEOUTS_MAX {
            self.drop_connection(generation);
        }
        Err(error)
    }

    /// The server behind it may be none to speak to any more: the next call opens another connection, to where the settings lead then.
    pub(in crate::store) fn leave(&self) {
        *self.inner.current.write() = None;
    }

    /// The next call opens another; calls in flight on this one end by themselves.
    fn drop_connection(&self, generation: u64) {
        let mut current = self.inner.current.write();
        if current.as_ref().is_some_and(|live| live.generation == generation) {
            *current = None;
        }
    }
}

/// What the server refuses comes as a value from this client's lower level: made an error.
fn refusal(value: Value) -> Result<Value, redis::RedisError> {
    match value {
        Value::ServerError(error) => Err(error.into()),
        value => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_that_wait_for_a_server_that_hangs_share_one_try() {
        // The system takes connections for it; nobody answers.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = redis::Client::open(format!("redis://{}", listener.local_addr().unwrap())).unwrap();
        let wire = Connection::new(To::Node(Box::new(client.get_connection_info().clone())));
        let time = redis::cmd("TIME");
        let answers = futures_util::future::join_all((0..8).map(|_| wire.command("TIME", &time))).await;
        assert!(answers.iter().all(|answer| matches!(answer, Err(error) if error.class == Class::Timeout)), "{answers:?}");
        listener.set_nonblocking(true).unwrap();
        assert_eq!(std::iter::from_fn(|| listener.accept().ok()).count(), 1);
        // Who comes later tries again.
        drop(listener);
        assert_eq!(wire.command("TIME", &time).await.unwrap_err().class, Class::Io);
    }
}
