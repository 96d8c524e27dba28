//! `[brokers.NAME.limits."PATTERN"]`.

use dwell_connectors::Destination;

use super::Resolver;
use crate::config::target_limits::tie;
use crate::config::{Broker, layers, rules};

impl Resolver<'_> {
    /// Reports limits whose pattern or rate is wrong, and patterns of which neither wins.
    pub(super) fn check_target_limits(&mut self, name: &str, broker: &Broker) {
        let limits: Vec<_> = broker.limits.iter().collect();
        for (at, (pattern, limit)) in limits.iter().enumerate() {
            let path = ["brokers", name, "limits", pattern.as_str()];
            let wrong = rules::address(pattern).err();
            let unfit = broker.connector.pattern_problem(pattern).filter(|_| !pattern.is_empty());
            for (why, hint) in wrong.into_iter().chain(unfit) {
                self.note_at(&path, (format!("pattern `{}`: {why}", shown(broker, pattern)), hint));
            }
            if let Some((other, _)) = limits[..at].iter().find(|(other, _)| tie(pattern, other)) {
                let wrong = format!(
                    "pattern `{}` has as many characters besides `*`, and some targets match both",
                    shown(broker, other)
                );
                let hint = "make one of them longer, or name the targets themselves".to_owned();
                self.note_at(&path, (wrong, hint));
            }
            // A value that is wrong is not read.
            let within = format!("{}.", layers::key(&path));
            let is_read = !self.problems.iter().any(|problem| problem.key.starts_with(&within));
            let [first, second, third, fourth] = path;
            match &limit.rate {
                Some(rate) => {
                    self.check_at(&[first, second, third, fourth, "rate"], rules::rate(rate));
                }
                None if is_read && limit.burst.is_some() => {
                    let wrong = ("a burst needs a rate".to_owned(), "write a rate too".to_owned());
                    self.note_at(&[first, second, third, fourth, "burst"], wrong);
                }
                None if is_read && limit.in_flight.is_none() => {
                    let wrong = "neither a rate nor in_flight is written".to_owned();
                    let hint = "write one of them, or remove the section".to_owned();
                    self.note_at(&path, (wrong, hint));
                }
                None => {}
            }
        }
    }
}

/// The pattern for messages.
fn shown(broker: &Broker, pattern: &str) -> String {
    broker.connector.shown(&Destination::new(pattern))
}
