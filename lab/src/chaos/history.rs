//! The record of a run, whole, as JSON lines: what was asked for, what came, what was broken and
//! when. A run that failed can be read, and checked again, from it alone.
//!
//! The first line is the [`RunHeader`], each other one an [`Event`]. All times are the wall clock
//! of the one host, epoch µs (`…_us`) or ms (`…_ms`).

mod arrivals;
mod faults;
mod requests;
mod state;
#[cfg(test)]
pub(crate) mod tests;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use serde::{Deserialize, Serialize};

pub use self::arrivals::{Arrival, Place, digest};
pub use self::faults::{Fault, Only, Scope};
pub use self::requests::{ControlRequest, Job, Reply, Schedule};
pub use self::state::{DeadJob, End, Sample};

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
    /// Its cancel; of a message, `ok` is the broker's word that it has the request, and the verdict
    /// comes as a `reply`.
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
    /// Something was broken. `invoke`: now. `ok`: it is whole again. `info`: the campaign itself
    /// could not do it.
    Fault(Fault),
    /// A look at an instance.
    Sample(Sample),
    /// The last look at everything.
    End(End),
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
