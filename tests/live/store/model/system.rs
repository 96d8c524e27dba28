//! The real scripts with explicit arguments, so that a call can be repeated exactly; and a view of
//! all keys.

use std::collections::BTreeMap;

use dwell::job::Conflict;
use dwell::store::keys::Keys;
use dwell::store::record::{State, encode};
use dwell::store::scripts::Name;
use redis::{Connection, Value};

use super::super::fixture::{MAIN, request};
use super::reference::{Fence, How, Request, Word};
use crate::support::namespace;

/// ms: not over within a test.
const LONG: &str = "100000000";
/// ms: beyond every due time.
const AHEAD: &str = "9000000000000";

pub(crate) type Dump = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

pub(crate) struct System {
    connection: Connection,
    keys: Keys,
}

pub(crate) fn name_of(id: u8) -> String {
    format!("job-{id}")
}

fn span(is_zero: bool) -> &'static str {
    if is_zero { "0" } else { LONG }
}

fn ahead(early: bool) -> &'static [u8] {
    if early { AHEAD.as_bytes() } else { b"0" }
}

impl System {
    pub(crate) fn new(url: &str) -> System {
        System { connection: redis::Client::open(url).unwrap().get_connection().unwrap(), keys: Keys::new(&namespace("model"), 1) }
    }

    /// Calls a script; called again, it must change nothing. Answers both answers.
    fn call(&mut self, name: Name, arguments: &[&[u8]]) -> (Value, Value) {
        let once = self.call_once(name, arguments);
        let before = self.dump();
        let twice = self.call_once(name, arguments);
        assert_eq!(self.dump(), before, "{name:?} repeated");
        (once, twice)
    }

    fn call_once(&mut self, name: Name, arguments: &[&[u8]]) -> Value {
        let mut call = redis::cmd("EVALSHA");
        call.arg(redis::Script::new(&name.source()).get_hash()).arg(9).arg(self.keys.fixed(0).as_slice()).arg(self.keys.due(0, MAIN));
        for argument in arguments {
            call.arg(*argument);
        }
        call.query(&mut self.connection).unwrap_or_else(|error| panic!("{name:?}: {error}"))
    }

    pub(crate) fn load(url: &str) {
        let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
        for name in Name::ALL {
            redis::cmd("SCRIPT").arg("LOAD").arg(name.source()).exec(&mut connection).unwrap();
        }
    }

    pub(crate) fn schedule(&mut self, message: u64, asked: &Request, generation: [u8; 8]) -> (String, Option<i64>) {
        let mut schedule = request(&name_of(asked.id), message, dwell::job::Due::At(asked.due));
        schedule.job.body = vec![asked.body].into();
        let record = encode(&schedule, generation);
        let policy: &[u8] = match asked.policy {
            Conflict::Replace => b"replace",
            Conflict::Keep => b"keep",
            Conflict::Reject => b"reject",
        };
        let time = format!("={}", asked.due);
        let (once, twice) = self.call(Name::Schedule, &[name_of(asked.id).as_bytes(), &record, time.as_bytes(), policy, b"1"]);
        let told = |value: Value| {
            let Value::Array(items) = value else { panic!("{value:?}") };
            verdict(&items[2..4])
        };
        let once = told(once);
        assert_eq!(told(twice), once, "schedule repeated");
        once
    }

    /// `generation` and `step` as the caller of `fail` read them.
    pub(crate) fn act(&mut self, message: u64, word: &Word, new: [u8; 8], read: ([u8; 8], u16), wait: &str) -> (String, Option<i64>) {
        use dwell::job::Action;
        let name = name_of(word.id);
        let fingerprint = message.to_be_bytes();
        let text = |seen: Option<String>| seen.unwrap_or_default().into_bytes();
        let (time, step) = (format!("={}", word.due), read.1.to_string());
        let (seen_due, seen_attempt) = (text(word.seen_due.map(|due| due.to_string())), text(word.seen_attempt.map(|at| at.to_string())));
        let bits = if word.is_call { b"1" } else { b"3" };
        let mut arguments: Vec<&[u8]> = vec![name.as_bytes(), &fingerprint, bits];
        let script = match word.action {
            Action::Cancel => Name::Cancel,
            Action::Reschedule => {
                arguments.extend([time.as_bytes(), &new[..]]);
                Name::Reschedule
            }
            Action::Fire => Name::Fire,
            Action::Finish => {
                arguments.push(&seen_due);
                Name::Finish
            }
            Action::Fail => {
                arguments.extend([&seen_due[..], &seen_attempt, &read.0, step.as_bytes(), wait.as_bytes(), b"failed", b"4"]);
                Name::Fail
            }
            Action::Requeue => {
                arguments.push(&new);
                Name::Requeue
            }
            Action::Schedule => unreachable!(),
        };
        let (once, twice) = self.call(script, &arguments);
        assert_eq!(once, twice, "{script:?} repeated");
        let Value::Array(items) = once else { panic!("{once:?}") };
        verdict(&items)
    }

    /// Ids and attempts.
    pub(crate) fn claim(&mut self, fence: Fence, over: bool, early: bool) -> Vec<(u8, u32)> {
        taken(self.call_once(Name::Claim, &[&fence, span(over).as_bytes(), b"10", b"1000000", ahead(early), b"0", b"", b""]))
    }

    pub(crate) fn rescue(&mut self, fence: Fence, over: bool) -> Vec<(u8, u32)> {
        taken(self.call_once(Name::Rescue, &[&fence, span(over).as_bytes(), b"10", b"1000000", b"0", b"", b""]))
    }

    pub(crate) fn reclaim(&mut self, fence: Fence, early: bool) -> i64 {
        let (once, _) = self.call(Name::Reclaim, &[&fence, b"0", b"0", b"512", ahead(early)]);
        let Value::Array(items) = once else { panic!("{once:?}") };
        let [_, Value::Int(back)] = items[..] else { panic!("{items:?}") };
        back
    }

    pub(crate) fn settle(&mut self, id: u8, fence: Fence, how: How, unpublished: bool) -> bool {
        let name = name_of(id);
        let (name, undo) = (name.as_bytes(), if unpublished { b"1" } else { b"0" });
        let (script, arguments): (Name, Vec<&[u8]>) = match how {
            How::Complete => (Name::Complete, vec![b"f", name, &fence]),
            How::Drop => (Name::Complete, vec![b"d", name, &fence]),
            How::Hold { over } => (Name::Hold, vec![name, &fence, span(over).as_bytes()]),
            How::Release { ripe } => (Name::Release, vec![name, &fence, span(ripe).as_bytes(), undo]),
            How::Retry { ripe } => (Name::Retry, vec![name, &fence, span(ripe).as_bytes(), undo, b"0", b"no answer"]),
            How::Die => (Name::Retry, vec![name, &fence, b"0", undo, b"1", b"the end"]),
            How::Bury => (Name::Bury, vec![name, &fence, b"1", b"the end"]),
        };
        let (once, twice) = self.call(script, &arguments);
        let done = |value: Value| value == Value::Array(vec![Value::BulkString(b"done".to_vec())]);
        let (once, twice) = (done(once), done(twice));
        assert_eq!(twice, once && matches!(how, How::Hold { .. }), "{how:?} repeated");
        once
    }

    pub(crate) fn sweep(&mut self) -> i64 {
        self.call_once(Name::Sweep, &[LONG.as_bytes(), LONG.as_bytes(), LONG.as_bytes(), b"128"]);
        let seen: String = redis::cmd("HGET").arg(self.keys.state(0)).arg("").query(&mut self.connection).unwrap();
        seen.rsplit(':').next().unwrap().parse().unwrap()
    }

    fn all_keys(&self) -> Vec<String> {
        self.keys.fixed(0).iter().cloned().chain([self.keys.due(0, MAIN)]).collect()
    }

    /// What a replica has, that has everything up to now.
    pub(crate) fn snapshot(&mut self) -> Vec<Option<Vec<u8>>> {
        let mut pipeline = redis::pipe();
        for key in self.all_keys() {
            pipeline.cmd("DUMP").arg(key);
        }
        pipeline.query(&mut self.connection).unwrap()
    }

    /// The replica is the master now: another server than the one that was known.
    pub(crate) fn fail_over(&mut self, snapshot: &[Option<Vec<u8>>]) {
        let mut pipeline = redis::pipe();
        for (key, dump) in self.all_keys().into_iter().zip(snapshot) {
            pipeline.cmd("DEL").arg(&key);
            if let Some(dump) = dump {
                pipeline.cmd("RESTORE").arg(&key).arg(0).arg(&dump[..]);
            }
        }
        pipeline.cmd("HSET").arg(self.keys.state(0)).arg("").arg("anotherserver:0");
        pipeline.exec(&mut self.connection).unwrap();
    }

    /// Every key with all it holds, but the times at which turns began and the master that was
    /// seen.
    pub(crate) fn dump(&mut self) -> Dump {
        let names = ["run", "jobs", "state", "gone", "gone_old", "acts", "acts_old", "dead", "due"];
        let mut pipeline = redis::pipe();
        for (name, key) in names.iter().zip(self.all_keys()) {
            if ["run", "dead", "due"].contains(name) {
                pipeline.cmd("ZRANGE").arg(key).arg(0).arg(-1).arg("WITHSCORES");
            } else {
                pipeline.cmd("HGETALL").arg(key);
            }
        }
        let tables: Vec<BTreeMap<Vec<u8>, Vec<u8>>> = pipeline.query(&mut self.connection).unwrap();
        let mut dump = Dump::new();
        for (name, mut table) in names.into_iter().zip(tables) {
            table.remove(&b""[..]);
            dump.insert(name.to_owned(), table);
        }
        dump
    }
}

impl Drop for System {
    fn drop(&mut self) {
        // Cases are many, and share a server.
        let _ = redis::cmd("DEL").arg(self.all_keys()).exec(&mut self.connection);
    }
}

fn text(value: &Value) -> String {
    let Value::BulkString(bytes) = value else { panic!("{value:?}") };
    String::from_utf8(bytes.clone()).unwrap()
}

fn verdict(items: &[Value]) -> (String, Option<i64>) {
    let due = text(&items[1]);
    (text(&items[0]), (!due.is_empty()).then(|| due.parse().unwrap()))
}

fn taken(value: Value) -> Vec<(u8, u32)> {
    let Value::Array(items) = value else { panic!("{value:?}") };
    let mut taken: Vec<(u8, u32)> = items[7..]
        .chunks(4)
        .map(|job| {
            let Value::BulkString(state) = &job[1] else { panic!() };
            (text(&job[0]).trim_start_matches("job-").parse().unwrap(), State::decode(state).unwrap().attempt)
        })
        .collect();
    taken.sort_unstable();
    taken
}
