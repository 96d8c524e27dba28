//! The rules of exchanges, queues and routing keys.

use crate::Destination;

/// The most bytes of a name or a routing key.
const MOST: usize = 255;

/// Whether `exchange/routing.key` matches the pattern, where `*` is any characters but `/`. `/queue` is a queue by way of the default exchange.
pub(crate) fn allows(pattern: &str, to: &Destination) -> bool {
    let Some((exchange, key)) = pattern.split_once('/') else { return false };
    matches(exchange, &to.exchange) && matches(key, &to.address)
}

/// Why this can be no pattern of `allow`, and what to write instead.
pub(crate) fn pattern_problem(pattern: &str) -> Option<(String, String)> {
    let mend = || format!("write exchange/routing.key, or /{pattern} for a queue");
    (!pattern.contains('/')).then(|| (format!("`{pattern}` has no `/`"), mend()))
}

/// Whether the text matches, where `*` is any characters but `/`. Linear but for the last `*`, so that no pattern is slow.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut at, mut here) = (0, 0);
    // Where to go on when what followed the last `*` did not fit: it takes one character more.
    let mut last: Option<(usize, usize)> = None;
    while here < text.len() {
        if pattern.get(at) == Some(&b'*') {
            last = Some((at, here));
            at += 1;
        } else if pattern.get(at) == Some(&text[here]) {
            at += 1;
            here += 1;
        } else if let Some((star, taken)) = last.filter(|(_, taken)| text[*taken] != b'/') {
            last = Some((star, taken + 1));
            at = star + 1;
            here = taken + 1;
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// Why nothing may be published here: no destination, a pattern, or one that belongs to the broker or its clients.
pub(crate) fn forbidden(to: &Destination) -> Option<String> {
    if to.exchange.is_empty() && to.address.is_empty() {
        return Some("neither an exchange nor a queue is named".to_owned());
    }
    if let Some(why) = too_long(to) {
        return Some(why);
    }
    let both = [&to.exchange, &to.address];
    if both.iter().any(|name| name.chars().any(char::is_control)) {
        return Some(format!("`{}` has control characters", to.to_string().escape_debug()));
    }
    if both.iter().any(|name| name.contains('*')) || to.address.split('.').any(|word| word == "#") {
        return Some(format!("`{to}` is a pattern, not a destination"));
    }
    let name = if to.exchange.is_empty() { &to.address } else { &to.exchange };
    if name.starts_with("amq.") {
        return Some(format!("`{to}` belongs to the broker or its clients"));
    }
    None
}

/// Why this fits into no AMQP frame.
pub(super) fn too_long(to: &Destination) -> Option<String> {
    let (what, name) = [("exchange", &to.exchange), ("routing key", &to.address)].into_iter().find(|(_, name)| name.len() > MOST)?;
    Some(format!("the {what} has {} bytes, AMQP takes {MOST}", name.len()))
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
        ] {
            assert_eq!(allows(pattern, &to(exchange, key)), expected, "{pattern} {exchange}/{key}");
        }
        let slow = format!("/{}b", "a*".repeat(100));
        assert!(!allows(&slow, &to("", &"a".repeat(255))));
    }

    #[test]
    fn a_pattern_without_a_slash_is_a_problem() {
        assert!(pattern_problem("orders").is_some_and(|(_, mend)| mend.contains("/orders")));
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
            ("", "orders.*"),
            ("sh*p", "a"),
            ("shop", "orders.#"),
            ("shop", "a\nb"),
            ("a\u{7f}", "b"),
            ("", long.as_str()),
            (long.as_str(), ""),
        ] {
            assert!(forbidden(&to(exchange, key)).is_some(), "{exchange}/{key}");
        }
        for (exchange, key) in [("", "orders"), ("shop", ""), ("shop", "amq.x"), ("", "issue#4"), ("ünter", "a b")] {
            assert_eq!(forbidden(&to(exchange, key)), None, "{exchange}/{key}");
        }
    }
}
