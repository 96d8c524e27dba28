//! Whether a host of `allow` can be reached: for `dwell check`.

use std::net::SocketAddr;

use http::Uri;

use super::config::Config;
use super::connection::Connect;
use super::url;
use crate::error::innermost;
use crate::{ConnectorError, ErrorKind};

/// Looks the host of a pattern up and connects to it, with TLS where the URL says so. Sends no
/// request.
pub(super) async fn reach(config: &Config, pattern: &str) -> Result<String, ConnectorError> {
    let bad = |why: String| ConnectorError::new(ErrorKind::Config, why);
    let url = url::parse(&pattern.replace('*', "")).map_err(bad)?;
    let origin = url::origin(&url);
    let away = |why: String| {
        ConnectorError::new(ErrorKind::Disconnected, format!("`{origin}` cannot be reached: {why}"))
            .hint("jobs for this host would be retried, and die: start the server, correct the host, or permit its network in `subnets`")
    };
    if let Some(why) = url::literal(&url).and_then(|address| config.subnets.permit(address).err()) {
        return Err(away(why));
    }
    let uri: Uri = origin.parse().map_err(|_| bad(format!("`{origin}` is no URL")))?;
    let connect = Connect::new(config, config.timeout()).await?;
    connect.connect(uri).await.map_err(|error| away(innermost(error.as_ref())))?;
    let (host, port) = (url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or_default());
    let found = tokio::net::lookup_host((host.trim_matches(['[', ']']), port)).await.map_err(|error| away(error.to_string()))?;
    let addresses: Vec<String> = found.map(|address: SocketAddr| address.ip().to_string()).collect();
    Ok(format!("`{origin}` takes connections (it is {})", addresses.join(", ")))
}
