//! The destinations that settings name: those of dead letters, of events, and those of an ingest.

use dwell_connectors::{Declared, Destination, Role};

use super::{Cause, StartError};
use crate::config::{Broker, Ingest, Settings};

/// A destination that settings name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needed {
    /// The setting that names it.
    pub setting: String,
    /// The destination.
    pub to: Destination,
    /// Declare it if it is missing.
    pub declare: bool,
}

/// Where the dead letters of this broker's jobs go.
#[must_use]
pub fn of_dispatch(settings: &Settings, name: &str, broker: &Broker) -> Option<Needed> {
    let to = broker.connector.dead_letters(&settings.delivery.dead)?;
    let is_common = to == broker.connector.destination(&settings.delivery.dead);
    let setting =
        if is_common { "delivery.dead".to_owned() } else { format!("brokers.{name}.dead") };
    Some(Needed { setting, to, declare: settings.ingest.values().any(|ingest| ingest.declare) })
}

/// Where the events of jobs go, if this broker gets them.
#[must_use]
pub fn of_events(settings: &Settings, name: &str, broker: &Broker) -> Option<Needed> {
    let is_named = settings.events.broker.as_deref() == Some(name);
    is_named.then(|| Needed {
        setting: "events.to".to_owned(),
        to: broker.connector.destination(&settings.events.to),
        declare: settings.ingest.values().any(|ingest| ingest.declare),
    })
}

/// Where an ingest publishes: its bad requests, and on its exchange.
#[must_use]
pub fn of_ingest(name: &str, ingest: &Ingest, broker: &Broker) -> Vec<Needed> {
    let rejected = Needed {
        setting: format!("ingest.{name}.rejected"),
        to: broker.connector.destination(&ingest.rejected),
        declare: ingest.declare,
    };
    // The type and the bindings of the exchange are its owner's.
    let exchange = (!ingest.exchange.is_empty()).then(|| Needed {
        setting: format!("ingest.{name}.exchange"),
        to: Destination { exchange: ingest.exchange.clone(), address: String::new() },
        declare: false,
    });
    [rejected].into_iter().chain(exchange).collect()
}

impl Needed {
    /// The destination, for error messages.
    #[must_use]
    pub fn shown(&self, broker: &Broker) -> String {
        let Destination { exchange, address } = &self.to;
        if address.is_empty() {
            format!("the exchange `{exchange}`")
        } else {
            format!("`{}`", broker.connector.shown(&self.to))
        }
    }
}

/// Creates the destination where it is missing and may be declared.
pub(super) async fn declare_missing(
    broker: &Broker,
    name: &str,
    needed: &Needed,
) -> Result<(), StartError> {
    if !needed.declare {
        return Err(nothing_takes(broker, name, needed));
    }
    if broker.connector.declare(&needed.to, Role::Letters).await? == Declared::Created {
        tracing::info!(
            broker = name,
            destination = broker.connector.shown(&needed.to),
            setting = needed.setting,
            "declared"
        );
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
        _ => (
            format!("nothing takes messages at {}", needed.shown(broker)),
            "create that destination, or set declare = true in the ingest",
        ),
    };
    StartError {
        cause: Cause::Missing,
        message: format!("broker `{name}` ({place}): {what}, which {} names", needed.setting),
        hint: hint.to_owned(),
    }
}
