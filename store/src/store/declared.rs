//! The recurring schedules that instances have in their settings: which ones, and when an instance
//! last said so. A schedule that nobody has named for [`DECLARATION_TTL`] is in no settings any more.

use std::collections::BTreeSet;
use std::time::Duration;

use redis::{Pipeline, Value};

use super::answer::score;
use super::error::StoreError;
use super::namespace::Namespace;
use crate::clock;
use crate::job::JobId;

/// A schedule that no instance has named for this long is in no settings any more.
pub const DECLARATION_TTL: Duration = Duration::from_secs(30);
/// The most schedules that are named at once.
const MAX_IDS: usize = 1000;

impl Namespace {
    /// Says that a living instance has these schedules in its settings. Returns those that no
    /// settings had before: an instance may have ended them.
    pub async fn declare_schedules(&self, ids: &[JobId]) -> Result<Vec<JobId>, StoreError> {
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
    ) -> Result<Vec<JobId>, StoreError> {
        let mut added = Vec::new();
        if ids.is_empty() {
            return Ok(added);
        }
        let (key, now_ms) = (self.keys.declared_schedules(), self.read_clock().await? / 1000);
        for some in ids.chunks(MAX_IDS) {
            let mut pipeline = Pipeline::new();
            for id in some {
                pipeline.cmd("ZADD").arg(&key).arg(option).arg(now_ms).arg(id.as_str());
            }
            let doing = "naming the schedules of the settings";
            let answers = self.link.pipeline(doing, &pipeline).await?;
            let new = some.iter().zip(answers).filter(|(_, answer)| *answer == Value::Int(1));
            added.extend(new.map(|(id, _)| id.clone()));
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

    /// Whether nobody named this schedule within `ttl`.
    pub async fn is_forgotten_schedule(
        &self,
        id: &JobId,
        ttl: Duration,
    ) -> Result<bool, StoreError> {
        let from_ms = self.oldest_living_ms(ttl).await?;
        let mut command = redis::cmd("ZSCORE");
        let command = command.arg(self.keys.declared_schedules()).arg(id.as_str());
        let named_ms = score(self.link.command("a schedule of the settings", command).await?);
        Ok(named_ms.is_none_or(|named_ms| named_ms < from_ms))
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
        Ok((self.read_clock().await? / 1000).saturating_sub(ttl_ms))
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
