//! The patterns of `allow` as the templates of destinations: a few names for any number of
//! destinations.

use std::collections::HashMap;

use dwell_connectors::{Allow, Connector, Destination};

/// The most destinations whose pattern is remembered. A destination may have 8 KiB.
const MAX_KNOWN: usize = 256;

/// Finds the pattern that admits a destination of one broker.
#[derive(Debug)]
pub struct Templates {
    allow: Allow,
    /// The patterns without parts that may be secret, such as the query of a URL.
    shown: Vec<String>,
    /// The index of the pattern, by destination.
    known: HashMap<Destination, Option<usize>>,
}

impl Templates {
    /// The patterns of this broker's `allow`.
    #[must_use]
    pub fn new(connector: &dyn Connector, allow: &[String]) -> Self {
        let shown = |pattern: &String| connector.shown(&Destination::new(pattern));
        Templates {
            allow: Allow::new(connector, allow),
            shown: allow.iter().map(shown).collect(),
            known: HashMap::new(),
        }
    }

    /// The first pattern that admits this destination; `None` for one that the settings name
    /// elsewhere, such as `delivery.dead`, or no longer allow.
    pub fn of(&mut self, connector: &dyn Connector, to: &Destination) -> Option<&str> {
        let index = match self.known.get(to) {
            Some(index) => *index,
            None => {
                let index = self.allow.find(connector, to);
                if self.known.len() >= MAX_KNOWN {
                    self.known.clear();
                }
                self.known.insert(to.clone(), index);
                index
            }
        };
        index.map(|index| self.shown[index].as_str())
    }
}

#[cfg(test)]
mod tests {
    use dwell_connectors::memory;

    use super::*;

    #[test]
    fn the_first_pattern_that_admits_a_destination_is_its_template() {
        let connector = memory::Config::from(&memory::Broker::new());
        let allow = ["orders.new", "orders.*", "orders.old.*"].map(str::to_owned);
        let mut templates = Templates::new(&connector, &allow);
        // Once looked for, once remembered.
        for _ in 0..2 {
            for (address, template) in [
                ("orders.new", Some("orders.new")),
                ("orders.old.a", Some("orders.*")),
                ("delay.dead", None),
            ] {
                let to = Destination::new(address);
                assert_eq!(templates.of(&connector, &to), template, "{address}");
            }
        }
    }

    #[test]
    fn any_number_of_destinations_takes_bounded_memory() {
        let connector = memory::Config::from(&memory::Broker::new());
        let mut templates = Templates::new(&connector, &["orders.*".to_owned()]);
        for n in 0..=MAX_KNOWN {
            let to = Destination::new(format!("orders.{n}"));
            assert_eq!(templates.of(&connector, &to), Some("orders.*"));
            assert!(templates.known.len() <= MAX_KNOWN);
        }
        assert_eq!(templates.known.len(), 1);
    }
}
