//! The settings of HTTP targets.

use std::path::PathBuf;
use std::time::Duration;

use dwell_core::parse_duration_ms;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::addresses::Subnets;
use super::url;
use crate::Destination;
use crate::settings::file_problems;

/// The default of `timeout`.
const DEFAULT_TIMEOUT: &str = "15s";
/// The least `timeout`, ms: that of `delivery.publish_timeout`.
const MIN_TIMEOUT_MS: u64 = 100;

/// `[brokers.NAME]` with `type = "http"`: each target is a URL, which gets a POST request.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Networks (`10.0.0.0/8`, `fd00::/8`) whose addresses may be connected to although they are
    /// not public. Without them private, loopback, link-local and all other special addresses are
    /// refused.
    pub subnets: Subnets,
    /// A file with the secrets that requests are signed with, by Standard Webhooks (`whsec_…`): one
    /// a line, at most two, for rotation. Dwell reads the file again when the file changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_file: Option<PathBuf>,
    /// How long an attempt may take, from the connection to the headers of the answer. At most
    /// `delivery.publish_timeout`, which also bounds the default.
    pub timeout: String,
    /// A PEM file of certificate authorities to trust for the targets' certificates. Without it the
    /// system's are trusted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// Whether servers that offer HTTP/2 over TLS get it: one connection for all requests of a
    /// host. `false`: every host gets HTTP/1.1, with a connection for each request at a time.
    pub http2: bool,
    /// The URL that gets dead letters. Empty: dead jobs stay in Redis only.
    pub dead: String,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            subnets: Subnets::default(),
            secret_file: None,
            timeout: DEFAULT_TIMEOUT.to_owned(),
            ca_file: None,
            http2: true,
            dead: String::new(),
        }
    }
}

impl Config {
    /// The problems of these settings that show without a connection.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let mut problems: Vec<String> =
            self.subnets.problems().iter().map(|why| format!("`subnets`: {why}")).collect();
        match parse_duration_ms(&self.timeout) {
            Err(why) => problems.push(format!("`timeout`: {why}")),
            Ok(ms) if ms < MIN_TIMEOUT_MS => {
                problems.push("`timeout` is too short: write at least 100ms".to_owned())
            }
            Ok(_) => {}
        }
        if !self.dead.is_empty()
            && let Some(why) = self.forbidden(&Destination::new(&self.dead))
        {
            problems.push(format!("`dead`: {why}"));
        }
        file_problems(
            &[("secret_file", &self.secret_file), ("ca_file", &self.ca_file)],
            &mut problems,
        );
        problems
    }

    /// Why nobody may publish here: no URL of a target, or an address that may not be connected to.
    pub(super) fn forbidden(&self, to: &Destination) -> Option<String> {
        match url::parse(&to.address) {
            Err(why) => Some(why),
            Ok(url) => url::literal(&url).and_then(|address| self.subnets.permit(address).err()),
        }
    }

    /// The longest time of an attempt.
    pub(super) fn timeout(&self) -> Duration {
        let usual = Duration::from_secs(15);
        parse_duration_ms(&self.timeout).map_or(usual, Duration::from_millis)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn problems(settings: serde_json::Value) -> Vec<String> {
        serde_json::from_value::<Config>(settings).unwrap().problems()
    }

    #[test]
    fn good_settings_have_no_problems() {
        assert_eq!(problems(serde_json::json!({})), Vec::<String>::new());
        let all = serde_json::json!({"subnets": ["10.0.0.0/8", "fd00::/8"], "timeout": "5s", "dead": "https://app.internal/dead"});
        assert_eq!(problems(all), Vec::<String>::new());
        assert_eq!(Config::default().timeout(), Duration::from_secs(15));
    }

    #[test]
    fn each_mistake_is_named() {
        let cases = [
            (serde_json::json!({"timeout": "soon"}), "`timeout`: `soon` is not a duration"),
            (serde_json::json!({"timeout": "1ms"}), "`timeout` is too short"),
            (
                serde_json::json!({"subnets": ["10.0.0.0/99"]}),
                "`subnets`: `10.0.0.0/99` is no subnet: write",
            ),
            (serde_json::json!({"dead": "dead"}), "`dead`: the URL is not absolute"),
            (serde_json::json!({"dead": "http://10.0.0.1/"}), "`dead`: "),
            (
                serde_json::json!({"secret_file": "/nowhere/x"}),
                "`secret_file`: cannot read /nowhere/x",
            ),
            (serde_json::json!({"ca_file": "/nowhere/x"}), "`ca_file`: cannot read /nowhere/x"),
        ];
        for (settings, expected) in cases {
            let problems = problems(settings.clone());
            assert!(
                problems.len() == 1 && problems[0].contains(expected),
                "{settings}: {problems:?}"
            );
        }
        for unreadable in [
            serde_json::json!({"subnets": "10.0.0.0/8"}),
            serde_json::json!({"url": "https://app.internal"}),
        ] {
            assert!(serde_json::from_value::<Config>(unreadable.clone()).is_err(), "{unreadable}");
        }
    }
}
