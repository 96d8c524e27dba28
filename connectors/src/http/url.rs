//! The rules of target URLs.
//!
//! A URL is compared and connected to as the URL standard (WHATWG) serialises it. So no spelling of
//! a host or path passes as another.

use std::net::{IpAddr, Ipv4Addr};

use url::{Host, Position, Url};

use crate::redacted;

/// The most bytes of a URL: the size that servers commonly take as a request line.
const MAX_URL_BYTES: usize = 8 * 1024;

/// The URL of a target. `Err`: why nobody may publish there, and what to do.
pub(super) fn parse(text: &str) -> Result<Url, String> {
    if let Some(why) = raw_problem(text) {
        return Err(why.to_owned());
    }
    let url = Url::parse(text).map_err(|error| match error {
        url::ParseError::RelativeUrlWithoutBase => {
            "the URL is not absolute: start with http:// or https://".to_owned()
        }
        error => format!("the URL is malformed ({error}): write https://host/path"),
    })?;
    if let Some(why) = problem(&url) {
        return Err(why.to_owned());
    }
    Ok(url)
}

/// A problem in the text itself, which the parser would drop or mend.
fn raw_problem(text: &str) -> Option<&'static str> {
    if text.is_empty() {
        return Some("the URL is empty: name one");
    }
    if text.len() > MAX_URL_BYTES {
        return Some("the URL is longer than 8 KiB: send data in the body");
    }
    if text.chars().any(|letter| letter.is_whitespace() || letter.is_control()) {
        return Some(
            "the URL has white space or control characters: percent-encode them, a space as %20",
        );
    }
    if text.contains('\\') {
        return Some("the URL has a `\\`: write `/` between parts of the path");
    }
    // The query goes as it is: links of other services have URLs in theirs.
    let before_query = text.split('?').next().unwrap_or_default();
    if before_query
        .as_bytes()
        .windows(3)
        .any(|code| code.eq_ignore_ascii_case(b"%2f") || code.eq_ignore_ascii_case(b"%5c"))
    {
        return Some(
            "the path of the URL has a percent-encoded slash or backslash, which servers read differently: leave it out",
        );
    }
    if text.contains('#') {
        return Some("the URL has a fragment, which HTTP never sends: leave `#` and the rest out");
    }
    let authority = authority(text);
    if authority.contains('@') {
        return Some("the URL has user info: send credentials as a header");
    }
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    host.ends_with('.').then_some(TRAILING_DOT)
}

const TRAILING_DOT: &str = "the host of the URL has a trailing dot: leave the dot out";

/// A problem in the URL as the standard reads it.
fn problem(url: &Url) -> Option<&'static str> {
    if !matches!(url.scheme(), "http" | "https") {
        return Some("the scheme of the URL is neither http nor https: use one of them");
    }
    let Some(host) = url.host_str().filter(|host| !host.is_empty()) else {
        return Some("the URL has no host: write https://host/path");
    };
    if host.ends_with('.') {
        return Some(TRAILING_DOT);
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Some("the URL has user info: send credentials as a header");
    }
    if url.port() == Some(0) {
        return Some("the URL has port 0: name the port of the server");
    }
    (url.as_str().len() > MAX_URL_BYTES)
        .then_some("the URL is longer than 8 KiB once percent-encoded: send data in the body")
}

/// Host and port as they are written, with user info. The standard takes any number of slashes
/// before them.
pub(super) fn authority(text: &str) -> &str {
    let behind = text.split_once(':').map_or("", |(_, behind)| behind).trim_start_matches('/');
    behind.split(['/', '?']).next().unwrap_or_default()
}

/// The address that the URL names itself, instead of a name to look up.
pub(super) fn literal(url: &Url) -> Option<IpAddr> {
    match url.host()? {
        Host::Ipv4(address) => Some(address.into()),
        Host::Ipv6(address) => Some(address.into()),
        Host::Domain(_) => None,
    }
}

/// The URL for logs and errors: queries often hold secrets.
pub(super) fn without_query(url: &Url) -> String {
    url[..Position::AfterPath].to_owned()
}

/// `scheme://host:port`, the port only where not the scheme's own: each origin has a window of its
/// own.
pub(super) fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}

/// The host of a URL's text as [`origin`] shows it; `None` where the text is no target.
pub(super) fn origin_of(text: &str) -> Option<String> {
    plain_origin(text).map(str::to_owned).or_else(|| parse(text).ok().map(|url| origin(&url)))
}

/// The start of a text that is written as the standard serialises it: no parser is needed. Asked
/// for each job several times.
pub(super) fn plain_origin(text: &str) -> Option<&str> {
    let (rest, default) = match text.strip_prefix("https://") {
        Some(rest) => (rest, "443"),
        None => (text.strip_prefix("http://")?, "80"),
    };
    let authority = &rest[..rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len())];
    let (host, port) =
        authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port)));
    let is_plain_port = port.is_none_or(|port| {
        port != default && !port.starts_with('0') && port.parse::<u16>().is_ok()
    });
    // Other hosts whose last label begins with a digit are addresses in an odd spelling.
    let is_name = host
        .rsplit('.')
        .next()
        .is_some_and(|last| last.starts_with(|first: char| first.is_ascii_lowercase()));
    let is_host = host
        .bytes()
        .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-".contains(&byte))
        && (host.parse::<Ipv4Addr>().is_ok() || (is_name && !host.contains("xn--")));
    (is_plain_port && is_host).then(|| &text[..text.len() - rest.len() + authority.len()])
}

/// A destination for logs and errors: without query, fragment and user info, also where it is no
/// URL.
pub(super) fn shown(text: &str) -> String {
    if let Ok(url) = parse(text) {
        return without_query(&url);
    }
    if text.contains(['@', ':']) {
        let shown = redacted(text);
        let url = shown.split('?').next().unwrap_or_default();
        return match (url.split_once("://"), url.rsplit_once('@')) {
            // A user may be a key.
            (Some((scheme, _)), Some((_, place))) => format!("{scheme}://***@{place}"),
            _ => url.to_owned(),
        };
    }
    text.split(['?', '#']).next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_without_the_parser_is_that_of_the_parser() {
        for text in [
            "https://app.internal",
            "https://app.internal/a",
            "https://app.internal:8443?x",
            "http://127.0.0.1:8080/a",
            "http://a-b.c1/",
            "https://app.internal:443/",
            "http://app.internal:080/",
            "http://127.1/",
            "http://1.2.3.04/",
            "http://0x7f.1/",
            "http://a.0x7f/",
            "https://APP.internal/",
            "https://bücher.example/",
            "http://[::1]:80/",
            "https://a\\b",
            "https://user@app.internal/",
            "no url",
            "",
            "https://app.internal:99999/",
            "https://a:/",
            "http://app.internal.:1/",
        ] {
            let parsed = parse(text).ok().map(|url| origin(&url));
            let plain = plain_origin(text).map(str::to_owned);
            assert!(
                plain.is_none() || parsed.is_none() || plain == parsed,
                "{text}: {plain:?} {parsed:?}"
            );
        }
        assert_eq!(
            plain_origin("https://app.internal:8443/hooks?x"),
            Some("https://app.internal:8443")
        );
        assert_eq!(plain_origin("http://127.0.0.1:8080"), Some("http://127.0.0.1:8080"));
        assert_eq!(plain_origin("http://127.1"), None);
    }

    fn serialised(text: &str) -> String {
        parse(text).unwrap().into()
    }

    #[test]
    fn urls_are_read_as_the_standard_serialises_them() {
        for (text, expected) in [
            ("https://app.internal", "https://app.internal/"),
            ("HTTPS://APP.Internal:443/Hooks", "https://app.internal/Hooks"),
            ("http://app.internal:80/", "http://app.internal/"),
            ("http://app.internal:443/", "http://app.internal:443/"),
            ("https://app.internal/hooks/../admin", "https://app.internal/admin"),
            ("https://app.internal/hooks/%2e%2E/admin", "https://app.internal/admin"),
            ("https://app.internal/hooks/.%2e/./admin", "https://app.internal/admin"),
            ("https:app.internal/a", "https://app.internal/a"),
            ("https:////app.internal/a", "https://app.internal/a"),
            ("https://app%2einternal/a", "https://app.internal/a"),
            ("https://app。internal/a", "https://app.internal/a"),
            ("https://bücher.example/ü?ü", "https://xn--bcher-kva.example/%C3%BC?%C3%BC"),
            ("https://app.internal/a?b=/../c@d:e", "https://app.internal/a?b=/../c@d:e"),
            ("https://app.internal/@a:b", "https://app.internal/@a:b"),
            (
                "https://app.internal/a?b=%2F%2f&c=%5C%5c",
                "https://app.internal/a?b=%2F%2f&c=%5C%5c",
            ),
            ("https://app.internal?b=%2F", "https://app.internal/?b=%2F"),
            ("https://app.internal/%0d%0aa", "https://app.internal/%0d%0aa"),
        ] {
            assert_eq!(serialised(text), expected, "{text}");
        }
    }

    #[test]
    fn odd_spellings_of_an_address_are_that_address() {
        for host in [
            "0x7f.1",
            "2130706433",
            "0177.0.0.1",
            "127.1",
            "0x7f000001",
            "１２７.0.0.1",
            "①②⑦.⓪.⓪.①",
            "127。0。0。1",
            "%31%32%37.0.0.1",
        ] {
            let url = parse(&format!("http://{host}/")).unwrap();
            assert_eq!(
                (url.as_str(), literal(&url)),
                ("http://127.0.0.1/", Some([127, 0, 0, 1].into())),
                "{host}"
            );
        }
        let mapped = parse("http://[::ffff:127.0.0.1]:8080/").unwrap();
        assert_eq!(mapped.as_str(), "http://[::ffff:7f00:1]:8080/");
        assert_eq!(literal(&mapped), Some("::ffff:127.0.0.1".parse::<IpAddr>().unwrap()));
        assert_eq!(
            literal(&parse("http://[0:0::0:1]/").unwrap()),
            Some("::1".parse::<IpAddr>().unwrap())
        );
        assert_eq!(literal(&parse("http://127.0.0.1.nip.io/").unwrap()), None);
    }

    #[test]
    fn refused_urls_say_why() {
        let long = format!("https://a/{}", "x".repeat(MAX_URL_BYTES));
        let long_encoded = format!("https://a/{}", "ü".repeat(MAX_URL_BYTES / 3));
        for (text, word) in [
            ("", "empty"),
            ("/hooks", "not absolute"),
            ("app.internal/hooks", "not absolute"),
            ("//app.internal/hooks", "not absolute"),
            ("app.internal:80/hooks", "scheme"),
            ("ftp://app.internal/", "scheme"),
            ("file:///etc/passwd", "scheme"),
            ("gopher://app.internal/", "scheme"),
            ("data:text/plain,x", "scheme"),
            ("unix:/run/docker.sock", "scheme"),
            ("https://", "malformed"),
            ("https:///", "malformed"),
            ("https://:443/", "malformed"),
            ("https://?a", "malformed"),
            ("https://user@app.internal/", "user info"),
            ("https://user:pass@app.internal/", "user info"),
            ("https://app.internal@evil.com/", "user info"),
            ("https://@app.internal/", "user info"),
            ("https://:@app.internal/", "user info"),
            ("https:@app.internal/", "user info"),
            ("https:///@app.internal/", "user info"),
            ("https://a@b@app.internal/", "user info"),
            ("https://app.internal/#", "fragment"),
            ("https://app.internal/a#b", "fragment"),
            ("https://app.internal#@evil.com/", "fragment"),
            ("https://app.internal./", "trailing dot"),
            ("https://app.internal.:443/", "trailing dot"),
            ("https://app.internal..", "trailing dot"),
            ("https://app.internal%2e/", "trailing dot"),
            ("https://app.internal。/", "trailing dot"),
            ("http://127.0.0.1./", "trailing dot"),
            (" https://app.internal/", "white space"),
            ("https://app.internal/\n", "white space"),
            ("https://app.in\tternal/", "white space"),
            ("ht\ntps://app.internal/", "white space"),
            ("https://app.internal/a b", "white space"),
            ("https://app.internal/\u{a0}", "white space"),
            ("https://app.internal/\u{2028}", "white space"),
            ("https://app.internal/\0", "control"),
            ("https://app.internal/\u{7f}", "control"),
            ("https://app.internal/\u{85}", "control"),
            ("https://app.internal/\r\nhost: evil.com", "control"),
            ("https:\\\\app.internal/", "`\\`"),
            ("https://app.internal\\@evil.com/", "`\\`"),
            ("https://app.internal/a?b=\\", "`\\`"),
            ("https://app.internal/hooks%2f..%2fadmin", "percent-encoded slash"),
            ("https://app.internal/hooks/..%2Fadmin", "percent-encoded slash"),
            ("https://app.internal/hooks/..%5Cadmin", "percent-encoded slash"),
            ("https://app.internal/hooks%2fadmin?b=%2F", "percent-encoded slash"),
            ("https://app.internal%2f@evil.com/", "percent-encoded slash"),
            ("https://app.internal:0/", "port 0"),
            ("https://app.internal:65536/", "malformed"),
            ("https://app.internal:4a/", "malformed"),
            ("https://a＠b/", "malformed"),
            ("https://a／b/", "malformed"),
            ("https://1.2.3.4.5/", "malformed"),
            ("https://256.0.0.1/", "malformed"),
            ("https://[::1/", "malformed"),
            ("https://[fe80::1%25eth0]/", "malformed"),
            ("https://a<b/", "malformed"),
            (&long, "8 KiB"),
            (&long_encoded, "8 KiB"),
        ] {
            let why = parse(text).unwrap_err();
            assert!(why.contains(word) && why.contains(": "), "{text}: {why}");
        }
    }

    #[test]
    fn logs_see_no_query_and_windows_see_origins() {
        for (url, shown, host) in [
            ("https://app.internal/a?token=x", "https://app.internal/a", "https://app.internal"),
            ("https://app.internal:443/a", "https://app.internal/a", "https://app.internal"),
            ("http://APP.internal:8080?x", "http://app.internal:8080/", "http://app.internal:8080"),
            ("http://[::1]:8080/a", "http://[::1]:8080/a", "http://[::1]:8080"),
        ] {
            let url = parse(url).unwrap();
            assert_eq!((without_query(&url).as_str(), origin(&url).as_str()), (shown, host));
        }
    }
}
