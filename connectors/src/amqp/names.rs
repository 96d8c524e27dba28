//! The rules of exchanges, queues and routing keys.

use crate::Destination;

/// The most bytes of a name or a routing key.
const MAX_NAME_BYTES: usize = 255;

/// Whether `exchange/routing.key` matches the pattern. `*` matches any characters but `/`, and `**`
/// any characters. `/queue` is a queue through the default exchange.
pub(crate) fn allows(pattern: &str, to: &Destination) -> bool {
    let Some((exchange, key)) = pattern.split_once('/') else { return false };
    matches(exchange, &to.exchange) && matches(key, &to.address)
}

/// Whether the pattern matches any destination on this exchange.
pub(crate) fn allows_exchange(pattern: &str, exchange: &str) -> bool {
    pattern.split_once('/').is_some_and(|(pattern, _)| matches(pattern, exchange))
}

/// Why this is no pattern of `allow`, and what to write instead.
pub(crate) fn pattern_problem(pattern: &str) -> Option<(String, String)> {
    let hint = || format!("write exchange/routing.key, or /{pattern} for a queue");
    (!pattern.contains('/')).then(|| (format!("`{pattern}` has no `/`"), hint()))
}

/// Whether the text matches; `*` matches any characters but `/`, and `**` any characters. At most
/// quadratic time, so no pattern is slow.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut at, mut here) = (0, 0);
    // The places to continue from if the part after the last `*` or `**` does not match: the
    // wildcard takes one more character.
    let mut one: Option<(usize, usize)> = None;
    let mut two: Option<(usize, usize)> = None;
    while here < text.len() {
        if pattern[at..].starts_with(b"**") {
            at += 2;
            (one, two) = (None, Some((at, here)));
        } else if pattern.get(at) == Some(&b'*') {
            at += 1;
            one = Some((at, here));
        } else if pattern.get(at) == Some(&text[here]) {
            at += 1;
            here += 1;
        } else if let Some((behind, taken)) = one.filter(|(_, taken)| text[*taken] != b'/') {
            one = Some((behind, taken + 1));
            (at, here) = (behind, taken + 1);
        } else if let Some((behind, taken)) = two {
            (one, two) = (None, Some((behind, taken + 1)));
            (at, here) = (behind, taken + 1);
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// Why nobody may publish here: no destination, an invalid exchange name, or a destination of the
/// broker or of its clients. A routing key may have any characters.
pub(crate) fn forbidden(to: &Destination) -> Option<String> {
    if to.exchange.is_empty() && to.address.is_empty() {
        return Some("neither an exchange nor a queue is named".to_owned());
    }
    if let Some(why) = too_long(to) {
        return Some(why);
    }
    if to.exchange.chars().any(char::is_control) {
        return Some(format!(
            "the exchange `{}` has control characters",
            to.exchange.escape_debug()
        ));
    }
    if to.exchange.contains('*') {
        return Some(format!("`{to}` has a pattern where an exchange is named"));
    }
    let name = if to.exchange.is_empty() { &to.address } else { &to.exchange };
    if name.starts_with("amq.") {
        return Some(format!("`{to}` belongs to the broker or its clients"));
    }
    None
}

/// Why this does not fit into an AMQP frame.
pub(super) fn too_long(to: &Destination) -> Option<String> {
    let (what, name) = [("exchange", &to.exchange), ("routing key", &to.address)]
        .into_iter()
        .find(|(_, name)| name.len() > MAX_NAME_BYTES)?;
    Some(format!("the {what} has {} bytes, AMQP takes {MAX_NAME_BYTES}", name.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(exchange: &str, address: &str) -> Destination {
        Destination { exchange: exchange.to_owned(), address: address.to_owned() }
    }

    #[test]
    fn patterns_match() {
        for (pattern, exchange, key, expected) in [
            ("/orders", "", "orders", true),
            ("/orders", "", "orders.eu", false),
            ("/orders*", "", "orders.eu", true),
            ("/orders", "shop", "orders", false),
            ("shop/close.*", "shop", "close.eu.now", true),
            ("shop/close.*", "shop", "close", false),
            ("shop/*", "shop", "a/b", false),
            ("shop/*/*", "shop", "a/b", true),
            ("*/close", "", "close", true),
            ("*/close", "any", "close", true),
            ("fan/", "fan", "", true),
            ("fan/", "fan", "x", false),
            ("orders", "", "orders", false),
            ("/*a*b", "", "xaxbxb", true),
            ("/*a*b", "", "xaxbx", false),
            ("/a*", "", "a/", false),
            ("/", "", "", true),
            ("shop/**", "shop", "orders/eu/close", true),
            ("shop/**", "shop", "", true),
            ("shop/**", "other", "a", false),
            ("shop/a/**/z", "shop", "a/b/c/z", true),
            ("shop/a/**/z", "shop", "a/z", false),
            ("shop/**/*.eu", "shop", "a/b/c.eu", true),
            ("shop/**/*.eu", "shop", "a/b/c.eu/d", false),
            ("shop/*/**b", "shop", "x/y/b/ab", true),
            ("shop/*b**d", "shop", "ab/c/d", true),
            ("shop/*b**d", "shop", "a/b/d", false),
            ("shop/***", "shop", "a/b", true),
            ("**/key", "any/", "key", true),
            ("shop/*", "shop", "*", true),
            ("shop/*", "shop", "a\tb.#", true),
        ] {
            assert_eq!(allows(pattern, &to(exchange, key)), expected, "{pattern} {exchange}/{key}");
        }
        for star in ["*", "**"] {
            let slow = format!("/{}b", format!("a{star}").repeat(80));
            assert!(!allows(&slow, &to("", &"a".repeat(255))));
        }
    }

    #[test]
    fn a_pattern_without_a_slash_is_a_problem() {
        assert!(pattern_problem("orders").is_some_and(|(_, hint)| hint.contains("/orders")));
        assert_eq!(pattern_problem("/orders"), None);
    }

    #[test]
    fn what_is_not_ours_is_forbidden() {
        let long = "x".repeat(256);
        for (exchange, key) in [
            ("", ""),
            ("", "amq.gen-x"),
            ("", "amq.rabbitmq.reply-to.x"),
            ("amq.topic", "a"),
            ("sh*p", "a"),
            ("a\u{7f}", "b"),
            ("", long.as_str()),
            (long.as_str(), ""),
        ] {
            assert!(forbidden(&to(exchange, key)).is_some(), "{exchange}/{key}");
        }
        for (exchange, key) in [
            ("", "orders"),
            ("shop", ""),
            ("shop", "amq.x"),
            ("", "issue#4"),
            ("ünter", "a b"),
            ("", "orders.*"),
            ("shop", "orders.#"),
            ("shop", "orders/eu/close"),
            ("shop", "a\tb\n"),
        ] {
            assert_eq!(forbidden(&to(exchange, key)), None, "{exchange}/{key}");
        }
    }
}
