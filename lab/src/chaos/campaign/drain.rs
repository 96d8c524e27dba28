//! The end of a campaign: waits until nothing is outstanding, and records what is left.

use std::collections::HashSet;

use dwell::clock;
use dwell::dispatch::lease_of;
use dwell::store::Store;
use dwell::store::admin::fsck::{self, FsckRules};
use dwell::store::error::StoreError;
use dwell::store::meta::SweepRules;
use dwell::store::reader::list::Query;
use dwell::store::reader::lookup::JobState;
use dwell::store::schedules::ScheduleFilter;

use super::{CHECK_INTERVAL, Campaign, DRAIN_TIMEOUT, Error, MIN_EMPTY_DURATION, RECOVERY_TIMEOUT};
use crate::chaos::history::{DeadJob, End};
use crate::chaos::system::System;
use crate::checker::occurrences::claims;

/// The findings of `fsck`; a line each.
pub(crate) async fn damage(system: &System) -> Result<Vec<String>, StoreError> {
    let delivery = &system.settings().delivery;
    let sweep = SweepRules::from(delivery);
    let lease_ms = u64::try_from(lease_of(delivery).as_millis()).unwrap_or(u64::MAX);
    let rules = FsckRules { lease_ms, retry_ms: delivery.retry.to_vec(), sweep, repair: false };
    let mut damage = Vec::new();
    let mut found = |finding: fsck::Finding| {
        let bucket = finding.bucket.map_or("-".to_owned(), |bucket| bucket.to_string());
        damage.push(format!("{bucket} `{}` {}", finding.id, finding.problem.as_str()));
    };
    fsck::run(&system.settings().redis, rules, &mut found).await?;
    Ok(damage)
}

impl Campaign<'_> {
    /// Waits until no job is outstanding, and reports the final state.
    pub(super) async fn drain(&self) -> Result<End, StoreError> {
        let deadline = clock::now() + DRAIN_TIMEOUT;
        let store = loop {
            match Store::attach(&self.system.settings().redis).await {
                Ok(store) => break store,
                Err(error) if clock::now() >= deadline => return Err(error),
                Err(_) => clock::sleep(CHECK_INTERVAL).await,
            }
        };
        let mut empty_since = None;
        let counts = loop {
            // Schedules would make jobs for ever; the request for one may still be on its way.
            let paused = store.schedules.pause_many(&ScheduleFilter::default(), None).await?;
            let counts = store.reader.counts(&[]).await?;
            let left: u64 = counts.scheduled.iter().chain(&counts.reserved).sum();
            let now = clock::now();
            let mut missing = self.recorder.missing();
            if left == 0 && !missing.jobs.is_empty() {
                // A job whose dead letter was not accepted is only in Redis.
                let kept: HashSet<String> =
                    self.dead(&store).await?.into_iter().map(|dead| dead.id).collect();
                missing.jobs.retain(|id| !kept.contains(id));
            }
            if left > 0 || paused > 0 || !missing.jobs.is_empty() {
                empty_since = None;
            }
            let since = *empty_since.get_or_insert(now);
            // An answer that cannot be delivered is given up and never arrives.
            let patience = if missing.answers.is_empty() { 1 } else { 5 };
            if now >= since + MIN_EMPTY_DURATION * patience || now >= deadline {
                break counts;
            }
            clock::sleep(CHECK_INTERVAL).await;
        };
        Ok(End {
            scheduled: counts.scheduled.iter().sum(),
            reserved: counts.reserved.iter().sum(),
            dead: self.dead(&store).await?,
            schedules: Some(claims(&store).await?),
            unacknowledged: self.unacknowledged().await,
            damage: damage(self.system).await?,
            ..End::default()
        })
    }

    /// Waits until the ingest has acknowledged every request, and returns how many are left.
    async fn unacknowledged(&self) -> Option<u64> {
        let deadline = clock::now() + RECOVERY_TIMEOUT;
        loop {
            let left = self.system.broker.unacknowledged().await;
            if matches!(left, Ok(0)) || clock::now() >= deadline {
                let say = |error: &Error| {
                    (self.say)(&format!("the unacknowledged requests cannot be counted: {error}"));
                };
                return left.inspect_err(say).ok();
            }
            clock::sleep(CHECK_INTERVAL * 10).await;
        }
    }

    async fn dead(&self, store: &Store) -> Result<Vec<DeadJob>, StoreError> {
        let mut dead = Vec::new();
        let mut query = Query { limit: 500, ..Query::new(JobState::Dead) };
        loop {
            let page = store.reader.list(&query).await?;
            dead.extend(page.jobs.iter().map(|found| {
                let state = found.state_record.as_ref();
                let reason = state.and_then(|state| state.reason);
                DeadJob {
                    id: found.id.as_str().to_owned(),
                    reason: reason.map(|reason| reason.as_str().to_owned()),
                    attempt: state.map(|state| state.attempt),
                }
            }));
            // An unreadable dead job is dead; the damage names the problem.
            let unreadable = page.unreadable.into_iter();
            dead.extend(unreadable.map(|(id, _)| DeadJob { id, ..DeadJob::default() }));
            match page.next {
                Some(next) => query.after = Some(next),
                None => return Ok(dead),
            }
        }
    }
}
