//! Calls of one script, for one bucket or several, in one command (`scripts/shared.lua`): where one
//! server has all buckets.
//!
//! A command that Redis did not run is sent again, as each of its calls would be. A server or a
//! proxy that refuses such commands gets none any more: each call is a command of its own. So it is
//! for a while on a server that is busy or full.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use redis::{Cmd, Value};

use super::script_call::ScriptCall;
use super::{CALL_BYTES, CALL_JOBS};
use crate::clock::{self, Instant};
use crate::store::error::{Class, StoreError};

/// The most calls of one command. A call for one job occupies Redis for some tens of µs, and a
/// command should not block other clients for more than a few ms.
const SHARED_CALLS: usize = 64;
/// The most jobs of a call that shares a command. A command costs more than it saves where its calls
/// have many jobs each: their keys and arguments are copied.
const SHARED_CALL_JOBS: usize = 4;
/// The most characters of an unexpected answer in an error: those of 64 calls may be long.
const SHOWN_CHARS: usize = 200;
/// The time without shared commands after the server was too busy for one, or full.
const REST: Duration = Duration::from_secs(60);

/// A command with the places of its calls among all calls of a pass.
pub(in crate::store) struct Sent<'a> {
    command: Cow<'a, Cmd>,
    places: Vec<usize>,
}

impl Sent<'_> {
    /// The places of its calls, in the order of their answers.
    pub(in crate::store) fn places(&self) -> impl Iterator<Item = usize> {
        self.places.iter().copied()
    }

    /// The number of its calls.
    pub(in crate::store) fn calls(&self) -> usize {
        self.places.len()
    }

    /// Whether its answer holds those of several calls.
    pub(in crate::store) fn is_shared(&self) -> bool {
        self.calls() > 1
    }
}

impl AsRef<Cmd> for Sent<'_> {
    fn as_ref(&self) -> &Cmd {
        &self.command
    }
}

/// Calls that are to be one command.
#[derive(Default)]
struct Group<'a> {
    calls: Vec<&'a ScriptCall>,
    places: Vec<usize>,
    jobs: usize,
    bytes: usize,
}

impl<'a> Group<'a> {
    fn of(place: usize, call: &'a ScriptCall) -> Self {
        let mut group = Group::default();
        group.push(place, call, 0, 0);
        group
    }

    fn has_room(&self, jobs: usize, bytes: usize) -> bool {
        self.calls.len() < SHARED_CALLS
            && self.jobs + jobs <= CALL_JOBS
            && self.bytes + bytes <= CALL_BYTES
    }

    fn push(&mut self, place: usize, call: &'a ScriptCall, jobs: usize, bytes: usize) {
        self.calls.push(call);
        self.places.push(place);
        self.jobs += jobs;
        self.bytes += bytes;
    }

    fn into_sent(self) -> Sent<'a> {
        let command = match self.calls.as_slice() {
            [one] => Cow::Borrowed((*one).as_ref()),
            calls => Cow::Owned(command(calls)),
        };
        Sent { command, places: self.places }
    }
}

/// The commands of each wave. If they `may_share`, the calls of one script in a wave are together in
/// commands, within bounds; otherwise each is a command of its own.
pub(in crate::store) fn join(waves: &[Vec<ScriptCall>], may_share: bool) -> Vec<Vec<Sent<'_>>> {
    let mut place = 0;
    let mut sent = Vec::with_capacity(waves.len());
    for calls in waves {
        let mut groups: Vec<Group<'_>> = Vec::with_capacity(calls.len());
        // By script: the group that others may join.
        let mut unfilled = HashMap::new();
        for call in calls {
            let is_small = |(_, jobs): &(_, usize)| *jobs <= SHARED_CALL_JOBS;
            match call.shared().filter(|one| may_share && calls.len() > 1 && is_small(one)) {
                None => groups.push(Group::of(place, call)),
                Some((_, jobs)) => {
                    let bytes: usize = call.words().map(<[u8]>::len).sum();
                    let at = unfilled.entry(call.script()).or_insert(usize::MAX);
                    if !groups.get(*at).is_some_and(|group| group.has_room(jobs, bytes)) {
                        *at = groups.len();
                        groups.push(Group::default());
                    }
                    groups[*at].push(place, call, jobs, bytes);
                }
            }
            place += 1;
        }
        sent.push(groups.into_iter().map(Group::into_sent).collect());
    }
    sent
}

/// One command of these calls, which are of one script.
fn command(calls: &[&ScriptCall]) -> Cmd {
    let hash = calls.iter().find_map(|call| call.shared()).map_or("", |(hash, _)| &**hash);
    let mut command = redis::cmd("EVALSHA");
    command.arg(hash).arg(calls.iter().map(|call| call.key_count()).sum::<usize>());
    for key in calls.iter().flat_map(|call| call.keys()) {
        command.arg(key);
    }
    command.arg(calls.len());
    for call in calls {
        command.arg(call.key_count()).arg(call.arguments().len());
    }
    for argument in calls.iter().flat_map(|call| call.arguments()) {
        command.arg(argument);
    }
    command
}

/// The answers of so many calls that shared a command. The error of one is as Redis would have sent
/// it for that call alone.
pub(in crate::store) fn split(
    doing: &str,
    answer: Value,
    calls: usize,
) -> Result<Vec<Value>, StoreError> {
    let odd = |what: &Value| {
        let what: String = format!("{what:?}").chars().take(SHOWN_CHARS).collect();
        let message = format!("redis: {doing}: {calls} calls were answered by {what}");
        StoreError::new(Class::Other, message)
    };
    let answers = match answer {
        Value::Array(answers) if answers.len() == calls => answers,
        other => return Err(odd(&other)),
    };
    let of_call = |answer: Value| match answer {
        Value::Array(_) => Ok(answer),
        Value::BulkString(text) => {
            let text = String::from_utf8_lossy(&text).replace(['\r', '\n'], " ");
            let error = redis::parse_redis_value(format!("-{text}\r\n").as_bytes());
            error.map_err(|error| StoreError::from_redis(doing, &error))
        }
        other => Err(odd(&other)),
    };
    answers.into_iter().map(of_call).collect()
}

/// Whether calls may share a command on the server of a store.
#[derive(Debug, Default)]
pub(in crate::store) struct Sharing {
    is_over: AtomicBool,
    rests_until: Mutex<Option<Instant>>,
}

impl Sharing {
    /// Whether they may now.
    pub(in crate::store) fn is_on(&self) -> bool {
        let is_resting = || self.rests_until.lock().is_some_and(|until| clock::now() < until);
        !self.is_over.load(Ordering::Relaxed) && !is_resting()
    }

    /// Takes the error of a command that calls share, and returns the error of each of them.
    pub(in crate::store) fn refused(&self, error: StoreError) -> StoreError {
        if error.was_not_run() {
            return error;
        }
        if error.is_busy() {
            self.rest();
            return error;
        }
        if error.is_full_for_sharing() {
            self.rest();
            // That of a damaged job.
            let hint = String::new();
            return StoreError { class: Class::Unshared, hint, ..error };
        }
        if error.refuses_keys() {
            self.end(&error);
            return StoreError { class: Class::Unshared, ..error };
        }
        match error.class {
            // Damage concerns one call, and would be the answer of that one. Nobody knows whether the
            // calls were run, and their callers send them again: each by itself then.
            Class::Script | Class::Other => {
                self.end(&error);
                StoreError { class: Class::Unserved, ..error }
            }
            // By itself, a call that frees memory is taken.
            Class::Oom => {
                self.rest();
                error
            }
            Class::Settings => {
                self.end(&error);
                error
            }
            _ => error,
        }
    }

    /// Takes the error of a load of a shared script. An error if the calls cannot be sent now.
    pub(in crate::store) fn not_loaded(&self, error: StoreError) -> Result<(), StoreError> {
        match error.class {
            Class::Script | Class::Other | Class::Settings => {
                self.end(&error);
                Ok(())
            }
            // The scripts of the single calls are loaded: they need no other.
            Class::Oom => {
                self.rest();
                Ok(())
            }
            _ => Err(error),
        }
    }

    fn rest(&self) {
        *self.rests_until.lock() = Some(clock::now() + REST);
    }

    fn end(&self, error: &StoreError) {
        if !self.is_over.swap(true, Ordering::Relaxed) {
            tracing::info!(%error, "each script call is a command of its own from now on");
        }
    }
}

#[cfg(test)]
mod tests;
