//! The complete record of a run as JSON lines: requests, arrivals and faults with their times. It
//! suffices to read a failed run and to check it again.
//!
//! The first line is the [`RunHeader`], every other line an [`Event`]. All times are by the host's
//! wall clock, epoch µs (`…_us`) or ms (`…_ms`).

mod arrivals;
mod faults;
mod queue;
mod requests;
mod state;
#[cfg(test)]
pub(crate) mod tests;

use std::path::Path;

use serde::{Deserialize, Serialize};

pub use self::arrivals::{Arrival, Place, digest};
pub use self::faults::{Fault, Forgotten, Leases, Only, Scope};
pub use self::queue::{LeaseWord, PoppedJob, Tally};
pub use self::requests::{
    Consumer, ControlRequest, Debounce, Job, Recurring, Reply, Schedule, Word,
};
pub use self::state::{DeadJob, End, Sample};
pub use crate::checker::occurrences::Claim;

/// The version of the format.
pub const FORMAT: u32 = 1;

/// The rejection code of a request for a job with an unreadable record.
pub const UNREADABLE: &str = "unreadable_job";

/// The verdicts on a cancel after which the job need not arrive.
pub(crate) const CANCELLED: [&str; 3] = ["cancelled", "cancelled_after_attempt", "in_flight"];
/// The verdicts on a consumer's `finish` after which the job is over.
pub(crate) const FINISHED: [&str; 2] = ["finished", "fired"];

/// The first line: the setup of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunHeader {
    /// [`FORMAT`]
    pub format: u32,
    /// The seed of plan and load.
    pub seed: u64,
    /// The commit of the tested tree; empty if unknown.
    pub commit: String,
    /// The version of `dwell`.
    pub version: String,
    /// `nats`, `kafka` or `amqp`; [`QUEUE`].
    pub broker: String,
    /// The number of `dwell run`.
    pub instances: usize,
    /// `redis.durability`
    pub durability: String,
    /// `redis.mode`
    #[serde(default = "single_redis")]
    pub redis: String,
    /// The duration of a claim, ms: `publish_timeout` and its margin.
    pub lease_ms: i64,
    /// The bound on lateness after all faults are healed, ms.
    pub late_ms: i64,
    /// The rate of the limited target, jobs a second with a burst of one; `None`: there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited_per_s: Option<u32>,
    /// The arguments that repeat this run.
    pub repeat: String,
}

/// `redis.mode` of older histories and reports.
pub(crate) fn single_redis() -> String {
    "single".to_owned()
}

/// The phase of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The operation begins.
    Invoke,
    /// Done, as the other side confirmed.
    #[default]
    Ok,
    /// Surely not done.
    Fail,
    /// Unknown: the answer was lost, or late.
    Info,
}

/// In place of a broker: the jobs are a queue's, and consumers fetch them.
pub const QUEUE: &str = "queue";

/// The recording task of the host of URLs.
pub(crate) const HOST: &str = "host";

/// One line after the first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// The time of recording, epoch µs.
    pub t_us: i64,
    /// The recording task: `producer`, `http-0`, `reader orders.a`, `host`, `faults`.
    pub proc: String,
    /// The phase.
    #[serde(default)]
    pub phase: Phase,
    /// The operation.
    #[serde(flatten)]
    pub op: Op,
}

/// The operations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case")]
pub enum Op {
    /// A request for a job; `invoke` has the job.
    Schedule(Schedule),
    /// A cancel. For a message, `ok` is the broker's confirm, and the verdict is a `reply`.
    Cancel(ControlRequest),
    /// A reschedule.
    Reschedule(ControlRequest),
    /// A fire.
    Fire(ControlRequest),
    /// The pause of a recurring schedule.
    Pause(ControlRequest),
    /// Its resume.
    Resume(ControlRequest),
    /// A consumer's `finish`.
    Finish(ControlRequest),
    /// A consumer's `fail`.
    Fail(ControlRequest),
    /// A request in the log of the ingest, as another reader sees it: Kafka alone lets it.
    Inbound(Arrival),
    /// A verdict, over HTTP or as a message.
    Reply(Reply),
    /// A message on a target.
    Deliver(Arrival),
    /// A dead letter.
    Dead(Arrival),
    /// A returned request.
    Reject(Arrival),
    /// A hand-out of a queue's job.
    Pop(PoppedJob),
    /// A consumer's word on its lease; `info`: without an answer.
    Lease(LeaseWord),
    /// A fault. `invoke`: its start. `ok`: its end. `info`: the campaign could not inject it.
    Fault(Fault),
    /// A sample of an instance.
    Sample(Sample),
    /// The final state.
    End(End),
}

impl Event {
    /// Whether an interface over HTTP was asked, or answered.
    pub(crate) fn is_over_http(&self) -> bool {
        self.proc.starts_with("http-")
    }
}

impl Op {
    /// The job that it is about; `None` if it is about none.
    pub(crate) fn id(&self) -> Option<&str> {
        match self {
            Op::Schedule(Schedule { id, .. })
            | Op::Cancel(ControlRequest { id, .. })
            | Op::Reschedule(ControlRequest { id, .. })
            | Op::Fire(ControlRequest { id, .. })
            | Op::Pause(ControlRequest { id, .. })
            | Op::Resume(ControlRequest { id, .. })
            | Op::Finish(ControlRequest { id, .. })
            | Op::Fail(ControlRequest { id, .. })
            | Op::Inbound(Arrival { id, .. })
            | Op::Reply(Reply { id, .. })
            | Op::Deliver(Arrival { id, .. })
            | Op::Dead(Arrival { id, .. })
            | Op::Reject(Arrival { id, .. })
            | Op::Pop(PoppedJob { id, .. })
            | Op::Lease(LeaseWord { id, .. }) => Some(id),
            Op::Fault(_) | Op::Sample(_) | Op::End(_) => None,
        }
    }

    /// A request for a job, or its outcome.
    pub(crate) fn schedule(id: &str, job: Option<Job>) -> Op {
        Op::Schedule(Schedule { id: id.to_owned(), job, res: String::new(), number: None })
    }
}

/// A whole run.
#[derive(Debug, Clone, PartialEq)]
pub struct History {
    /// The setup.
    pub head: RunHeader,
    /// The events in the order of recording.
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
    /// The final state.
    pub(crate) fn end(&self) -> Option<&End> {
        self.events.iter().rev().find_map(|event| match &event.op {
            Op::End(end) => Some(end),
            _ => None,
        })
    }

    /// Reads a file.
    ///
    /// # Errors
    /// The file cannot be read, or a line is not in this format.
    pub fn read(file: &Path) -> Result<History, Unreadable> {
        let unreadable =
            |line: usize, why: String| Unreadable { file: file.display().to_string(), line, why };
        let text =
            std::fs::read_to_string(file).map_err(|error| unreadable(0, error.to_string()))?;
        let mut lines = (1..).zip(text.lines());
        let (_, first) = lines.next().ok_or_else(|| unreadable(1, "it is empty".to_owned()))?;
        let head: RunHeader =
            serde_json::from_str(first).map_err(|error| unreadable(1, error.to_string()))?;
        if head.format != FORMAT {
            let why = format!("it has format {}, and this program reads {FORMAT}", head.format);
            return Err(unreadable(1, why));
        }
        let event = |(number, line): (usize, &str)| {
            serde_json::from_str::<Event>(line)
                .map_err(|error| unreadable(number, error.to_string()))
        };
        let events = lines.map(event).collect::<Result<Vec<Event>, Unreadable>>()?;
        Ok(History { head, events })
    }
}
