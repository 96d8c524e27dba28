//! URLs without secrets. Settings, logs and errors show a URL in this form only.
//!
//! The end of a password that is not percent-encoded is ambiguous. So only a text that reads as
//! URLs in one way is shown, and no part of any other text.

/// The text in place of a text that may hold a secret.
const REDACTION: &str = "***";

/// The schemes that may be shown. Any other word before `://` may be a part of a password.
const SCHEMES: [&str; 18] = [
    "redis",
    "rediss",
    "valkey",
    "valkeys",
    "amqp",
    "amqps",
    "nats",
    "tls",
    "ws",
    "wss",
    "http",
    "https",
    "plaintext",
    "ssl",
    "sasl_plaintext",
    "sasl_ssl",
    "unix",
    "ftp",
];

/// The scheme of a URL, if it can be no part of a password.
#[must_use]
pub fn known_scheme(url: &str) -> Option<&str> {
    let (scheme, _) = url.split_once("://")?;
    SCHEMES.iter().any(|known| scheme.eq_ignore_ascii_case(known)).then_some(scheme)
}

/// The URLs of a text that separates them with commas.
///
/// # Errors
/// The hint for a text whose comma may be part of a password.
pub fn split_urls(text: &str) -> Result<Vec<&str>, &'static str> {
    let urls: Vec<&str> = text.split(',').map(str::trim).filter(|url| !url.is_empty()).collect();
    let mut bare = false;
    for url in &urls {
        let has_login = url.contains('@');
        // Behind `nats://bob:12,34@host` no other URL begins; in `nats://bob:12,nats://34@host` one
        // may.
        if has_login && (bare || urls.len() > 1 && known_scheme(url).is_none()) {
            return Err(
                "a comma separates two URLs here, and the first may be the start of a password: in a user or a password write , as %2C",
            );
        }
        bare |= !has_login;
    }
    Ok(urls)
}

/// The text of one or more URLs with `***` in place of each password and query, and of each user
/// without a password, which is a token. A text that reads in more than one way is `***` as a
/// whole.
#[must_use]
pub fn redacted(text: &str) -> String {
    let Ok(urls) = split_urls(text) else { return REDACTION.to_owned() };
    // A comma behind a query may be part of a password.
    let ends = |pair: &[&str]| !pair[0].contains(['?', '#']);
    match urls
        .iter()
        .map(|url| shown(url))
        .collect::<Option<Vec<_>>>()
        .filter(|_| urls.windows(2).all(ends))
    {
        Some(urls) => urls.join(", "),
        // The scheme alone remains, if it cannot be part of a password.
        None => known_scheme(text)
            .map_or_else(|| REDACTION.to_owned(), |scheme| format!("{scheme}://{REDACTION}")),
    }
}

/// A URL for people; `None` if a part of it may belong to a password.
fn shown(url: &str) -> Option<String> {
    let (scheme, rest) = match url.split_once("://") {
        Some((_, rest)) => (format!("{}://", known_scheme(url)?), rest),
        None => (String::new(), url),
    };
    let (head, query) = rest.split_at(rest.find(['?', '#']).unwrap_or(rest.len()));
    // The `@` behind a `?` ends a password with a `?`, or is part of the query.
    if query.contains('@') {
        return None;
    }
    // The last `@` ends the password, which may hold any character.
    let (login, place) = match head.rsplit_once('@') {
        Some((login, place)) => (format!("{}@", login_shown(login)), place),
        None => (String::new(), head),
    };
    if !is_place(place) {
        return None;
    }
    let query = if query.is_empty() { "" } else { "?***" };
    Some(format!("{scheme}{login}{place}{query}"))
}

fn login_shown(login: &str) -> String {
    let is_name = |user: &str| {
        !user.is_empty() && user.chars().all(|c| c.is_alphanumeric() || "._-".contains(c))
    };
    match login.split_once(':') {
        Some((user, password)) if !password.is_empty() && (user.is_empty() || is_name(user)) => {
            format!("{user}:{REDACTION}")
        }
        _ => REDACTION.to_owned(),
    }
}

/// Whether this is a host, perhaps with a port and a path, and no more.
fn is_place(text: &str) -> bool {
    let (address, path) = text.split_at(text.find('/').unwrap_or(text.len()));
    is_address(address)
        && path.chars().all(|c| c.is_alphanumeric() || "/._~%!$&'()*+;=:-".contains(c))
}

/// Whether this is a host with or without a port: `host:6379`, `[::1]:6379`.
#[must_use]
pub fn is_address(text: &str) -> bool {
    let (host, port, allowed): (_, _, fn(char) -> bool) = match text.strip_prefix('[') {
        Some(rest) => {
            let Some((host, port)) = rest.split_once(']') else { return false };
            let port = if port.is_empty() {
                None
            } else {
                Some(port.strip_prefix(':').unwrap_or_default())
            };
            (host, port, |c| c.is_ascii_hexdigit() || ":.".contains(c))
        }
        None => {
            let (host, port) =
                text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
            (host, port, |c| c.is_alphanumeric() || "._-".contains(c))
        }
    };
    let is_host = host.chars().all(allowed);
    let is_port = port.is_none_or(|port| {
        port.bytes().all(|digit| digit.is_ascii_digit())
            && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    !host.is_empty() && is_host && is_port
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn passwords_and_tokens_are_hidden() {
        for (url, shown) in [
            ("redis://127.0.0.1:6379/2", "redis://127.0.0.1:6379/2"),
            ("redis://[::1]:6379", "redis://[::1]:6379"),
            ("redis://:hush@h:1", "redis://:***@h:1"),
            ("rediss://me:hush@h:1/0", "rediss://me:***@h:1/0"),
            ("nats://hush@h:1", "nats://***@h:1"),
            ("nats://hush:@h:1", "nats://***@h:1"),
            ("redis://me:hu@sh@h", "redis://me:***@h"),
            ("redis://me:hu/sh@h", "redis://me:***@h"),
            ("redis://h?password=hush", "redis://h?***"),
            ("redis://h#hush", "redis://h?***"),
            ("amqp://me:hush@h/v?password=hush", "amqp://me:***@h/v?***"),
            ("amqp://me:hu?sh@h", "amqp://***"),
            ("nats://h?token=hush@h", "nats://***"),
            ("me:hush@h", "me:***@h"),
            ("nats://u:p@a:1, nats://b", "nats://u:***@a:1, nats://b"),
            ("a:9092,b", "a:9092, b"),
        ] {
            assert_eq!(redacted(url), shown);
        }
    }

    #[test]
    fn of_a_text_that_may_be_read_in_another_way_nothing_is_shown() {
        for (url, shown) in [
            ("amqp://bob:hush,Rest@host", "***"),
            ("amqp://bob:1234,Rest@host", "***"),
            ("nats://bob:1234,nats://Rest@host", "***"),
            ("bob:hush,Rest@host:9092", "***"),
            ("amqp://bob:hush", "amqp://***"),
            ("amqp://bob:hush,", "amqp://***"),
            ("amqp://bob:hush@", "amqp://***"),
            ("amqp:bob:hush", "***"),
            ("amqp:/bob:hush", "***"),
            ("hush://h", "***"),
            ("redis://h:hush", "redis://***"),
            ("redis://h:99999", "redis://***"),
            ("redis://[hush]:1", "redis://***"),
            ("redis://[::1]hush", "redis://***"),
            ("redis://[hush", "redis://***"),
            ("amqp://h?password=a,hush?b", "amqp://***"),
            ("amqp://h?password=a,nats://hush\"?b", "amqp://***"),
            ("h?password=,nats://hush", "***"),
            ("amqp://hu sh@h o", "amqp://***"),
            ("me:hush\n@h\"x", "***"),
        ] {
            assert_eq!(redacted(url), shown, "{url}");
        }
    }

    #[test]
    fn a_comma_that_may_be_of_a_password_separates_nothing() {
        assert_eq!(
            split_urls(" amqp://u:p@a:1/v , amqp://b,").unwrap(),
            ["amqp://u:p@a:1/v", "amqp://b"]
        );
        assert_eq!(split_urls("u:p@h").unwrap(), ["u:p@h"]);
        for text in
            ["amqp://bob:hush,Rest@host", "nats://bob:1234,nats://Rest@host", "nats://u:p@a,x:y@b"]
        {
            assert!(split_urls(text).unwrap_err().contains("%2C"), "{text}");
        }
    }
}
