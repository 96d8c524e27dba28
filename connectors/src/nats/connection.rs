//! A connection that is never repaired: whoever holds it learns of its loss.
//!
//! async-nats would reconnect by itself without end or notice, and send queued messages minutes
//! later. Here the first loss ends the connection: the supervisor opens a new source or sink, and
//! knows the outcome of each publication.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::client::traits::Publisher;
use async_nats::connection::State;
use async_nats::message::OutboundMessage;
use async_nats::{ConnectErrorKind, ConnectOptions, Event, Subject, jetstream};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::config::Config;
use super::login::Login;
use super::server::Server;
use crate::{ConnectorError, ErrorKind};

/// The longest time to connect, all servers together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest wait for an answer of the JetStream API.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// The ping interval. A silent connection is lost after two unanswered pings and a third interval:
/// 6 s.
const PING_INTERVAL: Duration = Duration::from_secs(2);
/// The capacity of a subscription before async-nats drops messages. More than can be requested.
const SUBSCRIPTION_CAPACITY: usize = 1 << 18;

pub(super) struct BrokerConnection {
    pub(super) client: async_nats::Client,
    pub(super) context: jetstream::Context,
    place: String,
    /// The prefix of the subjects of the JetStream API.
    api: String,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    lost: CancellationToken,
    /// The same as `lost`, for cheap checks.
    gone: AtomicBool,
    /// Set once connected: async-nats may not log in again.
    spent: AtomicBool,
    why: Mutex<String>,
    /// The user may not send an API request: no answer comes.
    unasked: CancellationToken,
    complaint: Mutex<String>,
}

impl Shared {
    /// Records a server error about an API subject.
    fn refuse(&self, complaint: &str) {
        if complaint.contains("\"$JS.")
            && complaint.contains(".API.")
            && denied(complaint).is_some()
        {
            complaint.clone_into(&mut self.complaint.lock());
            self.unasked.cancel();
        }
    }

    fn lose(&self, why: &str) {
        if !self.lost.is_cancelled() {
            why.clone_into(&mut self.why.lock());
            self.gone.store(true, Ordering::Release);
            self.lost.cancel();
        }
    }
}

impl BrokerConnection {
    /// Connects. The receiver gets later errors of the server (missing permissions).
    pub(super) async fn connect(
        config: &Config,
    ) -> Result<(Self, mpsc::UnboundedReceiver<String>), ConnectorError> {
        let login = Login::read(config).await?;
        let servers = config.servers().await?;
        let place =
            servers.iter().map(|server| server.address.as_str()).collect::<Vec<_>>().join(", ");
        let attempts = async {
            let mut last = None;
            for server in &servers {
                match Self::connect_to(config, server, &login, &place, servers.len()).await {
                    Ok(connection) => return Ok(connection),
                    Err(error) if error.kind == ErrorKind::Disconnected => last = Some(error),
                    Err(error) => return Err(error),
                }
            }
            Err(last.unwrap_or_else(|| no_answer(&place)))
        };
        tokio::time::timeout(CONNECT_TIMEOUT, attempts)
            .await
            .unwrap_or_else(|_| Err(no_answer(&place)))
    }

    async fn connect_to(
        config: &Config,
        server: &Server,
        login: &Login,
        place: &str,
        servers: usize,
    ) -> Result<(Self, mpsc::UnboundedReceiver<String>), ConnectorError> {
        let shared = Arc::new(Shared::default());
        let (server_errors, complained) = mpsc::unbounded_channel();
        let (login, gate) = (login.for_server(server), Arc::clone(&shared));
        let each = CONNECT_TIMEOUT / u32::try_from(servers).unwrap_or(u32::MAX).max(1);
        let mut options = ConnectOptions::with_auth_callback(move |nonce| {
            // Fails the reconnect of async-nats before it sends queued messages.
            let answer = if gate.spent.load(Ordering::Acquire) {
                Err("the connection is not reopened".to_owned())
            } else {
                login.answer(&nonce)
            };
            async move { answer.map_err(async_nats::AuthError::new) }
        })
        .name("dwell")
        .connection_timeout(each)
        .max_reconnects(1)
        .ignore_discovered_servers()
        .ping_interval(PING_INTERVAL)
        .request_timeout(Some(REQUEST_TIMEOUT))
        .subscription_capacity(SUBSCRIPTION_CAPACITY)
        .skip_subject_validation(true)
        .event_callback({
            let shared = Arc::clone(&shared);
            move |event| {
                match event {
                    Event::Disconnected => shared.lose("the connection was lost"),
                    Event::Closed => shared.lose("the connection was closed"),
                    Event::SlowConsumer(_) => shared
                        .lose("the client dropped messages that came faster than they were read"),
                    Event::ServerError(error) => {
                        let complaint = error.to_string();
                        shared.refuse(&complaint);
                        // The receiver may be dropped.
                        drop(server_errors.send(complaint));
                    }
                    Event::Connected
                    | Event::LameDuckMode
                    | Event::Draining
                    | Event::ClientError(_) => {}
                }
                std::future::ready(())
            }
        });
        if let Some(prefix) = &config.inbox_prefix {
            options = options.custom_inbox_prefix(prefix);
        }
        if let Some(file) = &config.tls_ca_file {
            options = options.add_root_certificates(file.clone());
        }
        if let (Some(cert), Some(key)) = (&config.tls_cert_file, &config.tls_key_file) {
            options = options.add_client_certificate(cert.clone(), key.clone());
        }
        if config.tls_first {
            options = options.tls_first();
        }
        options = options.require_tls(
            config.tls_ca_file.is_some() || config.tls_cert_file.is_some() || config.tls_first,
        );

        let client = options
            .connect(server.address.as_str())
            .await
            .map_err(|error| refused(&server.address, error))?;
        shared.spent.store(true, Ordering::Release);
        let api = config.api_prefix();
        let mut context = jetstream::with_prefix(client.clone(), &api);
        context.set_timeout(REQUEST_TIMEOUT);
        Ok((BrokerConnection { client, context, place: place.to_owned(), api, shared }, complained))
    }

    /// A subject of the JetStream API.
    pub(super) fn api(&self, what: &str) -> Subject {
        Subject::from(format!("{}.{what}", self.api))
    }

    /// The hint for an API that does not answer.
    pub(super) fn api_hint(&self) -> String {
        let question = "is JetStream enabled on the server, for this account";
        match self.api.strip_prefix("$JS.").and_then(|rest| rest.strip_suffix(".API")) {
            Some(domain) => format!("{question}, and is `{domain}` its `jetstream_domain`?"),
            None => format!("{question}?"),
        }
    }

    /// Ends when the connection is lost.
    pub(super) async fn lost(&self) {
        self.shared.lost.cancelled().await;
    }

    /// Whether the connection is lost. Also asks async-nats, which may have dropped the event.
    pub(super) fn is_lost(&self) -> bool {
        if self.client.connection_state() == State::Disconnected {
            self.shared.lose("the connection was lost");
        }
        self.shared.lost.is_cancelled()
    }

    /// Marks the connection as lost.
    pub(super) fn lose(&self, why: &str) {
        self.shared.lose(why);
    }

    /// The error of every use of a lost connection.
    pub(super) fn error(&self) -> ConnectorError {
        let why = self.shared.why.lock().clone();
        denied(&why).map_or_else(
            || self.fail(ErrorKind::Disconnected, &why),
            |error| self.fail(error.kind, &why).hint(error.hint),
        )
    }

    /// An error with the address of the broker.
    pub(super) fn fail(&self, kind: ErrorKind, what: &str) -> ConnectorError {
        ConnectorError::new(kind, format!("nats at {}: {what}", self.place))
    }

    /// Gives a message to async-nats. Waits while its queue is full and the connection lives.
    pub(super) async fn send(&self, message: OutboundMessage) -> Result<(), ConnectorError> {
        self.send_all(std::iter::once(message)).await
    }

    /// As [`Self::send`], one message after the other, to the first error. Takes each from the
    /// iterator when async-nats gets it: after an error only the last one taken was not given away.
    pub(super) async fn send_all(
        &self,
        messages: impl Iterator<Item = OutboundMessage>,
    ) -> Result<(), ConnectorError> {
        let sending = async {
            for message in messages {
                if self.shared.gone.load(Ordering::Acquire) {
                    return Err(self.error());
                }
                self.client.publish_message(message).await.map_err(|error| {
                    self.lose("the client has ended");
                    self.error().because(error)
                })?;
            }
            Ok(())
        };
        tokio::select! {
            biased;
            sent = sending => sent,
            () = self.lost() => Err(self.error()),
        }
    }

    /// Waits for an answer of the JetStream API while the connection lives and no permission error
    /// comes.
    pub(super) async fn ask_api<T>(
        &self,
        question: impl Future<Output = T>,
    ) -> Result<T, ConnectorError> {
        tokio::select! {
            biased;
            answer = self.ask(question) => answer,
            () = self.shared.unasked.cancelled() => {
                let complaint = self.shared.complaint.lock().clone();
                Err(denied(&complaint).map_or_else(|| self.error(), |error| self.fail(error.kind, &complaint).hint(error.hint)))
            }
        }
    }

    /// Waits for an answer while the connection lives.
    pub(super) async fn ask<T>(
        &self,
        question: impl Future<Output = T>,
    ) -> Result<T, ConnectorError> {
        tokio::select! {
            biased;
            answer = question => Ok(answer),
            () = self.lost() => Err(self.error()),
        }
    }
}

/// Runs this work until a permission error of the server comes: then no answer would come.
pub(super) async fn permitted<T>(
    server_errors: &mut mpsc::UnboundedReceiver<String>,
    work: impl Future<Output = Result<T, ConnectorError>>,
) -> Result<T, ConnectorError> {
    tokio::pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            Some(complaint) = server_errors.recv() => if let Some(error) = denied(&complaint) {
                return Err(error);
            }
        }
    }
}

/// The error for a server error about a permission.
pub(super) fn denied(complaint: &str) -> Option<ConnectorError> {
    let is_denied = complaint.to_lowercase().contains("permissions violation");
    is_denied.then(|| ConnectorError::new(ErrorKind::Denied, complaint).hint(
        "grant the user `$JS.API.>` (of a domain: `$JS.DOMAIN.API.>`), `$JS.ACK.>` and `_INBOX.>`, or set `inbox_prefix` to what it may subscribe to",
    ))
}

fn no_answer(place: &str) -> ConnectorError {
    let message = format!("nats at {place} did not answer within {} s", CONNECT_TIMEOUT.as_secs());
    ConnectorError::new(ErrorKind::Disconnected, message)
        .hint("is the server running, and the address right?")
}

/// The error of a failed connect, by what the caller can do.
fn refused(address: &str, error: async_nats::ConnectError) -> ConnectorError {
    let mut why = error.to_string();
    let mut inner = std::error::Error::source(&error);
    while let Some(cause) = inner {
        why = cause.to_string();
        inner = cause.source();
    }
    let lower = why.to_lowercase();
    let (kind, hint) = match error.kind() {
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
            (ErrorKind::Denied, "check user, password, token, nkey or creds")
        }
        _ if lower.contains("authentication") || lower.contains("authorization") => {
            (ErrorKind::Denied, "check user, password, token, nkey or creds")
        }
        _ if lower.contains("maximum") && lower.contains("connections") => (
            ErrorKind::Disconnected,
            "raise `max_connections` of the server, or the limit of the account",
        ),
        ConnectErrorKind::Tls | ConnectErrorKind::ServerParse => {
            (ErrorKind::Config, "check `url` and the files of `tls_…`")
        }
        _ if lower.contains("certificate") => (
            ErrorKind::Disconnected,
            "check `tls_ca_file`, and the name in the server's certificate",
        ),
        _ => (ErrorKind::Disconnected, "is the server running, and the address right?"),
    };
    ConnectorError::new(kind, format!("cannot connect to nats at {address}: {why}"))
        .hint(hint)
        .because(error)
}
