//! The servers that a NATS URL names.

use crate::secret::{ESCAPE_HINT, Secret, Urls, decoded};
use crate::{is_address, known_scheme};

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
    let servers = urls.each()?.into_iter().map(Server::parse).collect::<Result<Vec<_>, _>>()?;
    if servers.is_empty() {
        Err("no server is named: write nats://127.0.0.1:4222".to_owned())
    } else {
        Ok(servers)
    }
}

impl Server {
    /// The server of a URL, of which `shown` is what may be told.
    fn parse((url, shown): (&str, String)) -> Result<Self, String> {
        let (scheme, rest) = url.split_once("://").unwrap_or(("nats", url));
        if !matches!(scheme, "nats" | "tls") {
            let scheme =
                known_scheme(url).map_or("this".to_owned(), |scheme| format!("`{scheme}`"));
            return Err(format!(
                "{shown}: {scheme} is no scheme for NATS: write nats:// or tls://; {ESCAPE_HINT}"
            ));
        }
        let (login, host) =
            rest.rsplit_once('@').map_or((None, rest), |(login, host)| (Some(login), host));
        let host = host.trim_end_matches('/');
        let address = format!("{scheme}://{host}");
        if !is_address(host) || address.parse::<async_nats::ServerAddr>().is_err() {
            return Err(format!("{shown} is not a URL: write nats://host:port; {ESCAPE_HINT}"));
        }
        let (user, password) = match login.map(|login| login.split_once(':').unwrap_or((login, "")))
        {
            None => (None, None),
            Some((user, "")) => (Some(decoded(user)), None),
            Some((user, password)) => (Some(decoded(user)), Some(decoded(password))),
        };
        Ok(Server { address, user, password })
    }
}
