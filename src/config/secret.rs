//! Secrets: which settings hold one, hiding them in messages, reading them from files.

use std::path::Path;

use dwell_connectors::{redacted, secret_text, unreadable};

/// The text with every URL redacted by [`redacted`]. A URL reaches to the last `@` of its value,
/// because a password may contain any character.
pub(super) fn without_passwords(text: &str) -> String {
    // The start of the scheme that ends at `at`.
    let begin = |text: &str, at: usize| text[..at].trim_end_matches(|c: char| c.is_ascii_alphanumeric() || "+-.".contains(c)).len();
    let (mut shown, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find("://") {
        let start = begin(rest, at);
        shown.push_str(&rest[..start]);
        let after = &rest[at + 3..];
        let value = &after[..after.find(['"', '`', '\n']).unwrap_or(after.len())];
        // Another URL may follow, outside of quotes.
        let value = &value[..value.find("://").map_or(value.len(), |next| begin(value, next))];
        let word = |from: usize| value[from..].find(char::is_whitespace).map_or(value.len(), |end| from + end);
        let end = at + 3 + word(value.rfind('@').map_or(0, |at| at + 1));
        let url = &rest[start..end];
        // The example in Dwell's own hints.
        if url.contains("://user:password@") {
            shown.push_str(url);
        } else {
            shown.push_str(&redacted(url));
        }
        rest = &rest[end..];
    }
    shown.push_str(rest);
    shown
}

/// Whether the value of a setting of this name is secret.
pub(super) fn is_secret(key: &str) -> bool {
    let named = ["url", "password", "token", "secret", "seed", "properties"].iter().any(|word| key.contains(word));
    // `tokens` is the table of `[http.tokens.NAME]`.
    named && key != "tokens" && !key.ends_with("_file")
}

/// The content of a secret's file, trimmed; or why the file cannot be read.
pub(crate) fn read(path: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(path, &error))?;
    secret_text(path, &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_url_in_a_text_is_shown_without_its_password() {
        let text = "\"redis://me:hush@h\" and `a://hush@h`, write redis://user@h:1 or http://h";
        let shown = "\"redis://me:***@h\" and `a://***@h`, write redis://***@h:1 or http://h";
        assert_eq!(without_passwords(text), shown);
        for (text, shown) in [
            ("mode is \"redis://me:hu sh@h\", use \"single\"", "mode is \"redis://me:***@h\", use \"single\""),
            ("`redis://h?password=hush` is none", "`redis://h?***` is none"),
            ("für://me:hush@h, ü://x:y z@h", "für://me:***@h, ü://x:***@h"),
            ("amqp://user:password@host/vhost", "amqp://user:password@host/vhost"),
        ] {
            assert_eq!(without_passwords(text), shown);
        }
    }
}
