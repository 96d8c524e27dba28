//! The destination of a message: a subject, a topic, or an exchange with a routing key.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// A destination or an origin: a NATS subject, a Kafka topic, or an AMQP exchange with its routing
/// key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Destination {
    /// AMQP exchange; empty is the default exchange, and the only value on other brokers.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub exchange: String,
    /// Subject, topic or routing key.
    pub address: String,
}

impl Destination {
    /// A subject, a topic, or an AMQP queue through the default exchange.
    pub fn new(address: impl Into<String>) -> Self {
        Destination { exchange: String::new(), address: address.into() }
    }
}

impl std::fmt::Display for Destination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.exchange.is_empty() {
            f.write_str(&self.address)
        } else {
            write!(f, "{}/{}", self.exchange, self.address)
        }
    }
}

/// An address for logs and errors: a URL without query, fragment and user info, which may hold
/// secrets; any other text as it is.
#[must_use]
pub fn shown_address(text: &str) -> Cow<'_, str> {
    let Some(start) = start_of_authority(text) else { return Cow::Borrowed(text) };
    let (head, hidden) = text.split_at(text.find(['?', '#']).unwrap_or(text.len()));
    let (scheme, rest) = head.split_at(start.min(head.len()));
    let mark = if hidden.is_empty() { "" } else { "?…" };
    match rest.rsplit_once('@') {
        // The `@` behind a `?` may end a password with a `?`.
        _ if hidden.contains('@') => Cow::Owned(format!("{scheme}…")),
        // A user may be a key.
        Some((_, place)) => Cow::Owned(format!("{scheme}***@{place}{mark}")),
        None if hidden.is_empty() => Cow::Borrowed(text),
        None => Cow::Owned(format!("{head}{mark}")),
    }
}

/// The place behind the scheme of a URL; `None` where the text is none. The standard takes `http:`
/// without slashes too.
fn start_of_authority(text: &str) -> Option<usize> {
    let indent = text.len() - text.trim_start().len();
    let is_at = |scheme: &&str| {
        text[indent..].get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    };
    text.find("://").map(|at| at + 3).or_else(|| {
        ["http:", "https:"].iter().copied().find(is_at).map(|scheme| indent + scheme.len())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_secrets() {
        for (text, shown) in [
            ("orders.close", "orders.close"),
            ("shop/close.#", "shop/close.#"),
            ("orders.?", "orders.?"),
            ("", ""),
            ("ü", "ü"),
            ("https://a.example/w", "https://a.example/w"),
            ("https://a.example/w?sig=x#y", "https://a.example/w?…"),
            ("https://a.example/w#x", "https://a.example/w?…"),
            ("HTTPS:a.example/w?sig=x", "HTTPS:a.example/w?…"),
            (" http:/a.example?sig=x", " http:/a.example?…"),
            ("a?to=https://a.example?sig=x", "a?…"),
            ("https://user:x@a.example/w", "https://***@a.example/w"),
            ("https://user:x@a.example/w?sig=x", "https://***@a.example/w?…"),
            ("https://user:x?y@a.example/w", "https://…"),
        ] {
            assert_eq!(shown_address(text), shown, "{text}");
        }
    }
}
