//! The recurring schedules of the settings: stores them, and ends those that no settings have any
//! more.
//!
//! Each round names the schedules of this instance in the store, then stores those that are not
//! stored yet, and ends those that no instance has named for [`DECLARATION_TTL`]. So a schedule
//! outlives a deploy in which the new instances start before or after the old ones have ended. An
//! instance that delivers nothing only names its schedules.
//!
//! The instance that ends a schedule takes its name out of the store too. So an instance that was
//! away for a while, and still has the schedule in its settings, finds out by naming it, and puts
//! it back. What others changed meanwhile stays.

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
use crate::job::{Conflict, JobId, Verdict};
use crate::request::{Request, RequestRules, declared_schedule};
use crate::store::Store;
use crate::store::error::{Class, StoreError};

/// The interval between rounds, which a larger fleet spreads.
const ROUND_INTERVAL: Duration = Duration::from_secs(10);
/// The longest interval: with [`DECLARATION_TTL`] less than the minute within which a schedule that
/// left the settings is ended.
const MAX_ROUND_INTERVAL: Duration = Duration::from_secs(20);
/// The pause after a round that failed: a name that comes too late has its schedule ended.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
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
    /// When the schedules of this instance were last named in the store, or shortly before.
    named: Option<Instant>,
    /// The last round did all that it had to do.
    is_steady: bool,
    /// Those that are to be stored, each with what becomes of a schedule that has its id.
    left: BTreeMap<String, Conflict>,
    /// Those of which the log has told that they cannot be stored.
    told: BTreeSet<String>,
}

impl DeclaredSchedules {
    /// Makes an agent; [`DeclaredSchedules::run`] starts it.
    #[must_use]
    pub(super) fn new(apply: &Apply, settings: &Settings, delivers: bool) -> Self {
        let all = settings.schedules.keys();
        let ids = all.clone().filter_map(|name| JobId::new(name.as_str()).ok());
        DeclaredSchedules {
            ids: ids.collect(),
            store: apply.store.clone(),
            apply: apply.clone(),
            schedules: settings.schedules.clone(),
            rules: RequestRules::direct(settings),
            delivers,
            ttl: DECLARATION_TTL,
            named: None,
            is_steady: false,
            left: all.map(|name| (name.clone(), Conflict::Replace)).collect(),
            told: BTreeSet::new(),
        }
    }

    /// Goes round until told to stop.
    pub(super) async fn run(mut self, fleet: watch::Receiver<Fleet>, stop: CancellationToken) {
        loop {
            let done = tokio::select! {
                () = stop.cancelled() => return,
                done = self.round() => done,
            };
            let mut pause = fleet.borrow().spread(ROUND_INTERVAL).min(MAX_ROUND_INTERVAL);
            if let Err(error) = done {
                tracing::debug!(%error, "the schedules of the settings could not be looked after");
                pause = RETRY_INTERVAL;
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = clock::sleep(pause) => {}
            }
        }
    }

    /// One round. The first one of an instance ends nothing, since others that start at the same
    /// time may not have named their schedules yet; neither does one after a failure or a long
    /// pause, which others may have had too.
    async fn round(&mut self) -> Result<(), StoreError> {
        let was_steady = std::mem::replace(&mut self.is_steady, false);
        let begun = clock::now();
        let declared = self.store.declare_schedules(&self.ids).await;
        if declared.is_err() {
            // They may have been named all the same, and then the next round does not find out.
            self.put_back();
        }
        let added = declared?;
        let since = self.named.map(|named| clock::now().duration_since(named));
        let was_heard = since.is_some_and(|since| since < self.ttl);
        if self.named.is_some() && (!was_heard || added > 0) {
            self.put_back();
        }
        let named = Some(begun);
        if !self.delivers {
            self.named = named;
            return Ok(());
        }
        if was_heard {
            self.named = named;
            self.put().await?;
            if was_steady && since.is_some_and(|since| since < self.ttl * 5 / 6) {
                self.end_forgotten().await?;
            }
        } else {
            self.put().await?;
            self.watch_others().await?;
            self.named = named;
        }
        self.is_steady = true;
        Ok(())
    }

    /// Others may have ended the schedules: those that are not there are stored again.
    fn put_back(&mut self) {
        for name in self.schedules.keys() {
            self.left.entry(name.clone()).or_insert(Conflict::Keep);
        }
    }

    /// Stores the schedules that are left to store. Stops where Redis does not answer: the names are
    /// renewed before the others have their turn.
    async fn put(&mut self) -> Result<(), StoreError> {
        let now_ms = self.store.now_ms();
        let (mut names, mut requests) = (Vec::new(), Vec::new());
        for (name, conflict) in std::mem::take(&mut self.left) {
            let Some(schedule) = self.schedules.get(&name) else { continue };
            match declared_schedule(&name, schedule, &self.rules, now_ms) {
                Ok(mut new) => {
                    new.conflict = conflict;
                    names.push((name, conflict));
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
        let mut calls = names.chunks(MAX_STORED).zip(requests.chunks_mut(MAX_STORED));
        let mut failed = None;
        for (names, requests) in calls.by_ref() {
            let answers = self.apply.all(requests, &mut BoundedRetry::default()).await;
            for ((name, conflict), answer) in names.iter().zip(answers) {
                match answer.map(|answer| answer.verdict) {
                    Ok(Verdict::Conflict) => {
                        self.not_stored(name, *conflict, &"a job has its id");
                    }
                    Ok(Verdict::Duplicate | Verdict::Kept) => {}
                    Ok(verdict) => {
                        let verdict = verdict.as_str();
                        tracing::info!(schedule = name, verdict, "a schedule of the settings");
                    }
                    Err(error) => {
                        self.not_stored(name, *conflict, &error);
                        if matches!(error.class, Class::Io | Class::Timeout) {
                            failed = Some(error);
                        }
                    }
                }
            }
            if failed.is_some() {
                break;
            }
        }
        self.left.extend(calls.flat_map(|(names, _)| names.iter().cloned()));
        failed.map_or(Ok(()), Err)
    }

    /// The schedule is stored in a later round.
    fn not_stored(&mut self, name: &str, conflict: Conflict, why: &dyn std::fmt::Display) {
        self.left.insert(name.to_owned(), conflict);
        if self.told.insert(name.to_owned()) {
            let hint = "it is tried again every few seconds; `dwell check` says more";
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
            let ended = self.store.schedules.end_forgotten(&id, self.ttl).await?;
            let is_over = match ended {
                Some(true) => {
                    tracing::info!(schedule = %id, "no settings have this schedule any more, it is ended");
                    true
                }
                // Named again, or of another door.
                Some(false) => self.store.is_forgotten_schedule(&id, self.ttl).await?,
                None => false,
            };
            if is_over {
                // An instance that names it from now on finds out that it was ended.
                self.store.drop_schedule(&id).await?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
