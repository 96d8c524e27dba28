//! Connects to hosts: HTTP/1.1 and HTTP/2 over TCP or TLS.

use std::error::Error;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tower_service::Service;

use super::config::Config;
use super::resolver::Resolver;
use crate::settings::wrong;
use crate::{ConnectorError, FILE_HINT, unreadable};

/// The share of an attempt's time that connecting may take, in parts of four: the remaining time
/// shows that the host does not answer, and not that the attempt had no time.
const CONNECT_QUARTERS: u32 = 3;

/// A connection to a host.
pub(super) type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;

/// Connects to hosts, within a time limit that covers look-up, TCP and TLS.
pub(super) struct Connect {
    https: HttpsConnector<HttpConnector<Resolver>>,
    /// Whether servers that have HTTP/2 are asked for it.
    pub(super) http2: bool,
    /// The longest time to make a connection.
    pub(super) limit: Duration,
}

impl Connect {
    /// For attempts that take so long at most.
    pub(super) async fn new(config: &Config, attempt: Duration) -> Result<Self, ConnectorError> {
        let mut tcp = HttpConnector::new_with_resolver(Resolver::new(config.subnets.clone()));
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        let builder =
            HttpsConnectorBuilder::new().with_tls_config(tls(config).await?).https_or_http();
        let https = match config.http2 {
            true => builder.enable_all_versions().wrap_connector(tcp),
            false => builder.enable_http1().wrap_connector(tcp),
        };
        Ok(Connect { https, http2: config.http2, limit: attempt * CONNECT_QUARTERS / 4 })
    }

    /// Connects to the host of this URL.
    pub(super) async fn connect(&self, uri: Uri) -> Result<Stream, Box<dyn Error + Send + Sync>> {
        // Neither TLS nor TCP nor the resolver is ever busy: none has to be polled for readiness.
        match timeout(self.limit, self.https.clone().call(uri)).await {
            Ok(connected) => connected,
            Err(_) => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("no connection within {:?}", self.limit),
            )
            .into()),
        }
    }
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
    let pem = tokio::fs::read(file).await.map_err(|error| {
        wrong("ca_file", &unreadable(file, &error)).hint(FILE_HINT).because(error)
    })?;
    let bad = |why: &str| {
        wrong("ca_file", &format!("{} {why}", file.display())).hint("write certificates in PEM")
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| bad("is not PEM").because(error))?;
        roots
            .add(certificate)
            .map_err(|error| bad("has a certificate that cannot be read").because(error))?;
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
            let error = Connect::new(&config, config.timeout()).await.err().unwrap();
            assert!(
                error.message.starts_with("`ca_file`: ") && error.message.contains(word),
                "{error}"
            );
        }
    }
}
