//! A link to Redis in each of its modes: to one server, or to every master of a cluster.
//!
//! - `endpoint`: where the settings lead. `connection`: one connection to one server. `cluster`: which master has which slots.
//!
//! A command is never sent twice, but where a master of a cluster says that it did not run it; a pipeline is sent again as a whole where any of it
//! was not run because a slot moved, so what stood before that is run twice. Of any other call that failed is not known what came of it: the caller
//! sends it again, and the scripts are idempotent.

mod cluster;
mod connection;
pub(super) mod endpoint;

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

/// How often a call follows slots that moved: each time at least one more of them is found.
const MOVES_MAX: u32 = 8;
/// The nodes tell each other within ms; a call that follows again waits for that, longer each time.
const MOVE_PAUSE: Duration = Duration::from_millis(10);

/// A link, cheap to clone, opened on first use.
#[derive(Clone)]
pub struct RedisClient(Route);

#[derive(Clone)]
enum Route {
    One(Connection),
    Cluster(Arc<Cluster>),
}

/// Which master had which slots when the cluster was last asked.
#[derive(Clone)]
pub struct SlotLayout(Arc<SlotMap>);

impl SlotLayout {
    /// Whether both are one answer.
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

/// How often one call has followed slots that moved.
#[derive(Debug, Default)]
pub(super) struct Redirects(u32);

impl Redirects {
    /// Whether the call is to be sent again, because a master did not run it; returns when the map is new.
    pub(super) async fn follow(&mut self, error: &StoreError) -> bool {
        if error.class != Class::Moved || self.0 >= MOVES_MAX {
            return false;
        }
        if self.0 > 0 {
            clock::sleep(MOVE_PAUSE * self.0).await;
        }
        self.0 += 1;
        true
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

/// The calls of one master, wave by wave: each with its place in the whole.
pub(super) struct Part<'a> {
    pub(super) wire: Connection,
    pub(super) waves: Vec<Vec<(usize, &'a Cmd)>>,
}

impl RedisClient {
    /// A link that is not open yet.
    #[must_use]
    pub fn new(settings: &Redis) -> Self {
        RedisClient(match settings.mode {
            RedisMode::Single | RedisMode::Sentinel => Route::One(Connection::new(To::Named(settings.clone()))),
            RedisMode::Cluster => Route::Cluster(Arc::new(Cluster::new(settings))),
        })
    }

    /// Sends one command: in a cluster to the master of its key, or where it has none, to any.
    pub async fn command(&self, doing: &str, command: &Cmd) -> Result<Value, StoreError> {
        let answers = self.routed(doing, key_of(command), Call::One(command)).await?;
        answers.into_iter().next().ok_or_else(|| StoreError::new(Class::Other, format!("redis: {doing}: no answer")))
    }

    /// Sends a pipeline, all of one slot, and returns every answer; the first error of any is the error of all.
    pub async fn pipeline(&self, doing: &str, pipeline: &Pipeline) -> Result<Vec<Value>, StoreError> {
        // The client refuses a pipeline of no command.
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

    /// A link to each master: where there is no cluster, this one.
    pub async fn masters(&self) -> Result<Vec<RedisClient>, StoreError> {
        Ok(match &self.0 {
            Route::One(_) => vec![self.clone()],
            Route::Cluster(cluster) => cluster.map().await?.masters.iter().cloned().map(|wire| RedisClient(Route::One(wire))).collect(),
        })
    }

    /// Makes a script known to the masters of these calls.
    pub(super) async fn load(&self, source: &str, calls: impl Iterator<Item = &Cmd>) -> Result<(), StoreError> {
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(source);
        let wires = match &self.0 {
            Route::One(wire) => vec![wire.clone()],
            Route::Cluster(cluster) => {
                let map = cluster.map().await?;
                let mut wires: Vec<Connection> = Vec::new();
                for call in calls {
                    let wire = cluster.master(&map, slot_of(key_of(call).unwrap_or_default()))?;
                    if !wires.iter().any(|other| other.is(wire)) {
                        wires.push(wire.clone());
                    }
                }
                wires
            }
        };
        join_all(wires.iter().map(|wire| wire.command("SCRIPT LOAD", &load))).await.into_iter().collect::<Result<Vec<_>, _>>().map(drop)
    }

    /// Divides calls by the master that has the slot of each. Calls for one key keep their order: they have one master.
    pub(super) async fn parts<'a>(&self, waves: &'a [Vec<Cmd>]) -> Result<Vec<Part<'a>>, StoreError> {
        let (cluster, map) = match &self.0 {
            Route::One(wire) => {
                let mut places = 0..;
                let waves = waves.iter().map(|calls| places.by_ref().zip(calls).collect()).collect();
                return Ok(vec![Part { wire: wire.clone(), waves }]);
            }
            Route::Cluster(cluster) => (cluster, cluster.map().await?),
        };
        let mut parts: Vec<Part<'a>> = Vec::new();
        let mut place = 0;
        for (wave, calls) in waves.iter().enumerate() {
            for call in calls {
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

    /// A call over this wire failed: where that can mean that the map is old, another is asked for.
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

    async fn routed(&self, doing: &str, key: Option<&[u8]>, call: Call<'_>) -> Result<Vec<Value>, StoreError> {
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
            if !moves.follow(&error).await {
                return Err(error);
            }
        }
    }
}

/// The first key of a command; `None` where any server can answer it.
fn key_of(command: &Cmd) -> Option<&[u8]> {
    let mut words = command.args_iter().map(|word| match word {
        Arg::Simple(bytes) => bytes,
        _ => b"0",
    });
    match words.next()? {
        b"TIME" | b"INFO" | b"CONFIG" | b"CLUSTER" | b"SCAN" | b"PUBLISH" => None,
        // Behind the script and the number of its keys.
        b"EVALSHA" | b"EVAL" => words.nth(2),
        _ => words.next(),
    }
}

/// Where Redis is, for people: URLs without their passwords.
#[must_use]
pub fn place(settings: &Redis) -> String {
    settings.urls.iter().map(|url| redacted(url)).collect::<Vec<_>>().join(", ")
}

/// One field of an INFO text.
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
        assert_eq!(key(&["EVALSHA", "hash", "2", "{a}:run", "{a}:jobs", "x"]), Some("{a}:run".to_owned()));
        assert_eq!(key(&["HGET", "dwell:meta", "schema"]), Some("dwell:meta".to_owned()));
        assert_eq!((key(&["TIME"]), key(&["PUBLISH", "dwell:wake", "x"])), (None, None));
    }
}
