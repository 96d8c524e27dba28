//! A connection that is never repaired: whoever holds it learns of its loss.
//!
//! lapin reads and writes the socket in a thread of its own. That thread notices neither that its
//! connection was dropped while the server reads nothing (`connection.blocked`), nor that a server
//! accepted the connection and stays silent. So this module keeps a handle of the socket, and shuts
//! it down.

use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{BoxStream, StreamExt};
use lapin::tcp::OwnedTLSConfig;
use lapin::{AsyncTcpStream, Channel, Connection, ConnectionProperties, Event};
use parking_lot::Mutex;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use super::config::Config;
use super::fault::{error_text, limit_hint, refused};
use super::login;
use super::quirks::frame_sanitizer::{self, FrameSanitizer};
use super::read_limiter::ReadLimiter;
use super::server::Server;
use crate::{ConnectorError, ErrorKind};

/// The longest time to connect, all servers together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest wait for an answer of the server.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest time for an orderly close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// The interval of checks of the connection state, besides its events.
const STATE_CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// One connection.
pub(super) struct BrokerConnection {
    /// `None` only while it is dropped.
    connection: Option<Connection>,
    socket: Arc<Socket>,
    place: String,
    user: Option<String>,
    version: Arc<OnceLock<String>>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    lost: CancellationToken,
    why: Mutex<String>,
    /// Why the server blocks publications now.
    blocked: Mutex<String>,
}

impl Shared {
    fn lose(&self, why: &str) {
        if !self.lost.is_cancelled() {
            why.clone_into(&mut self.why.lock());
            self.lost.cancel();
        }
    }
}

/// The socket of a connection, kept to shut it down.
#[derive(Default)]
struct Socket {
    state: Mutex<SocketState>,
    limiter: Option<Arc<ReadLimiter>>,
}

#[derive(Default)]
enum SocketState {
    #[default]
    Opening,
    Open(TcpStream),
    Shut,
}

impl Socket {
    /// Stores the socket; false if it must be shut down already.
    fn open(&self, stream: TcpStream) -> bool {
        let mut state = self.state.lock();
        if matches!(*state, SocketState::Shut) {
            return false;
        }
        *state = SocketState::Open(stream);
        true
    }

    fn shut(&self) {
        // Otherwise lapin would not read the end of the stream.
        if let Some(limiter) = &self.limiter {
            limiter.disable();
        }
        if let SocketState::Open(stream) =
            std::mem::replace(&mut *self.state.lock(), SocketState::Shut)
        {
            // An error means that the socket is already shut down.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl BrokerConnection {
    /// Connects; `purpose` is shown in the server's tools.
    pub(super) async fn connect(config: &Config, purpose: &str) -> Result<Self, ConnectorError> {
        Self::limited(config, purpose, None).await
    }

    /// Connects, and reads as the limiter allows.
    pub(super) async fn limited(
        config: &Config,
        purpose: &str,
        limiter: Option<Arc<ReadLimiter>>,
    ) -> Result<Self, ConnectorError> {
        let tls = login::tls(config).await?;
        let servers = config.servers().await?;
        let each = CONNECT_TIMEOUT / u32::try_from(servers.len()).unwrap_or(u32::MAX).max(1);
        let mut last = None;
        for server in &servers {
            match Self::connect_to(server, tls.clone(), purpose, each, limiter.clone()).await {
                Ok(connection) => return Ok(connection),
                Err(error) if error.kind == ErrorKind::Disconnected => last = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(last.unwrap_or_else(|| ConnectorError::new(ErrorKind::Config, "no server is named")))
    }

    async fn connect_to(
        server: &Server,
        tls: OwnedTLSConfig,
        purpose: &str,
        connect_timeout: Duration,
        limiter: Option<Arc<ReadLimiter>>,
    ) -> Result<Self, ConnectorError> {
        let place = server.place();
        let socket = Arc::new(Socket { limiter, ..Socket::default() });
        let properties = ConnectionProperties::default()
            .with_connection_name(format!("dwell {purpose}").into())
            .with_client_property("product".into(), "dwell".into())
            .with_client_property("version".into(), env!("CARGO_PKG_VERSION").into());
        let runtime = lapin::runtime::default_runtime().map_err(|error| refused(&place, error))?;
        let version = Arc::<OnceLock<String>>::default();
        let (own, is_tls, name, told) =
            (Arc::clone(&socket), server.is_tls(), place.clone(), Arc::clone(&version));
        let connecting = Connection::connector(
            server.uri(),
            frame_sanitizer::runtime(),
            async move |uri, _| {
                let (host, port) = (uri.authority.host.clone(), uri.authority.port);
                let addresses: Vec<_> =
                    tokio::net::lookup_host((host.as_str(), port)).await?.collect();
                let stream = timeout(connect_timeout, AsyncTcpStream::connect(&runtime, addresses))
                    .await
                    .map_err(std::io::Error::from)??;
                if let AsyncTcpStream::Plain(plain) = &stream {
                    let held = TcpStream::from(plain.get_ref().as_fd().try_clone_to_owned()?);
                    if !own.open(held) {
                        return Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into());
                    }
                }
                let stream =
                    if is_tls { stream.into_tls(&host, tls.as_ref()).await? } else { stream };
                Ok(AsyncTcpStream::Plain(
                    FrameSanitizer::new(stream, name.clone(), own.limiter.clone())
                        .telling(Arc::clone(&told)),
                ))
            },
            properties,
        );
        let connected = timeout(connect_timeout, connecting).await;
        if !matches!(connected, Ok(Ok(_))) {
            socket.shut();
        }
        let connection = match connected {
            Ok(connected) => connected.map_err(|error| refused(&place, error))?,
            Err(_) => {
                let message = format!("amqp at {place} did not answer within {connect_timeout:?}");
                return Err(ConnectorError::new(ErrorKind::Disconnected, message)
                    .hint("is the server running, and the address right?"));
            }
        };
        let shared = Arc::new(Shared::default());
        tokio::spawn(watch(&connection, Arc::clone(&shared), Arc::clone(&socket)));
        let user = server.user().map(str::to_owned);
        Ok(BrokerConnection { connection: Some(connection), socket, place, user, version, shared })
    }

    /// The user that is logged in, if known.
    pub(super) fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The server's version, if it sends one.
    pub(super) fn version(&self) -> Option<&str> {
        self.version.get().map(String::as_str)
    }

    /// The most bytes of one frame, and so of the properties with their headers.
    pub(super) fn frame_max(&self) -> usize {
        self.connection
            .as_ref()
            .map_or(0, |connection| connection.configuration().frame_max() as usize)
    }

    /// Why the server blocks publications on this connection now, if it does.
    pub(super) fn blocked(&self) -> Option<String> {
        let blocked =
            self.connection.as_ref().is_some_and(|connection| connection.status().blocked());
        blocked.then(|| {
            let told = self.shared.blocked.lock();
            // The reason comes as an event after the state. The server has these two.
            let reason = if told.is_empty() { "low on memory or disk" } else { told.as_str() };
            format!("amqp at {} accepts no messages now: {reason}", self.place)
        })
    }

    /// Ends when the connection is lost.
    pub(super) async fn lost(&self) {
        self.shared.lost.cancelled().await;
    }

    pub(super) fn is_lost(&self) -> bool {
        self.shared.lost.is_cancelled()
    }

    /// The error of every use of a lost connection.
    pub(super) fn error(&self) -> ConnectorError {
        let why = self.shared.why.lock().clone();
        self.fail(ErrorKind::Disconnected, &why).hint(limit_hint(&why))
    }

    /// An error with the address of the broker.
    pub(super) fn fail(&self, kind: ErrorKind, what: &str) -> ConnectorError {
        ConnectorError::new(kind, format!("amqp at {}: {what}", self.place))
    }

    /// Waits for an answer of the server, within [`REQUEST_TIMEOUT`] and while the connection
    /// lives.
    pub(super) async fn ask<T>(
        &self,
        question: impl Future<Output = lapin::Result<T>>,
    ) -> Result<lapin::Result<T>, ConnectorError> {
        tokio::select! {
            biased;
            answer = timeout(REQUEST_TIMEOUT, question) => match answer {
                Ok(answer) => Ok(answer),
                Err(_) => {
                    let why = self.blocked().unwrap_or_else(|| format!("no answer within {} s", REQUEST_TIMEOUT.as_secs()));
                    Err(self.fail(ErrorKind::Disconnected, &why))
                }
            },
            () = self.lost() => Err(self.error()),
        }
    }

    /// Opens a channel.
    pub(super) async fn channel(&self) -> Result<Channel, ConnectorError> {
        let Some(connection) = &self.connection else { return Err(self.error()) };
        let opened = self.ask(connection.create_channel()).await?;
        opened.map_err(|error| {
            let why = error_text(&error);
            self.fail(ErrorKind::Disconnected, &format!("cannot open a channel: {why}"))
                .hint(limit_hint(&why))
                .because(error)
        })
    }

    /// Closes a channel of an answered question, and waits for the answer. A channel that is only
    /// dropped closes later, and counts against the limits of channels until then.
    pub(super) async fn release(&self, channel: Channel) -> Result<(), ConnectorError> {
        // An error means that the channel is closed already.
        let _ = self.ask(channel.close(200, "".into())).await?;
        Ok(())
    }

    /// Closes the connection, and waits for the answer within [`CLOSE_TIMEOUT`].
    pub(super) async fn close(&self) {
        if let Some(connection) = &self.connection
            && !self.is_lost()
        {
            // The connection ends either way.
            let _ = timeout(CLOSE_TIMEOUT, connection.close(200, "".into())).await;
        }
        self.socket.shut();
    }
}

impl Drop for BrokerConnection {
    /// Closes the connection in the background.
    fn drop(&mut self) {
        let (socket, connection) = (Arc::clone(&self.socket), self.connection.take());
        self.shared.lose("the connection was closed");
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(async move {
                if let Some(connection) = connection {
                    // As in `close`.
                    let _ = timeout(CLOSE_TIMEOUT, connection.close(200, "".into())).await;
                }
                socket.shut();
            })),
            Err(_) => socket.shut(),
        }
    }
}

/// Records the events of the connection until it is lost.
fn watch(
    connection: &Connection,
    shared: Arc<Shared>,
    socket: Arc<Socket>,
) -> impl Future<Output = ()> + use<> {
    let mut events: BoxStream<'static, Event> = connection.events_listener().boxed();
    let status = connection.status().clone();
    async move {
        let mut inspect = interval(STATE_CHECK_INTERVAL);
        inspect.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = "the connection was lost".to_owned();
        let mut note = |event| match event {
            Event::ConnectionBlocked(reason) => *shared.blocked.lock() = reason,
            // May also be an error of a channel: then the connection lives on.
            Event::Error(error) => {
                last = format!("the connection was lost: {}", error_text(&error))
            }
            _ => {}
        };
        while status.connected() {
            tokio::select! {
                biased;
                () = shared.lost.cancelled() => return,
                event = events.next() => match event {
                    Some(event) => note(event),
                    None => break,
                },
                _ = inspect.tick() => {}
            }
        }
        while let Some(Some(event)) = events.next().now_or_never() {
            note(event);
        }
        shared.lose(&last);
        socket.shut();
    }
}
