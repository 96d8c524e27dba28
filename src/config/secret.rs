//! What must not be printed, and where it is read from.

use std::path::Path;

/// The URL with its password, or all of what stands before `@` where that is a token, as `***`.
#[must_use]
pub fn without_password(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").map_or(("", url), |(scheme, rest)| (scheme, rest));
    // Passwords are not always percent-encoded: the last `@` before the query ends them, even behind a `/`.
    let end = rest.find('?').unwrap_or(rest.len());
    let (head, query) = rest.split_at(end);
    let query = if query.is_empty() { "" } else { "?***" };
    let separator = if scheme.is_empty() { "" } else { "://" };
    let Some((user_info, place)) = head.rsplit_once('@') else {
        return format!("{scheme}{separator}{head}{query}");
    };
    let shown = match user_info.split_once(':') {
        Some((user, _)) => format!("{user}:***"),
        None => "***".to_owned(),
    };
    format!("{scheme}{separator}{shown}@{place}{query}")
}

/// The text with every URL in it as [`without_password`] has it.
pub(super) fn without_passwords(text: &str) -> String {
    let ends = |c: char| c.is_whitespace() || matches!(c, '"' | '`');
    text.split_inclusive(ends)
        .map(|word| {
            let url = word.trim_end_matches(ends);
            // An example of ours names no password.
            if url.contains("://") && url.contains('@') && !url.contains("://user:password@") {
                format!("{}{}", without_password(url), &word[url.len()..])
            } else {
                word.to_owned()
            }
        })
        .collect()
}

/// Whether the value of a setting of this name must not be printed.
pub(super) fn is_secret(key: &str) -> bool {
    let named = ["url", "password", "token", "secret", "seed", "properties"].iter().any(|word| key.contains(word));
    named && !key.ends_with("_file")
}

/// What a secret's file holds, without white space around it; or why it cannot be had.
pub(crate) fn read(path: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {}", path.display(), reason(&error)))?;
    let text = text.trim();
    if text.is_empty() { Err(format!("{} is empty", path.display())) } else { Ok(text.to_owned()) }
}

/// The system's reason, in words.
pub(super) fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "no such file".to_owned(),
        std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        std::io::ErrorKind::InvalidData => "it is not UTF-8 text".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_and_tokens_are_hidden() {
        for (url, shown) in [
            ("redis://127.0.0.1:6379/2", "redis://127.0.0.1:6379/2"),
            ("redis://:hush@h:1", "redis://:***@h:1"),
            ("rediss://me:hush@h:1/0", "rediss://me:***@h:1/0"),
            ("nats://hush@h:1", "nats://***@h:1"),
            ("redis://me:hu@sh@h", "redis://me:***@h"),
            ("redis://me:hu/sh@h", "redis://me:***@h"),
            ("redis://h?password=hush", "redis://h?***"),
            ("me:hush@h", "me:***@h"),
        ] {
            assert_eq!(without_password(url), shown);
        }
        let text = "\"redis://me:hush@h\" and `a://hush@h`, write redis://user@h:1 or http://h";
        let shown = "\"redis://me:***@h\" and `a://***@h`, write redis://***@h:1 or http://h";
        assert_eq!(without_passwords(text), shown);
    }
}
