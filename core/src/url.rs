//! URLs without secrets. Settings, logs and errors show a URL in this form only.

/// The URL with `***` in place of its password, or in place of all user information if that is a
/// token without a password. The query also becomes `***`, because it may hold a secret.
#[must_use]
pub fn redacted(url: &str) -> String {
    let (scheme, separator, rest) = url.split_once("://").map_or(("", "", url), |(scheme, rest)| (scheme, "://", rest));
    // Passwords are not always percent-encoded, so the last `@` before the query ends the password,
    // even after a `/`.
    let end = rest.find('?').unwrap_or(rest.len());
    let (head, query) = rest.split_at(end);
    let shown_query = if query.is_empty() { "" } else { "?***" };
    match head.rsplit_once('@') {
        // The password may hold a `?`, so its end is unknown.
        None if query.contains('@') => format!("{scheme}{separator}***"),
        None => format!("{scheme}{separator}{head}{shown_query}"),
        Some((user_info, place)) => {
            let shown = user_info.split_once(':').map_or_else(|| "***".to_owned(), |(user, _)| format!("{user}:***"));
            format!("{scheme}{separator}{shown}@{place}{shown_query}")
        }
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
            ("amqp://me:hush@h/v?password=hush", "amqp://me:***@h/v?***"),
            ("amqp://me:hu?sh@h", "amqp://***"),
            ("nats://h?token=hush@h", "nats://***"),
            ("me:hush@h", "me:***@h"),
        ] {
            assert_eq!(redacted(url), shown);
        }
    }
}
