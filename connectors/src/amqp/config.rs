//! The settings of an AMQP broker.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::server::{Server, heartbeat, servers};
use crate::ConnectorError;
use crate::address::{certificate_problems, login_problems, place, urls};
use crate::secret::{Secret, Urls};
use crate::settings::read_secret;
use crate::settings::{file_problems, wrong};

/// `[brokers.NAME]` with `type = "amqp"`: RabbitMQ, or another broker with AMQP 0-9-1 and publisher
/// confirms.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The servers: `amqp://user:password@host:5672/vhost`, or `amqps://` for TLS; several servers
    /// of one cluster separated by commas, or as a list. They are tried in order. The default vhost
    /// is `/`, the default user `guest`. Write a `/` in a vhost as `%2f`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<Urls>,
    /// A file with the value of `url`, to keep a password out of the settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url_file: Option<PathBuf>,
    /// The user to log in as, instead of the URL's; requires `password` or `password_file`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The password of `user`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<Secret>,
    /// A file with the password of `user`; a line end after it is ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
    /// A PEM file of certificate authorities to trust for the server's certificate, besides the
    /// system's. Requires `amqps://`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_ca_file: Option<PathBuf>,
    /// A PEM file of the client certificate; requires `tls_key_file` and `amqps://`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_cert_file: Option<PathBuf>,
    /// A PEM file of the key of `tls_cert_file`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_key_file: Option<PathBuf>,
    /// The heartbeat interval, in whole seconds (`5s`, `1m`); the server may ask for less. A
    /// connection that is silent for twice as long is lost. Default `5s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heartbeat: Option<String>,
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
            (None, None) => {
                problems.push("`url` is missing: write url = \"amqp://user:password@127.0.0.1:5672\", or name a `url_file`".to_owned());
            }
            (Some(_), Some(_)) => {
                problems.push("`url` and `url_file` are both set: keep one".to_owned())
            }
            (Some(urls), None) => match servers(urls) {
                Ok(servers) => self.check_tls(&servers, &mut problems),
                Err(problem) => problems.push(format!("`url`: {problem}")),
            },
            (None, Some(_)) => {}
        }
        login_problems(
            self.user.is_some(),
            self.password.is_some(),
            self.password_file.is_some(),
            &mut problems,
        );
        certificate_problems(
            self.tls_cert_file.is_some(),
            self.tls_key_file.is_some(),
            &mut problems,
        );
        if let Some(Err(problem)) = self.heartbeat.as_deref().map(heartbeat) {
            problems.push(format!("`heartbeat`: {problem}"));
        }
        file_problems(&self.files(), &mut problems);
        problems
    }

    /// Rejects TLS files beside a URL without TLS: the password would be sent in clear text.
    fn check_tls(&self, servers: &[Server], problems: &mut Vec<String>) {
        let files = self.tls_ca_file.is_some() || self.tls_cert_file.is_some();
        if let Some(server) = servers.iter().find(|server| files && !server.is_tls()) {
            problems.push(format!(
                "`tls_…` is set, and {} asks for no TLS: write amqps://",
                server.place()
            ));
        }
    }

    /// The file settings and their paths.
    fn files(&self) -> [(&'static str, &Option<PathBuf>); 5] {
        [
            ("url_file", &self.url_file),
            ("password_file", &self.password_file),
            ("tls_ca_file", &self.tls_ca_file),
            ("tls_cert_file", &self.tls_cert_file),
            ("tls_key_file", &self.tls_key_file),
        ]
    }

    /// The address of the broker for people: the URLs without secrets.
    #[must_use]
    pub fn place(&self) -> String {
        place("amqp", self.url.as_ref(), self.url_file.as_deref())
    }

    /// The servers, from `url` or `url_file`, with the login and the heartbeat of the other
    /// settings.
    pub(super) async fn servers(&self) -> Result<Vec<Server>, ConnectorError> {
        let (setting, urls) = urls(self.url.as_ref(), self.url_file.as_deref()).await?;
        let mut servers = servers(&urls).map_err(|problem| wrong(setting, &problem))?;
        let password = match (&self.password, &self.password_file) {
            (Some(password), _) => password.clone(),
            (None, Some(file)) => Secret::new(read_secret("password_file", file).await?),
            (None, None) => Secret::default(),
        };
        let interval = self
            .heartbeat
            .as_deref()
            .map(heartbeat)
            .transpose()
            .map_err(|problem| wrong("heartbeat", &problem))?;
        for server in &mut servers {
            if let Some(user) = &self.user {
                server.log_in(user, &password);
            }
            server.beat(interval);
        }
        Ok(servers)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn config(settings: &[(&str, &str)]) -> Config {
        let mut config = Config::default();
        for (name, value) in settings {
            let value = (*value).to_owned();
            match *name {
                "url" => config.url = Some(Urls::new(value)),
                "url_file" => config.url_file = Some(value.into()),
                "user" => config.user = Some(value),
                "password" => config.password = Some(Secret::new(value)),
                "tls_ca_file" => config.tls_ca_file = Some(value.into()),
                "heartbeat" => config.heartbeat = Some(value),
                other => panic!("no setting {other}"),
            }
        }
        config
    }

    #[test]
    fn good_settings_have_no_problems() {
        let good = [
            config(&[("url", "amqp://127.0.0.1")]),
            config(&[
                ("url", "amqp://u:p%40@h:1/%2fv?heartbeat=7, amqps://h"),
                ("heartbeat", "1m"),
            ]),
            config(&[("url", "amqp://[::1]:5672"), ("user", "u"), ("password", "p")]),
        ];
        for config in good {
            assert_eq!(config.problems(), Vec::<String>::new());
        }
        assert_eq!(
            Config::at("amqp://u:p@a:1/v, amqp://b").place(),
            "amqp://u:***@a:1/v, amqp://b"
        );
    }

    #[test]
    fn each_mistake_is_named() {
        let cases: [(&[(&str, &str)], &str); 10] = [
            (&[], "`url` is missing"),
            (&[("url", "http://a")], "`http`"),
            (&[("url", "amqp://a:99999")], "amqp://*** is not a URL"),
            (&[("url", "amqp://")], "is not a URL"),
            (&[("url", "amqp://bob:hunter2,Rest@a")], "write , as %2C"),
            (&[("url", "amqp://a"), ("user", "u")], "without `password`"),
            (&[("url", "amqp://a"), ("password", "p")], "without `user`"),
            (&[("url", "amqp://a"), ("tls_ca_file", "/dev/null")], "write amqps://"),
            (&[("url", "amqp://a"), ("heartbeat", "often")], "`heartbeat`: `often`"),
            (&[("url_file", "/nowhere/url")], "`url_file`: cannot read /nowhere/url"),
        ];
        for (settings, expected) in cases {
            let problems = config(settings).problems();
            assert!(
                problems.len() == 1 && problems[0].contains(expected),
                "{settings:?}: {problems:?}"
            );
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let config =
            config(&[("url", "amqp://bob:hunter2@a:1"), ("user", "eve"), ("password", "hunter2")]);
        let shown = format!("{config:?} {} {:?}", config.place(), config.problems());
        assert!(!shown.contains("hunter2") && shown.contains("bob:***"), "{shown}");
    }
}
