//! The checks of recurring schedules: what a start would do with those of the settings, those that
//! nobody serves, and the zone data.

use std::collections::BTreeSet;

use dwell_schedule::Zone;
use dwell_store::store::declared::DECLARATION_TTL;

use super::Check;
use crate::clock;
use crate::config::Settings;
use crate::fleet::serves;
use crate::request::NewSchedule;
use crate::request::{RequestRules, declared_schedule};
use crate::schedule::StoredSchedule;
use crate::store::Store;
use crate::store::due_set::DueSet;
use crate::store::error::StoreError;
use crate::store::reader::lookup::JobState;
use crate::units::quote;

/// The name of these checks.
const NAME: &str = "schedules";
/// The most schedules that a line names.
const MAX_NAMED: usize = 20;

/// What a start would do with the schedules of the settings.
#[derive(Debug, Default, PartialEq)]
struct Plan {
    added: Vec<String>,
    changed: Vec<String>,
    ended: Vec<String>,
    same: usize,
    /// Not in these settings, and in those of living instances.
    of_others: Vec<String>,
    /// A job has the id.
    taken: Vec<String>,
    /// There is no time from now on.
    over: Vec<String>,
}

/// The version of the zone data in the binary.
pub(super) fn time_zones() -> Check {
    let version = Zone::data_version();
    Check::good("time_zones", format!("the zone data in this program is of version {version}"))
}

/// Compares with the namespace, which may not exist yet.
pub(super) async fn checks(settings: &Settings, exists: bool) -> Vec<Check> {
    match look(settings, exists).await {
        Ok(checks) => checks,
        Err(error) => vec![Check::of_error(NAME, error)],
    }
}

async fn look(settings: &Settings, exists: bool) -> Result<Vec<Check>, StoreError> {
    let mut plan = Plan::default();
    let rules = RequestRules::direct(settings);
    let (now_ms, mut new) = (clock::wall_ms(), Vec::new());
    for (name, schedule) in &settings.schedules {
        match declared_schedule(name, schedule, &rules, now_ms) {
            Ok(schedule) => new.push(schedule),
            Err(_) => plan.over.push(name.clone()),
        }
    }
    if !exists {
        plan.added.extend(new.into_iter().map(|new| new.id.to_string()));
        return Ok(plan.checks());
    }
    let store = Store::attach(&settings.redis).await?;
    for new in new {
        plan.place(&store, &new).await?;
    }
    let stored = store.schedules.of_settings().await?;
    let living = store.declared_schedules(DECLARATION_TTL).await?;
    plan.leave(stored, settings, &living);
    let mut checks = plan.checks();
    checks.extend(unserved(&store, settings).await?);
    Ok(checks)
}

impl Plan {
    /// Notes what a start would do with a schedule.
    async fn place(&mut self, store: &Store, new: &NewSchedule) -> Result<(), StoreError> {
        let id = new.id.to_string();
        match store.schedules.would_change(new).await? {
            Some(true) => self.changed.push(id),
            Some(false) => self.same += 1,
            None => {
                let job = store.reader.find(&new.id).await?;
                // A dead job leaves its id free.
                match job.is_some_and(|job| job.state != JobState::Dead) {
                    true => self.taken.push(id),
                    false => self.added.push(id),
                }
            }
        }
        Ok(())
    }

    /// Notes what would become of the stored schedules that these settings do not have. `living`:
    /// the schedules that living instances have in their settings.
    fn leave(
        &mut self,
        stored: Vec<StoredSchedule>,
        settings: &Settings,
        living: &BTreeSet<String>,
    ) {
        let ids = stored.into_iter().map(|schedule| schedule.id.to_string());
        for id in ids.filter(|id| !settings.schedules.contains_key(id)) {
            let list = if living.contains(&id) { &mut self.of_others } else { &mut self.ended };
            list.push(id);
        }
    }

    fn checks(&self) -> Vec<Check> {
        let mut parts: Vec<String> = [
            ("adds", &self.added),
            ("changes", &self.changed),
            ("ends", &self.ended),
            ("leaves to the living instances that have them", &self.of_others),
        ]
        .into_iter()
        .filter(|(_, names)| !names.is_empty())
        .map(|(does, names)| format!("{does} {}", listed(names)))
        .collect();
        if self.same > 0 {
            parts.push(format!("finds {} as stored", self.same));
        }
        let plan =
            (!parts.is_empty()).then(|| Check::good(NAME, format!("a start {}", parts.join(", "))));
        let taken = (!self.taken.is_empty()).then(|| {
            let detail = format!("jobs have the ids of {}", listed(&self.taken));
            let hint = "they are stored once these jobs are over: wait, cancel the jobs, or name the schedules otherwise";
            Check::warning(NAME, detail, hint)
        });
        let over = (!self.over.is_empty()).then(|| {
            let detail = format!("there is no time from now on for {}", listed(&self.over));
            Check::warning(NAME, detail, "remove them from the settings, or give them a later end")
        });
        plan.into_iter().chain(taken).chain(over).collect()
    }
}

/// The number of these, and their names.
fn listed(names: &[String]) -> String {
    let shown: Vec<String> = names.iter().take(MAX_NAMED).map(|name| quote(name)).collect();
    let more = match names.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}: {}{more}", names.len(), shown.join(" "))
}

/// Schedules of brokers that neither these settings nor a living instance have, and of queues that
/// neither these settings declare nor a living worker works.
async fn unserved(store: &Store, settings: &Settings) -> Result<Vec<Check>, StoreError> {
    let living = store.living().await?;
    let is_served = |set: DueSet<'_>| {
        let is_own = match set {
            DueSet::Broker(broker) => settings.brokers.contains_key(broker),
            DueSet::Queue(queue) => settings.queues.get(queue).is_some(),
        };
        is_own || living.iter().any(|entry| serves(entry, &set.name()))
    };
    let check = |(set, count): (String, u64)| {
        let (owner, which) = match DueSet::named(&set) {
            DueSet::Broker(broker) => {
                (format!("broker `{broker}`"), "neither these settings nor a living instance have")
            }
            // Sidecars do not tell the queues that they declare.
            DueSet::Queue(queue) => (
                format!("queue `{queue}`"),
                "these settings do not declare and no living worker works; another sidecar may declare it",
            ),
        };
        let detail = format!("{count} recurring schedules wait for the {owner}, which {which}");
        let hint = format!("add the {owner} to the settings again, or cancel the schedules");
        Check::warning("redis.stranded", detail, hint)
    };
    Ok(store.schedules.unserved(is_served).await?.into_iter().map(check).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_says_what_a_start_does_with_each_schedule() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(Plan::default().checks().len(), 0, "settings without schedules get no line");
        let plan = Plan {
            added: names(&["a", "b"]),
            ended: names(&["c"]),
            same: 2,
            taken: names(&["d"]),
            over: names(&["e"]),
            ..Plan::default()
        };
        let checks = plan.checks();
        let details: Vec<&str> = checks.iter().map(|check| check.detail.as_str()).collect();
        assert_eq!(
            details,
            [
                "a start adds 2: `a` `b`, ends 1: `c`, finds 2 as stored",
                "jobs have the ids of 1: `d`",
                "there is no time from now on for 1: `e`",
            ]
        );
        assert!(checks.iter().all(|check| check.ok && check.name == NAME), "{checks:?}");
        let hints: Vec<bool> = checks.iter().map(|check| check.hint.is_empty()).collect();
        assert_eq!(hints, [true, false, false]);
        let many = Plan { added: (0..25).map(|n| n.to_string()).collect(), ..Plan::default() };
        let detail = &many.checks()[0].detail;
        assert!(detail.ends_with("`19` and 5 more"), "{detail}");
    }
}
