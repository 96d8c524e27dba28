//! The headers that pass to the target: all but control headers and headers that would change the
//! publication there.

use std::borrow::Cow;
use std::collections::HashSet;

use dwell_connectors::{Capabilities, Destination, Header, Headers, Value};

use super::control::strip_prefix_ignore_case;
use super::dialect;
use super::reject::{Code, Rejection};
use super::rules::BrokerRules;
use crate::units::{quote, quote_address};
use crate::view;

/// Refuses a message that did not come whole: a missing part may tell it from another one.
pub(super) fn check_whole(unreadable: &[String]) -> Result<(), Rejection> {
    if unreadable.is_empty() {
        return Ok(());
    }
    let detail = format!(
        "{}: not UTF-8, or with a control character; left out here: send UTF-8",
        unreadable.join(", ")
    );
    Err(Rejection::new(Code::BadHeader, detail.chars().take(1_000).collect::<String>()))
}

/// Refuses a line that is not a header, if the source's broker delivers headers as lines: the line
/// may be a misspelt control header.
pub(super) fn check(headers: &Headers, from: Option<&Capabilities>) -> Result<(), Rejection> {
    let nameless = headers
        .iter()
        .find(|header| from.is_some_and(|from| from.header_lines) && header.name.is_empty());
    nameless.map_or(Ok(()), |header| {
        let line =
            header.value.as_text().map_or_else(|| "a line that is not UTF-8".to_owned(), quote);
        Err(Rejection::new(
            Code::BadHeader,
            format!("{line} is not a header: write `name: value` on a line of its own"),
        ))
    })
}

/// The headers that pass from a broker of kind `from` to `to` on `broker`, in order, followed by
/// the stand-ins.
pub(super) fn passed(
    headers: &Headers,
    stand_ins: &[Header],
    from: &str,
    broker: &BrokerRules,
    to: &Destination,
) -> Result<Headers, Rejection> {
    let capabilities = broker.connector.capabilities();
    let is_own = from == capabilities.kind;
    let of_hop = broker.connector.hop_headers(headers);
    let mut passed = Headers::default();
    // Repeated names from the same kind of broker are left to the client library.
    let mut names = (capabilities.unique_headers && !is_own).then(HashSet::new);
    for given in headers.iter().chain(stand_ins).filter(|header| !speaks_to_dwell(header)) {
        let converted =
            if is_own { Some(Cow::Borrowed(given)) } else { converted(given, capabilities) };
        let Some(header) = converted.as_deref() else { continue };
        if !broker.connector.carries(header, is_own).map_err(|why| refuse(header, &why))? {
            continue;
        }
        if of_hop.iter().any(|name| name.eq_ignore_ascii_case(&header.name)) {
            continue;
        }
        if capabilities.copy_headers.contains(&header.name.as_str()) {
            check_copies(header, broker, to)?;
        }
        if names.as_mut().is_some_and(|names| !names.insert(given.name.as_str())) {
            let why = format!(
                "the name is repeated, and {} takes each name once: give each header its own name",
                capabilities.protocol
            );
            return Err(refuse(header, &why));
        }
        passed.push(header.name.clone(), header.value.clone());
    }
    Ok(passed)
}

/// A header for another kind of broker than its own. Where values have no types, a list, a table or
/// a decimal becomes compact JSON, and nothing becomes of a void: brokers and frameworks add such
/// headers, and a producer cannot take them off.
fn converted<'a>(header: &'a Header, to: &Capabilities) -> Option<Cow<'a, Header>> {
    if to.typed_headers {
        return Some(Cow::Borrowed(header));
    }
    let text = match &header.value {
        Value::Null => return None,
        Value::List(_) | Value::Table(_) | Value::Decimal(..) => view::json(&header.value),
        Value::Bytes(bytes) if !to.byte_headers => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => return Some(Cow::Borrowed(header)),
        },
        _ => return Some(Cow::Borrowed(header)),
    };
    Some(Cow::Owned(Header { name: header.name.clone(), value: Value::Text(text) }))
}

/// The headers that pass to the consumers of a queue, in order, followed by the stand-ins. Each
/// passes as it is: it is not published.
pub(super) fn kept(headers: &Headers, stand_ins: &[Header]) -> Headers {
    let mut kept = Headers::default();
    for header in headers.iter().chain(stand_ins).filter(|header| !speaks_to_dwell(header)) {
        kept.push(header.name.clone(), header.value.clone());
    }
    kept
}

/// Whether a header does not pass on, wherever the job goes. `delay-` is input, and `control`
/// rejects unknown names. `delayed-` is Dwell's output: frameworks copy headers of a received
/// message to the next one, so these are left out whatever they say.
fn speaks_to_dwell(header: &Header) -> bool {
    has_prefix(header, "delay-") || has_prefix(header, "delayed-") || dialect::owns(&header.name)
}

/// Each routing key of a copy header must be allowed like a target.
fn check_copies(header: &Header, broker: &BrokerRules, to: &Destination) -> Result<(), Rejection> {
    let Value::List(keys) = &header.value else {
        return Err(refuse(header, "the value must be a list of routing keys"));
    };
    for key in keys {
        let Some(key) = key.as_text() else {
            return Err(refuse(header, "a routing key in the list is not text"));
        };
        let copy = Destination { exchange: to.exchange.clone(), address: key.to_owned() };
        let shown = quote_address(&copy.to_string());
        if broker.reads(&copy) {
            return Err(Rejection::new(
                Code::Loop,
                format!("{} names {shown}, which an ingest reads", header.name),
            ));
        }
        if broker.connector.forbidden(&copy).is_some() || !broker.allows(&copy) {
            let detail =
                format!("{} names {shown}, which the broker's `allow` does not list", header.name);
            return Err(Rejection::new(Code::TargetNotAllowed, detail));
        }
    }
    Ok(())
}

fn has_prefix(header: &Header, prefix: &str) -> bool {
    strip_prefix_ignore_case(&header.name, prefix).is_some()
}

fn refuse(header: &Header, why: &str) -> Rejection {
    Rejection::new(Code::BadHeader, format!("header {}: {why}", quote(&header.name)))
}

#[cfg(test)]
#[cfg(feature = "http")]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::Arc;

    use dwell_connectors::{Allow, BrokerConfig, http};

    use super::*;

    #[test]
    fn headers_that_connection_names_do_not_pass_to_a_url() {
        let connector = Arc::new(BrokerConfig::Http(http::Config::default()));
        let broker = BrokerRules { connector, allow: Allow::default(), ingest_topics: Vec::new() };
        let header = |name: &str, value: &str| Header {
            name: name.to_owned(),
            value: Value::Text(value.to_owned()),
        };
        let given = Headers::from_iter([
            header("X-Hop", "1"),
            header("Connection", "close, x-hop, content-type"),
            header("content-type", "text/plain"),
            header("x-kept", "2"),
        ]);
        let passed =
            passed(&given, &[], "", &broker, &Destination::new("https://app.internal/")).unwrap();
        assert_eq!(
            passed.iter().map(|header| header.name.as_str()).collect::<Vec<_>>(),
            ["content-type", "x-kept"]
        );
    }
}
