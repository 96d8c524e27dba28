//! The settings of a NATS broker.

use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::server::{Server, servers};
use super::subject::{as_name, forbidden};
use crate::address::{certificate_problems, login_problems, place, urls};
use crate::secret::{Secret, Urls};
use crate::settings::{file_problems, wrong};
use crate::{ConnectorError, Destination};

/// `[brokers.NAME]` with `type = "nats"`: NATS with JetStream.
///
/// Set credentials in one way only: in the URL, as `user` with a password, as a token, `nkey_file`
/// or `creds_file`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The servers: `nats://host:4222`, or `tls://host:4222` to require TLS; several servers of one
    /// cluster separated by commas, or as a list. They are tried in order.
    /// `nats://user:password@host` and `nats://token@host` work too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<Urls>,
    /// A file with the value of `url`, to keep a password out of the settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url_file: Option<PathBuf>,
    /// The user to log in as; requires `password` or `password_file`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The password of `user`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<Secret>,
    /// A file with the password of `user`; a line end after it is ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
    /// The token to log in with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<Secret>,
    /// A file with the token; a line end after it is ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// A file with an nkey seed (`SU…`) to log in with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nkey_file: Option<PathBuf>,
    /// A `.creds` file, as `nsc` writes it: a user's JWT and its nkey seed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creds_file: Option<PathBuf>,
    /// A PEM file of certificate authorities to trust for the server's certificate. Without it the
    /// system's are trusted. Requires TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_ca_file: Option<PathBuf>,
    /// A PEM file of the client certificate; requires `tls_key_file` and TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_cert_file: Option<PathBuf>,
    /// A PEM file of the key of `tls_cert_file`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_key_file: Option<PathBuf>,
    /// Start TLS before the server's greeting, for a server with `handshake_first`. Requires TLS.
    /// Default false.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub tls_first: bool,
    /// Where the server answers this client, instead of below `_INBOX`: for a user that may
    /// subscribe to nothing else. Targets there are refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inbox_prefix: Option<String>,
    /// The JetStream domain of the streams, if it is not that of the server: behind a leaf node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jetstream_domain: Option<String>,
    /// The `ack_wait` of a consumer that is created now: for tests.
    #[doc(hidden)]
    #[serde(skip)]
    pub ack_wait: Option<Duration>,
}

impl Config {
    /// Settings for a server at this URL, for code; the other fields can be set afterwards.
    pub fn at(url: impl Into<String>) -> Self {
        Config { url: Some(Urls::new(url)), ..Config::default() }
    }

    /// The problems of these settings that show without a connection.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        match (&self.url, &self.url_file) {
            (None, None) => problems.push(
                "`url` is missing: write url = \"nats://127.0.0.1:4222\", or name a `url_file`"
                    .to_owned(),
            ),
            (Some(_), Some(_)) => {
                problems.push("`url` and `url_file` are both set: keep one".to_owned())
            }
            (Some(urls), None) => {
                if let Err(problem) = servers(urls) {
                    problems.push(format!("`url`: {problem}"));
                }
            }
            (None, Some(_)) => {}
        }
        self.check_credentials(&mut problems);
        self.check_subjects(&mut problems);
        certificate_problems(
            self.tls_cert_file.is_some(),
            self.tls_key_file.is_some(),
            &mut problems,
        );
        file_problems(&self.files(), &mut problems);
        problems
    }

    fn check_credentials(&self, problems: &mut Vec<String>) {
        let in_url = self
            .url
            .as_ref()
            .and_then(|urls| servers(urls).ok())
            .is_some_and(|servers| servers.iter().any(|server| server.user.is_some()));
        let token = self.token.is_some() || self.token_file.is_some();
        let ways = [
            (in_url, "`url` (its user or token)"),
            (self.user.is_some(), "`user`"),
            (token, "`token`"),
            (self.nkey_file.is_some(), "`nkey_file`"),
            (self.creds_file.is_some(), "`creds_file`"),
        ];
        let given: Vec<&str> =
            ways.iter().filter(|(given, _)| *given).map(|(_, name)| *name).collect();
        if given.len() > 1 {
            problems.push(format!(
                "credentials are given in more than one way ({}): keep one",
                given.join(", ")
            ));
        }
        if self.token.is_some() && self.token_file.is_some() {
            problems.push("`token` and `token_file` are both set: keep one".to_owned());
        }
        login_problems(
            self.user.is_some(),
            self.password.is_some(),
            self.password_file.is_some(),
            problems,
        );
    }

    fn check_subjects(&self, problems: &mut Vec<String>) {
        if let Some(why) =
            self.inbox_prefix.as_ref().and_then(|prefix| forbidden(&Destination::new(prefix)))
        {
            problems.push(format!("`inbox_prefix`: {why}: write a subject, as \"_DWELL\""));
        }
        if let Some(domain) = self
            .jetstream_domain
            .as_ref()
            .filter(|domain| domain.is_empty() || as_name(domain) != **domain)
        {
            problems.push(format!(
                "`jetstream_domain`: `{}` is no domain: write one word, as the server has it",
                domain.escape_debug()
            ));
        }
    }

    /// The prefix of the subjects of the JetStream API.
    pub(super) fn api_prefix(&self) -> String {
        self.jetstream_domain
            .as_ref()
            .map_or("$JS.API".to_owned(), |domain| format!("$JS.{domain}.API"))
    }

    /// The file settings and their paths.
    fn files(&self) -> [(&'static str, &Option<PathBuf>); 8] {
        [
            ("url_file", &self.url_file),
            ("password_file", &self.password_file),
            ("token_file", &self.token_file),
            ("nkey_file", &self.nkey_file),
            ("creds_file", &self.creds_file),
            ("tls_ca_file", &self.tls_ca_file),
            ("tls_cert_file", &self.tls_cert_file),
            ("tls_key_file", &self.tls_key_file),
        ]
    }

    /// The address of the broker for people: the URLs without secrets.
    #[must_use]
    pub fn place(&self) -> String {
        place("nats", self.url.as_ref(), self.url_file.as_deref())
    }

    /// The servers, from `url` or `url_file`.
    pub(super) async fn servers(&self) -> Result<Vec<Server>, ConnectorError> {
        let (setting, urls) = urls(self.url.as_ref(), self.url_file.as_deref()).await?;
        servers(&urls).map_err(|problem| wrong(setting, &problem))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn problems(toml_like: serde_json::Value) -> Vec<String> {
        serde_json::from_value::<Config>(toml_like).unwrap().problems()
    }

    #[test]
    fn good_settings_have_no_problems() {
        assert_eq!(
            problems(serde_json::json!({"url": "nats://127.0.0.1:4222"})),
            Vec::<String>::new()
        );
        assert_eq!(
            problems(
                serde_json::json!({"url": ["nats://a", "tls://b:4333"], "user": "u", "password": "p"})
            ),
            Vec::<String>::new()
        );
        assert_eq!(Config::at("nats://u:p@a:1, nats://b").place(), "nats://u:***@a:1, nats://b");
    }

    #[test]
    fn each_mistake_is_named() {
        let cases = [
            (serde_json::json!({}), "`url` is missing"),
            (serde_json::json!({"url": "http://a"}), "`http`"),
            (serde_json::json!({"url": "nats://a:99999"}), "nats://*** is not a URL"),
            (serde_json::json!({"url": "nats://bob:1234,Rest@a"}), "write , as %2C"),
            (serde_json::json!({"url": "nats://a", "user": "u"}), "without `password`"),
            (serde_json::json!({"url": "nats://a", "password": "p"}), "without `user`"),
            (
                serde_json::json!({"url": "nats://a", "user": "u", "password": "p", "token": "t"}),
                "more than one way (`user`, `token`)",
            ),
            (serde_json::json!({"url": "nats://t@a", "token": "t"}), "more than one way"),
            (
                serde_json::json!({"url": "nats://a", "inbox_prefix": "a.>"}),
                "`inbox_prefix`: `a.>` is a pattern",
            ),
            (
                serde_json::json!({"url": "nats://a", "jetstream_domain": "a.b"}),
                "`jetstream_domain`: `a.b` is no domain",
            ),
            (
                serde_json::json!({"url": "nats://a", "tls_cert_file": "/dev/null"}),
                "without `tls_key_file`",
            ),
            (
                serde_json::json!({"url": "nats://a", "creds_file": "/nowhere/x.creds"}),
                "`creds_file`: cannot read /nowhere/x.creds",
            ),
        ];
        for (settings, expected) in cases {
            let problems = problems(settings.clone());
            assert!(
                problems.len() == 1 && problems[0].contains(expected),
                "{settings}: {problems:?}"
            );
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let config: Config =
            serde_json::from_value(serde_json::json!({"url": "nats://bob:hunter2@a,nats://tok3n@b", "password": "hunter2"})).unwrap();
        let shown = format!(
            "{config:?} {} {} {:?}",
            config.place(),
            serde_json::to_string(&config).unwrap(),
            config.problems()
        );
        assert!(!shown.contains("hunter2") && !shown.contains("tok3n"), "{shown}");
        assert!(
            serde_json::from_value::<Config>(serde_json::json!({"url": "nats://a", "urll": "x"}))
                .is_err()
        );
    }
}
