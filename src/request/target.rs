//! The target of a request and the destination of its verdict.

use dwell_connectors::{Capabilities, Destination, Message, shown_address};

use super::control::Control;
use super::reject::{Code, Rejection};
use super::rules::{BrokerRules, RequestRules};
use crate::units::{quote, quote_address};

/// The target of a job.
#[derive(Debug)]
pub(super) struct Target<'a> {
    pub(super) broker: &'a str,
    pub(super) rules: &'a BrokerRules,
    pub(super) to: Destination,
}

/// The target that the request names, else the ingest's default, else the routing key of the
/// request message.
pub(super) fn resolve<'a>(
    control: &Control,
    message: &Message,
    rules: &'a RequestRules,
) -> Result<Target<'a>, Rejection> {
    let name = control.broker.as_deref().unwrap_or(&rules.ingest.broker);
    if rules.brokers.is_empty() && control.target.is_none() && control.broker.is_none() {
        return Err(Rejection::new(Code::MissingTarget, "the request names no queue: add `queue`"));
    }
    let (broker, known) =
        rules.brokers.get_key_value(name).ok_or_else(|| unknown_broker(name, rules))?;
    let exchange = control.exchange.as_deref().filter(|exchange| !exchange.is_empty());
    if let (Some(exchange), false) = (exchange, known.capabilities().exchanges) {
        return Err(Rejection::new(
            Code::BadHeader,
            format!(
                "delay-exchange is {}, and broker {} has no exchanges: leave it out",
                quote_address(exchange),
                quote(broker)
            ),
        ));
    }
    let to = address(control, message, rules, known)?;
    classify(&to, broker, known, is_ingest_target(&to, broker, rules))?;
    Ok(Target { broker, rules: known, to })
}

/// Whether this broker accepts the target. `is_own`: the target is the default target of an ingest.
pub(super) fn classify(
    to: &Destination,
    broker: &str,
    known: &BrokerRules,
    is_own: bool,
) -> Result<(), Rejection> {
    if to.address.is_empty() && to.exchange.is_empty() {
        return Err(Rejection::new(
            Code::MissingTarget,
            format!("the target is empty: name it in {}", place(known.capabilities())),
        ));
    }
    if let Some(why) = known.connector.forbidden(to) {
        return Err(Rejection::new(
            Code::TargetNotAllowed,
            format!("target {}: {}", quote_address(&known.connector.shown(to)), reason(&why, to)),
        ));
    }
    if known.reads(to) {
        return Err(Rejection::new(
            Code::Loop,
            format!(
                "an ingest reads the target {}: name another in {}",
                quote_address(&known.connector.shown(to)),
                place(known.capabilities())
            ),
        ));
    }
    if !is_own && !known.allows(to) {
        return Err(not_allowed("target", to, broker, known));
    }
    Ok(())
}

/// The destination of the verdict: on the ingest's broker, and in its `allow`.
pub(super) fn reply_to(
    control: &Control,
    rules: &RequestRules,
) -> Result<Option<Destination>, Rejection> {
    let Some(text) = control.reply_to.as_deref() else { return Ok(None) };
    let broker = &rules.ingest.broker;
    let known = rules.brokers.get(broker).ok_or_else(|| unknown_broker(broker, rules))?;
    let to = known.connector.destination(text);
    let refuse = |why: &str| {
        Rejection::new(
            Code::TargetNotAllowed,
            format!("delay-reply-to {}: {why}", quote_address(text)),
        )
    };
    if to.address.is_empty() && to.exchange.is_empty() {
        return Err(refuse("the value is empty: leave it out, or name a destination"));
    }
    if let Some(why) = known.connector.forbidden(&to) {
        return Err(refuse(&reason(&why, &to)));
    }
    if known.reads(&to) {
        return Err(refuse("an ingest reads this destination, and a verdict is not a request"));
    }
    if !known.allows(&to) {
        return Err(not_allowed("delay-reply-to", &to, broker, known));
    }
    Ok(Some(to))
}

/// The target of the request, not checked yet.
fn address(
    control: &Control,
    message: &Message,
    rules: &RequestRules,
    broker: &BrokerRules,
) -> Result<Destination, Rejection> {
    let has_exchanges = broker.capabilities().exchanges;
    let exchange = if has_exchanges {
        control.exchange.as_deref().unwrap_or(&rules.ingest.exchange)
    } else {
        ""
    };
    if let Some(target) = &control.target {
        return Ok(Destination { exchange: exchange.to_owned(), address: target.clone() });
    }
    // A request that names an exchange does not mean the ingest's default target.
    let names_exchange = has_exchanges && control.exchange.is_some();
    if !rules.ingest.target.is_empty() && !names_exchange {
        return Ok(broker.connector.destination(&rules.ingest.target));
    }
    if has_exchanges
        && rules.source.is_some_and(|source| source.exchanges)
        && rules.ingest.target.is_empty()
    {
        return Ok(Destination {
            exchange: exchange.to_owned(),
            address: message.destination.address.clone(),
        });
    }
    if names_exchange {
        return Err(Rejection::new(
            Code::MissingTarget,
            "the request has delay-exchange without delay-target: send the routing key too",
        ));
    }
    if rules.source.is_none() {
        return Err(Rejection::new(
            Code::MissingTarget,
            "the request names no target: add `target` or `queue`",
        ));
    }
    Err(Rejection::new(
        Code::MissingTarget,
        format!(
            "the request names no target, and ingest.{} has no `target`: name it in {}",
            rules.name,
            place(broker.capabilities())
        ),
    ))
}

/// The default target of the ingest needs no entry in `allow`, on the ingest's own broker.
fn is_ingest_target(to: &Destination, broker: &str, rules: &RequestRules) -> bool {
    let own = || {
        rules
            .brokers
            .get(broker)
            .is_some_and(|known| *to == known.connector.destination(&rules.ingest.target))
    };
    !rules.ingest.target.is_empty() && broker == rules.ingest.broker && own()
}

fn place(capabilities: &Capabilities) -> String {
    let Capabilities { address, exchanges, .. } = capabilities;
    format!(
        "delay-target, as a {address}{}",
        if *exchanges { " (with delay-exchange, or a queue without)" } else { "" }
    )
}

fn not_allowed(what: &str, to: &Destination, broker: &str, known: &BrokerRules) -> Rejection {
    let shown = quote_address(&known.connector.shown(to));
    Rejection::new(
        Code::TargetNotAllowed,
        format!("{what} {shown}: `allow` of [brokers.{broker}] does not match it"),
    )
}

fn unknown_broker(name: &str, rules: &RequestRules) -> Rejection {
    let known: Vec<&str> = rules.brokers.keys().map(String::as_str).collect();
    if known.is_empty() {
        return Rejection::new(
            Code::UnknownBroker,
            "the settings have no broker: name a queue instead",
        );
    }
    if name.is_empty() {
        return Rejection::new(
            Code::UnknownBroker,
            format!(
                "the settings have several brokers: name one of these in `broker`: {}",
                known.join(", ")
            ),
        );
    }
    Rejection::new(
        Code::UnknownBroker,
        format!(
            "there is no broker {} in the settings: delay-broker is one of {}",
            quote_address(name),
            known.join(", ")
        ),
    )
}

/// A connector's reason may quote the destination unescaped, and a header is one line. Its quotes
/// lose the secrets of a URL, which any kind of broker gets when a request does not name the right
/// one.
fn reason(why: &str, to: &Destination) -> String {
    let mut why = why.to_owned();
    for part in [&to.to_string(), &to.exchange, &to.address] {
        let shown = shown_address(part);
        if shown != **part {
            why = why.replace(part.as_str(), &shown);
            why = why.replace(&part.escape_debug().to_string(), &shown);
        }
    }
    why.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect()
}
