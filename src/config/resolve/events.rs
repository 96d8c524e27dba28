//! `[events]`: its broker and its destination.

use std::collections::BTreeMap;

use super::Resolver;
use crate::config::{Broker, Events, Ingest, nearest, rules};

impl Resolver<'_> {
    pub(super) fn events(
        &mut self,
        brokers: &BTreeMap<String, Broker>,
        ingests: &BTreeMap<String, Ingest>,
    ) -> Events {
        let events: Events = self.read(&["events"]);
        let Some(name) = events.broker.as_deref() else { return events };
        let known = self.names("brokers");
        let Some(broker) = brokers.get(name) else {
            // A broker with mistakes is told of.
            if !known.iter().any(|known| known == name) {
                let like = nearest(name, known.iter().map(String::as_str));
                let hint = match like {
                    Some(like) => format!("did you mean \"{like}\"?"),
                    None => format!("add [brokers.{name}], or name another"),
                };
                self.note("events.broker", (format!("there is no broker \"{name}\""), hint));
            }
            return events;
        };
        let capabilities = broker.connector.capabilities();
        if capabilities.event_prefix.is_empty() {
            let wrong = format!("a broker of type \"{}\" gets no events", capabilities.kind);
            let hint = "name a broker with topics or queues".to_owned();
            self.note("events.broker", (wrong, hint));
            return events;
        }
        self.check("events.to", rules::address(&events.to));
        if !self.is_told("events.to") {
            self.check_destination("events.to", &events.to, Some(&broker.connector));
            self.check_not_read("events.to", &events.to, name, brokers, ingests);
        }
        events
    }
}
