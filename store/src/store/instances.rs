//! The instances of a namespace: their heartbeats and the wake-ups between them.

use std::time::Duration;

use futures_util::StreamExt;
use redis::Value;

use super::client::{login, place};
use super::error::{Class, StoreError};
use super::namespace::Namespace;
use super::wake_up::WakeUp;
use crate::clock;
use crate::config::Redis;

/// An instance whose last heartbeat is older than this is not alive, ms.
pub const INSTANCE_TTL_MS: i64 = 10_000;
/// A listener that received nothing for this long checks its connection.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest wait of the sender of wake-ups for an answer.
const PUBLISH_TIMEOUT: Duration = Duration::from_millis(250);
/// The longest wait of the listener for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

impl Namespace {
    /// Writes the heartbeat of this instance and returns the living instances, sorted, this one
    /// included. Removes instances that have been silent for a minute.
    pub async fn beat(&self, instance: &str) -> Result<Vec<String>, StoreError> {
        let now_ms = self.read_clock().await? / 1000;
        let key = self.keys.instances();
        let mut pipeline = redis::pipe();
        pipeline.cmd("ZREMRANGEBYSCORE").arg(&key).arg("-inf").arg(now_ms - 60_000);
        pipeline.cmd("ZADD").arg(&key).arg(now_ms).arg(instance);
        pipeline.cmd("ZRANGEBYSCORE").arg(&key).arg(now_ms - INSTANCE_TTL_MS).arg("+inf");
        let living = match self.link.pipeline("the heartbeat", &pipeline).await {
            Ok(answers) => answers.into_iter().nth(2),
            // A full Redis refuses the heartbeat. Delivery frees memory, so it must go on.
            Err(error) if error.class == Class::Oom => Some(
                self.link
                    .command(
                        "the living",
                        redis::cmd("ZRANGEBYSCORE")
                            .arg(&key)
                            .arg(now_ms - INSTANCE_TTL_MS)
                            .arg("+inf"),
                    )
                    .await?,
            ),
            Err(error) => return Err(error),
        };
        let mut living: Vec<String> = match living {
            Some(Value::Array(names)) => {
                names.into_iter().filter_map(|name| redis::from_redis_value(name).ok()).collect()
            }
            _ => Vec::new(),
        };
        if !living.iter().any(|name| name == instance) {
            living.push(instance.to_owned());
        }
        living.sort();
        Ok(living)
    }

    /// The entries of the living instances.
    pub async fn living(&self) -> Result<Vec<String>, StoreError> {
        let from_ms = self.read_clock().await? / 1000 - INSTANCE_TTL_MS;
        let mut command = redis::cmd("ZRANGEBYSCORE");
        let answer = self
            .link
            .command("the living", command.arg(self.keys.instances()).arg(from_ms).arg("+inf"))
            .await?;
        Ok(match answer {
            Value::Array(names) => {
                names.into_iter().filter_map(|name| redis::from_redis_value(name).ok()).collect()
            }
            _ => Vec::new(),
        })
    }

    /// Removes this instance at its end, so that the others need not wait until it counts as
    /// silent.
    pub async fn leave(&self, instance: &str) -> Result<(), StoreError> {
        self.link
            .command(
                "leaving the fleet",
                redis::cmd("ZREM").arg(self.keys.instances()).arg(instance),
            )
            .await
            .map(drop)
    }

    /// Sends wake-ups to the other instances. A wake-up may be lost; the floor poll covers that.
    pub async fn wake_others(&self, wake_ups: &[WakeUp]) -> Result<(), StoreError> {
        let mut pipeline = redis::pipe();
        for head in wake_ups {
            pipeline
                .cmd("PUBLISH")
                .arg(self.keys.wake())
                .arg(format!("{} {} {}", head.bucket, head.due_ms, head.broker));
        }
        if wake_ups.is_empty() {
            return Ok(());
        }
        // The sender must not wait for a master that hangs.
        let sent = clock::timeout(PUBLISH_TIMEOUT, self.link.pipeline("PUBLISH", &pipeline)).await;
        sent.unwrap_or_else(|| Err(StoreError::new(Class::Timeout, "redis: PUBLISH: no answer")))
            .map(drop)
    }
}

/// Listens for wake-ups until the connection breaks or stops to answer; the caller then listens
/// again. Calls `listening` once the subscription is active, then `heard` for each wake-up.
pub async fn listen(
    settings: &Redis,
    channel: &str,
    listening: impl FnOnce() + Send,
    mut heard: impl FnMut(WakeUp) + Send,
) -> Result<(), StoreError> {
    let failed = |error: &redis::RedisError| {
        let doing = format!("listening for wake-ups at {}", place(settings));
        match StoreError::from_redis(&doing, error) {
            error if error.class == Class::Refused => error.hint(login::hint(settings)),
            error => error,
        }
    };
    let silent = || {
        StoreError::new(
            Class::Timeout,
            format!("redis: no answer from {} on the connection for wake-ups", place(settings)),
        )
    };
    let subscribing = async {
        // In a cluster, every node receives the messages that any node publishes.
        let client = super::client::endpoint::client(settings).await?;
        let (mut link, messages) =
            client.get_async_pubsub().await.map_err(|error| failed(&error))?.split();
        link.subscribe(channel).await.map_err(|error| failed(&error))?;
        Ok((link, messages))
    };
    let subscribed =
        clock::timeout(ANSWER_TIMEOUT, subscribing).await.unwrap_or_else(|| Err(silent()));
    let (mut link, mut messages) = subscribed.inspect_err(|error| settings.refusals.note(error))?;
    listening();
    loop {
        let message = match clock::timeout(SILENCE_TIMEOUT, messages.next()).await {
            Some(Some(message)) => message,
            Some(None) => {
                return Err(StoreError::new(
                    Class::Io,
                    "redis: the connection for wake-ups was closed",
                ));
            }
            // A connection that only receives does not notice a lost peer. To subscribe again
            // changes nothing and gets an answer.
            None => {
                let answer = clock::timeout(ANSWER_TIMEOUT, link.subscribe(channel)).await;
                answer.ok_or_else(silent)?.map_err(|error| failed(&error))?;
                continue;
            }
        };
        let text = String::from_utf8_lossy(message.get_payload_bytes()).into_owned();
        let mut parts = text.splitn(3, ' ');
        if let (Some(Ok(bucket)), Some(Ok(due_ms)), Some(broker)) =
            (parts.next().map(str::parse), parts.next().map(str::parse), parts.next())
        {
            heard(WakeUp { bucket, due_ms, broker: broker.to_owned() });
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_link_that_is_silent_for_good_is_left() {
        // The server answers until a subscription exists, then holds the connection in silence.
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}", server.local_addr().unwrap());
        let holding = tokio::spawn(async move {
            let (mut link, _) = server.accept().await.unwrap();
            let mut part = vec![0; 1024];
            loop {
                let count = link.read(&mut part).await.unwrap();
                let asked = String::from_utf8_lossy(&part[..count]);
                if asked.contains("SUBSCRIBE") {
                    link.write_all(b"*3\r\n$9\r\nsubscribe\r\n$6\r\nd:wake\r\n:1\r\n")
                        .await
                        .unwrap();
                    return link;
                }
                link.write_all("+OK\r\n".repeat(asked.matches('*').count()).as_bytes())
                    .await
                    .unwrap();
            }
        });
        let settings = Redis { namespace: "d".to_owned(), ..Redis::new(url) };
        let mut began = false;
        let ended = listen(&settings, "d:wake", || began = true, |_| {}).await;
        assert_eq!((ended.unwrap_err().class, began), (Class::Timeout, true));
        drop(holding);
    }

    #[tokio::test]
    async fn a_login_that_is_refused_says_where_it_stands() {
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://:word@{}", server.local_addr().unwrap());
        tokio::spawn(async move {
            let (mut link, _) = server.accept().await.unwrap();
            let mut part = vec![0; 1024];
            while let Ok(count @ 1..) = link.read(&mut part).await {
                let asked = String::from_utf8_lossy(&part[..count]).matches('*').count();
                let answer = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
                link.write_all(answer.repeat(asked).as_bytes()).await.unwrap();
            }
        });
        let settings = Redis { namespace: "d".to_owned(), ..Redis::new(url) };
        let error = listen(&settings, "d:wake", || (), |_| {}).await.unwrap_err();
        assert_eq!(
            (error.class, error.hint.as_str()),
            (Class::Refused, "check the user and the password in redis.urls"),
            "{error}"
        );
    }
}
