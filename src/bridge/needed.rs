//! The destinations that must exist before anything runs: found, declared, or missing.

use dwell_connectors::{Declared, Destination, Role, Sink};

use super::{Cause, Roles, StartError};
use crate::config::{Broker, Settings};

/// A destination that must exist before anything runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needed {
    /// The setting that names it.
    pub setting: String,
    /// The destination.
    pub to: Destination,
    /// Declare it if it is missing.
    pub declare: bool,
}

/// The needed destinations of this broker.
#[must_use]
pub fn needed(settings: &Settings, roles: Roles, name: &str, broker: &Broker) -> Vec<Needed> {
    let mut needed = Vec::new();
    if roles.dispatch
        && let Some(to) = broker.connector.dead_letters(&settings.delivery.dead)
    {
        let declare = settings.ingest.values().any(|ingest| ingest.declare);
        let is_common = to == broker.connector.destination(&settings.delivery.dead);
        let setting = if is_common { "delivery.dead".to_owned() } else { format!("brokers.{name}.dead") };
        needed.push(Needed { setting, to, declare });
    }
    if roles.ingest {
        let of_broker = settings.ingest.iter().filter(|(_, ingest)| ingest.broker == name);
        for (ingest_name, ingest) in of_broker {
            needed.push(Needed {
                setting: format!("ingest.{ingest_name}.rejected"),
                to: broker.connector.destination(&ingest.rejected),
                declare: ingest.declare,
            });
            if !ingest.exchange.is_empty() {
                // The type and the bindings of the exchange are its owner's.
                let to = Destination { exchange: ingest.exchange.clone(), address: String::new() };
                needed.push(Needed { setting: format!("ingest.{ingest_name}.exchange"), to, declare: false });
            }
        }
    }
    needed
}

impl Needed {
    /// The destination, for error messages.
    #[must_use]
    pub fn shown(&self, broker: &Broker) -> String {
        let Destination { exchange, address } = &self.to;
        if address.is_empty() { format!("the exchange `{exchange}`") } else { format!("`{}`", broker.connector.shown(&self.to)) }
    }
}

pub(super) async fn find_or_declare(broker: &Broker, name: &str, sink: &dyn Sink, needed: &Needed) -> Result<(), StartError> {
    if sink.exists(&needed.to).await? {
        return Ok(());
    }
    if !needed.declare {
        return Err(nothing_takes(broker, name, needed));
    }
    if broker.connector.declare(&needed.to, Role::Letters).await? == Declared::Created {
        tracing::info!(broker = name, destination = broker.connector.shown(&needed.to), setting = needed.setting, "declared");
    }
    Ok(())
}

/// The error for a missing destination.
#[must_use]
pub fn nothing_takes(broker: &Broker, name: &str, needed: &Needed) -> StartError {
    let place = broker.connector.place();
    let (what, hint) = match needed.to.exchange.as_str() {
        exchange if !exchange.is_empty() && needed.to.address.is_empty() => {
            (format!("there is no exchange `{exchange}`"), "create the exchange with its bindings")
        }
        _ => {
            (format!("nothing takes messages at {}", needed.shown(broker)), "create that destination, or set declare = true in the ingest")
        }
    };
    StartError {
        cause: Cause::Refused,
        message: format!("broker `{name}` ({place}): {what}, which {} names", needed.setting),
        hint: hint.to_owned(),
    }
}
