//! Where a request may send: its target, and where its verdict goes.

use dwell_connectors::{Destination, Message};

use super::control::Control;
use super::reject::{Code, Rejection};
use super::rules::{BrokerRules, Kind, Rules, destination};
use crate::units::quote;

/// Where a job goes.
#[derive(Debug)]
pub(super) struct Target<'a> {
    pub(super) broker: &'a str,
    pub(super) rules: &'a BrokerRules,
    pub(super) to: Destination,
}

/// The target of a request: what it names, else the ingest's own, else on AMQP the routing key that it came with.
pub(super) fn resolve<'a>(control: &Control, message: &Message, rules: &'a Rules) -> Result<Target<'a>, Rejection> {
    let name = control.broker.as_deref().unwrap_or(&rules.ingest.broker);
    let (broker, known) = rules.brokers.get_key_value(name).ok_or_else(|| unknown_broker(name, rules))?;
    let exchange = control.exchange.as_deref().filter(|exchange| !exchange.is_empty());
    if let (Some(exchange), false) = (exchange, known.kind == Kind::Amqp) {
        return Err(Rejection::new(
            Code::BadHeader,
            format!("delay-exchange is {}, and broker {} has no exchanges: leave it out", quote(exchange), quote(broker)),
        ));
    }
    let to = address(control, message, rules, known)?;
    judge(&to, broker, known, is_ingest_target(&to, broker, rules))?;
    Ok(Target { broker, rules: known, to })
}

/// Whether a job may go there on this broker. `is_own`: the settings name it as the target of an ingest.
pub(super) fn judge(to: &Destination, broker: &str, known: &BrokerRules, is_own: bool) -> Result<(), Rejection> {
    if to.address.is_empty() && to.exchange.is_empty() {
        return Err(Rejection::new(Code::MissingTarget, format!("the target is empty: name it in {}", place(known.kind))));
    }
    if let Some(why) = known.naming.forbidden(to) {
        return Err(Rejection::new(Code::TargetNotAllowed, format!("target {}: {}", quote(&to.to_string()), one_line(&why))));
    }
    if known.reads(to) {
        return Err(Rejection::new(
            Code::Loop,
            format!("target {} is what an ingest reads: name another in {}", quote(&to.to_string()), place(known.kind)),
        ));
    }
    if !is_own && !known.allows(to) {
        return Err(not_allowed("target", to, broker));
    }
    Ok(())
}

/// Where the verdict goes: on the ingest's broker, and allowed there as any target.
pub(super) fn reply_to(control: &Control, rules: &Rules) -> Result<Option<Destination>, Rejection> {
    let Some(text) = control.reply_to.as_deref() else { return Ok(None) };
    let broker = &rules.ingest.broker;
    let known = rules.brokers.get(broker).ok_or_else(|| unknown_broker(broker, rules))?;
    let to = destination(known.kind, text);
    let refuse = |why: &str| Rejection::new(Code::TargetNotAllowed, format!("delay-reply-to {}: {why}", quote(text)));
    if to.address.is_empty() && to.exchange.is_empty() {
        return Err(refuse("it is empty: leave it out, or name a destination"));
    }
    if let Some(why) = known.naming.forbidden(&to) {
        return Err(refuse(&one_line(&why)));
    }
    if known.reads(&to) {
        return Err(refuse("an ingest reads it, and a verdict is no request"));
    }
    if !known.allows(&to) {
        return Err(not_allowed("delay-reply-to", &to, broker));
    }
    Ok(Some(to))
}

/// What the request names as its target, not yet judged.
fn address(control: &Control, message: &Message, rules: &Rules, broker: &BrokerRules) -> Result<Destination, Rejection> {
    let on_amqp = broker.kind == Kind::Amqp;
    let exchange = if on_amqp { control.exchange.as_deref().unwrap_or(&rules.ingest.exchange) } else { "" };
    if let Some(target) = &control.target {
        return Ok(Destination { exchange: exchange.to_owned(), address: target.clone() });
    }
    // A named exchange is not given up for the ingest's own target: that would be the wrong place.
    let names_exchange = on_amqp && control.exchange.is_some();
    if !rules.ingest.target.is_empty() && !names_exchange {
        return Ok(destination(broker.kind, &rules.ingest.target));
    }
    if on_amqp && rules.kind == Kind::Amqp && rules.ingest.target.is_empty() {
        return Ok(Destination { exchange: exchange.to_owned(), address: message.destination.address.clone() });
    }
    if names_exchange {
        return Err(Rejection::new(Code::MissingTarget, "delay-exchange stands without delay-target: send the routing key too"));
    }
    if rules.kind == Kind::Direct {
        return Err(Rejection::new(Code::MissingTarget, "the request names no target: name it in `target`"));
    }
    Err(Rejection::new(
        Code::MissingTarget,
        format!("the request names no target, and ingest.{} has no `target`: name it in {}", rules.name, place(broker.kind)),
    ))
}

/// The ingest's own target needs no entry in `allow`, on the broker that it was written for.
fn is_ingest_target(to: &Destination, broker: &str, rules: &Rules) -> bool {
    !rules.ingest.target.is_empty() && broker == rules.ingest.broker && *to == destination(rules.kind, &rules.ingest.target)
}

fn place(kind: Kind) -> &'static str {
    match kind {
        Kind::Nats | Kind::Memory | Kind::Direct => "delay-target, as a subject",
        Kind::Kafka => "delay-target, as a topic",
        Kind::Amqp => "delay-target, as a routing key (with delay-exchange, or a queue without)",
    }
}

fn not_allowed(what: &str, to: &Destination, broker: &str) -> Rejection {
    Rejection::new(Code::TargetNotAllowed, format!("{what} {}: `allow` of [brokers.{broker}] does not list it", quote(&to.to_string())))
}

fn unknown_broker(name: &str, rules: &Rules) -> Rejection {
    let known: Vec<&str> = rules.brokers.keys().map(String::as_str).collect();
    if name.is_empty() {
        return Rejection::new(
            Code::UnknownBroker,
            format!("the settings have several brokers: name one in `broker`: {}", known.join(", ")),
        );
    }
    Rejection::new(
        Code::UnknownBroker,
        format!("there is no broker {} in the settings: delay-broker is one of {}", quote(name), known.join(", ")),
    )
}

/// A connector's reason may repeat the destination as it came; a header has one line.
fn one_line(why: &str) -> String {
    why.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect()
}
