//! The client: HTTP/1.1 and HTTP/2 over TCP or TLS, with connections that are kept for a while.

use std::error::Error;
use std::future::poll_fn;
use std::io;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Uri;
use http_body_util::Full;
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio::time::{Instant, timeout_at};
use tower_service::Service;

use super::config::Config;
use super::counted::Counted;
use super::resolver::Resolver;
use super::slots::HostSlots;
use crate::settings::wrong;
use crate::{ConnectorError, FILE_HINT, unreadable};

/// A connection without requests is closed after this time, before common servers close theirs (5 s
/// is Node's and uvicorn's default): a request on a connection that is being closed has no answer.
const IDLE: Duration = Duration::from_secs(4);
/// How often an HTTP/2 connection with open requests is probed, and how long the answer may take.
const PING: Duration = Duration::from_secs(5);
/// The most bytes of an answer's headers.
const HEADERS_MAX: usize = 64 << 10;
/// The share of an attempt's time that connecting may take, in parts of four: what is left shows
/// that the host does not answer, and not that the attempt had no time.
const CONNECT_QUARTERS: u32 = 3;

/// The client of one sink.
pub(super) type HttpClient = Client<Connect, Full<Bytes>>;

/// Makes the client of attempts that take so long at most.
pub(super) async fn client(config: &Config, attempt: Duration, slots: usize) -> Result<HttpClient, ConnectorError> {
    let mut builder = Client::builder(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(slots)
        .retry_canceled_requests(false)
        .http1_max_buf_size(HEADERS_MAX)
        .http2_max_header_list_size(HEADERS_MAX as u32)
        .http2_keep_alive_interval(PING)
        .http2_keep_alive_timeout(PING);
    Ok(builder.build(Connect::new(config, attempt).await?))
}

/// Connects to a host, within a time limit that covers look-up, TCP and TLS. A host has no more
/// connections than requests: the client alone would keep one for each request that found none free
/// at once. The client clones it for each request.
#[derive(Clone)]
pub(super) struct Connect(Arc<Connecting>);

struct Connecting {
    https: HttpsConnector<HttpConnector<Resolver>>,
    limit: Duration,
    slots: Arc<HostSlots>,
}

impl Connect {
    /// For attempts that take so long at most.
    pub(super) async fn new(config: &Config, attempt: Duration) -> Result<Self, ConnectorError> {
        let mut tcp = HttpConnector::new_with_resolver(Resolver { subnets: config.subnets.clone() });
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        let https =
            HttpsConnectorBuilder::new().with_tls_config(tls(config).await?).https_or_http().enable_all_versions().wrap_connector(tcp);
        Ok(Connect(Arc::new(Connecting { https, limit: attempt * CONNECT_QUARTERS / 4, slots: Arc::default() })))
    }
}

impl Service<Uri> for Connect {
    type Response = Counted<<HttpsConnector<HttpConnector<Resolver>> as Service<Uri>>::Response>;
    type Error = Box<dyn Error + Send + Sync>;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        // Neither TLS nor TCP nor the resolver is ever busy.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = Arc::clone(&self.0);
        Box::pin(async move {
            let Connecting { https, limit, slots } = &*connecting;
            let until = Instant::now() + *limit;
            let late = || io::Error::new(io::ErrorKind::TimedOut, format!("no connection within {limit:?}"));
            let slot = wanted(slots.acquire(origin(&uri), until)).await.ok_or_else(late)?;
            let stream = timeout_at(until, https.clone().call(uri)).await.map_err(|_| late())??;
            Ok(Counted::new(stream, slot))
        })
    }
}

/// Scheme, host and port.
fn origin(uri: &Uri) -> String {
    format!("{}://{}", uri.scheme_str().unwrap_or_default(), uri.authority().map_or("", |authority| authority.as_str()))
}

/// Waits as long as the request does. A request that gets a free connection meanwhile leaves its new
/// one to another task, where nobody needs it.
async fn wanted<T>(acquiring: impl Future<Output = Option<T>>) -> Option<T> {
    let mut acquiring = pin!(acquiring);
    let request = tokio::task::try_id();
    poll_fn(|cx| if tokio::task::try_id() == request { acquiring.as_mut().poll(cx) } else { Poll::Ready(None) }).await
}

/// TLS with the authorities of `ca_file`, or the system's.
async fn tls(config: &Config) -> Result<ClientConfig, ConnectorError> {
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong("ca_file", "TLS cannot be set up").because(error))?;
    let builder = match &config.ca_file {
        Some(file) => builder.with_root_certificates(authorities(file).await?),
        None => match builder.clone().with_native_roots() {
            Ok(builder) => builder,
            // Targets with http:// need none.
            Err(error) => {
                tracing::warn!(%error, "this system has no certificate authorities: no https:// target can be reached; set ca_file");
                builder.with_root_certificates(RootCertStore::empty())
            }
        },
    };
    Ok(builder.with_no_client_auth())
}

async fn authorities(file: &Path) -> Result<RootCertStore, ConnectorError> {
    let pem = tokio::fs::read(file).await.map_err(|error| wrong("ca_file", &unreadable(file, &error)).hint(FILE_HINT).because(error))?;
    let bad = |why: &str| wrong("ca_file", &format!("{} {why}", file.display())).hint("write certificates in PEM");
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| bad("is not PEM").because(error))?;
        roots.add(certificate).map_err(|error| bad("has a certificate that cannot be read").because(error))?;
    }
    if roots.is_empty() { Err(bad("has no certificate")) } else { Ok(roots) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_without_authorities_is_an_error_of_the_settings() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (text, word) in [
            ("", "has no certificate"),
            ("-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n", "is not PEM"),
            ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "cannot be read"),
        ] {
            std::fs::write(file.path(), text).unwrap();
            let config = Config { ca_file: Some(file.path().to_owned()), ..Config::default() };
            let error = client(&config, config.timeout(), 1).await.err().unwrap();
            assert!(error.message.starts_with("`ca_file`: ") && error.message.contains(word), "{error}");
        }
    }
}
