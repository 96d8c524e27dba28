//! The end of a campaign: waits until nothing is outstanding, and records what is left.

use std::collections::HashSet;

use dwell::clock;
use dwell::dispatch::lease_of;
use dwell::store::Store;
use dwell::store::admin::fsck::{self, FsckRules};
use dwell::store::error::StoreError;
use dwell::store::meta::SweepRules;
use dwell::store::reader::list::Query;
use dwell::store::reader::lookup::Place;

use super::{CHECK_INTERVAL, Campaign, DRAIN_TIMEOUT, MIN_EMPTY_DURATION, RECOVERY_TIMEOUT};
use crate::chaos::history::{DeadJob, End};
use crate::chaos::system::System;

/// The findings of `fsck`; a line each.
pub(crate) async fn damage(system: &System) -> Result<Vec<String>, StoreError> {
    let delivery = &system.settings().delivery;
    let sweep = SweepRules::from(delivery);
    let lease_ms = u64::try_from(lease_of(delivery).as_millis()).unwrap_or(u64::MAX);
    let rules = FsckRules { lease_ms, retry_ms: delivery.retry.to_vec(), sweep, repair: false };
    let mut damage = Vec::new();
    let mut found = |finding: fsck::Finding| {
        damage.push(format!(
            "{} `{}` {}",
            finding.bucket.map_or("-".to_owned(), |bucket| bucket.to_string()),
            finding.id,
            finding.problem.as_str()
        ));
    };
    fsck::run(system.store_settings(), rules, &mut found).await?;
    Ok(damage)
}

impl Campaign<'_> {
    /// Waits until no job is outstanding, and reports the final state.
    pub(super) async fn drain(&self) -> Result<End, StoreError> {
        let deadline = clock::now() + DRAIN_TIMEOUT;
        let store = loop {
            match Store::attach(self.system.store_settings()).await {
                Ok(store) => break store,
                Err(error) if clock::now() >= deadline => return Err(error),
                Err(_) => clock::sleep(CHECK_INTERVAL).await,
            }
        };
        let mut empty_since = None;
        let counts = loop {
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
            if left > 0 || !missing.jobs.is_empty() {
                empty_since = None;
            }
            let since = *empty_since.get_or_insert(now);
            // An answer that cannot be delivered is given up and never arrives.
            let patience = if missing.answers.is_empty() {
                MIN_EMPTY_DURATION
            } else {
                MIN_EMPTY_DURATION * 5
            };
            if now >= since + patience || now >= deadline {
                break counts;
            }
            clock::sleep(CHECK_INTERVAL).await;
        };
        let mut end = End {
            scheduled: counts.scheduled.iter().sum(),
            reserved: counts.reserved.iter().sum(),
            ..End::default()
        };
        end.dead = self.dead(&store).await?;
        end.unacknowledged = self.unacknowledged().await;
        end.damage = damage(self.system).await?;
        Ok(end)
    }

    /// Waits until the ingest has acknowledged every request, and returns how many are left.
    async fn unacknowledged(&self) -> Option<u64> {
        let deadline = clock::now() + RECOVERY_TIMEOUT;
        loop {
            match self.system.broker.unacknowledged().await {
                Ok(0) => return Some(0),
                Ok(left) if clock::now() >= deadline => return Some(left),
                Err(error) if clock::now() >= deadline => {
                    (self.say)(&format!(
                        "the requests that are not acknowledged cannot be counted: {error}"
                    ));
                    return None;
                }
                _ => clock::sleep(CHECK_INTERVAL * 10).await,
            }
        }
    }

    async fn dead(&self, store: &Store) -> Result<Vec<DeadJob>, StoreError> {
        let mut dead = Vec::new();
        let mut query = Query { limit: 500, ..Query::new(Place::Dead) };
        loop {
            let page = store.reader.list(&query).await?;
            dead.extend(page.jobs.iter().map(|found| {
                DeadJob {
                    id: found.id.as_str().to_owned(),
                    reason: found
                        .state
                        .as_ref()
                        .and_then(|state| state.reason)
                        .map(|reason| reason.as_str().to_owned()),
                    attempt: found.state.as_ref().map(|state| state.attempt),
                }
            }));
            // An unreadable dead job is dead; the damage names the problem.
            dead.extend(
                page.unreadable.into_iter().map(|(id, _)| DeadJob { id, ..DeadJob::default() }),
            );
            match page.next {
                Some(next) => query.after = Some(next),
                None => return Ok(dead),
            }
        }
    }
}
