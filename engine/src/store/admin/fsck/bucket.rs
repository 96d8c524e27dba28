//! Judges the jobs of a bucket: every id in every key.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use redis::Value;

use super::scan::Scan;
use super::{Fsck, Problem, bytes};
use crate::job::{DeadReason, JobId, OnTimeout, queue_of_set, set_of_queue};
use crate::retry::{self, Next};
use crate::store::answer::Items;
use crate::store::error::{Class, StoreError};
use crate::store::meta;
use crate::store::namespace::Namespace;
use crate::store::queue::schedule::{CALL_BYTES, CALL_JOBS};
use crate::store::queue::settle::failed;
use crate::store::record::{self, State};
use crate::store::scripts::Name;

/// The most checks of a repaired id: more than the problems that can hide others.
const MAX_REPAIR_ROUNDS: u8 = 8;

/// The begin of a quarantine entry whose job is being moved to its own bucket.
const UNFINISHED_MOVE_PREFIX: &[u8] = b"1 wrong_bucket ";

/// An id to check.
struct Suspect {
    id: Vec<u8>,
    /// The record if it cannot be decoded; else empty.
    unreadable: Vec<u8>,
    rounds: u8,
    /// The queues in whose sets the script looks for the id, by `=` and their names.
    queues: Vec<String>,
}

impl Suspect {
    fn new(id: Vec<u8>, queues: Vec<String>) -> Suspect {
        Suspect { id, unreadable: Vec::new(), rounds: 0, queues }
    }
}

/// The ids that were checked, each with the queue in whose sets it was looked for, as hashes: a scan may
/// return an element twice, and most ids are in several keys.
#[derive(Default)]
struct Checked(HashMap<[u8; 16], [u8; 4]>);

impl Checked {
    /// Whether the id was not looked for in the sets of this queue. `None`: the sets of brokers and of the
    /// whole bucket, in which the script looks for each id.
    fn is_new(&mut self, id: &[u8], queue: Option<&str>) -> bool {
        let tag = queue.map(|queue| blake3::hash(queue.as_bytes()).as_bytes()[..4].try_into().unwrap_or_default());
        match self.0.entry(std::array::from_fn(|i| blake3::hash(id).as_bytes()[i])) {
            Entry::Occupied(known) => tag.is_some_and(|tag: [u8; 4]| tag != *known.get()),
            Entry::Vacant(new) => {
                new.insert(tag.unwrap_or_default());
                true
            }
        }
    }
}

/// The verdict of the script on one id.
struct Verdict {
    at: usize,
    problem: Problem,
    repaired: bool,
    detail: Vec<u8>,
}

impl Verdict {
    /// The queue whose sets the script needs to judge the id, by `=` and its name.
    fn needs_queue(&self) -> Option<String> {
        let set = std::str::from_utf8(&self.detail).ok().filter(|_| self.problem == Problem::MetaBroker)?;
        queue_of_set(set).map(|_| set.to_owned())
    }
}

impl Fsck<'_> {
    /// Judges every id of a bucket.
    pub(super) async fn bucket(&mut self, bucket: u16) -> Result<(), StoreError> {
        let mut checked = Checked::default();
        let mut scan = Scan::of("HSCAN", self.store.keys.jobs(bucket));
        while let Some(page) = scan.next(&self.store.link).await? {
            let mut suspects = VecDeque::new();
            let mut page = page.into_iter();
            while let (Some(id), Some(record)) = (page.next(), page.next()) {
                let record = bytes::Bytes::from(record);
                let job = record::decode(record.clone()).ok().map(|read| read.job);
                let queue = job.as_ref().and_then(|job| job.queue.as_deref()).map(set_of_queue);
                if checked.is_new(&id, queue.as_deref()) {
                    let unreadable = if job.is_some() { Vec::new() } else { record.to_vec() };
                    suspects.push_back(Suspect { unreadable, ..Suspect::new(id, queue.into_iter().collect()) });
                }
            }
            self.jobs += suspects.len() as u64;
            self.classify(bucket, suspects).await?;
        }
        let claimed =
            self.store.claimed_jobs(bucket).await?.into_iter().map(|claimed| claimed.id.into_bytes()).filter(|id| checked.is_new(id, None));
        let claimed = claimed.map(|id| Suspect::new(id, Vec::new())).collect();
        self.classify(bucket, claimed).await?;
        let keys = &self.store.keys;
        let mut sets = vec![("ZSCAN", keys.held(bucket).to_owned(), None), ("ZSCAN", keys.dead(bucket).to_owned(), None)];
        sets.push(("HSCAN", keys.state(bucket).to_owned(), None));
        for set in self.sets(bucket) {
            let queue = queue_of_set(&set).map(|_| set.clone());
            sets.extend(keys.sets(bucket, &set).map(|key| ("ZSCAN", key, queue.clone())));
        }
        for (command, key, queue) in sets {
            let mut scan = Scan::of(command, &key);
            while let Some(page) = scan.next(&self.store.link).await? {
                // The empty field of state holds the last known master.
                let ids = page.into_iter().step_by(2).filter(|id| !id.is_empty() && checked.is_new(id, queue.as_deref()));
                let suspects = ids.map(|id| Suspect::new(id, queue.iter().cloned().collect())).collect();
                self.classify(bucket, suspects).await?;
            }
        }
        Ok(())
    }

    /// Judges the moved jobs in their own buckets: they may have other damage too.
    pub(super) async fn judge_moved(&mut self) -> Result<(), StoreError> {
        for (bucket, id) in std::mem::take(&mut self.moved) {
            self.classify(bucket, [Suspect::new(id, Vec::new())].into()).await?;
        }
        Ok(())
    }

    async fn classify(&mut self, bucket: u16, mut suspects: VecDeque<Suspect>) -> Result<(), StoreError> {
        while !suspects.is_empty() {
            let (judged, verdicts) = self.ask(bucket, &suspects).await?;
            let mut judged: Vec<Suspect> = suspects.drain(..judged.clamp(1, suspects.len())).collect();
            let mut again: Vec<usize> = Vec::new();
            for verdict in verdicts {
                let Some(suspect) = judged.get_mut(verdict.at) else { continue };
                if let Some(queue) =
                    verdict.needs_queue().filter(|queue| !suspect.queues.contains(queue) && suspect.rounds < MAX_REPAIR_ROUNDS)
                {
                    suspect.queues.push(queue);
                    again.push(verdict.at);
                    continue;
                }
                if self.take(bucket, &suspect.id, verdict.problem, verdict.repaired, verdict.detail).await?
                    && suspect.rounds < MAX_REPAIR_ROUNDS
                {
                    again.push(verdict.at);
                }
            }
            for (at, suspect) in judged.into_iter().enumerate() {
                if again.contains(&at) {
                    suspects.push_back(Suspect { rounds: suspect.rounds + 1, ..suspect });
                }
            }
        }
        Ok(())
    }

    /// Asks the script. Returns the number of checked ids, and the verdicts.
    async fn ask(&self, bucket: u16, suspects: &VecDeque<Suspect>) -> Result<(usize, Vec<Verdict>), StoreError> {
        let queues: BTreeSet<&String> = suspects.iter().take(CALL_JOBS).flat_map(|suspect| &suspect.queues).collect();
        let mut call = self.call_with_quarantine(Name::FsckJobs, bucket, queues.into_iter());
        call.arg(u8::from(self.rules.repair)).arg(self.rules.lease_ms).arg(self.rules.sweep.dead_retention_ms).arg(CALL_BYTES);
        for suspect in suspects.iter().take(CALL_JOBS) {
            call.arg(&suspect.id[..]).arg(self.odd(bucket, &suspect.id)).arg(&suspect.unreadable[..]);
        }
        let mut items = Items::new("fsck_jobs", self.store.call(Name::FsckJobs, &call).await?)?;
        let judged = usize::try_from(items.int()?).unwrap_or(0);
        let mut verdicts = Vec::new();
        while items.left() >= 4 {
            let at = usize::try_from(items.int()? - 1).unwrap_or(usize::MAX);
            let word = items.text()?;
            let problem = Problem::of_word(&word)
                .ok_or_else(|| StoreError::new(Class::Script, format!("redis: fsck_jobs answered `{word}` instead of a problem")))?;
            verdicts.push(Verdict { at, problem, repaired: items.int()? == 1, detail: items.bytes()?.to_vec() });
        }
        Ok((judged, verdicts))
    }

    /// The problem of an id that no script can detect.
    fn odd(&self, bucket: u16, id: &[u8]) -> &'static str {
        match std::str::from_utf8(id) {
            Ok(text) if JobId::new(text).is_ok() => {
                if self.store.keys.bucket_of(text) == bucket {
                    ""
                } else {
                    "bucket"
                }
            }
            _ => "id",
        }
    }

    /// Completes a repair that a script of one bucket cannot make, and reports the finding. Returns
    /// whether to check the id again.
    async fn take(&mut self, bucket: u16, id: &[u8], problem: Problem, repaired: bool, detail: Vec<u8>) -> Result<bool, StoreError> {
        match problem {
            Problem::MetaBroker => {
                let broker = String::from_utf8_lossy(&detail).into_owned();
                // An instance with this broker joined after the start of this run: no damage.
                if !self.brokers.contains(&broker) && self.store.has_joined(&broker).await? {
                    return Ok(true);
                }
                // Reported once. Its jobs are checked after the broker is added.
                if self.brokers.insert(broker.clone()) {
                    let repaired = self.rules.repair;
                    if repaired {
                        self.store.add_broker(&broker).await?;
                    }
                    (self.found)(super::Finding { bucket: None, id: broker, problem, repaired });
                }
                return Ok(self.rules.repair);
            }
            Problem::LeaseExpired if self.rules.repair && !repaired => {
                let repaired = self.end_hold(bucket, id, &detail).await?;
                self.tell(bucket, id, problem, repaired);
                return Ok(repaired);
            }
            Problem::WrongBucket if repaired => self.move_home(bucket, id, &detail).await?,
            _ => {}
        }
        self.tell(bucket, id, problem, repaired);
        Ok(repaired)
    }

    /// Judges the leases of a bucket: each needs its jobs, their bits and a deadline.
    pub(super) async fn leases(&mut self, bucket: u16) -> Result<(), StoreError> {
        let mut call = self.store.script_call(Name::FsckLeases, bucket, &self.sets(bucket));
        call.arg(u8::from(self.rules.repair)).arg(self.rules.lease_ms);
        let mut items = Items::new("fsck_leases", self.store.call(Name::FsckLeases, &call).await?)?;
        while items.left() > 0 {
            let name = items.bytes()?.iter().fold("lease ".to_owned(), |name, byte| format!("{name}{byte:02x}"));
            self.tell(bucket, name.as_bytes(), Problem::LeaseWithoutOwner, self.rules.repair);
        }
        Ok(())
    }

    /// Ends a hold after its TTR, as `rescue` does, unless an instance was faster. `state`: as
    /// checked.
    async fn end_hold(&self, bucket: u16, id: &[u8], state: &[u8]) -> Result<bool, StoreError> {
        let answer = self.store.link.command("HGET", redis::cmd("HGET").arg(self.store.keys.jobs(bucket)).arg(id)).await?;
        let (Ok(record), Ok(held)) = (record::decode(bytes(answer).unwrap_or_default().into()), State::decode(state)) else {
            return Ok(false);
        };
        let (wait_ms, dies) = match retry::next(&record.job, held.step, &self.rules.retry_ms, DeadReason::RetriesExhausted) {
            Next::Wait(ms) => (ms, None),
            Next::Dies(reason) => (0, Some(reason)),
        };
        let wait_ms = if record.job.queue.is_some() && record.job.on_timeout == OnTimeout::Ready { 0 } else { wait_ms };
        let failed = failed(held, dies, "the consumer did not finish it within the ttr");
        let mut call = self.store.script_call(Name::FsckHold, bucket, &[record.job.set().into_owned()]);
        call.arg(id).arg(state).arg(wait_ms).arg(failed.encode());
        Ok(self.store.call(Name::FsckHold, &call).await? == Value::Int(1))
    }

    /// Moves a job from quarantine to the bucket of its id. Leaves it there if another job has that
    /// id.
    async fn move_home(&mut self, bucket: u16, id: &[u8], field: &[u8]) -> Result<(), StoreError> {
        let quarantine = self.store.keys.quarantine(bucket);
        let answer = self.store.link.command("HGET", redis::cmd("HGET").arg(&quarantine).arg(field)).await?;
        let (Some(entry), Ok(text)) = (bytes(answer), std::str::from_utf8(id)) else { return Ok(()) };
        let Some(aside) = QuarantinedJob::read(&entry) else { return Ok(()) };
        let home = self.store.keys.bucket_of(text);
        let mark = [b"taken_in ", field].concat();
        let queue = record::decode(bytes::Bytes::copy_from_slice(aside.record)).ok().and_then(|read| read.job.queue);
        let mut call = self.call_with_quarantine(Name::FsckAdopt, home, queue.as_deref().map(set_of_queue).iter());
        call.arg(id).arg(aside.record).arg(aside.state).arg(aside.place).arg(aside.score).arg(&mark);
        if bytes(self.store.call(Name::FsckAdopt, &call).await?).as_deref() == Some(b"done") {
            // The order matters: after an interruption between the two, the job is neither lost in quarantine
            // nor added again.
            self.store.link.command("HDEL", redis::cmd("HDEL").arg(&quarantine).arg(field)).await?;
            let at_home = self.store.keys.quarantine(home);
            self.store.link.command("HDEL", redis::cmd("HDEL").arg(at_home).arg(&mark)).await?;
            self.moved.push((home, id.to_vec()));
        } else {
            let stays = [b"1 id_taken ", &entry[UNFINISHED_MOVE_PREFIX.len()..]].concat();
            self.store.link.command("HSET", redis::cmd("HSET").arg(&quarantine).arg(field).arg(stays)).await?;
            tracing::warn!(id = text, bucket, quarantine, "another job has this id: the one in the wrong bucket stays in quarantine");
        }
        Ok(())
    }

    /// Completes moves to other buckets that an interrupted run left in quarantine.
    pub(super) async fn unfinished(&mut self, bucket: u16) -> Result<(), StoreError> {
        let mut scan = Scan::of("HSCAN", &self.store.keys.quarantine(bucket));
        let mut seen = HashSet::new();
        while let Some(page) = scan.next(&self.store.link).await? {
            let mut page = page.into_iter();
            while let (Some(field), Some(entry)) = (page.next(), page.next()) {
                let Some(space) = field.iter().position(|byte| *byte == b' ') else { continue };
                if !entry.starts_with(UNFINISHED_MOVE_PREFIX) || !seen.insert(field.clone()) {
                    continue;
                }
                let id = &field[space + 1..];
                if self.rules.repair {
                    self.move_home(bucket, id, &field).await?;
                }
                self.tell(bucket, id, Problem::WrongBucket, self.rules.repair);
            }
        }
        Ok(())
    }

    /// Makes a script call with the sets of the brokers and of these queues, and with the quarantine.
    fn call_with_quarantine<'a>(&self, name: Name, bucket: u16, queues: impl Iterator<Item = &'a String>) -> redis::Cmd {
        let mut sets = self.store.brokers().to_vec();
        sets.extend(queues.cloned());
        self.store.script_call_with(name, bucket, &sets, &[self.store.keys.quarantine(bucket)])
    }
}

/// A quarantine entry: `1 problem place score length-of-state length-of-record`, a line feed,
/// state, record.
struct QuarantinedJob<'a> {
    place: &'a str,
    score: &'a str,
    state: &'a [u8],
    record: &'a [u8],
}

impl<'a> QuarantinedJob<'a> {
    fn read(entry: &'a [u8]) -> Option<Self> {
        let end = entry.iter().position(|byte| *byte == b'\n')?;
        let head = std::str::from_utf8(&entry[..end]).ok()?;
        // A broker's name may contain spaces, so the place is the rest of the line.
        let rest = head.strip_prefix("1 ")?.split_once(' ')?.1;
        let mut words = rest.rsplitn(4, ' ');
        let record: usize = words.next()?.parse().ok()?;
        let state: usize = words.next()?.parse().ok()?;
        let (score, place) = (words.next()?, words.next()?);
        let bytes = &entry[end + 1..];
        (bytes.len() == state + record).then(|| QuarantinedJob { place, score, state: &bytes[..state], record: &bytes[state..] })
    }
}

impl Namespace {
    /// Whether the namespace has this broker now; if so, adds it to this store.
    async fn has_joined(&self, broker: &str) -> Result<bool, StoreError> {
        let field = meta::field_of(broker);
        let has = self.link.command("HEXISTS meta", redis::cmd("HEXISTS").arg(self.keys.meta()).arg(field)).await?;
        let has = matches!(has, Value::Int(1) | Value::Boolean(true));
        if has {
            self.learn(broker);
        }
        Ok(has)
    }

    /// Adds a broker to the namespace.
    pub(super) async fn add_broker(&self, broker: &str) -> Result<(), StoreError> {
        meta::add_broker(&self.link, &self.keys, broker).await?;
        self.rejoin().await
    }
}
