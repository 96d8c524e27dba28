//! `[schedules.NAME]`.

use std::collections::BTreeMap;

use super::Resolver;
use crate::config::rules::Wrong;
use crate::config::{Schedule, Settings, layers};

/// The sections that decide what a schedule may do.
const DECIDING: [&str; 5] = ["brokers", "ingest", "queues", "delivery", "limits"];
/// The settings of a schedule that say where its jobs go.
const ROUTE: [&str; 4] = ["target", "exchange", "broker", "queue"];
/// The first words of a remedy at the end of a rejection.
const REMEDIES: [&str; 8] =
    ["write ", "send ", "name ", "add ", "remove ", "declare ", "use ", "choose "];

impl Resolver<'_> {
    pub(super) fn schedules(&mut self) -> BTreeMap<String, Schedule> {
        let mut schedules = BTreeMap::new();
        for name in self.names("schedules") {
            let schedule = self.read(&["schedules", &name]);
            schedules.insert(name, schedule);
        }
        schedules
    }

    /// Reports each schedule that would be rejected as a request: all that is wrong with each.
    pub(super) fn check_schedules(&mut self, settings: &Settings) {
        if settings.schedules.is_empty() {
            return;
        }
        // Where these are wrong, rejections would only follow from it.
        let is_decided = !self.problems.iter().any(|problem| {
            DECIDING.iter().any(|section| problem.key.split('.').next() == Some(section))
        });
        let rules = crate::request::RequestRules::direct(settings);
        for (name, schedule) in &settings.schedules {
            let mut schedule = schedule.clone();
            let key_of = |setting: &str| layers::key(&["schedules", name.as_str(), setting]);
            if self.is_told(&key_of("schedule")) {
                schedule.leave_out("schedule");
            }
            let is_routed = !ROUTE.iter().any(|setting| self.is_told(&key_of(*setting)));
            // At the epoch: an end that has passed is no mistake in the settings.
            while let Err(rejection) = crate::request::declared_schedule(name, &schedule, &rules, 0)
            {
                if !(is_decided && is_routed || rejection.is_of_schedule()) {
                    break;
                }
                let setting = rejection.setting();
                let path = ["schedules", name.as_str(), setting.as_str()];
                let path = if self.layers.is_set(&path) { &path[..] } else { &path[..2] };
                if self.is_told(&layers::key(path)) {
                    break;
                }
                self.note_at(path, with_hint(&rejection.detail));
                // What else is wrong shows without the setting.
                if !schedule.leave_out(&setting) {
                    break;
                }
            }
        }
    }
}

/// Splits the detail of a rejection into what is wrong and the remedy.
fn with_hint(detail: &str) -> Wrong {
    match detail.rsplit_once(": ") {
        Some((wrong, remedy)) if REMEDIES.iter().any(|word| remedy.starts_with(word)) => {
            (wrong.to_owned(), remedy.to_owned())
        }
        _ => (detail.to_owned(), "write it as `dwell schema` says".to_owned()),
    }
}
