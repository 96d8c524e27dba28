//! The TLS settings besides the URL: trusted authorities and the client certificate.

use std::path::Path;

use lapin::tcp::{OwnedIdentity, OwnedTLSConfig};

use super::config::Config;
use crate::settings::read_secret;
use crate::{ConnectorError, ErrorKind};

/// Reads the files of `tls_…`.
pub(super) async fn tls(config: &Config) -> Result<OwnedTLSConfig, ConnectorError> {
    let cert_chain = match &config.tls_ca_file {
        Some(file) => Some(pem("tls_ca_file", file).await?),
        None => None,
    };
    let identity = match (&config.tls_cert_file, &config.tls_key_file) {
        (Some(cert), Some(key)) => {
            let (pem, key) = (pem("tls_cert_file", cert).await?, pem("tls_key_file", key).await?);
            Some(OwnedIdentity::PKCS8 { pem: pem.into_bytes(), key: key.into_bytes() })
        }
        _ => None,
    };
    Ok(OwnedTLSConfig { identity, cert_chain })
}

async fn pem(setting: &str, file: &Path) -> Result<String, ConnectorError> {
    let text = read_secret(setting, file).await?;
    if text.contains("-----BEGIN ") {
        return Ok(text);
    }
    let message = format!("`{setting}`: {} is no PEM file", file.display());
    Err(ConnectorError::new(ErrorKind::Config, message)
        .hint("a PEM file has a line that begins with -----BEGIN"))
}
