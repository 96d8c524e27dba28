//! The patterns of `allow`: which URLs a producer may name.

use url::{Position, Url};

use super::url::{authority, origin, parse};

/// Why this is no pattern of `allow`, and what to write instead.
pub(super) fn problem(pattern: &str) -> Option<(String, String)> {
    serialised(pattern)
        .err()
        .map(|why| (why, "write a URL as in `https://app.internal/hooks/*`, where `*` is any characters of path and query".to_owned()))
}

/// The pattern as the standard serialises it, which leaves `*` alone in path and query.
fn serialised(pattern: &str) -> Result<Url, String> {
    let literal =
        || Err("scheme, host and port of the pattern have a `*`: write them out".to_owned());
    if pattern.split_once(':').is_some_and(|(scheme, _)| scheme.contains('*'))
        || authority(pattern).contains('*')
    {
        return literal();
    }
    let url = parse(pattern)?;
    // A host may hold a `*` in another spelling.
    if url[..Position::BeforePath].contains('*') { literal() } else { Ok(url) }
}

/// Whether the pattern allows this URL: scheme, host and port are the same, and `*` is any
/// characters of path and query, also none and also `/` and `?`.
pub(super) fn allows(pattern: &str, url: &Url) -> bool {
    let Ok(pattern) = serialised(pattern) else { return false };
    pattern[..Position::BeforePath] == url[..Position::BeforePath]
        && matches(&pattern[Position::BeforePath..], &url[Position::BeforePath..])
}

/// The key of a pattern, which every URL that the pattern allows shares: the origin, and the first
/// part of the path if the pattern has no `*` there.
pub(super) fn key(pattern: &str) -> Option<String> {
    let pattern = serialised(pattern).ok()?;
    let (origin, first) = (origin(&pattern), first_part(&pattern[Position::BeforePath..]));
    Some(if first.contains('*') { origin } else { format!("{origin}/{first}") })
}

/// The first part of this path and query.
pub(super) fn first_part(path: &str) -> &str {
    let path = path.strip_prefix('/').unwrap_or(path);
    path.split(['/', '?', '#']).next().unwrap_or_default()
}

/// Whether the text matches; `*` is any characters. Each part is looked for once, from the left, so
/// the time is linear.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    let Some(mut text) = text.strip_prefix(first).and_then(|text| text.strip_suffix(last)) else {
        return false;
    };
    for part in middle.split('*') {
        match text.split_once(part) {
            Some((_, behind)) => text = behind,
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_allow_paths_and_queries_of_one_origin() {
        for (pattern, url, expected) in [
            ("https://app.internal", "https://app.internal/", true),
            ("https://app.internal", "https://app.internal/a", false),
            ("https://app.internal", "https://app.internal/?a", false),
            ("https://app.internal/", "https://app.internal", true),
            ("https://app.internal/*", "https://app.internal/", true),
            ("https://app.internal/*", "https://app.internal/a/b?c", true),
            ("https://APP.internal:443/hooks/*", "https://app.internal/hooks/a", true),
            ("https://app.internal/hooks/*", "https://app.internal/hooks/", true),
            ("https://app.internal/hooks/*", "https://app.internal/hooks/a/b?c=d/e", true),
            ("https://app.internal/hooks/*", "HTTPS://APP.INTERNAL:443/hooks/a", true),
            ("https://app.internal/hooks/*", "https://app.internal/hooks", false),
            ("https://app.internal/hooks/*", "https://app.internal/Hooks/a", false),
            ("https://app.internal/a/../hooks/*", "https://app.internal/hooks/a", true),
            ("https://app.internal/*/close", "https://app.internal/eu/close", true),
            ("https://app.internal/*/close", "https://app.internal/close", false),
            ("https://app.internal/*/close", "https://app.internal/eu/close?a", false),
            ("https://app.internal/a*b*a", "https://app.internal/aba", true),
            ("https://app.internal/a*b*a", "https://app.internal/ab", false),
            ("https://app.internal/ab*ba", "https://app.internal/aba", false),
            ("https://app.internal/**a", "https://app.internal/a", true),
            ("https://app.internal/a?id=*", "https://app.internal/a?id=7", true),
            ("https://app.internal/a?id=*", "https://app.internal/a", false),
            ("https://app.internal?id=*", "https://app.internal/?id=7", true),
            ("https://app.internal/ü/*", "https://app.internal/%C3%BC/a", true),
            ("https://bücher.example/*", "https://xn--bcher-kva.example/a", true),
            ("https://xn--bcher-kva.example/*", "https://BÜCHER.example/a", true),
            ("http://127.0.0.1:8080/*", "http://0x7f.1:8080/a", true),
            ("http://[::1]/*", "http://[0:0::1]/a", true),
        ] {
            assert_eq!(allows(pattern, &parse(url).unwrap()), expected, "{pattern} {url}");
        }
    }

    #[test]
    fn nothing_passes_as_another_host_or_path() {
        let pattern = "https://app.internal/hooks/*";
        for url in [
            "https://app.internal.evil.com/hooks/a",
            "https://app.internal@evil.com/hooks/a",
            "https://app.internal:x@evil.com/hooks/a",
            "https://evil.com/hooks/a",
            "https://evil.com/?https://app.internal/hooks/a",
            "https://evil.com/https://app.internal/hooks/a",
            "https://evil.com\\@app.internal/hooks/a",
            "https://evil.com#@app.internal/hooks/a",
            "https://app.internal%00.evil.com/hooks/a",
            "https://app.internal,evil.com/hooks/a",
            "https://xapp.internal/hooks/a",
            "https://app-internal/hooks/a",
            "https://app.internal:444/hooks/a",
            "https://app.internal:80/hooks/a",
            "http://app.internal/hooks/a",
            "http://app.internal:443/hooks/a",
            "https://аpp.internal/hooks/a",
            "https://app.internal/hooks/../admin",
            "https://app.internal/hooks/%2e%2e/admin",
            "https://app.internal/hooks/.%2E/admin",
            "https://app.internal/hooks/a/../../admin",
            "https://app.internal/hooks/..",
            "https://app.internal/hooks/..%2fadmin",
            "https://app.internal/hooks/..\\admin",
            "https://app.internal/hooks/.\n./admin",
            "https://app.internal//hooks/a",
            "https://app.internal/%68ooks/a",
            "https://app.internal/admin?/hooks/a",
        ] {
            assert!(!parse(url).is_ok_and(|url| allows(pattern, &url)), "{url}");
        }
    }

    #[test]
    fn patterns_are_checked() {
        for (pattern, word) in [
            ("*", "not absolute"),
            ("*://app.internal/", "have a `*`"),
            ("http*://app.internal/", "have a `*`"),
            ("https://*", "have a `*`"),
            ("https://*.internal/", "have a `*`"),
            ("https://app.internal*", "have a `*`"),
            ("https://app.internal*/hooks", "have a `*`"),
            ("https://app.internal:*/", "have a `*`"),
            ("https://app.internal:4*/", "have a `*`"),
            ("https://%2A.internal/", "have a `*`"),
            ("https://＊.internal/", "have a `*`"),
            ("app.internal/hooks/*", "not absolute"),
            ("app.internal/hooks", "not absolute"),
            ("ftp://app.internal/*", "scheme"),
            ("https://user@app.internal/*", "user info"),
            ("https://app.internal/*#", "fragment"),
            ("https://app.internal/a%2fb", "percent-encoded slash"),
        ] {
            let (why, hint) = problem(pattern).unwrap();
            assert!(
                why.contains(word) && hint.contains("https://app.internal/hooks/*"),
                "{pattern}: {why}"
            );
            assert!(!allows(pattern, &parse("https://app.internal/hooks").unwrap()), "{pattern}");
        }
        for pattern in [
            "https://app.internal",
            "http://127.0.0.1:8080/*",
            "https://app.internal/*/a?b=*",
            "https://app.internal/a:*",
        ] {
            assert_eq!(problem(pattern), None, "{pattern}");
        }
    }

    #[test]
    fn a_pattern_of_many_stars_is_not_slow() {
        let pattern = format!("/{}b", "a*".repeat(4000));
        assert!(!matches(&pattern, &format!("/{}", "a".repeat(8000))));
        assert!(matches(&pattern, &format!("/{}b", "a".repeat(8000))));
    }
}
