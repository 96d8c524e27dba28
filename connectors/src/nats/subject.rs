//! The rules of NATS subjects.

use crate::Destination;

/// Whether the subject matches the pattern: `*` is one token, `>` at the end is one or more.
pub(crate) fn allows(pattern: &str, to: &Destination) -> bool {
    let (mut pattern, mut subject) = (pattern.split('.'), to.address.split('.'));
    loop {
        match (pattern.next(), subject.next()) {
            (Some(">"), Some(_)) => return pattern.next().is_none(),
            (Some("*"), Some(_)) => {}
            (Some(expected), Some(token)) if expected == token => {}
            (None, None) => return true,
            _ => return false,
        }
    }
}

/// Why nobody may publish here: no subject, a pattern, or a subject of the server or of clients.
pub(crate) fn forbidden(to: &Destination) -> Option<String> {
    let subject = &to.address;
    if let Some(why) = malformed(subject) {
        return Some(why);
    }
    if subject.split('.').any(|token| matches!(token, "*" | ">")) {
        return Some(format!("`{subject}` is a pattern, not a subject"));
    }
    let first = subject.split('.').next().unwrap_or_default();
    if first.starts_with('$') || first == "_INBOX" {
        return Some(format!("`{subject}` belongs to the server or its clients"));
    }
    None
}

/// Why this is neither a subject nor a pattern.
pub(super) fn malformed(subject: &str) -> Option<String> {
    if subject.is_empty() {
        return Some("the subject is empty".to_owned());
    }
    if subject.chars().any(|letter| letter.is_whitespace() || letter.is_control()) {
        return Some(format!("`{}` is no subject: it has white space", subject.escape_debug()));
    }
    if subject.split('.').any(str::is_empty) {
        return Some(format!("`{subject}` is no subject: it has an empty token"));
    }
    None
}

/// Why no subject matches this pattern, and what to write instead.
pub(crate) fn pattern_problem(pattern: &str) -> Option<(String, String)> {
    let inner = || {
        let mut tokens = pattern.split('.').rev().skip(1);
        tokens.any(|token| token == ">").then(|| format!("`{pattern}` has tokens after `>`"))
    };
    let hint = "write tokens with dots between them: `*` is one token, `>` at the end one or more";
    malformed(pattern).or_else(inner).map(|why| (why, hint.to_owned()))
}

/// The text as the name of a stream or durable consumer, which may not contain white space, dots,
/// wildcards or slashes.
pub(super) fn as_name(text: &str) -> String {
    text.chars()
        .map(|letter| {
            if letter.is_whitespace() || letter.is_control() || ".*>/\\".contains(letter) {
                '_'
            } else {
                letter
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_the_server_matches() {
        for (pattern, subject, expected) in [
            ("orders.close", "orders.close", true),
            ("orders.close", "orders.closed", false),
            ("orders.*", "orders.close", true),
            ("orders.*", "orders", false),
            ("orders.*", "orders.eu.close", false),
            ("*.close", "orders.close", true),
            ("orders.>", "orders.eu.close", true),
            ("orders.>", "orders", false),
            (">", "orders", true),
            ("orders.>.close", "orders.eu.close", false),
            ("orders", "orders.close", false),
            ("ord*", "orders", false),
        ] {
            assert_eq!(
                allows(pattern, &Destination::new(subject)),
                expected,
                "{pattern} {subject}"
            );
        }
    }

    #[test]
    fn what_is_not_ours_is_forbidden() {
        for subject in [
            "",
            "a b",
            "a\tb",
            "a..b",
            ".a",
            "a.",
            "orders.*",
            ">",
            "a.>",
            "$JS.API.INFO",
            "$SYS.x",
            "$KV.b.k",
            "_INBOX.x.1",
            "a\r\nPUB b",
        ] {
            assert!(forbidden(&Destination::new(subject)).is_some(), "{subject}");
        }
        for subject in ["orders", "orders.close", "a*b", "_INBOXES.x", "ünter"] {
            assert_eq!(forbidden(&Destination::new(subject)), None, "{subject}");
        }
    }

    #[test]
    fn a_pattern_that_matches_no_subject_is_a_problem() {
        for pattern in ["a..b", ".a", "a.", "x.>.y", ">.>", "a b", "a.\tb"] {
            assert!(pattern_problem(pattern).is_some(), "{pattern}");
        }
        for pattern in ["a", "a.b", "a.*", "*.b", "a.>", ">", "*", "a>.b", "ünter.>"] {
            assert_eq!(pattern_problem(pattern), None, "{pattern}");
        }
    }

    #[test]
    fn names_have_nothing_that_a_name_may_not() {
        assert_eq!(as_name("a.b c*d>e/f\\g-h"), "a_b_c_d_e_f_g-h");
    }
}
