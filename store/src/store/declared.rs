//! The recurring schedules that instances have in their settings: which ones, and when an instance
//! last said so. A schedule that nobody has named for [`DECLARATION_TTL`] is in no settings any more.

use std::collections::BTreeSet;
use std::time::Duration;

use redis::Value;

use super::answer::{micros_of, score};
use super::error::StoreError;
use super::namespace::Namespace;
use crate::clock;
use crate::job::JobId;

/// A schedule that no instance has named for this long is in no settings any more.
pub const DECLARATION_TTL: Duration = Duration::from_secs(30);
/// The most schedules in one command.
const MAX_IDS: usize = 1000;

impl Namespace {
    /// Says that a living instance has these schedules in its settings. Returns how many of them
    /// nobody had named before: one that another instance ended is among them.
    pub async fn declare_schedules(&self, ids: &[JobId]) -> Result<u64, StoreError> {
        self.note_schedules(ids, None).await
    }

    /// Has the time of schedules that nobody has named begin now, so that they are found if nobody
    /// names them. Those that are known already keep their time.
    pub async fn watch_schedules(&self, ids: &[JobId]) -> Result<(), StoreError> {
        self.note_schedules(ids, Some("NX")).await.map(drop)
    }

    async fn note_schedules(
        &self,
        ids: &[JobId],
        option: Option<&'static str>,
    ) -> Result<u64, StoreError> {
        if ids.is_empty() {
            return Ok(0);
        }
        let (now_ms, mut added) = (self.declaration_ms().await?, 0);
        for some in ids.chunks(MAX_IDS) {
            let mut command = redis::cmd("ZADD");
            command.arg(self.keys.declared_schedules()).arg(option);
            for id in some {
                command.arg(now_ms).arg(id.as_str());
            }
            let answer = self.link.command("naming the schedules of the settings", &command);
            if let Value::Int(new) = answer.await? {
                added += u64::try_from(new).unwrap_or(0);
            }
        }
        Ok(added)
    }

    /// The schedules that living instances have in their settings: those named within `ttl`.
    pub async fn declared_schedules(&self, ttl: Duration) -> Result<BTreeSet<String>, StoreError> {
        let from_ms = self.oldest_living_ms(ttl).await?;
        let living = self.named_schedules(&from_ms.to_string(), "+inf").await?;
        Ok(living.into_iter().collect())
    }

    /// The schedules that some instance once had in its settings and nobody named within `ttl`.
    pub async fn forgotten_schedules(&self, ttl: Duration) -> Result<Vec<JobId>, StoreError> {
        let from_ms = self.oldest_living_ms(ttl).await?;
        let forgotten = self.named_schedules("-inf", &format!("({from_ms}")).await?;
        // Only ids are ever noted.
        Ok(forgotten.into_iter().filter_map(|id| JobId::new(id).ok()).collect())
    }

    /// Whether some instance once had this schedule in its settings, and nobody named it within
    /// `ttl`.
    pub async fn is_forgotten_schedule(
        &self,
        id: &JobId,
        ttl: Duration,
    ) -> Result<bool, StoreError> {
        let from_ms = self.oldest_living_ms(ttl).await?;
        let mut command = redis::cmd("ZSCORE");
        let command = command.arg(self.keys.declared_schedules()).arg(id.as_str());
        let named_ms = score(self.link.command("a schedule of the settings", command).await?);
        Ok(named_ms.is_some_and(|named_ms| named_ms < from_ms))
    }

    /// Forgets that the settings of some instance had this schedule.
    pub async fn drop_schedule(&self, id: &JobId) -> Result<(), StoreError> {
        let mut command = redis::cmd("ZREM");
        let command = command.arg(self.keys.declared_schedules()).arg(id.as_str());
        self.link.command("a schedule that the settings had", command).await.map(drop)
    }

    /// An instance that named its schedules before this time is not alive, epoch ms.
    async fn oldest_living_ms(&self, ttl: Duration) -> Result<i64, StoreError> {
        let ttl_ms = i64::try_from(clock::whole_ms(ttl)).unwrap_or(i64::MAX);
        Ok(self.declaration_ms().await?.saturating_sub(ttl_ms))
    }

    /// The time of the master that has the declarations, epoch ms: in a cluster the clocks of the
    /// masters differ.
    async fn declaration_ms(&self) -> Result<i64, StoreError> {
        let key = self.keys.declared_schedules();
        let time = redis::cmd("TIME");
        let answer = self.link.command_to("TIME", Some(key.as_bytes()), &time).await?;
        Ok(micros_of(answer)? / 1000)
    }

    async fn named_schedules(&self, from: &str, to: &str) -> Result<Vec<String>, StoreError> {
        let mut command = redis::cmd("ZRANGEBYSCORE");
        let command = command.arg(self.keys.declared_schedules()).arg(from).arg(to);
        let answer = self.link.command("the schedules of the settings", command).await?;
        Ok(match answer {
            Value::Array(ids) => {
                ids.into_iter().filter_map(|id| redis::from_redis_value(id).ok()).collect()
            }
            _ => Vec::new(),
        })
    }
}
