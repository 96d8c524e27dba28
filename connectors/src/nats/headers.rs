//! Conversion of headers between async-nats' map and Dwell's list.

use std::borrow::Cow;

use async_nats::{HeaderMap, HeaderName, HeaderValue};

use crate::{Header, Headers, Value};

/// The headers of a received message, sorted by name, because async-nats loses their order; values
/// of one name keep theirs.
pub(super) fn from_nats(map: Option<HeaderMap>) -> Headers {
    let Some(map) = map else { return Headers::default() };
    let mut names: Vec<_> = map.iter().collect();
    names.sort_unstable_by(|(one, _), (other, _)| AsRef::<str>::as_ref(one).cmp(other.as_ref()));
    let each = names.into_iter().flat_map(|(name, values)| {
        values.iter().map(move |value| (AsRef::<str>::as_ref(name), value.as_str()))
    });
    each.map(|(name, value)| Header { name: name.to_owned(), value: Value::Text(value.to_owned()) })
        .collect()
}

/// The headers of a message to publish, or why they cannot be published. Headers that act on the
/// stream are dropped.
pub(super) fn to_nats(headers: Headers, dedupe_id: &str) -> Result<Option<HeaderMap>, String> {
    let mut map = HeaderMap::new();
    if !dedupe_id.is_empty() {
        let id = dedupe_id
            .parse::<HeaderValue>()
            .map_err(|_| "the dedupe id has a line end".to_owned())?;
        map.insert(async_nats::header::NATS_MESSAGE_ID, id);
    }
    for Header { name, value } in headers {
        if acts(&name) {
            continue;
        }
        if name.is_empty() {
            return Err("a header without a name cannot be published to NATS".to_owned());
        }
        let text = text(value)
            .map_err(|why| format!("header `{name}` cannot be published to NATS: {why}"))?;
        // Taken over as it is: to parse it would copy it. The conversion panics at a line end.
        if text.contains(['\r', '\n']) {
            return Err(format!(
                "header `{name}` cannot be published to NATS: its value has a line end"
            ));
        }
        let Ok(known) = name.parse::<HeaderName>() else {
            return Err(format!(
                "header `{}` cannot be published to NATS: its name is not plain ASCII",
                name.escape_debug()
            ));
        };
        map.append(known, HeaderValue::from(text));
    }
    Ok((!map.is_empty()).then_some(map))
}

/// The bytes of the headers on the wire; they count towards the server's `max_payload`.
pub(super) fn wire_size(map: &HeaderMap) -> usize {
    let each = map.iter().flat_map(|(name, values)| {
        values.iter().map(move |value| AsRef::<str>::as_ref(name).len() + value.as_str().len() + 4)
    });
    "NATS/1.0\r\n\r\n".len() + each.sum::<usize>()
}

/// Whether the server acts on this header when a message is published: expectations, schedules,
/// rollup, batches, counters, traces (events on any subject, or nothing stored at all), and the
/// dedupe id, which the sink sets. `Nats-TTL` is none of these: only Dwell sets it.
fn acts(name: &str) -> bool {
    const CONTROL_HEADERS: [&str; 6] = [
        "nats-msg-id",
        "nats-rollup",
        "nats-incr",
        "nats-scheduler",
        "nats-marker-reason",
        "nats-required-api-level",
    ];
    const CONTROL_HEADER_PREFIXES: [&str; 4] =
        ["nats-expected-", "nats-schedule", "nats-batch-", "nats-trace-"];
    let starts =
        |start: &str| name.get(..start.len()).is_some_and(|head| head.eq_ignore_ascii_case(start));
    starts("nats-")
        && (CONTROL_HEADERS.iter().any(|exact| name.eq_ignore_ascii_case(exact))
            || CONTROL_HEADER_PREFIXES.iter().any(|start| starts(start)))
}

/// The value as text, the only type of NATS.
fn text(value: Value) -> Result<String, &'static str> {
    match value {
        Value::Text(text) => Ok(text),
        Value::Null => Ok(String::new()),
        Value::Bytes(bytes) => {
            String::from_utf8(bytes.into()).map_err(|_| "its value is not UTF-8")
        }
        other => {
            other.plain().map(Cow::into_owned).ok_or("its value is a decimal, a list or a table")
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn one(name: &str, value: Value) -> Headers {
        Headers::from_iter([Header { name: name.to_owned(), value }])
    }

    #[test]
    fn what_acts_stays_behind_and_the_dedupe_id_is_ours() {
        let mut headers = Headers::default();
        for name in [
            "Nats-Msg-Id",
            "nats-expected-stream",
            "Nats-Schedule",
            "Nats-Schedule-Target",
            "Nats-Schedule-TTL",
            "Nats-Rollup",
            "Nats-Batch-Id",
            "Nats-Trace-Dest",
            "Nats-Trace-Only",
        ] {
            headers.push(name, "x".into());
        }
        headers.push("Nats-Stream", "kept".into());
        headers.push("a", Value::I64(-5));
        headers.push("a", Value::Bool(true));
        let map = to_nats(headers, "id-1").unwrap().unwrap();
        let back: Vec<_> = from_nats(Some(map))
            .into_iter()
            .map(|header| (header.name, header.value.as_text().unwrap().to_owned()))
            .collect();
        let expected =
            [("Nats-Msg-Id", "id-1"), ("Nats-Stream", "kept"), ("a", "-5"), ("a", "true")];
        assert_eq!(back, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(to_nats(one("nats-rollup", "all".into()), "").unwrap(), None);
        let ttl = to_nats(one("Nats-TTL", "5m".into()), "").unwrap().unwrap();
        assert_eq!(from_nats(Some(ttl)).text("nats-ttl"), Some("5m"), "Dwell's own");
    }

    #[test]
    fn what_cannot_pass_is_named() {
        for (name, value) in [
            ("a", Value::Bytes(Bytes::from_static(b"\xff"))),
            ("a", Value::Table(vec![])),
            ("a", Value::List(vec![])),
            ("a", "two\r\nlines".into()),
            ("a b", "x".into()),
            ("a:b", "x".into()),
            ("ä", "x".into()),
            ("", "x".into()),
        ] {
            assert!(
                to_nats(one(name, value.clone()), "").unwrap_err().contains(name),
                "{name} {value:?}"
            );
        }
        assert!(to_nats(one("a", Value::Bytes(Bytes::from_static(b"text"))), "").is_ok());
    }
}
