//! The instances of a namespace: heartbeats, and the wake-ups that they send each other.

use redis::Value;

use super::Store;
use super::error::{Class, StoreError};
use super::inbound::Head;
use super::link::place;
use crate::config::Redis;

/// An instance that did not beat for so long is not counted as living, ms.
pub const ALIVE_MS: i64 = 10_000;

impl Store {
    /// Beats for this instance and answers the living, sorted, itself among them. Forgets those that have been silent for a minute.
    pub async fn beat(&self, instance: &str) -> Result<Vec<String>, StoreError> {
        let now_ms = self.read_clock().await? / 1000;
        let key = self.keys.instances();
        let mut pipeline = redis::pipe();
        pipeline.cmd("ZREMRANGEBYSCORE").arg(&key).arg("-inf").arg(now_ms - 60_000);
        pipeline.cmd("ZADD").arg(&key).arg(now_ms).arg(instance);
        pipeline.cmd("ZRANGEBYSCORE").arg(&key).arg(now_ms - ALIVE_MS).arg("+inf");
        let living = match self.link.pipeline("the heartbeat", &pipeline).await {
            Ok(answers) => answers.into_iter().nth(2),
            // A full Redis takes no heartbeat; delivery, which frees memory, must not stop for that.
            Err(error) if error.class == Class::Oom => {
                Some(self.link.command("the living", redis::cmd("ZRANGEBYSCORE").arg(&key).arg(now_ms - ALIVE_MS).arg("+inf")).await?)
            }
            Err(error) => return Err(error),
        };
        let mut living: Vec<String> = match living {
            Some(Value::Array(names)) => names.into_iter().filter_map(|name| redis::from_redis_value(name).ok()).collect(),
            _ => Vec::new(),
        };
        if !living.iter().any(|name| name == instance) {
            living.push(instance.to_owned());
        }
        living.sort();
        Ok(living)
    }

    /// This instance ends: the others need not wait for its silence.
    pub async fn leave(&self, instance: &str) -> Result<(), StoreError> {
        self.link.command("leaving the fleet", redis::cmd("ZREM").arg(self.keys.instances()).arg(instance)).await.map(drop)
    }

    /// Tells the other instances of new heads. A wake-up may be lost: a floor poll stands under it.
    pub async fn wake_others(&self, heads: &[Head]) -> Result<(), StoreError> {
        let mut pipeline = redis::pipe();
        for head in heads {
            pipeline.cmd("PUBLISH").arg(self.keys.wake()).arg(format!("{} {} {}", head.bucket, head.due_ms, head.broker));
        }
        if heads.is_empty() { Ok(()) } else { self.link.pipeline("PUBLISH", &pipeline).await.map(drop) }
    }
}

/// Listens for wake-ups, calling `heard` for each, until the link breaks. The caller listens again.
pub async fn listen(settings: &Redis, channel: &str, mut heard: impl FnMut(Head) + Send) -> Result<(), StoreError> {
    use futures_util::StreamExt;
    let failed = |error: &redis::RedisError| StoreError::from_redis(&format!("listening for wake-ups at {}", place(settings)), error);
    // In a cluster any node hears what is published at any.
    let client = super::link::endpoint::client(settings).await?;
    let mut pubsub = client.get_async_pubsub().await.map_err(|error| failed(&error))?;
    pubsub.subscribe(channel).await.map_err(|error| failed(&error))?;
    let mut messages = pubsub.on_message();
    while let Some(message) = messages.next().await {
        let text = String::from_utf8_lossy(message.get_payload_bytes()).into_owned();
        let mut parts = text.splitn(3, ' ');
        if let (Some(Ok(bucket)), Some(Ok(due_ms)), Some(broker)) =
            (parts.next().map(str::parse), parts.next().map(str::parse), parts.next())
        {
            heard(Head { bucket, due_ms, broker: broker.to_owned() });
        }
    }
    Err(StoreError::new(Class::Io, "redis: the link that listens for wake-ups was cut"))
}
