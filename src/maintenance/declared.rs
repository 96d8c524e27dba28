//! The recurring schedules of the settings: stores them, and ends those that no settings have any
//! more.
//!
//! Each round names the schedules of this instance in the store, then stores those that are not
//! stored yet, and ends those that no instance has named for [`DECLARATION_TTL`]. So a schedule
//! outlives a deploy in which the new instances start before or after the old ones have ended. An
//! instance that delivers nothing only names its schedules.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use dwell_store::store::declared::DECLARATION_TTL;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::apply::{Apply, BoundedRetry};
use crate::clock::{self, Instant};
use crate::config::{Schedule, Settings};
use crate::fleet::Fleet;
use crate::job::{JobId, Verdict};
use crate::request::{Request, RequestRules, declared_schedule};
use crate::store::Store;
use crate::store::error::StoreError;

/// The interval between rounds, which a larger fleet spreads.
const ROUND_INTERVAL: Duration = Duration::from_secs(10);
/// The longest interval: with [`DECLARATION_TTL`] less than the minute within which a schedule that
/// left the settings is ended.
const MAX_ROUND_INTERVAL: Duration = Duration::from_secs(20);
/// The most schedules that are stored in one call.
const MAX_STORED: usize = 256;

/// The agent for the schedules of the settings.
pub(super) struct DeclaredSchedules {
    apply: Apply,
    store: Arc<Store>,
    schedules: BTreeMap<String, Schedule>,
    /// Those that are ids. The settings have been checked, so all are.
    ids: Vec<JobId>,
    rules: RequestRules,
    /// Whether this instance stores and ends schedules: it delivers jobs.
    delivers: bool,
    /// A schedule that nobody named for so long is in no settings.
    ttl: Duration,
    /// When the schedules of this instance were last named in the store.
    named: Option<Instant>,
    /// Those that are to be stored.
    left: BTreeSet<String>,
    /// Those of which the log has told that they cannot be stored.
    told: BTreeSet<String>,
}

impl DeclaredSchedules {
    /// Makes an agent; [`DeclaredSchedules::run`] starts it.
    #[must_use]
    pub(super) fn new(apply: &Apply, settings: &Settings, delivers: bool) -> Self {
        let ids = settings.schedules.keys().filter_map(|name| JobId::new(name.as_str()).ok());
        DeclaredSchedules {
            ids: ids.collect(),
            store: apply.store.clone(),
            apply: apply.clone(),
            schedules: settings.schedules.clone(),
            rules: RequestRules::direct(settings),
            delivers,
            ttl: DECLARATION_TTL,
            named: None,
            left: BTreeSet::new(),
            told: BTreeSet::new(),
        }
    }

    /// Goes round until told to stop.
    pub(super) async fn run(mut self, fleet: watch::Receiver<Fleet>, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                done = self.round() => {
                    if let Err(error) = done {
                        tracing::debug!(%error, "the schedules of the settings could not be looked after");
                    }
                }
            }
            let pause = fleet.borrow().spread(ROUND_INTERVAL).min(MAX_ROUND_INTERVAL);
            tokio::select! {
                () = stop.cancelled() => return,
                () = clock::sleep(pause) => {}
            }
        }
    }

    /// One round. The first one of an instance ends nothing, since others that start at the same
    /// time may not have named their schedules yet.
    async fn round(&mut self) -> Result<(), StoreError> {
        let since = self.named.map(|named| clock::now().duration_since(named));
        let was_heard = since.is_some_and(|since| since < self.ttl);
        if !was_heard {
            // Others may have ended them.
            self.left = self.schedules.keys().cloned().collect();
        }
        // An instance without one of them may have ended that schedule just as it was named.
        let unnamed = self.store.declare_schedules(&self.ids).await?;
        self.left.extend(unnamed.iter().map(|id| id.as_str().to_owned()));
        let named = Some(clock::now());
        if !self.delivers {
            self.named = named;
            return Ok(());
        }
        self.put().await;
        if was_heard {
            self.named = named;
            return self.end_forgotten().await;
        }
        self.watch_others().await?;
        self.named = named;
        Ok(())
    }

    /// Stores the schedules that are left to store.
    async fn put(&mut self) {
        let now_ms = self.store.now_ms();
        let (mut names, mut requests) = (Vec::new(), Vec::new());
        for name in std::mem::take(&mut self.left) {
            let Some(schedule) = self.schedules.get(&name) else { continue };
            match declared_schedule(&name, schedule, &self.rules, now_ms) {
                Ok(new) => {
                    names.push(name);
                    requests.push(Request::NewSchedule(Box::new(new)));
                }
                // The settings were checked at the start: only the time has gone on.
                Err(rejection) => tracing::warn!(
                    schedule = name,
                    why = rejection.detail,
                    hint = "remove it from the settings, or give it a later end",
                    "a schedule of the settings is not stored"
                ),
            }
        }
        for (names, requests) in names.chunks(MAX_STORED).zip(requests.chunks_mut(MAX_STORED)) {
            let answers = self.apply.all(requests, &mut BoundedRetry::default()).await;
            for (name, answer) in names.iter().zip(answers) {
                match answer.map(|answer| answer.verdict) {
                    Ok(Verdict::Conflict) => self.not_stored(name, &"a job has its id"),
                    Ok(Verdict::Duplicate) => {}
                    Ok(verdict) => {
                        let verdict = verdict.as_str();
                        tracing::info!(schedule = name, verdict, "a schedule of the settings");
                    }
                    Err(error) => self.not_stored(name, &error),
                }
            }
        }
    }

    /// The schedule is stored in a later round.
    fn not_stored(&mut self, name: &str, why: &dyn std::fmt::Display) {
        self.left.insert(name.to_owned());
        if self.told.insert(name.to_owned()) {
            let hint = "it is tried again every ten seconds; `dwell check` says more";
            tracing::warn!(schedule = name, %why, hint, "a schedule of the settings is not stored");
        }
    }

    /// Has the schedules of the settings of others, and those that no settings have, found if
    /// nobody names them from now on.
    async fn watch_others(&self) -> Result<(), StoreError> {
        let stored = self.store.schedules.of_settings().await?;
        let others: Vec<JobId> = stored.into_iter().map(|schedule| schedule.id).collect();
        self.store.watch_schedules(&others).await
    }

    /// Ends the schedules that no settings have any more.
    async fn end_forgotten(&self) -> Result<(), StoreError> {
        for id in self.store.forgotten_schedules(self.ttl).await? {
            match self.store.schedules.end_forgotten(&id, self.ttl).await? {
                Some(true) => {
                    tracing::info!(schedule = %id, "no settings have this schedule any more, it is ended");
                }
                Some(false) => {}
                None => continue,
            }
            self.store.drop_schedule(&id).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
