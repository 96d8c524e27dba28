//! What passes on to the target: every header but those that speak to Dwell, and those that would act on the target's broker.

use std::collections::HashSet;

use dwell_connectors::{Destination, Header, Headers, Value};

use super::control::strip_prefix_ignore_case;
use super::dialect;
use super::reject::{Code, Rejection};
use super::rules::{BrokerRules, Kind};
use crate::units::quote;

/// The most bytes of a header name on AMQP.
const AMQP_NAME_BYTES: usize = 255;

/// Refuses what is no header at all: on NATS a line without a name or a colon comes without a name. It may have been meant for Dwell.
pub(super) fn check(headers: &Headers, from: Kind) -> Result<(), Rejection> {
    let nameless = headers.iter().find(|header| from == Kind::Nats && header.name.is_empty());
    nameless.map_or(Ok(()), |header| {
        let line = header.value.as_text().map_or_else(|| "a line that is not UTF-8".to_owned(), quote);
        Err(Rejection::new(
            Code::BadHeader,
            format!("among the headers is {line}, which is none: write `name: value`, in a line of its own"),
        ))
    })
}

/// The headers that pass from a broker of kind `from` to `to` on `broker`, in order; behind them those that stand in for what has no place there.
pub(super) fn passed(
    headers: &Headers,
    stand_ins: &[Header],
    from: Kind,
    broker: &BrokerRules,
    to: &Destination,
) -> Result<Headers, Rejection> {
    let mut passed = Headers::default();
    // A field table has each name once; what a broker of that kind sent twice itself is left to the client.
    let mut names = (broker.kind == Kind::Amqp && from != Kind::Amqp).then(HashSet::new);
    for header in headers.iter().chain(stand_ins) {
        let ours = has_prefix(header, "delay-") || has_prefix(header, "delayed-") || dialect::owns(&header.name);
        if ours {
            continue;
        }
        let pass = match broker.kind {
            Kind::Nats => to_nats(header, from)?,
            Kind::Kafka => to_kafka(header)?,
            Kind::Amqp => to_amqp(header, broker, to)?,
            Kind::Memory | Kind::Direct => true,
        };
        if pass {
            if names.as_mut().is_some_and(|names| !names.insert(header.name.as_str())) {
                return Err(refuse(header, "stands more than once, and AMQP has each name once: give each its own name"));
            }
            passed.push(header.name.clone(), header.value.clone());
        }
    }
    Ok(passed)
}

/// False for a header that is dropped, because it would act on the publish; our `Nats-Msg-Id` stands in for the producer's.
fn to_nats(header: &Header, from: Kind) -> Result<bool, Rejection> {
    if from == Kind::Nats {
        let acts = has_prefix(header, "nats-expected-")
            || ["nats-rollup", "nats-ttl", "nats-msg-id"].iter().any(|name| header.name.eq_ignore_ascii_case(name));
        if acts {
            return Ok(false);
        }
    } else if has_prefix(header, "nats-") {
        return Err(refuse(header, "would act on NATS, and comes from another broker: leave it out"));
    }
    let named = !header.name.is_empty() && header.name.bytes().all(|b| b.is_ascii_graphic() && b != b':');
    if !named {
        return Err(refuse(header, "has a name that NATS does not take: use visible ASCII without a colon"));
    }
    match &header.value {
        Value::Text(text) if text.contains(['\r', '\n']) => Err(refuse(header, "has more than one line, which NATS does not take")),
        value if value.plain().is_some() => Ok(true),
        _ => Err(refuse(header, "is no text, and NATS has only text: send it as text")),
    }
}

fn to_kafka(header: &Header) -> Result<bool, Rejection> {
    if header.name.contains('\0') {
        return Err(refuse(header, "has a name with a NUL byte, which the Kafka client does not take"));
    }
    match &header.value {
        Value::Null | Value::Bytes(_) => Ok(true),
        value if value.plain().is_some() => Ok(true),
        _ => Err(refuse(header, "is neither text, a number nor bytes, and Kafka has no other: send it as text")),
    }
}

/// `CC` and `BCC` are more routing keys on the target's exchange, so each must be allowed.
fn to_amqp(header: &Header, broker: &BrokerRules, to: &Destination) -> Result<bool, Rejection> {
    if header.name.len() > AMQP_NAME_BYTES {
        return Err(refuse(header, "has a name of more than 255 bytes, which AMQP does not take"));
    }
    if header.name != "CC" && header.name != "BCC" {
        return Ok(true);
    }
    let Value::List(keys) = &header.value else {
        return Err(refuse(header, "is no list of routing keys, and AMQP takes nothing else there"));
    };
    for key in keys {
        let Some(key) = key.as_text() else {
            return Err(refuse(header, "holds a routing key that is no text"));
        };
        let copy = Destination { exchange: to.exchange.clone(), address: key.to_owned() };
        if broker.reads(&copy) {
            return Err(Rejection::new(Code::Loop, format!("{} names {}, which an ingest reads", header.name, quote(&copy.to_string()))));
        }
        if broker.naming.forbidden(&copy).is_some() || !broker.allows(&copy) {
            return Err(Rejection::new(
                Code::TargetNotAllowed,
                format!("{} names {}, which the broker's `allow` does not list", header.name, quote(&copy.to_string())),
            ));
        }
    }
    Ok(true)
}

fn has_prefix(header: &Header, prefix: &str) -> bool {
    strip_prefix_ignore_case(&header.name, prefix).is_some()
}

fn refuse(header: &Header, why: &str) -> Rejection {
    Rejection::new(Code::BadHeader, format!("header {} {why}", quote(&header.name)))
}
