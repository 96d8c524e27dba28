//! The durability gate: sends calls whose answer counts only once Redis holds them as durably as
//! `redis.durability` asks.
//!
//! WAIT and WAITAOF block everything that is pipelined behind them. So these calls have their own
//! connections; in a cluster, one to each master. The calls and the wait form one pipeline. After a
//! connection error or an unmet wait, the caller repeats all calls, never the wait alone: a wait
//! covers only the writes of its own connection.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use redis::Value;

use super::call::script_call::ScriptCall;
use super::call::sharing::{Sent, Sharing, join};
use super::client::{Part, RedisClient, place};
use super::error::{Class, StoreError};
use super::server_facts::ServerFacts;
use crate::config::{Durability, Redis};

/// The limit of one wait, ms: less than the response timeout.
const WAIT_MS: u64 = 3000;
/// Connections on which batches wait concurrently.
const WAITING_LINKS: usize = 4;

/// The command that follows the calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// None: the answer itself is as durable as asked.
    None,
    /// WAIT for this many replicas.
    Replicas(u32),
    /// WAITAOF for the local AOF and this many replicas.
    Aof(u32),
}

/// The wait for this durability on this server; an error of class `Settings` if the server cannot
/// give it, and of class `Readonly` while no replica is connected: one may come.
pub fn waits_of(settings: &Redis, facts: &ServerFacts) -> Result<Wait, StoreError> {
    if settings.durability == Durability::Memory {
        return Ok(Wait::None);
    }
    let replicas =
        u32::from(matches!(settings.durability, Durability::Replica | Durability::FsyncReplica));
    let fsync = matches!(settings.durability, Durability::Fsync | Durability::FsyncReplica);
    let wait = if fsync {
        fsync_of(settings.assume_fsync, facts, replicas)?
    } else {
        Wait::Replicas(replicas)
    };
    if replicas > facts.replicas {
        let a_master = if facts.masters > 1 { "a master of the cluster at " } else { "" };
        let place = place(settings);
        let why = format!("redis: durability: no replica is connected to {a_master}{place}");
        return Err(StoreError::new(Class::Readonly, why)
            .hint("start a replica, or set redis.durability to \"memory\" or \"fsync\""));
    }
    Ok(wait)
}

/// The wait for the disk, and for so many replicas. `told`: `redis.assume_fsync`.
fn fsync_of(told: bool, facts: &ServerFacts, replicas: u32) -> Result<Wait, StoreError> {
    let refuse = |why: String, hint: &str| {
        Err(StoreError::new(Class::Settings, format!("redis: durability: {why}")).hint(hint))
    };
    if !facts.aof && !told {
        return refuse(
            format!("{} runs without AOF, so nothing is ever fsynced", facts.version),
            "set appendonly yes in redis.conf; or redis.assume_fsync = true if the server fsyncs each write but does not report it; or redis.durability = \"memory\"",
        );
    }
    // WAITAOF is asked for under `always` too, where it costs nothing: after a failover the new
    // master may have another `appendfsync`.
    if facts.waitaof && !told {
        return Ok(Wait::Aof(replicas));
    }
    if told || facts.appendfsync.as_deref() == Some("always") {
        return Ok(if replicas > 0 { Wait::Replicas(replicas) } else { Wait::None });
    }
    match &facts.appendfsync {
        Some(fsync) => refuse(
            format!("{} has no WAITAOF and appendfsync is {fsync}", facts.version),
            "set appendfsync always in redis.conf, or use Redis 7.2 or Valkey",
        ),
        None => refuse(
            format!("{} has no WAITAOF, and the user may not see appendfsync", facts.version),
            "if it is always, set redis.assume_fsync = true, or grant the user +config|get; or use Redis 7.2 or Valkey",
        ),
    }
}

/// The connections of the gate.
pub struct Gate {
    links: Vec<RedisClient>,
    next: AtomicUsize,
    /// An error if Redis cannot give the durability; then every call is refused.
    wait: Result<Wait, StoreError>,
    /// Whether calls for several buckets may be one command.
    pub(super) sharing: Sharing,
}

impl Gate {
    /// A gate without open connections. An error in `wait` refuses every call.
    #[must_use]
    pub fn new(settings: &Redis, wait: Result<Wait, StoreError>) -> Self {
        let links =
            if matches!(wait, Ok(Wait::Replicas(_) | Wait::Aof(_))) { WAITING_LINKS } else { 1 };
        Gate {
            links: (0..links).map(|_| RedisClient::new(settings)).collect(),
            next: AtomicUsize::new(0),
            wait,
            sharing: Sharing::default(),
        }
    }

    /// The number of connections to each master: one where no call waits for durability.
    pub(super) fn links(&self) -> usize {
        self.links.len()
    }

    /// The connection for the next call.
    pub fn link(&self) -> &RedisClient {
        &self.links[self.next.fetch_add(1, Ordering::Relaxed) % self.links.len()]
    }

    /// Sends the calls and waits until they are as durable as asked. Among calls for one key, a
    /// wave is sent only when no call of the wave before needs a repeat. Where one server has all
    /// buckets, calls of a wave share commands.
    ///
    /// Returns one answer per call, in order. A refused call keeps its error, whatever the result
    /// of the wait. After an error that is no refusal the caller sends the call again, after the
    /// calls before it, whether Redis applied it or not.
    pub(super) async fn pass(
        &self,
        link: &RedisClient,
        waves: &[Vec<ScriptCall>],
    ) -> Vec<Result<Value, StoreError>> {
        let sent = join(waves, self.shares_over(link));
        let count = waves.iter().map(Vec::len).sum();
        let doing = waves.iter().flatten().next().map_or("", |call| call.script().as_str());
        let parts = async { Ok((self.wait.clone()?, link.parts(&sent).await?)) };
        let (wait, parts) = match parts.await {
            Ok(parts) => parts,
            Err(error) => return vec![Err(error); count],
        };
        let sent: Vec<&Sent<'_>> = sent.iter().flatten().collect();
        // Wait for every part to end: a call that is still on its way must not be carried out after
        // its own repeat.
        let passing = parts.iter().map(|part| self.pass_part(link, wait, doing, part, &sent));
        let passed = join_all(passing).await;
        let mut answers = Vec::with_capacity(count);
        for (part, passed) in parts.iter().zip(passed) {
            let places = part.waves.iter().flatten().flat_map(|(at, _)| sent[*at].places());
            match passed {
                Ok(passed) => answers.extend(places.zip(passed)),
                Err(error) => answers.extend(places.map(|place| (place, Err(error.clone())))),
            }
        }
        answers.sort_unstable_by_key(|(place, _)| *place);
        answers.into_iter().map(|(_, answer)| answer).collect()
    }

    /// Whether calls share commands on this connection now.
    pub(super) fn shares_over(&self, link: &RedisClient) -> bool {
        !link.is_cluster() && self.sharing.is_on()
    }

    async fn pass_part(
        &self,
        link: &RedisClient,
        wait: Wait,
        doing: &str,
        part: &Part<'_>,
        sent: &[&Sent<'_>],
    ) -> Result<Vec<Result<Value, StoreError>>, StoreError> {
        let answers = self.calls_and_wait(link, wait, doing, part, sent).await;
        match &answers {
            Ok(answers) => answers
                .iter()
                .filter_map(|answer| answer.as_ref().err())
                .for_each(|error| link.failed(&part.wire, error)),
            Err(error) => link.failed(&part.wire, error),
        }
        answers
    }

    /// Sends the calls of one master and their wait over one connection, so that the wait covers
    /// all of them. `sent`: the commands of all masters.
    async fn calls_and_wait(
        &self,
        link: &RedisClient,
        wait: Wait,
        doing: &str,
        part: &Part<'_>,
        sent: &[&Sent<'_>],
    ) -> Result<Vec<Result<Value, StoreError>>, StoreError> {
        let waves: Vec<Vec<&Sent<'_>>> = part
            .waves
            .iter()
            .filter(|commands| !commands.is_empty())
            .map(|commands| commands.iter().map(|(at, _)| sent[*at]).collect())
            .collect();
        if waves.is_empty() {
            return Ok(Vec::new());
        }
        let (call, wanted) = match wait {
            Wait::None => (None, None),
            Wait::Replicas(replicas) => (
                Some(redis::cmd("WAIT").arg(replicas).arg(WAIT_MS).to_owned()),
                Some((0, replicas)),
            ),
            Wait::Aof(replicas) => (
                Some(redis::cmd("WAITAOF").arg(1).arg(replicas).arg(WAIT_MS).to_owned()),
                Some((1, replicas)),
            ),
        };
        let mut answers = part.wire.waves(doing, &waves, call.as_ref(), &self.sharing).await?;
        if let Some(wanted) = wanted
            && let Err(error) = answers
                .pop()
                .unwrap_or(Ok(Value::Nil))
                .and_then(|counts| classify(counts, wanted, doing, part))
        {
            link.failed(&part.wire, &error);
            // After a failed wait, no answer of a write counts; the error says what it was. A refused
            // call keeps its error: it wrote nothing.
            return Ok(answers
                .into_iter()
                .map(|answer| answer.and_then(|answer| Err(error.clone().after(answer))))
                .collect());
        }
        Ok(answers)
    }
}

/// An error if the wait fell short.
fn classify(
    counts: Value,
    (local, replicas): (i64, u32),
    doing: &str,
    part: &Part<'_>,
) -> Result<(), StoreError> {
    let (fsynced, held) = match counts {
        Value::Int(replicas) => (0, replicas),
        Value::Array(counts) => match counts.as_slice() {
            [Value::Int(local), Value::Int(replicas)] => (*local, *replicas),
            _ => (0, 0),
        },
        _ => (0, 0),
    };
    if fsynced >= local && held >= i64::from(replicas) {
        return Ok(());
    }
    // A master without its replicas may have been replaced. Ask the settings again for the master.
    part.wire.leave();
    let place = part.wire.place();
    let message = format!(
        "redis: {doing}: not durable at {place} within {WAIT_MS} ms: fsynced {fsynced} of {local}, replicas {held} of {replicas}"
    );
    Err(StoreError::new(Class::Timeout, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_that_may_not_see_the_configuration_is_told_what_to_assume() {
        let settings = Redis { durability: Durability::Fsync, ..Redis::new("") };
        let facts =
            ServerFacts { version: "redis 7.0.15".to_owned(), aof: true, ..ServerFacts::default() };
        let refused = waits_of(&settings, &facts).unwrap_err();
        assert!(refused.hint.contains("redis.assume_fsync = true"), "{}", refused.hint);
        assert_eq!(
            waits_of(&Redis { assume_fsync: true, ..settings }, &facts).unwrap(),
            Wait::None
        );
    }

    #[test]
    fn a_replica_may_come_and_what_never_works_is_told_before() {
        let settings = |durability| Redis { durability, ..Redis::new("redis://127.0.0.1:1") };
        let facts = ServerFacts { waitaof: true, aof: true, masters: 1, ..ServerFacts::default() };
        let class = |durability, facts: &ServerFacts| {
            waits_of(&settings(durability), facts).map_err(|refused| refused.class)
        };
        let without_aof = ServerFacts { aof: false, ..facts.clone() };
        let with_replica = ServerFacts { replicas: 1, ..facts.clone() };
        let (replica, both) = (Durability::Replica, Durability::FsyncReplica);
        assert_eq!(class(replica, &facts), Err(Class::Readonly));
        assert_eq!(class(both, &facts), Err(Class::Readonly));
        assert_eq!(class(both, &without_aof), Err(Class::Settings));
        assert_eq!(class(replica, &with_replica), Ok(Wait::Replicas(1)));
        assert_eq!(class(both, &with_replica), Ok(Wait::Aof(1)));
        let refused = waits_of(&settings(replica), &facts).unwrap_err();
        assert!(refused.message.contains("redis://127.0.0.1:1"), "{refused}");
    }
}
