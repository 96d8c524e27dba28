//! The rules of the allow-list once more, as a person would write them who has all the time in the
//! world: nothing is shared with what is checked.

use dwell_connectors::Destination;

/// Whether the pattern of `allow` matches, on a broker of this kind.
pub(crate) fn allows(kind: &str, pattern: &str, to: &Destination) -> bool {
    match kind {
        "nats" => tokens(
            &pattern.split('.').collect::<Vec<_>>(),
            &to.address.split('.').collect::<Vec<_>>(),
        ),
        "kafka" => glob(pattern.as_bytes(), to.address.as_bytes(), None),
        _ => pattern.split_once('/').is_some_and(|(exchange, key)| {
            glob(exchange.as_bytes(), to.exchange.as_bytes(), Some(b'/'))
                && glob(key.as_bytes(), to.address.as_bytes(), Some(b'/'))
        }),
    }
}

/// NATS: `*` is one token, `>` at the end one or more.
fn tokens(pattern: &[&str], subject: &[&str]) -> bool {
    match (pattern, subject) {
        ([], []) => true,
        ([">"], [_, ..]) => true,
        (["*", pattern @ ..], [_, subject @ ..]) => tokens(pattern, subject),
        ([token, pattern @ ..], [same, subject @ ..]) => {
            token == same && *token != ">" && tokens(pattern, subject)
        }
        _ => false,
    }
}

/// `*` is any bytes but this one, `**` any bytes: every way to divide the text is tried, in a
/// table.
fn glob(pattern: &[u8], text: &[u8], but: Option<u8>) -> bool {
    // matches[n]: the pattern so far takes the first n bytes.
    let mut matches = vec![false; text.len() + 1];
    matches[0] = true;
    let mut rest = pattern;
    while let Some(letter) = rest.first() {
        let (width, but) = if rest.starts_with(b"**") { (2, None) } else { (1, but) };
        rest = &rest[width..];
        let before = matches;
        matches = vec![false; text.len() + 1];
        for end in 0..=text.len() {
            matches[end] = if *letter == b'*' {
                (0..=end).any(|start| {
                    before[start] && text[start..end].iter().all(|byte| Some(*byte) != but)
                })
            } else {
                end > 0 && before[end - 1] && text[end - 1] == *letter
            };
        }
    }
    matches[text.len()]
}

/// Whether this belongs to the broker or its clients, or is no destination at all, so that nothing
/// may ever be sent there.
pub(crate) fn never(kind: &str, to: &Destination) -> bool {
    let both = format!("{}{}", to.exchange, to.address);
    // A routing key is whatever it is.
    let odd = both.is_empty()
        || (if kind == "amqp" { &to.exchange } else { &both }).chars().any(char::is_control);
    let name = if to.exchange.is_empty() { &to.address } else { &to.exchange };
    odd || match kind {
        "nats" => {
            let patterns =
                to.address.split('.').any(|token| token.is_empty() || token == "*" || token == ">");
            patterns
                || to.address.contains(char::is_whitespace)
                || to.address.starts_with('$')
                || format!("{}.", to.address).starts_with("_INBOX.")
        }
        "kafka" => {
            let plain = to
                .address
                .chars()
                .all(|letter| letter.is_ascii_alphanumeric() || "._-".contains(letter));
            !plain
                || to.address.len() > 249
                || [".", ".."].contains(&to.address.as_str())
                || to.address.starts_with("__")
        }
        _ => {
            name.starts_with("amq.")
                || to.exchange.contains('*')
                || to.exchange.len() > 255
                || to.address.len() > 255
        }
    }
}
