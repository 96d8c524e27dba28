//! A link to Redis in each of its modes, rebuilt when it breaks. It never retries a call: the caller does, the scripts are idempotent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster_async::ClusterConnection;
use redis::io::tcp::TcpSettings;
use redis::{Client, Cmd, IntoConnectionInfo, Pipeline, Value};

use super::error::{Class, StoreError};
use crate::clock;
use crate::config::{Redis, RedisMode, without_password};

/// How long to wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long to wait for an answer: AOF rewrites and forks pause a busy Redis for more than the client library's 500 ms.
pub const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// After this many answers in a row that did not come, the link counts as half-open and is rebuilt.
const TIMEOUTS_MAX: u32 = 2;

/// One connection to Redis, cheap to clone, opened on first use.
#[derive(Clone)]
pub struct Link {
    inner: Arc<Inner>,
}

struct Inner {
    settings: Redis,
    current: RwLock<Option<Live>>,
    opening: tokio::sync::Mutex<()>,
    timeouts: AtomicU32,
}

#[derive(Clone)]
struct Live {
    connection: Connection,
    /// Tells this connection from the next.
    generation: u64,
}

#[derive(Clone)]
enum Connection {
    Single(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Link {
    /// A link that is not open yet.
    #[must_use]
    pub fn new(settings: &Redis) -> Self {
        Link {
            inner: Arc::new(Inner {
                settings: settings.clone(),
                current: RwLock::new(None),
                opening: tokio::sync::Mutex::new(()),
                timeouts: AtomicU32::new(0),
            }),
        }
    }

    /// Sends one command.
    pub async fn command(&self, doing: &str, command: &Cmd) -> Result<Value, StoreError> {
        let live = self.live().await?;
        let answer = match live.connection.clone() {
            Connection::Single(mut connection) => clock::timeout(RESPONSE_TIMEOUT, connection.req_packed_command(command)).await,
            Connection::Cluster(mut connection) => clock::timeout(RESPONSE_TIMEOUT, connection.req_packed_command(command)).await,
        };
        self.judge(doing, live.generation, answer.map(|answer| answer.and_then(refusal)))
    }

    /// Sends a pipeline, all of one slot, and returns every answer; the first error of any is the error of all.
    pub async fn pipeline(&self, doing: &str, pipeline: &Pipeline) -> Result<Vec<Value>, StoreError> {
        self.pipelines(doing, std::slice::from_ref(pipeline)).await
    }

    /// Sends pipelines one after the other over one connection, each only where the one before it was answered without an error.
    pub async fn pipelines(&self, doing: &str, pipelines: &[Pipeline]) -> Result<Vec<Value>, StoreError> {
        let live = self.live().await?;
        let mut answers = Vec::with_capacity(pipelines.iter().map(Pipeline::len).sum());
        for pipeline in pipelines {
            let count = pipeline.len();
            let answer = match live.connection.clone() {
                Connection::Single(mut connection) => {
                    clock::timeout(RESPONSE_TIMEOUT, connection.req_packed_commands(pipeline, 0, count)).await
                }
                Connection::Cluster(mut connection) => {
                    clock::timeout(RESPONSE_TIMEOUT, connection.req_packed_commands(pipeline, 0, count)).await
                }
            };
            let answer = answer.map(|answer| answer.and_then(|values| values.into_iter().map(refusal).collect::<Result<Vec<_>, _>>()));
            answers.extend(self.judge(doing, live.generation, answer)?);
        }
        Ok(answers)
    }

    /// Whether pipelines over several slots must be split.
    #[must_use]
    pub fn is_cluster(&self) -> bool {
        self.inner.settings.mode == RedisMode::Cluster
    }

    async fn live(&self) -> Result<Live, StoreError> {
        if let Some(live) = self.inner.current.read().clone() {
            return Ok(live);
        }
        let _one_at_a_time = self.inner.opening.lock().await;
        if let Some(live) = self.inner.current.read().clone() {
            return Ok(live);
        }
        let connection = match clock::timeout(CONNECT_TIMEOUT, connect(&self.inner.settings)).await {
            Some(result) => result?,
            None => {
                return Err(StoreError::new(
                    Class::Timeout,
                    format!("redis: no connection to {} within {CONNECT_TIMEOUT:?}", place(&self.inner.settings)),
                ));
            }
        };
        let live = Live { connection, generation: rand::random() };
        self.inner.timeouts.store(0, Ordering::Relaxed);
        *self.inner.current.write() = Some(live.clone());
        Ok(live)
    }

    fn judge<T>(&self, doing: &str, generation: u64, answer: Option<Result<T, redis::RedisError>>) -> Result<T, StoreError> {
        let error = match answer {
            Some(Ok(value)) => {
                self.inner.timeouts.store(0, Ordering::Relaxed);
                return Ok(value);
            }
            Some(Err(error)) => {
                let unusable = error.is_unrecoverable_error();
                let error = StoreError::from_redis(doing, &error);
                if unusable || matches!(error.class, Class::Io | Class::Readonly) {
                    self.drop_connection(generation);
                }
                error
            }
            None => StoreError::new(
                Class::Timeout,
                format!("redis: {doing}: no answer from {} within {RESPONSE_TIMEOUT:?}", place(&self.inner.settings)),
            ),
        };
        if error.class == Class::Timeout && self.inner.timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= TIMEOUTS_MAX {
            self.drop_connection(generation);
        }
        Err(error)
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

/// Where Redis is, for people: URLs without their passwords.
#[must_use]
pub fn place(settings: &Redis) -> String {
    settings.urls.iter().map(|url| without_password(url)).collect::<Vec<_>>().join(", ")
}

fn tcp() -> TcpSettings {
    // Nagle's delay is on by default in this client; a half-open link must not hold a call for the kernel's minutes.
    TcpSettings::default().set_nodelay(true).set_user_timeout(Duration::from_secs(5))
}

fn refused(settings: &Redis, error: &redis::RedisError) -> StoreError {
    let mut failure = StoreError::from_redis(&format!("connecting to {}", place(settings)), error);
    if error.kind() == redis::ErrorKind::InvalidClientConfig {
        failure.class = Class::Settings;
    }
    failure.mend(if error.kind() == redis::ErrorKind::AuthenticationFailed {
        "check the user and the password in redis.urls"
    } else {
        "is Redis running there, and is redis.urls right?"
    })
}

/// The client of one server: the configured one, or the master that the sentinels name now. `None` in a cluster.
pub(super) async fn pubsub_client(settings: &Redis) -> Result<Option<Client>, StoreError> {
    let failed = |error: redis::RedisError| refused(settings, &error);
    match settings.mode {
        RedisMode::Single => {
            let url = settings.urls.first().ok_or_else(|| StoreError::new(Class::Settings, "redis.urls is empty"))?;
            let info = url.as_str().into_connection_info().map_err(failed)?.set_tcp_settings(tcp());
            Client::open(info).map(Some).map_err(failed)
        }
        RedisMode::Sentinel => {
            let (sentinels, user, password, db) = sentinels(settings).map_err(failed)?;
            let mut builder = redis::sentinel::SentinelClientBuilder::new(
                sentinels,
                settings.master.clone(),
                redis::sentinel::SentinelServerType::Master,
            )
            .map_err(failed)?
            .set_client_to_redis_tcp_settings(tcp())
            .set_client_to_sentinel_tcp_settings(tcp())
            .set_client_to_redis_db(db);
            if let Some(user) = user {
                builder = builder.set_client_to_redis_username(user);
            }
            if let Some(password) = password {
                builder = builder.set_client_to_redis_password(password);
            }
            builder.build().map_err(failed)?.async_get_client().await.map(Some).map_err(failed)
        }
        RedisMode::Cluster => Ok(None),
    }
}

async fn connect(settings: &Redis) -> Result<Connection, StoreError> {
    let failed = |error: redis::RedisError| refused(settings, &error);
    let Some(client) = pubsub_client(settings).await? else {
        // No time-out per attempt: the client would replay a call that is still running (measured: one INCR counted three).
        let client = redis::cluster::ClusterClient::builder(settings.urls.iter().map(String::as_str))
            .retries(3)
            .min_retry_wait(20)
            .max_retry_wait(500)
            .tcp_settings(tcp())
            .overall_response_timeout(Some(RESPONSE_TIMEOUT))
            .build()
            .map_err(failed)?;
        return Ok(Connection::Cluster(client.get_async_connection().await.map_err(failed)?));
    };
    let config = redis::AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT_TIMEOUT))
        .set_response_timeout(Some(RESPONSE_TIMEOUT))
        .set_pipeline_buffer_size(1024);
    client.get_multiplexed_async_connection_with_config(&config).await.map(Connection::Single).map_err(failed)
}

type Sentinels = (Vec<redis::ConnectionAddr>, Option<String>, Option<String>, i64);

/// Addresses of the sentinels; user, password and database in their URLs are those of Redis itself.
fn sentinels(settings: &Redis) -> Result<Sentinels, redis::RedisError> {
    let infos = settings.urls.iter().map(|url| url.as_str().into_connection_info()).collect::<Result<Vec<_>, _>>()?;
    let first = infos.first().map(|info| info.redis_settings().clone());
    let user = first.as_ref().and_then(|redis| redis.username().map(str::to_owned));
    let password = first.as_ref().and_then(|redis| redis.password().map(str::to_owned));
    let db = first.as_ref().map_or(0, redis::RedisConnectionInfo::db);
    Ok((infos.iter().map(|info| info.addr().clone()).collect(), user, password, db))
}

/// One field of an INFO text.
#[must_use]
pub fn info_field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}
