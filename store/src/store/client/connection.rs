//! A connection to one server, opened on first use and rebuilt after a failure. Never repeats a
//! call.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use parking_lot::RwLock;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, Pipeline, Value};

use super::endpoint::{self, Address};
use super::login;
use crate::clock;
use crate::config::Redis;
use crate::store::call::sharing::{Sent, Sharing, split};
use crate::store::error::{Class, StoreError};

/// The limit for opening a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// The limit for an answer. AOF rewrites and forks pause a busy Redis for longer than the library's
/// 500 ms.
pub(in crate::store) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// After this many missing answers in a row the connection counts as half-open and is rebuilt.
const MAX_TIMEOUTS: u32 = 2;

/// The server of a connection.
#[derive(Debug, Clone)]
pub(super) enum To {
    /// The server of the settings: the only one, or the master that the sentinels name.
    Named,
    /// A node of a cluster.
    Node(Address),
}

/// A connection, cheap to clone.
#[derive(Clone)]
pub(in crate::store) struct Connection {
    inner: Arc<Inner>,
}

struct Inner {
    settings: Redis,
    to: To,
    current: RwLock<Option<Live>>,
    /// The last failure to connect. The task that connects holds the lock.
    opening: tokio::sync::Mutex<Option<StoreError>>,
    /// The number of failures to connect.
    failures: AtomicU64,
    timeouts: AtomicU32,
    /// The current connection was answered: Redis accepted its login.
    answered: AtomicBool,
}

#[derive(Clone)]
struct Live {
    connection: MultiplexedConnection,
    /// Distinguishes this connection from its successors.
    generation: u64,
}

impl Connection {
    /// A connection that is not open yet.
    pub(super) fn new(settings: &Redis, to: To) -> Self {
        Connection {
            inner: Arc::new(Inner {
                settings: settings.clone(),
                to,
                current: RwLock::new(None),
                opening: tokio::sync::Mutex::new(None),
                failures: AtomicU64::new(0),
                timeouts: AtomicU32::new(0),
                answered: AtomicBool::new(false),
            }),
        }
    }

    /// Whether both are the same connection.
    pub(super) fn is(&self, other: &Connection) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// The address, for people.
    pub(in crate::store) fn place(&self) -> String {
        match &self.inner.to {
            To::Named => super::place(&self.inner.settings),
            To::Node((host, port)) => format!("{host}:{port}"),
        }
    }

    /// Sends one command.
    pub(super) async fn command(&self, doing: &str, command: &Cmd) -> Result<Value, StoreError> {
        let mut live = self.live().await?;
        self.over(doing, &mut live, command).await
    }

    async fn over(&self, doing: &str, live: &mut Live, command: &Cmd) -> Result<Value, StoreError> {
        let answer =
            clock::timeout(RESPONSE_TIMEOUT, live.connection.req_packed_command(command)).await;
        self.classify(doing, live.generation, answer.map(|answer| answer.and_then(refusal)))
    }

    /// Sends a pipeline and returns every answer. The first error of any command is the error of
    /// the pipeline.
    pub(super) async fn pipeline(
        &self,
        doing: &str,
        pipeline: &Pipeline,
    ) -> Result<Vec<Value>, StoreError> {
        let mut live = self.live().await?;
        self.send(doing, &mut live, pipeline).await?.into_iter().collect()
    }

    /// Sends a pipeline and returns one answer per command.
    async fn send(
        &self,
        doing: &str,
        live: &mut Live,
        pipeline: &Pipeline,
    ) -> Result<Vec<Result<Value, StoreError>>, StoreError> {
        let answer = clock::timeout(
            RESPONSE_TIMEOUT,
            live.connection.req_packed_commands(pipeline, 0, pipeline.len()),
        )
        .await;
        let values = self.classify(doing, live.generation, answer)?;
        let classified = |value| self.classify(doing, live.generation, Some(refusal(value)));
        Ok(values.into_iter().map(classified).collect())
    }

    /// Sends waves of calls in order, over one connection. A wave is sent only when no call of the
    /// wave before needs a repeat. `sharing` takes the errors of commands that several calls share.
    ///
    /// `wait` follows the calls of the last wave; one connection lets it cover all calls. If a wave
    /// stops the later ones, `wait` is sent alone. Returns one answer per call, then the answer to
    /// `wait`; for unsent calls, the error that stopped them.
    pub(in crate::store) async fn waves(
        &self,
        doing: &str,
        waves: &[Vec<&Sent<'_>>],
        wait: Option<&Cmd>,
        sharing: &Sharing,
    ) -> Result<Vec<Result<Value, StoreError>>, StoreError> {
        let mut live = self.live().await?;
        let calls: usize = waves.iter().flatten().map(|sent| sent.calls()).sum();
        let count = calls + usize::from(wait.is_some());
        let mut answers: Vec<Result<Value, StoreError>> = Vec::with_capacity(count);
        for (at, commands) in waves.iter().enumerate() {
            let is_last = at + 1 == waves.len();
            // A wave is copied when it is sent: the waves behind it may never be.
            let mut wave = Pipeline::with_capacity(commands.len() + 1);
            for sent in commands {
                let command: &Cmd = sent.as_ref();
                wave.add_command(command.clone());
            }
            if is_last && let Some(wait) = wait {
                wave.add_command(wait.clone());
            }
            let begun = answers.len();
            let mut told = self.send(doing, &mut live, &wave).await?.into_iter();
            for (sent, answer) in commands.iter().zip(told.by_ref()) {
                if sent.is_shared() {
                    let each = answer.and_then(|value| split(doing, value, sent.calls()));
                    answers.extend(self.each_of(doing, live.generation, sent, each, sharing));
                } else {
                    answers.push(answer);
                }
            }
            // That to the wait.
            answers.extend(told);
            let errors = || {
                answers[begun..]
                    .iter()
                    .filter_map(|answer| answer.as_ref().err())
                    .filter(|error| !error.is_damage())
            };
            // A call that can be repeated at once must not overtake one that cannot.
            let held_back =
                errors().find(|error| !error.was_not_run()).or_else(|| errors().next()).cloned();
            // The error of a script concerns its own call alone, not the calls behind it.
            let held_back = held_back.map(|error| match error.class {
                Class::Outdated | Class::Script => StoreError::held_back(doing),
                _ => error,
            });
            if let Some(error) = held_back.filter(|_| !is_last) {
                answers.resize(count, Err(error));
                if let (Some(wait), Some(last)) = (wait, answers.last_mut()) {
                    *last = Ok(self.over(doing, &mut live, wait).await?);
                }
                break;
            }
        }
        Ok(answers)
    }

    /// The answer to each call of a command, from their answers or the error of the command.
    fn each_of(
        &self,
        doing: &str,
        generation: u64,
        sent: &Sent<'_>,
        answers: Result<Vec<Value>, StoreError>,
        sharing: &Sharing,
    ) -> Vec<Result<Value, StoreError>> {
        let classified = |value| self.classify(doing, generation, Some(refusal(value)));
        match answers {
            Ok(answers) => answers.into_iter().map(classified).collect(),
            Err(error) => vec![Err(sharing.refused(error)); sent.calls()],
        }
    }

    async fn live(&self) -> Result<Live, StoreError> {
        let current = self.inner.current.read().clone();
        match current {
            Some(live) => Ok(live),
            // Boxed: rare, and the future is large.
            None => self.open().boxed().await,
        }
    }

    async fn open(&self) -> Result<Live, StoreError> {
        let failures = self.inner.failures.load(Ordering::Acquire);
        let mut failed = self.inner.opening.lock().await;
        if let Some(live) = self.inner.current.read().clone() {
            return Ok(live);
        }
        // A task that waited during a failed try takes its error. Otherwise, with a server that
        // hangs, the last of many tasks would wait for as many tries.
        if let Some(error) =
            failed.as_ref().filter(|_| self.inner.failures.load(Ordering::Acquire) != failures)
        {
            return Err(error.clone());
        }
        let connection = match clock::timeout(CONNECT_TIMEOUT, self.connect()).await {
            Some(result) => result,
            None => {
                let message =
                    format!("redis: no connection to {} within {CONNECT_TIMEOUT:?}", self.place());
                Err(StoreError::new(Class::Timeout, message))
            }
        };
        let connection = connection.inspect_err(|error| {
            self.inner.settings.refusals.note(error);
            *failed = Some(error.clone());
            self.inner.failures.fetch_add(1, Ordering::Release);
        })?;
        let live = Live { connection, generation: rand::random() };
        self.inner.timeouts.store(0, Ordering::Relaxed);
        self.inner.answered.store(false, Ordering::Relaxed);
        *self.inner.current.write() = Some(live.clone());
        Ok(live)
    }

    async fn connect(&self) -> Result<MultiplexedConnection, StoreError> {
        let settings = &self.inner.settings;
        let failed = |error: redis::RedisError| endpoint::refused(settings, &self.place(), &error);
        let client = match &self.inner.to {
            To::Named => endpoint::client(settings).await?,
            To::Node(address) => endpoint::node(settings, address).await?,
        };
        let config = redis::AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(RESPONSE_TIMEOUT))
            .set_pipeline_buffer_size(1024);
        match client.get_multiplexed_async_connection_with_config(&config).await {
            Ok(connection) => Ok(connection),
            Err(error) if error.is_connection_refusal() || error.is_timeout() => Err(failed(error)),
            Err(error) => match failed(error) {
                error if error.class == Class::Io => {
                    Err(endpoint::told(client.get_connection_info(), error).await)
                }
                error => Err(error),
            },
        }
    }

    fn classify<T>(
        &self,
        doing: &str,
        generation: u64,
        answer: Option<Result<T, redis::RedisError>>,
    ) -> Result<T, StoreError> {
        let error = match answer {
            Some(Ok(value)) => {
                self.inner.timeouts.store(0, Ordering::Relaxed);
                if !self.inner.answered.load(Ordering::Relaxed)
                    && !self.inner.answered.swap(true, Ordering::Relaxed)
                {
                    self.inner.settings.refusals.accepted();
                }
                return Ok(value);
            }
            Some(Err(error)) => {
                let unusable = error.is_unrecoverable_error();
                let mut error = StoreError::from_redis(doing, &error);
                error.unanswered = unusable || matches!(error.class, Class::Io | Class::Timeout);
                self.inner.settings.refusals.note(&error);
                // The next connection may log in with newer contents of the files.
                let logs_in_again =
                    error.class == Class::Refused && login::may_change(&self.inner.settings);
                if unusable || logs_in_again || matches!(error.class, Class::Io | Class::Readonly) {
                    self.drop_connection(generation);
                }
                error
            }
            None => {
                let message = format!(
                    "redis: {doing}: no answer from {} within {RESPONSE_TIMEOUT:?}",
                    self.place()
                );
                StoreError { unanswered: true, ..StoreError::new(Class::Timeout, message) }
            }
        };
        if error.class == Class::Timeout
            && self.inner.timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= MAX_TIMEOUTS
        {
            self.drop_connection(generation);
        }
        Err(error)
    }

    /// Drops the connection, because its server may no longer be the right one. The next call
    /// connects to the server that the settings name then.
    pub(in crate::store) fn leave(&self) {
        *self.inner.current.write() = None;
    }

    /// Drops this connection; the next call opens another. Calls in progress on it end by
    /// themselves.
    fn drop_connection(&self, generation: u64) {
        let mut current = self.inner.current.write();
        if current.as_ref().is_some_and(|live| live.generation == generation) {
            *current = None;
        }
    }
}

/// Turns a refusal of the server, which the library's lower level returns as a value, into an
/// error.
fn refusal(value: Value) -> Result<Value, redis::RedisError> {
    match value {
        Value::ServerError(error) => Err(error.into()),
        value => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test]
    async fn a_server_that_takes_no_connection_is_quoted() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let settings = Redis::new(format!("redis://{}", listener.local_addr().unwrap()));
        // The server answers as Redis 8 in protected mode.
        tokio::spawn(async move {
            while let Ok((mut link, _)) = listener.accept().await {
                link.write_all(b"-DENIED Redis is running in protected mode because protected mode is enabled and no password is set for the default user. In this mode connections are only accepted from the loopback interface.\r\n").await.unwrap();
            }
        });
        let wire = Connection::new(&settings, To::Named);
        let error = wire.command("TIME", &redis::cmd("TIME")).await.unwrap_err();
        assert_eq!(error.class, Class::Io);
        assert!(
            error.message.contains("DENIED Redis is running in protected mode")
                && error.hint.contains("requirepass"),
            "{error:?}"
        );
    }

    #[tokio::test]
    async fn all_that_wait_for_a_server_that_hangs_share_one_try() {
        // The kernel accepts connections for the listener; no program answers.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let settings = Redis::new(format!("redis://{}", listener.local_addr().unwrap()));
        let wire = Connection::new(&settings, To::Named);
        let time = redis::cmd("TIME");
        let answers =
            futures_util::future::join_all((0..8).map(|_| wire.command("TIME", &time))).await;
        assert!(
            answers
                .iter()
                .all(|answer| matches!(answer, Err(error) if error.class == Class::Timeout)),
            "{answers:?}"
        );
        listener.set_nonblocking(true).unwrap();
        assert_eq!(std::iter::from_fn(|| listener.accept().ok()).count(), 1);
        // A later call tries again.
        drop(listener);
        assert_eq!(wire.command("TIME", &time).await.unwrap_err().class, Class::Io);
    }
}
