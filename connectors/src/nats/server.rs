//! The servers that a NATS URL names.

use crate::redacted;
use crate::secret::{Secret, Urls, decoded};

/// One server of a URL.
#[derive(Clone, Debug)]
pub(super) struct Server {
    /// Scheme, host and port.
    pub(super) address: String,
    /// The user, or the token if there is no password; decoded.
    pub(super) user: Option<Secret>,
    /// The password; decoded.
    pub(super) password: Option<Secret>,
}

/// The servers, or the problem, without secrets.
pub(super) fn servers(urls: &Urls) -> Result<Vec<Server>, String> {
    let servers = urls.each().map(Server::parse).collect::<Result<Vec<_>, _>>()?;
    if servers.is_empty() { Err("no server is named: write nats://127.0.0.1:4222".to_owned()) } else { Ok(servers) }
}

impl Server {
    fn parse(url: &str) -> Result<Self, String> {
        let shown = redacted(url);
        let (scheme, rest) = url.split_once("://").unwrap_or(("nats", url));
        if !matches!(scheme, "nats" | "tls") {
            return Err(format!("{shown}: `{scheme}` is no scheme for NATS: write nats:// or tls://"));
        }
        let (login, host) = rest.rsplit_once('@').map_or((None, rest), |(login, host)| (Some(login), host));
        let address = format!("{scheme}://{}", host.trim_end_matches('/'));
        if host.is_empty() || host.contains(['/', '?', '#']) || address.parse::<async_nats::ServerAddr>().is_err() {
            return Err(format!("{shown} is not a URL: write nats://host:port"));
        }
        let (user, password) = match login.map(|login| login.split_once(':').unwrap_or((login, ""))) {
            None => (None, None),
            Some((user, "")) => (Some(decoded(user)), None),
            Some((user, password)) => (Some(decoded(user)), Some(decoded(password))),
        };
        Ok(Server { address, user, password })
    }
}
