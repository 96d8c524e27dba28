//! `[schedules.NAME]`.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Resolver;
use crate::config::rules::Wrong;
use crate::config::{QueueRules, Queues, Schedule, Settings, layers};
use crate::request::{Rejection, RequestRules};

/// The sections that decide what a schedule may do.
const DECIDING: [&str; 5] = ["brokers", "ingest", "queues", "delivery", "limits"];
/// The settings of a schedule that say where its jobs go.
const ROUTE: [&str; 4] = ["target", "exchange", "broker", "queue"];
/// The settings of a schedule that are judged wherever its jobs go.
const OF_JOBS: [&str; 4] = ["ttr", "retry", "body", "body_base64"];
/// A queue that takes any job.
const ANY_QUEUE: &str = "any";
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
        let rules = RequestRules::direct(settings);
        let any = QueueRules { name: ANY_QUEUE.to_owned(), ..QueueRules::default() };
        let elsewhere = RequestRules { queues: Arc::new(Queues::new([any])), ..rules.clone() };
        for (name, schedule) in &settings.schedules {
            let mut schedule = schedule.clone();
            let key_of = |setting: &str| layers::key(&["schedules", name.as_str(), setting]);
            if self.is_told(&key_of("schedule")) {
                schedule.leave_out("schedule");
            }
            let is_routed = !ROUTE.iter().any(|setting| self.is_told(&key_of(setting)));
            let is_all = |_: &str, rejection: &Rejection| {
                is_decided && is_routed || rejection.is_of_schedule()
            };
            if self.judge(name, &mut schedule, &rules, is_all) || !is_decided {
                continue;
            }
            // What is wrong with the route hides what comes after it.
            let mut schedule = Schedule {
                target: None,
                exchange: None,
                broker: None,
                queue: Some(ANY_QUEUE.to_owned()),
                ..schedule
            };
            let is_of_jobs = |setting: &str, _: &Rejection| OF_JOBS.contains(&setting);
            self.judge(name, &mut schedule, &elsewhere, is_of_jobs);
        }
    }

    /// Reports the mistakes of a schedule, if they are wanted, and leaves them out. Returns whether
    /// the schedule is right without them.
    fn judge(
        &mut self,
        name: &str,
        schedule: &mut Schedule,
        rules: &RequestRules,
        is_wanted: impl Fn(&str, &Rejection) -> bool,
    ) -> bool {
        // At the epoch: an end that has passed is no mistake in the settings.
        while let Err(rejection) = crate::request::declared_schedule(name, schedule, rules, 0) {
            let setting = rejection.setting();
            if !is_wanted(&setting, &rejection) {
                return false;
            }
            let path = ["schedules", name, setting.as_str()];
            let path = if self.layers.is_set(&path) { &path[..] } else { &path[..2] };
            if self.is_told(&layers::key(path)) {
                return false;
            }
            self.note_at(path, with_hint(&rejection.detail));
            // What else is wrong shows without the setting.
            if !schedule.leave_out(&setting) {
                return false;
            }
        }
        true
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
