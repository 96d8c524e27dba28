//! The real scripts with explicit arguments, so that a call can be repeated exactly; and a view of
//! all keys.

use std::collections::BTreeMap;
use std::time::Duration;

use dwell::job::{Conflict, DeadReason};
use dwell::store::Store;
use dwell::store::error::StoreError;
use dwell::store::jobs::claim::{Claim, ClaimRequest};
use dwell::store::jobs::settle::{Bury, ClaimToken, Completion, Release, Retry, SettleResult};
use dwell::store::keys::Keys;
use dwell::store::record::encode;
use dwell::store::scripts::Name;
use redis::{Connection, Value};
use tokio::runtime::Runtime;

use super::super::fixture::{MAIN, open, request, settings};
use super::reference::{Fence, How, ModelAct, Request};
use crate::support::namespace;

/// ms: not over within a test.
const LONG_MS: u64 = 100_000_000;
/// ms: beyond every due time.
const AHEAD_MS: u64 = 9_000_000_000_000;

pub(crate) type Dump = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

pub(crate) struct System {
    connection: Connection,
    keys: Keys,
    store: Store,
    runtime: Runtime,
    /// The tokens that claims and rescues gave.
    tokens: BTreeMap<(Fence, u8), ClaimToken>,
}

pub(crate) fn name_of(id: u8) -> String {
    format!("job-{id}")
}

fn span(is_zero: bool) -> u64 {
    if is_zero { 0 } else { LONG_MS }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

impl System {
    pub(crate) fn new(url: &str) -> System {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let name = namespace("model");
        let store = runtime.block_on(open(&settings(url, &name, 1), &[MAIN]));
        let connection = redis::Client::open(url).unwrap().get_connection().unwrap();
        System { connection, keys: Keys::new(&name, 1), store, runtime, tokens: BTreeMap::new() }
    }

    /// Makes a call of the store twice; the second must change nothing. Answers both answers.
    fn twice<T>(&mut self, call: impl AsyncFn(&Store) -> Result<T, StoreError>) -> (T, T) {
        let once = self.runtime.block_on(call(&self.store)).unwrap();
        let before = self.dump();
        let twice = self.runtime.block_on(call(&self.store)).unwrap();
        assert_eq!(self.dump(), before, "repeated");
        (once, twice)
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
        let of_schedules = self.keys.schedule_keys_of(name, 0);
        call.arg(redis::Script::new(&name.source(1)).get_hash())
            .arg(13 + of_schedules.len())
            .arg(self.keys.fixed(0).as_slice())
            .arg(self.keys.due(0, MAIN))
            .arg(of_schedules);
        for argument in arguments {
            call.arg(*argument);
        }
        call.query(&mut self.connection).unwrap_or_else(|error| panic!("{name:?}: {error}"))
    }

    pub(crate) fn load(url: &str) {
        let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
        for name in Name::ALL {
            redis::cmd("SCRIPT").arg("LOAD").arg(name.source(1)).exec(&mut connection).unwrap();
        }
    }

    pub(crate) fn schedule(
        &mut self,
        message: u64,
        asked: &Request,
        generation: [u8; 8],
    ) -> (String, Option<i64>) {
        let mut schedule = request(&name_of(asked.id), message, dwell::job::Due::At(asked.due));
        schedule.job.body = vec![asked.body].into();
        schedule.conflict = asked.policy;
        let record = encode(&schedule, generation);
        let policy = match asked.policy {
            Conflict::Replace => "replace".to_owned(),
            Conflict::Keep => "keep".to_owned(),
            Conflict::Reject => "reject".to_owned(),
            Conflict::Debounce { max_wait_ms } => format!("debounce {max_wait_ms}"),
        };
        let time = format!("={}", asked.due);
        let (once, twice) = self.call(
            Name::Schedule,
            &[name_of(asked.id).as_bytes(), &record, time.as_bytes(), policy.as_bytes(), b"1"],
        );
        let told = |value: Value| {
            let Value::Array(items) = value else { panic!("{value:?}") };
            verdict(&items[2..4])
        };
        let once = told(once);
        assert_eq!(told(twice), once, "schedule repeated");
        once
    }

    /// `generation` and `step` as the caller of `fail` read them.
    pub(crate) fn act(
        &mut self,
        message: u64,
        action: &ModelAct,
        new: [u8; 8],
        read: ([u8; 8], u16),
        wait: &str,
    ) -> (String, Option<i64>) {
        use dwell::job::Action;
        let name = name_of(action.id);
        let fingerprint = message.to_be_bytes();
        let text = |seen: Option<String>| seen.unwrap_or_default().into_bytes();
        let (time, step) = (format!("={}", action.due), read.1.to_string());
        let (seen_due, seen_attempt) = (
            text(action.seen_due.map(|due| due.to_string())),
            text(action.seen_attempt.map(|at| at.to_string())),
        );
        let bits = if action.is_call { b"1" } else { b"3" };
        let mut arguments: Vec<&[u8]> = vec![name.as_bytes(), &fingerprint, bits];
        let script = match action.action {
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
                arguments.extend([
                    &seen_due[..],
                    &seen_attempt,
                    &read.0,
                    step.as_bytes(),
                    wait.as_bytes(),
                    b"failed",
                    b"4",
                ]);
                Name::Fail
            }
            Action::Requeue => {
                arguments.push(&new);
                Name::Requeue
            }
            Action::Add => unreachable!(),
        };
        let (once, twice) = self.call(script, &arguments);
        assert_eq!(once, twice, "{script:?} repeated");
        let Value::Array(items) = once else { panic!("{once:?}") };
        verdict(&items)
    }

    /// Ids and attempts.
    pub(crate) fn claim(&mut self, fence: Fence, over: bool, early: bool) -> Vec<(u8, u32)> {
        let ahead = ms(if early { AHEAD_MS } else { 0 });
        let ask = ClaimRequest { lease: ms(span(over)), most: 10, most_bytes: 1_000_000, ahead };
        let (once, twice) =
            self.twice(async |store| store.jobs.claim_as(fence, 0, MAIN, ask).await);
        self.taken(fence, once, twice)
    }

    pub(crate) fn rescue(&mut self, fence: Fence, over: bool) -> Vec<(u8, u32)> {
        let (once, twice) = self.twice(async |store| {
            store.jobs.rescue_as(fence, 0, ms(span(over)), 10, 1_000_000).await
        });
        self.taken(fence, once, twice)
    }

    /// A repeat answers the same jobs of the same lease.
    fn taken(&mut self, fence: Fence, once: Claim, twice: Claim) -> Vec<(u8, u32)> {
        let told = |taken: &Claim| -> Vec<_> {
            taken
                .jobs
                .iter()
                .map(|lease| {
                    (lease.id.clone(), lease.token.lease, lease.token.position, lease.state.attempt)
                })
                .collect()
        };
        assert_eq!(told(&once), told(&twice));
        let mut taken = Vec::new();
        for lease in once.jobs {
            let id = lease.id.as_str().trim_start_matches("job-").parse().unwrap();
            taken.push((id, lease.state.attempt));
            self.tokens.entry((fence, id)).or_insert(lease.token);
        }
        taken.sort_unstable();
        taken
    }

    pub(crate) fn reclaim(&mut self, fence: Fence) -> i64 {
        let (once, twice) = self.twice(async |store| store.jobs.reclaim(fence, 0, MAIN).await);
        assert_eq!(twice, 0);
        once
    }

    pub(crate) fn settle(&mut self, id: u8, fence: Fence, how: How, unpublished: bool) -> bool {
        let job = self.tokens[&(fence, id)].clone();
        let token = || job.clone();
        let error = "no answer".to_owned();
        let reason = DeadReason::RetriesExhausted;
        let (once, twice) = self.twice(async |store| {
            let queue = &store.jobs;
            match how {
                How::Complete => queue.complete(0, &[token()], Completion::Fired).await,
                How::Drop => queue.complete(0, &[token()], Completion::Dropped).await,
                How::Hold { over } => {
                    queue.hold(0, &[(token(), u32::try_from(span(over)).unwrap())]).await
                }
                How::Release { ripe } => {
                    queue
                        .release(
                            0,
                            MAIN,
                            &[Release { job: token(), pause_ms: span(ripe), unpublished }],
                        )
                        .await
                }
                How::Retry { ripe } => {
                    let retry = Retry {
                        job: token(),
                        wait_ms: span(ripe),
                        unpublished,
                        dies: None,
                        error: error.clone(),
                    };
                    queue.retry(0, MAIN, &[retry]).await
                }
                How::Die => {
                    let retry = Retry {
                        job: token(),
                        wait_ms: 0,
                        unpublished,
                        dies: Some(reason),
                        error: error.clone(),
                    };
                    queue.retry(0, MAIN, &[retry]).await
                }
                How::Bury => {
                    queue.bury(0, &[Bury { job: token(), reason, error: error.clone() }]).await
                }
            }
        });
        assert_ne!(twice, [SettleResult::Settled], "{how:?} repeated");
        once == [SettleResult::Settled]
    }

    /// The jobs in leases, and when each was due.
    pub(crate) fn lent(&mut self) -> Vec<(u8, i64)> {
        let dump = self.dump();
        let mut jobs = Vec::new();
        for (nonce, text) in &dump["claims"] {
            let left = &dump["settled"][nonce];
            for (position, entry) in text.split(|byte| *byte == 0).skip(1).enumerate() {
                let (id, due) = std::str::from_utf8(entry).unwrap().split_once('\u{1}').unwrap();
                if left[8 + position / 8] & (1 << (position % 8)) == 0 {
                    jobs.push((
                        id.trim_start_matches("job-").parse().unwrap(),
                        due.parse().unwrap(),
                    ));
                }
            }
        }
        jobs
    }

    pub(crate) fn sweep(&mut self) -> i64 {
        let long = LONG_MS.to_string();
        self.call_once(Name::Sweep, &[long.as_bytes(), long.as_bytes(), long.as_bytes(), b"128"]);
        let seen: String =
            redis::cmd("HGET").arg(self.keys.state(0)).arg("").query(&mut self.connection).unwrap();
        seen.rsplit(':').next().unwrap().parse().unwrap()
    }

    fn all_keys(&self) -> Vec<String> {
        self.keys.fixed(0).iter().cloned().chain([self.keys.due(0, MAIN)]).collect()
    }

    /// Dumps every key: the state of a replica that has everything up to now.
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
        let names = [
            "claim_deadlines",
            "jobs",
            "state",
            "completed",
            "completed_old",
            "applied",
            "applied_old",
            "dead",
            "claims",
            "settled",
            "held",
            "queues",
            "due",
        ];
        let mut pipeline = redis::pipe();
        for (name, key) in names.iter().zip(self.all_keys()) {
            if ["claim_deadlines", "held", "dead", "due"].contains(name) {
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
