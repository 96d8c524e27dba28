//! The headers of a request.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName, HeaderValue, header};
use percent_encoding::{AsciiSet, utf8_percent_encode};

use crate::{Header, Headers, Value};

/// Headers that act on the connection or on the framing of the message, and not on its content
/// (RFC 9110 §7.6.1, RFC 9112 §6 and §9).
const HOP_BY_HOP_HEADERS: [&str; 13] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
/// Headers of Standard Webhooks, which Dwell sets itself.
const WEBHOOK_PREFIX: &str = "webhook-";
const CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/octet-stream");
const USER_AGENT: HeaderValue =
    HeaderValue::from_static(concat!("Dwell/", env!("CARGO_PKG_VERSION")));
/// Beyond ASCII only.
const PERCENT_ENCODE_SET: &AsciiSet = &AsciiSet::EMPTY;

/// Whether a header can be sent: false if it acts on the hop, or is Dwell's own. `Err`: why not.
pub(super) fn carries(header: &Header) -> Result<bool, String> {
    Ok(read(header)?.is_some())
}

/// A header as HTTP has it; `None` if it acts on the hop, or is Dwell's own. `Err`: why it cannot
/// be sent.
fn read(header: &Header) -> Result<Option<(HeaderName, HeaderValue)>, String> {
    let Ok(name) = HeaderName::from_bytes(header.name.as_bytes()) else {
        return Err(
            "the name is no token, as HTTP wants it: use letters, digits and `-`".to_owned()
        );
    };
    let value = value(header)
        .ok_or_else(|| "the value has a line break or another control character, or is no text: send one line of text".to_owned())?;
    let is_carried =
        !HOP_BY_HOP_HEADERS.contains(&name.as_str()) && !name.as_str().starts_with(WEBHOOK_PREFIX);
    Ok(is_carried.then_some((name, value)))
}

fn value(header: &Header) -> Option<HeaderValue> {
    // Bytes that are text are text: HTTP has no other values.
    let text = match &header.value {
        Value::Bytes(bytes) => Cow::Borrowed(str::from_utf8(bytes).ok()?),
        other => other.plain()?,
    };
    HeaderValue::from_maybe_shared(bytes::Bytes::from(text.into_owned())).ok()
}

/// The headers of a request, without those of Standard Webhooks. `Err`: the header that cannot be
/// sent.
pub(super) fn to_http(headers: &Headers) -> Result<HeaderMap, String> {
    let mut map = HeaderMap::with_capacity(headers.len() + 6);
    for header in headers.iter() {
        let wrong = |why: String| format!("header `{}`: {why}", header.name.escape_debug());
        let Some((name, value)) = read(header).map_err(wrong)? else { continue };
        let is_beyond_ascii = !value.as_bytes().is_ascii();
        let value = if is_beyond_ascii && name == "delayed-id" {
            ascii(header).unwrap_or(value)
        } else {
            value
        };
        map.append(name, value);
    }
    map.entry(header::CONTENT_TYPE).or_insert(CONTENT_TYPE);
    map.entry(header::USER_AGENT).or_insert(USER_AGENT);
    Ok(map)
}

/// The headers that `connection` lists: they act on the hop too (RFC 9110 §7.6.1). Asked at the
/// request, because `connection` itself is dropped then.
pub(super) fn named_by_connection(headers: &Headers) -> Vec<String> {
    let connection = headers.iter().filter(|header| header.name.eq_ignore_ascii_case("connection"));
    let values = connection.filter_map(|header| header.value.plain());
    let names = values.flat_map(|value| {
        value.split(',').map(|name| name.trim().to_ascii_lowercase()).collect::<Vec<_>>()
    });
    // Of the content, whoever names it.
    names.filter(|name| *name != header::CONTENT_TYPE.as_str()).collect()
}

/// An id, which may have any letters: percent-encoded beyond ASCII, because frameworks read other
/// bytes as Latin-1.
fn ascii(header: &Header) -> Option<HeaderValue> {
    let text = header.value.plain()?;
    HeaderValue::try_from(utf8_percent_encode(&text, PERCENT_ENCODE_SET).to_string()).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn header(name: &str, value: &str) -> Header {
        Header { name: name.to_owned(), value: Value::Text(value.to_owned()) }
    }

    #[test]
    fn what_acts_on_the_hop_is_dropped_and_what_http_cannot_carry_is_refused() {
        for name in [
            "Host",
            "content-length",
            "Transfer-Encoding",
            "Connection",
            "expect",
            "TE",
            "Webhook-Id",
            "webhook-signature",
        ] {
            assert_eq!(carries(&header(name, "x")), Ok(false), "{name}");
        }
        for name in [
            "traceparent",
            "authorization",
            "content-type",
            "content-encoding",
            "x-a",
            "cookie",
            "delayed-id",
        ] {
            assert_eq!(carries(&header(name, "x\ty ü")), Ok(true), "{name}");
        }
        for (name, value) in [
            ("", "x"),
            ("a b", "x"),
            ("a:b", "x"),
            (":path", "x"),
            ("ü", "x"),
            ("a", "x\r\ny: z"),
            ("a", "\n"),
            ("a", "\0"),
        ] {
            assert!(carries(&header(name, value)).is_err(), "{name:?}: {value:?}");
        }
        assert!(
            carries(&Header {
                name: "a".to_owned(),
                value: Value::Bytes(b"\xff".as_slice().into())
            })
            .is_err()
        );
    }

    #[test]
    fn headers_keep_their_values_and_get_defaults() {
        let all = Headers::from_iter([
            header("X-A", "1"),
            header("x-a", "ü"),
            header("host", "evil"),
            header("delayed-id", "ü 100%/a"),
        ]);
        let map = to_http(&all).unwrap();
        assert_eq!(
            map.get_all("x-a").iter().map(|value| value.as_bytes().to_vec()).collect::<Vec<_>>(),
            [b"1".to_vec(), "ü".into()]
        );
        assert_eq!(map["delayed-id"], "%C3%BC 100%/a");
        assert_eq!(map["content-type"], "application/octet-stream");
        assert!(
            map["user-agent"].to_str().unwrap().starts_with("Dwell/") && !map.contains_key("host")
        );
        let own = to_http(&Headers::from_iter([
            header("Content-Type", "application/json"),
            header("User-Agent", "mine"),
        ]))
        .unwrap();
        assert_eq!(
            (&own["content-type"], &own["user-agent"], own.len()),
            (&"application/json".parse().unwrap(), &"mine".parse().unwrap(), 2)
        );
        let of_hop = [
            header("X-Gone", "1"),
            header("Connection", "close, X-Gone"),
            header("connection", "content-type,upgrade"),
        ];
        assert_eq!(
            named_by_connection(&Headers::from_iter(of_hop)),
            ["close", "x-gone", "upgrade"]
        );
        let text = Header { name: "a".to_owned(), value: Value::Bytes("ü".as_bytes().into()) };
        assert_eq!(to_http(&Headers::from_iter([text])).unwrap()["a"].as_bytes(), "ü".as_bytes());
        assert!(
            to_http(&Headers::from_iter([header("a\n", "b")]))
                .unwrap_err()
                .starts_with("header `a\\n`: ")
        );
    }
}
