//! A server of an AMQP URL, and the parameters of its connection.

use std::fmt;

use lapin::uri::{AMQPScheme, AMQPUri, SASLMechanism};

use crate::known_scheme;
use crate::secret::{ESCAPE_HINT, Secret, Urls};

/// The default heartbeat interval, in seconds.
const DEFAULT_HEARTBEAT_S: u16 = 5;

/// An address and a login.
#[derive(Clone)]
pub(super) struct Server {
    uri: AMQPUri,
}

/// The servers, or the problem, without secrets.
pub(super) fn servers(urls: &Urls) -> Result<Vec<Server>, String> {
    let servers = urls.each()?.into_iter().map(Server::parse).collect::<Result<Vec<_>, _>>()?;
    if servers.is_empty() {
        Err("no server is named: write amqp://user:password@127.0.0.1:5672".to_owned())
    } else {
        Ok(servers)
    }
}

/// The heartbeat in seconds: `5s`, `1m`.
pub(super) fn heartbeat(text: &str) -> Result<u16, String> {
    let (digits, unit) = match (text.strip_suffix('s'), text.strip_suffix('m')) {
        (Some(digits), _) => (digits, 1),
        (None, Some(digits)) => (digits, 60),
        (None, None) => ("", 0),
    };
    let seconds = digits
        .trim()
        .parse::<u16>()
        .ok()
        .and_then(|count| count.checked_mul(unit))
        .filter(|seconds| *seconds > 0);
    seconds.ok_or_else(|| format!("`{text}` is no heartbeat: write whole seconds, as 5s"))
}

impl Server {
    /// The server of a URL, of which `shown` is what may be told.
    fn parse((url, shown): (&str, String)) -> Result<Self, String> {
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        if !matches!(scheme, "amqp" | "amqps") {
            let scheme =
                known_scheme(url).map_or("this".to_owned(), |scheme| format!("`{scheme}`"));
            return Err(format!(
                "{shown}: {scheme} is no scheme for AMQP: write amqp:// or amqps://; {ESCAPE_HINT}"
            ));
        }
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let no_url = || {
            format!(
                "{shown} is not a URL: write {scheme}://user:password@host:port/vhost; {ESCAPE_HINT}"
            )
        };
        // An `@` behind the host: the password has a `/`, and the host is a part of it.
        if host.is_empty() || rest.rfind('@').is_some_and(|at| at > authority.len()) {
            return Err(no_url());
        }
        let mut uri: AMQPUri = url.parse().map_err(|_| no_url())?;
        // lapin does not parse addresses in brackets.
        if let Some((address, _)) = host.strip_prefix('[').and_then(|host| host.split_once(']')) {
            address.clone_into(&mut uri.authority.host);
        }
        // Strictly, `amqp://host/` names the empty vhost, which nobody uses.
        if uri.vhost.is_empty() {
            "/".clone_into(&mut uri.vhost);
        }
        Ok(Server { uri })
    }

    /// Sets the login, instead of the URL's.
    pub(super) fn log_in(&mut self, user: &str, password: &Secret) {
        user.clone_into(&mut self.uri.authority.userinfo.username);
        password.reveal().clone_into(&mut self.uri.authority.userinfo.password);
    }

    /// Sets the heartbeat interval: that of the settings, otherwise the URL's, otherwise the
    /// default.
    pub(super) fn beat(&mut self, seconds: Option<u16>) {
        self.uri.query.heartbeat =
            Some(seconds.or(self.uri.query.heartbeat).unwrap_or(DEFAULT_HEARTBEAT_S));
    }

    pub(super) fn is_tls(&self) -> bool {
        self.uri.scheme == AMQPScheme::AMQPS
    }

    /// Scheme, host, port and vhost, for people.
    pub(super) fn place(&self) -> String {
        let AMQPUri { scheme, authority, vhost, .. } = &self.uri;
        let host = if authority.host.contains(':') {
            format!("[{}]", authority.host)
        } else {
            authority.host.clone()
        };
        let vhost =
            if vhost == "/" { String::new() } else { format!("/{}", vhost.replace('/', "%2f")) };
        format!("{scheme}://{host}:{}{vhost}", authority.port)
    }

    pub(super) fn uri(&self) -> AMQPUri {
        self.uri.clone()
    }

    /// The user as the server knows it, which `user_id` must equal; `None` if only the server knows
    /// (a certificate).
    pub(super) fn user(&self) -> Option<&str> {
        let by_name = !matches!(
            self.uri.query.auth_mechanism,
            Some(SASLMechanism::External | SASLMechanism::Anonymous)
        );
        by_name.then_some(self.uri.authority.userinfo.username.as_str())
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.place())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_as_people_mean_them() {
        for (url, place, vhost, user) in [
            ("amqp://h", "amqp://h:5672", "/", "guest"),
            ("amqp://h/", "amqp://h:5672", "/", "guest"),
            ("amqps://u:p@h:1/%2f", "amqps://h:1", "/", "u"),
            ("amqps://u@h/orders", "amqps://h:5671/orders", "orders", "u"),
            (
                "amqp://a%40b:p@127.0.0.1/a%2fb?heartbeat=9",
                "amqp://127.0.0.1:5672/a%2fb",
                "a/b",
                "a@b",
            ),
            ("amqp://u:p@[::1]:99/v", "amqp://[::1]:99/v", "v", "u"),
        ] {
            let server = Server::parse((url, String::new())).unwrap();
            assert_eq!(
                (server.place().as_str(), server.uri.vhost.as_str(), server.user()),
                (place, vhost, Some(user)),
                "{url}"
            );
        }
        assert_eq!(
            Server::parse(("amqps://h?auth_mechanism=external", String::new())).unwrap().user(),
            None
        );
    }

    #[test]
    fn the_settings_beat_before_the_url() {
        let mut server = Server::parse(("amqp://h?heartbeat=9", String::new())).unwrap();
        server.beat(None);
        assert_eq!(server.uri.query.heartbeat, Some(9));
        server.beat(Some(heartbeat("1m").unwrap()));
        assert_eq!(server.uri.query.heartbeat, Some(60));
        for text in ["", "5", "0s", "5ms", "-1s", "99999s", "20000m", "s"] {
            assert!(heartbeat(text).is_err(), "{text}");
        }
    }
}
