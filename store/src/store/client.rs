//! A Redis client for each mode: one server, or every master of a cluster.
//!
//! - `login`: the secrets and their files; `endpoint`: the addresses of the settings; `connection`:
//!   one connection to one server; `cluster`: the slots of each master.
//!
//! The client repeats a call only when a cluster master says that it did not run the call. A
//! pipeline is repeated as a whole if a moved slot stopped any part of it, so the calls before that
//! part run twice. After any other failure the outcome is unknown: the caller repeats the call, and
//! the scripts are idempotent.

mod cluster;
mod connection;
pub(super) mod endpoint;
pub(super) mod login;

use std::sync::Arc;
use std::time::Duration;

use dwell_core::redacted;
use futures_util::future::join_all;
use redis::{Arg, Cmd, Pipeline, Value};

use self::cluster::{Cluster, SlotMap, slot_of};
use self::connection::To;
pub(super) use self::connection::{Connection, RESPONSE_TIMEOUT};
use super::error::{Class, StoreError};
use crate::clock;
use crate::config::{Redis, RedisMode};

/// The most moved slots that one call follows; each time the client learns at least one more.
const MAX_MOVES: u32 = 8;
/// Nodes inform each other of a move within ms. A repeated redirect waits for that, longer each
/// time.
const MOVE_PAUSE: Duration = Duration::from_millis(10);

/// A client, cheap to clone. Connects on first use.
#[derive(Clone)]
pub struct RedisClient(Route);

#[derive(Clone)]
enum Route {
    One(Connection),
    Cluster(Arc<Cluster>),
}

/// The masters by slot when the cluster last answered.
#[derive(Clone)]
pub struct SlotLayout(Arc<SlotMap>);

impl SlotLayout {
    /// Whether both are the same answer of the cluster.
    #[must_use]
    pub fn is(&self, other: &SlotLayout) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(super) fn master_of(&self, key: &[u8]) -> Option<String> {
        self.0.of(slot_of(key)).ok().map(Connection::place)
    }
}

impl std::fmt::Debug for SlotLayout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SlotLayout of {} masters", self.0.masters.len())
    }
}

/// The number of moved slots that one call has followed.
#[derive(Debug, Default)]
pub(super) struct Redirects(u32);

impl Redirects {
    /// No further move is followed.
    pub(super) fn exhausted() -> Self {
        Redirects(MAX_MOVES)
    }

    /// The pause before a call is repeated that a master did not run because of a move; `None`: no
    /// repeat.
    pub(super) fn pause(&mut self) -> Option<Duration> {
        let before = self.0;
        self.0 = (before + 1).min(MAX_MOVES);
        (before < MAX_MOVES).then(|| MOVE_PAUSE * before)
    }
}

/// Waits for a pause. The timer would take up to 1 ms for none.
pub(super) async fn rest(pause: Duration) {
    if !pause.is_zero() {
        clock::sleep(pause).await;
    }
}

#[derive(Clone, Copy)]
enum Call<'a> {
    One(&'a Cmd),
    Many(&'a Pipeline),
}

impl Call<'_> {
    async fn over(self, wire: &Connection, doing: &str) -> Result<Vec<Value>, StoreError> {
        match self {
            Call::One(command) => wire.command(doing, command).await.map(|answer| vec![answer]),
            Call::Many(pipeline) => wire.pipeline(doing, pipeline).await,
        }
    }
}

/// The calls of one master by wave, each with its index in the whole.
pub(super) struct Part<'a> {
    pub(super) wire: Connection,
    pub(super) waves: Vec<Vec<(usize, &'a Cmd)>>,
}

impl RedisClient {
    /// A client without open connections.
    #[must_use]
    pub fn new(settings: &Redis) -> Self {
        RedisClient(match settings.mode {
            RedisMode::Single | RedisMode::Sentinel => {
                Route::One(Connection::new(settings, To::Named))
            }
            RedisMode::Cluster => Route::Cluster(Arc::new(Cluster::new(settings))),
        })
    }

    /// Sends one command; in a cluster to the master of its key, or to any master if it has no key.
    pub async fn command(&self, doing: &str, command: &Cmd) -> Result<Value, StoreError> {
        self.command_to(doing, key_of(command), command).await
    }

    /// Sends one command; in a cluster to the master of this key, or to any master without a key.
    pub(super) async fn command_to(
        &self,
        doing: &str,
        key: Option<&[u8]>,
        command: &Cmd,
    ) -> Result<Value, StoreError> {
        let answers = self.routed(doing, key, Call::One(command)).await?;
        answers
            .into_iter()
            .next()
            .ok_or_else(|| StoreError::new(Class::Other, format!("redis: {doing}: no answer")))
    }

    /// Sends a pipeline, whose keys are all in one slot, and returns every answer. The first error
    /// of any command is the error of the pipeline.
    pub async fn pipeline(
        &self,
        doing: &str,
        pipeline: &Pipeline,
    ) -> Result<Vec<Value>, StoreError> {
        // The library refuses an empty pipeline.
        if pipeline.is_empty() {
            return Ok(Vec::new());
        }
        let key = pipeline.cmd_iter().find_map(key_of);
        self.routed(doing, key, Call::Many(pipeline)).await
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.0, Route::Cluster(_))
    }

    pub(super) fn layout(&self) -> Option<SlotLayout> {
        match &self.0 {
            Route::One(_) => None,
            Route::Cluster(cluster) => cluster.last().map(SlotLayout),
        }
    }

    /// The clients, one per master; without a cluster, this client.
    pub async fn masters(&self) -> Result<Vec<RedisClient>, StoreError> {
        Ok(match &self.0 {
            Route::One(_) => vec![self.clone()],
            Route::Cluster(cluster) => cluster
                .map()
                .await?
                .masters
                .iter()
                .cloned()
                .map(|wire| RedisClient(Route::One(wire)))
                .collect(),
        })
    }

    /// Loads a script on the masters of these calls. Returns one result per call: that of its
    /// master.
    pub(super) async fn load<C: AsRef<Cmd>>(
        &self,
        source: &str,
        calls: Vec<C>,
    ) -> Vec<Result<(), StoreError>> {
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(source);
        let mut results = vec![Ok(()); calls.len()];
        let waves = [calls];
        let parts = match self.parts(&waves).await {
            Ok(parts) => parts,
            Err(error) => return vec![Err(error); results.len()],
        };
        let loads = parts.iter().map(|part| part.wire.command("SCRIPT LOAD", &load));
        let loaded = join_all(loads).await;
        for (part, loaded) in parts.iter().zip(loaded) {
            if let Err(error) = loaded {
                for (place, _) in part.waves.iter().flatten() {
                    results[*place] = Err(error.clone());
                }
            }
        }
        results
    }

    /// Divides calls by the master of their slot. Calls for one key keep their order: they have one
    /// master.
    pub(super) async fn parts<'a, C: AsRef<Cmd>>(
        &self,
        waves: &'a [Vec<C>],
    ) -> Result<Vec<Part<'a>>, StoreError> {
        let (cluster, map) = match &self.0 {
            Route::One(wire) => {
                let mut places = 0..;
                let mut numbered = |call: &'a C| (places.next().unwrap_or_default(), call.as_ref());
                let waves =
                    waves.iter().map(|calls| calls.iter().map(&mut numbered).collect()).collect();
                return Ok(vec![Part { wire: wire.clone(), waves }]);
            }
            Route::Cluster(cluster) => (cluster, cluster.map().await?),
        };
        let mut parts: Vec<Part<'a>> = Vec::new();
        let mut place = 0;
        for (wave, calls) in waves.iter().enumerate() {
            for call in calls.iter().map(AsRef::as_ref) {
                let wire = cluster.master(&map, slot_of(key_of(call).unwrap_or_default()))?;
                let at = parts.iter().position(|part| part.wire.is(wire)).unwrap_or_else(|| {
                    parts.push(Part { wire: wire.clone(), waves: vec![Vec::new(); waves.len()] });
                    parts.len() - 1
                });
                parts[at].waves[wave].push((place, call));
                place += 1;
            }
        }
        Ok(parts)
    }

    /// Records a failed call. If the slot map may be outdated, the next call asks for a new one.
    pub(super) fn failed(&self, wire: &Connection, error: &StoreError) {
        let Route::Cluster(cluster) = &self.0 else { return };
        match error.class {
            Class::Moved => match &error.moved {
                Some((slot, to)) => cluster.moved(wire, *slot, to),
                None => cluster.forget(wire),
            },
            Class::Io | Class::Timeout | Class::Readonly | Class::Unserved => {
                cluster.forget(wire);
            }
            _ => {}
        }
    }

    async fn routed(
        &self,
        doing: &str,
        key: Option<&[u8]>,
        call: Call<'_>,
    ) -> Result<Vec<Value>, StoreError> {
        let cluster = match &self.0 {
            Route::One(wire) => return call.over(wire, doing).await,
            Route::Cluster(cluster) => cluster,
        };
        let mut moves = Redirects::default();
        loop {
            let map = cluster.map().await?;
            let wire = match key {
                Some(key) => cluster.master(&map, slot_of(key))?,
                None => &map.masters[rand::random_range(0..map.masters.len())],
            };
            let error = match call.over(wire, doing).await {
                Err(error) => error,
                answer => return answer,
            };
            self.failed(wire, &error);
            let pause = if error.class == Class::Moved { moves.pause() } else { None };
            let Some(pause) = pause else { return Err(error) };
            rest(pause).await;
        }
    }
}

/// The first key of a command; `None` if any server can answer.
fn key_of(command: &Cmd) -> Option<&[u8]> {
    let mut words = command.args_iter().map(|word| match word {
        Arg::Simple(bytes) => bytes,
        _ => b"0",
    });
    match words.next()? {
        b"TIME" | b"INFO" | b"CONFIG" | b"CLUSTER" | b"SCAN" | b"PUBLISH" => None,
        // The key follows the script and the number of keys.
        b"EVALSHA" | b"EVAL" => words.nth(2),
        _ => words.next(),
    }
}

/// The addresses of Redis for people: URLs without passwords.
#[must_use]
pub fn place(settings: &Redis) -> String {
    settings.urls.iter().map(|url| redacted(url)).collect::<Vec<_>>().join(", ")
}

/// A field of an INFO text.
#[must_use]
pub fn info_field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_goes_to_the_master_of_its_first_key() {
        let key = |words: &[&str]| {
            let mut command = redis::cmd(words[0]);
            command.arg(&words[1..]);
            key_of(&command).map(|key| String::from_utf8_lossy(key).into_owned())
        };
        assert_eq!(
            key(&["EVALSHA", "hash", "2", "{a}:claim_deadlines", "{a}:jobs", "x"]),
            Some("{a}:claim_deadlines".to_owned())
        );
        assert_eq!(key(&["HGET", "dwell:meta", "schema"]), Some("dwell:meta".to_owned()));
        assert_eq!((key(&["TIME"]), key(&["PUBLISH", "dwell:wake", "x"])), (None, None));
    }
}
