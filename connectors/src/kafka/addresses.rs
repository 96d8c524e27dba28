//! The addresses that a cluster is found by. Every output hides text that is no address.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use crate::{is_address, known_scheme};

/// Addresses, separated by commas. No output shows a text that holds anything else: it may be a
/// login.
#[derive(Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Addresses(String);

impl Addresses {
    /// The addresses in this text.
    pub fn new(text: impl Into<String>) -> Self {
        Addresses(text.into())
    }

    fn each(&self) -> impl Iterator<Item = &str> {
        self.0.split(',').map(str::trim).filter(|address| !address.is_empty())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.each().next().is_none()
    }

    /// As librdkafka takes them.
    pub(super) fn joined(&self) -> String {
        self.each().collect::<Vec<_>>().join(",")
    }

    /// Why these are no addresses.
    pub(super) fn problem(&self) -> Option<String> {
        if self.0.contains('@') {
            return Some(
                "an address holds a login, which is not shown: write host:9092, and log in by `properties` (sasl.username, sasl.password)"
                    .to_owned(),
            );
        }
        let at = self.each().position(|address| !is_well_formed(address))?;
        Some(format!(
            "address {} is no host:9092; it is not shown, because it may hold a password",
            at + 1
        ))
    }
}

/// `host:9092`, with a protocol before it as Java writes it (`SSL://host:9092`), or not.
fn is_well_formed(address: &str) -> bool {
    match address.split_once("://") {
        Some((_, host)) => known_scheme(address).is_some() && is_address(host),
        None => is_address(address),
    }
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = if self.problem().is_some() {
            "***".to_owned()
        } else {
            self.each().collect::<Vec<_>>().join(", ")
        };
        f.write_str(&shown)
    }
}

impl fmt::Debug for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Addresses {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_hold_a_password_is_not_shown() {
        for text in [
            "bob:hunter2@a:9092",
            "bob:hunter2,Rest@a:9092",
            "SASL_SSL://bob:hunter2,a:9092",
            "bob:1234,hunter2:Rest",
            "hunter2://a",
        ] {
            let addresses = Addresses::new(text);
            assert_eq!(addresses.to_string(), "***");
            assert!(
                addresses
                    .problem()
                    .is_some_and(|why| !why.contains("unter") && !why.contains("Rest")),
                "{text}"
            );
        }
        assert_eq!(
            Addresses::new("SSL://a:9092,b , [::1]:9").to_string(),
            "SSL://a:9092, b, [::1]:9"
        );
    }
}
