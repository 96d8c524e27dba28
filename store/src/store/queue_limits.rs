//! The limits of queues. The namespace keeps them beside its description, so that each program that
//! pops obeys them, whatever its settings say. Where there is none, nobody asks Redis for any.

use std::time::Duration;

use super::answer::Items;
use super::error::StoreError;
use super::limits::Limit;
use super::meta::{self, QueueInFlight, QueueLimit};
use super::namespace::Namespace;
use super::places::PlaceLimit;
use super::schedules::pattern::fits;
use crate::clock;

const SCRIPT: &str = include_str!("scripts/limit_now.lua");

impl Namespace {
    /// The limit of this queue.
    #[must_use]
    pub fn limit_of_queue(&self, queue: &str) -> Option<Limit> {
        let limits = self.queue_limits.read();
        let (pattern, rate) = limits.iter().find(|(pattern, _)| fits(queue, pattern))?;
        rate.map(|rate| Limit::of_queue(queue, pattern, rate))
    }

    /// How many jobs of this queue may be out at a time.
    #[must_use]
    pub fn places_of_queue(&self, queue: &str) -> Option<PlaceLimit> {
        let limits = self.queue_in_flight.read();
        let (pattern, most) = limits.iter().find(|(pattern, _)| fits(queue, pattern))?;
        most.map(|most| PlaceLimit::of_queue(queue, pattern, most))
    }

    /// Whether any queue bounds how many jobs are out.
    pub(super) fn has_bounded_queues(&self) -> bool {
        self.queue_in_flight.read().iter().any(|(_, most)| most.is_some())
    }

    /// Whether any queue has a limit, as far as this store knows.
    #[must_use]
    pub fn has_queue_limits(&self) -> bool {
        !self.queue_limits.read().is_empty() || !self.queue_in_flight.read().is_empty()
    }

    /// Keeps the limits of these names and patterns, `None` for those without one. Others stay as
    /// they are. Calls Redis only where something changes.
    pub async fn keep_queue_limits(&self, declared: &[QueueLimit]) -> Result<(), StoreError> {
        let changed = changed(&self.queue_limits.read(), declared);
        let field =
            |(pattern, rate): &QueueLimit| (meta::limit_field(pattern), meta::limit_text(*rate));
        self.keep_in_meta(changed.iter().map(field).collect()).await
    }

    /// The same of how many jobs of these queues may be out at a time.
    pub async fn keep_queue_in_flight(&self, declared: &[QueueInFlight]) -> Result<(), StoreError> {
        let changed = changed(&self.queue_in_flight.read(), declared);
        let field = |(pattern, most): &QueueInFlight| {
            (meta::in_flight_field(pattern), meta::in_flight_text(*most))
        };
        self.keep_in_meta(changed.iter().map(field).collect()).await
    }

    async fn keep_in_meta(&self, fields: Vec<(String, String)>) -> Result<(), StoreError> {
        if fields.is_empty() {
            return Ok(());
        }
        let mut command = redis::cmd("HSET");
        command.arg(self.keys.meta());
        for (field, text) in fields {
            command.arg(field).arg(text);
        }
        self.link.command("HSET meta", &command).await?;
        self.rejoin().await
    }

    /// The names and patterns of those of these limits of which the namespace keeps other values,
    /// sorted.
    #[must_use]
    pub fn other_queue_limits(
        &self,
        rates: &[QueueLimit],
        in_flight: &[QueueInFlight],
    ) -> Vec<String> {
        let mut others = differing(&self.queue_limits.read(), rates);
        others.extend(differing(&self.queue_in_flight.read(), in_flight));
        others.sort();
        others.dedup();
        others
    }

    /// Takes the turns of this limit that are there now, up to so many. Returns their number, and
    /// after how long there is another one.
    pub async fn take_turns_now(
        &self,
        limit: &Limit,
        most: usize,
    ) -> Result<(usize, Duration), StoreError> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let (turns, wait_us) = self.call_limit(limit, most).await?;
        Ok((usize::try_from(turns).unwrap_or(0), clock::micros(wait_us)))
    }

    /// Gives turns back for which there was no job.
    pub async fn give_turns_back(&self, limit: &Limit, turns: usize) -> Result<(), StoreError> {
        let turns = i64::try_from(turns).unwrap_or(i64::MAX);
        self.call_limit(limit, -turns).await.map(drop)
    }

    async fn call_limit(&self, limit: &Limit, turns: i64) -> Result<(i64, i64), StoreError> {
        let mut command = redis::cmd("EVAL");
        command.arg(SCRIPT).arg(1).arg(self.keys.limits());
        command.arg(limit.name()).arg(turns).arg(limit.rate().to_string());
        let mut items = Items::new("limit_now", self.link.command("limit_now", &command).await?)?;
        Ok((items.int()?, items.int()?))
    }
}

/// Those of the declared limits that are not known. While no limit is known, names without one are
/// not kept.
fn changed<T: Clone + PartialEq>(
    known: &[(String, Option<T>)],
    declared: &[(String, Option<T>)],
) -> Vec<(String, Option<T>)> {
    if known.is_empty() && declared.iter().all(|(_, limit)| limit.is_none()) {
        return Vec::new();
    }
    declared.iter().filter(|limit| !known.contains(limit)).cloned().collect()
}

/// The names of the declared limits of which others are known.
fn differing<T: PartialEq>(
    known: &[(String, Option<T>)],
    declared: &[(String, Option<T>)],
) -> Vec<String> {
    let is_other = |(name, limit): &&(String, Option<T>)| {
        known.iter().any(|(kept, value)| kept == name && value != limit)
    };
    declared.iter().filter(is_other).map(|(name, _)| name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::differing;

    #[test]
    fn a_limit_differs_from_another_one_of_its_name_alone() {
        let limits = |limits: &[(&str, Option<u32>)]| -> Vec<(String, Option<u32>)> {
            limits.iter().map(|(name, limit)| ((*name).to_owned(), *limit)).collect()
        };
        let known =
            limits(&[("same", Some(1)), ("other", Some(1)), ("ended", Some(1)), ("*", None)]);
        let declared =
            limits(&[("same", Some(1)), ("other", Some(2)), ("ended", None), ("new", Some(1))]);
        assert_eq!(differing(&known, &declared), ["other", "ended"]);
        assert_eq!(differing(&known, &limits(&[("*", Some(1))])), ["*"]);
        assert!(differing(&[], &declared).is_empty());
    }
}
