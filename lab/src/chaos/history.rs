//! The record of a run, whole, as JSON lines: what was asked for, what came, what was broken and when. A run that failed can be read, and checked
//! again, from it alone.
//!
//! The first line is the [`RunHeader`], each other one an [`Event`]. All times are the wall clock of the one host, epoch µs (`…_us`) or ms (`…_ms`).

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use dwell::store::keys::bucket_of;
use serde::{Deserialize, Serialize};

/// What this program writes and reads.
pub const FORMAT: u32 = 1;

/// What a request comes back with whose job has a record that cannot be read.
pub const UNREADABLE: &str = "unreadable_job";

/// The first line: what ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunHeader {
    /// [`FORMAT`]
    pub format: u32,
    /// What the plan and the load were drawn from.
    pub seed: u64,
    /// Of the tree that was tested; empty where nobody knows.
    pub commit: String,
    /// Of `dwell`.
    pub version: String,
    /// `nats`, `kafka` or `amqp`
    pub broker: String,
    /// How many `dwell run`.
    pub instances: usize,
    /// `redis.durability`
    pub durability: String,
    /// How long a claim holds, ms: `publish_timeout` and its margin.
    pub lease_ms: i64,
    /// Once everything is whole, what is overdue is out within so many ms.
    pub late_ms: i64,
    /// The arguments that repeat this run.
    pub repeat: String,
}

/// How far an operation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// It begins.
    Invoke,
    /// It was done: the other side said so.
    #[default]
    Ok,
    /// It was not done, for sure.
    Fail,
    /// Nobody knows: the answer was lost, or late.
    Info,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When it was seen, epoch µs.
    pub t_us: i64,
    /// Who saw it: `producer`, `http-0`, `reader orders.a`, `faults`.
    pub proc: String,
    /// How far it is.
    #[serde(default)]
    pub phase: Phase,
    /// What.
    #[serde(flatten)]
    pub op: Op,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case")]
pub enum Op {
    /// A job was asked for. `invoke` says which.
    Schedule(Schedule),
    /// Its cancel; of a message, `ok` is the broker's word that it has the request, and the verdict comes as a `reply`.
    Cancel(ControlRequest),
    /// Its new time.
    Reschedule(ControlRequest),
    /// It shall go now.
    Fire(ControlRequest),
    /// A verdict came, by HTTP or as a message.
    Reply(Reply),
    /// A message on a target.
    Deliver(Arrival),
    /// A dead letter.
    Dead(Arrival),
    /// A request came back.
    Reject(Arrival),
    /// Something was broken. `invoke`: now. `ok`: it is whole again. `info`: the campaign itself could not do it.
    Fault(Fault),
    /// A look at an instance.
    Sample(Sample),
    /// The last look at everything.
    End(End),
}

/// A job that is asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// `delay-id`
    pub id: String,
    /// Which; with `invoke`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<Job>,
    /// What the other side said.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub res: String,
}

/// What is to arrive.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// When, epoch ms; of a request that is to be refused, any.
    pub due_ms: i64,
    /// Where.
    pub target: String,
    /// Of its body and headers: see [`Arrival::digest`].
    pub digest: String,
    /// `delay-retry`, ms each; `None`: that of the settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_ms: Option<Vec<u64>>,
    /// Its target is not there at first: attempts are burned without a fault.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub absent: bool,
    /// The code that it is to be refused with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// `delay-broker`; `None`: that of the ingest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broker: Option<String>,
}

/// Something is asked for a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ControlRequest {
    /// Whose.
    pub id: String,
    /// The new time, epoch ms: of a reschedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_ms: Option<i64>,
    /// What the other side said.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub res: String,
}

/// A verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// Whose.
    pub id: String,
    /// On what: `schedule`, `cancel`, …
    pub action: String,
    /// The word.
    pub res: String,
}

/// A message that was read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Arrival {
    /// `delayed-id`; of what came back `delay-id`; empty where it has none.
    pub id: String,
    /// Where it was read.
    pub topic: String,
    /// `delayed-due`, epoch ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_ms: Option<i64>,
    /// `delayed-attempt`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Of the body and the producer's own headers.
    pub digest: String,
    /// Where the broker has it: one place is one message, however often it is read. AMQP has no places.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// The broker says that it may have handed it out before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub redelivered: bool,
    /// When the broker took it, by the broker, epoch ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_ms: Option<i64>,
    /// `delayed-dead-reason`, or `delayed-error`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// `delay-action` of what came back; empty: `schedule`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub action: String,
}

/// A place in a log.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// Topic or stream.
    pub log: String,
    /// Its part.
    pub partition: i32,
    /// Where in it.
    pub offset: u64,
}

/// Something broken.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// Its name.
    pub kind: String,
    /// From when, epoch µs.
    pub began_us: i64,
    /// Until when, epoch µs; of `invoke` when it is to be whole again.
    pub healed_us: i64,
    /// The most jobs that were claimed meanwhile.
    #[serde(default)]
    pub in_flight: u64,
    /// What was done to what, or why it could not be done.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// By how much a wall clock jumped, µs: above zero it was ahead. Of faults of clocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_step_us: Option<i64>,
    /// Who else is served as ever while it lasts, and from when on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<Scope>,
}

/// A fault that concerns some jobs alone: it must hold up no others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// From when on all others are served in time, epoch µs.
    pub from_us: i64,
    /// Whom it concerns.
    pub only: Only,
}

/// Whom a fault concerns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Only {
    /// From then on nobody.
    Nobody,
    /// Jobs for this target.
    Target(String),
    /// Jobs that name this broker.
    Broker(String),
    /// These jobs.
    Jobs(Vec<String>),
    /// Jobs of this bucket.
    Bucket {
        /// Its number.
        number: u16,
        /// How many there are.
        of: u16,
    },
}

impl Only {
    /// Whether it concerns this job.
    #[must_use]
    pub fn concerns(&self, id: &str, job: &Job) -> bool {
        match self {
            Only::Nobody => false,
            Only::Target(target) => job.target == *target,
            Only::Broker(broker) => job.broker.as_ref() == Some(broker),
            Only::Jobs(ids) => ids.iter().any(|of| of == id),
            Only::Bucket { number, of } => bucket_of(id, *of) == *number,
        }
    }
}

/// An instance at work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Which.
    pub instance: usize,
    /// Its process: another one after a restart.
    pub pid: u32,
    /// Resident memory, bytes.
    pub rss: u64,
    /// `dwell_possible_duplicates_total`, all causes; `None` where it did not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub possible_duplicates: Option<u64>,
}

/// How it ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// Jobs in `due`.
    pub scheduled: u64,
    /// Jobs in `run`.
    pub reserved: u64,
    /// Who is in `dead`.
    pub dead: Vec<DeadJob>,
    /// What fsck found: bucket, id and problem of each.
    pub damage: Vec<String>,
    /// Why the campaign itself could not go on: then nothing is known of what was still to come.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub broken: Vec<String>,
    /// Every instance that ended by itself, or not with 0 when it was told to, and every panic in a log.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exits: Vec<String>,
}

/// A job that is kept as dead. Records of before say its id alone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "DeadEntry")]
pub struct DeadJob {
    /// Whose.
    pub id: String,
    /// What it died of, as a dead letter says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The attempt that it died with: how many were begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum DeadEntry {
    Id(String),
    Job {
        id: String,
        #[serde(default)]
        reason: Option<String>,
        #[serde(default)]
        attempt: Option<u32>,
    },
}

impl From<DeadEntry> for DeadJob {
    fn from(entry: DeadEntry) -> DeadJob {
        match entry {
            DeadEntry::Id(id) => DeadJob { id, reason: None, attempt: None },
            DeadEntry::Job { id, reason, attempt } => DeadJob { id, reason, attempt },
        }
    }
}

/// A whole run.
#[derive(Debug, Clone, PartialEq)]
pub struct History {
    /// What ran.
    pub head: RunHeader,
    /// What happened, in the order in which it was recorded.
    pub events: Vec<Event>,
}

/// Why a history cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{file}: line {line}: {why}")]
pub struct Unreadable {
    file: String,
    line: usize,
    why: String,
}

impl History {
    /// Reads a file.
    ///
    /// # Errors
    /// It is not there, or a line is not what this program writes.
    pub fn read(file: &Path) -> Result<History, Unreadable> {
        let unreadable = |line: usize, why: String| Unreadable { file: file.display().to_string(), line, why };
        let reader = BufReader::new(File::open(file).map_err(|error| unreadable(0, error.to_string()))?);
        let mut lines = (1..).zip(reader.lines());
        let (_, first) = lines.next().ok_or_else(|| unreadable(1, "it is empty".to_owned()))?;
        let first = first.map_err(|error| unreadable(1, error.to_string()))?;
        let head: RunHeader = serde_json::from_str(&first).map_err(|error| unreadable(1, error.to_string()))?;
        if head.format != FORMAT {
            return Err(unreadable(1, format!("it has format {}, and this program reads {FORMAT}", head.format)));
        }
        let mut events = Vec::new();
        for (number, line) in lines {
            let line = line.map_err(|error| unreadable(number, error.to_string()))?;
            events.push(serde_json::from_str(&line).map_err(|error| unreadable(number, error.to_string()))?);
        }
        Ok(History { head, events })
    }
}

/// What an arrival is compared by: 16 hex digits of its body, and of the headers that its producer set beside the control headers.
#[must_use]
pub fn digest<'a>(body: &[u8], headers: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(body.len() as u64).to_be_bytes()).update(body);
    let mut headers: Vec<_> = headers.into_iter().collect();
    headers.sort_unstable();
    for (name, value) in headers {
        hasher.update(name.as_bytes()).update(&[0]).update(value.as_bytes()).update(&[0]);
    }
    hasher.finalize().to_hex()[..16].to_owned()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Write;

    use super::*;

    pub(crate) fn head() -> RunHeader {
        RunHeader {
            format: FORMAT,
            seed: 7,
            commit: "abc".to_owned(),
            version: "0.1.0".to_owned(),
            broker: "nats".to_owned(),
            instances: 2,
            durability: "memory".to_owned(),
            lease_ms: 8000,
            late_ms: 30_000,
            repeat: "run --seed 7".to_owned(),
        }
    }

    #[test]
    fn a_history_is_read_as_it_was_written() {
        let job = Job {
            due_ms: 5,
            target: "t".to_owned(),
            digest: "d".to_owned(),
            retry_ms: Some(vec![1]),
            absent: true,
            refused: None,
            broker: None,
        };
        let schedule = Schedule { id: "a".to_owned(), job: Some(job), res: String::new() };
        let ask = ControlRequest { id: "a".to_owned(), due_ms: Some(9), res: "in_flight".to_owned() };
        let dead = DeadJob { id: "a".to_owned(), reason: Some("retries_exhausted".to_owned()), attempt: Some(3) };
        let end = End { dead: vec![dead], exits: vec!["dwell-0".to_owned()], ..End::default() };
        let ops = [(Phase::Invoke, Op::Schedule(schedule)), (Phase::Info, Op::Reschedule(ask)), (Phase::Ok, Op::End(end))];
        let events: Vec<Event> = ops.map(|(phase, op)| Event { t_us: 1, proc: "p".to_owned(), phase, op }).into();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "{}", serde_json::to_string(&head()).unwrap()).unwrap();
        for event in &events {
            writeln!(file, "{}", serde_json::to_string(event).unwrap()).unwrap();
        }
        assert_eq!(History::read(file.path()).unwrap(), History { head: head(), events: events.clone() });
        assert!(serde_json::to_string(&events[1]).unwrap().contains(r#""phase":"info","op":"reschedule","id":"a","due_ms":9"#));

        writeln!(file, "{{\"t_us\":1}}").unwrap();
        let why = History::read(file.path()).unwrap_err().to_string();
        assert!(why.contains("line 5") && why.contains("proc"), "{why}");
    }

    #[test]
    fn what_was_recorded_before_is_read_too() {
        let end: End = serde_json::from_str(r#"{"scheduled":0,"reserved":0,"dead":["a"],"damage":[]}"#).unwrap();
        assert_eq!(end, End { dead: vec![DeadJob { id: "a".to_owned(), ..DeadJob::default() }], ..End::default() });
        let fault: Fault = serde_json::from_str(r#"{"kind":"redis-clock-jump","began_us":1,"healed_us":2}"#).unwrap();
        assert_eq!(fault.clock_step_us, None);
    }

    #[test]
    fn a_digest_is_of_the_body_and_the_headers_in_any_order() {
        let of = |body: &[u8], headers: &[(&str, &str)]| digest(body, headers.iter().copied());
        assert_eq!(of(b"x", &[("a", "1"), ("b", "2")]), of(b"x", &[("b", "2"), ("a", "1")]));
        for other in [of(b"x", &[]), of(b"", &[("a", "1"), ("b", "2")]), of(b"x", &[("a", "1"), ("b", "3")])] {
            assert_ne!(other, of(b"x", &[("a", "1"), ("b", "2")]));
        }
        assert_eq!(of(b"", &[]).len(), 16);
    }
}
