//! Receivers in a process of their own, which counts what arrives: `dwell-lab http receive`. Its
//! parent reads the ports from the first line, and asks for the counts by GET /; the process ends
//! when its input ends.

use std::io::Write;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dwell::clock;
use dwell::delayed_headers::DUE;
use dwell_testkit::environment::Result;
use http::Response;
use http_body_util::Full;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;

use super::receiver::{Answer, Arrival, Receiver, status};
use crate::bench::percentiles::{Latencies, Percentiles};
use crate::client::Link;
use crate::own_process::{input_end, spawn};

/// The path of the requests that are counted.
pub const PATH: &str = "/hooks/lab";

/// The counts of arrivals since the last reset.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Requests that were answered.
    pub answered: u64,
    /// Requests to receivers that answer late.
    pub late_answers: u64,
    /// Requests to receivers that say nothing.
    pub unanswered: u64,
    /// The last of the answered, epoch µs.
    pub last_us: i64,
    /// From due to arrival, of the answered.
    pub late: Percentiles,
    /// The same, of those that were due in the first second.
    pub first_late: Percentiles,
}

#[derive(Default)]
struct Counting {
    counts: Counts,
    late: Latencies,
    first_late: Latencies,
    first_due_ms: Option<i64>,
}

impl Counting {
    fn arrived(&mut self, due_ms: i64, late_us: i64) {
        self.late.add(late_us);
        let first_due_ms = *self.first_due_ms.get_or_insert(due_ms);
        if due_ms < first_due_ms + 1000 {
            self.first_late.add(late_us);
        }
    }
}

/// The receivers of one process: first those that answer, then those that answer late, then those
/// that say nothing.
#[derive(Debug, Clone, Copy, clap::Args)]
// The command of this name has a group of arguments of its own.
#[group(skip)]
pub struct Hosts {
    /// How many hosts
    #[arg(long, default_value_t = 1000)]
    pub hosts: usize,
    /// How many of them do not answer
    #[arg(long, default_value_t = 0)]
    pub hanging: usize,
    /// How many of them answer late
    #[arg(long, default_value_t = 0)]
    pub slow: usize,
    /// How late these answer, ms
    #[arg(long, default_value_t = 10_000)]
    pub slow_ms: u64,
}

impl Hosts {
    /// The number of hosts that answer at once.
    pub fn healthy(&self) -> usize {
        self.hosts.saturating_sub(self.hanging + self.slow)
    }
}

#[derive(Clone, Copy)]
enum Manner {
    Prompt,
    Late(Duration),
    Silent,
}

/// Serves a port for each host, until the input ends.
///
/// # Errors
/// No port is free.
pub async fn serve(hosts: Hosts) -> Result<()> {
    let counting = Arc::new(Mutex::new(Counting::default()));
    let mut receivers = Vec::with_capacity(hosts.hosts + 1);
    for host in 0..=hosts.hosts {
        let manner = match host {
            host if host <= hosts.healthy() => Manner::Prompt,
            host if host <= hosts.healthy() + hosts.slow => {
                Manner::Late(Duration::from_millis(hosts.slow_ms))
            }
            _ => Manner::Silent,
        };
        let counting = Arc::clone(&counting);
        let handler = move |arrival: Arrival| count(&counting, &arrival, manner);
        // The first one tells the counts too, and is no target where others are.
        receivers.push(Receiver::start(0, Arc::new(handler)).await?);
    }
    let ports: Vec<u16> = receivers.iter().map(Receiver::port).collect();
    writeln!(std::io::stdout(), "{}", serde_json::json!(ports))?;
    input_end().cancelled().await;
    Ok(())
}

fn count(counting: &Mutex<Counting>, arrival: &Arrival, manner: Manner) -> Answer {
    let mut counting = counting.lock();
    match (arrival.path.as_str(), manner) {
        (PATH, Manner::Silent) => {
            counting.counts.unanswered += 1;
            Answer::Nothing
        }
        (PATH, Manner::Late(wait)) => {
            counting.counts.late_answers += 1;
            Answer::Late(Response::new(Full::default()), wait)
        }
        (PATH, Manner::Prompt) => {
            let counts = &mut counting.counts;
            counts.answered += 1;
            counts.last_us = arrival.at_us;
            if let Some(due_ms) = arrival.number::<i64>(DUE) {
                counting.arrived(due_ms, arrival.at_us - due_ms * 1000);
            }
            status(200)
        }
        ("/reset", _) => {
            *counting = Counting::default();
            status(200)
        }
        _ => {
            let counts = Counts {
                late: counting.late.percentiles(),
                first_late: counting.first_late.percentiles(),
                ..counting.counts
            };
            let counts = serde_json::to_vec(&counts).unwrap_or_default();
            Answer::Send(Response::new(Full::new(Bytes::from(counts))))
        }
    }
}

/// The process, seen by its parent.
pub(super) struct Process {
    child: Child,
    asking: Link,
    /// The ports of the targets: the ports that answer come first.
    pub(super) ports: Vec<u16>,
}

impl Process {
    /// Starts the process.
    pub(super) async fn start(hosts: Hosts) -> Result<Process> {
        let Hosts { hosts, hanging, slow, slow_ms } = hosts;
        let arguments = [
            "http".to_owned(),
            "receive".to_owned(),
            format!("--hosts={hosts}"),
            format!("--hanging={hanging}"),
            format!("--slow={slow}"),
            format!("--slow-ms={slow_ms}"),
        ];
        let mut child = spawn(&arguments, Stdio::piped())?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut line).await?;
        }
        let mut ports: Vec<u16> = serde_json::from_str(&line)
            .map_err(|error| format!("the receivers did not tell their ports: {error}: {line}"))?;
        let asking = Link::to(ports.remove(0));
        Ok(Process { child, asking, ports })
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    pub(super) async fn counts(&mut self) -> Result<Counts> {
        let (_, answer) = self.asking.get("/").await?;
        let counts = serde_json::from_slice::<Counts>(&answer);
        Ok(counts.map_err(|error| format!("the counts of the receivers: {error}"))?)
    }

    pub(super) async fn reset(&mut self) -> Result<()> {
        Ok(self.asking.get("/reset").await.map(drop)?)
    }

    /// Waits until so many requests were answered; an error if none comes for `patience`.
    pub(super) async fn answered(&mut self, count: u64, patience: Duration) -> Result<Counts> {
        let (mut last, mut since) = (0, clock::now());
        loop {
            let counts = self.counts().await?;
            if counts.answered >= count {
                return Ok(counts);
            }
            if counts.answered > last {
                (last, since) = (counts.answered, clock::now());
            }
            if since.elapsed() > patience {
                let then = format!("and no more within {patience:?}");
                return Err(format!("{last} of {count} jobs arrived, {then}").into());
            }
            clock::sleep(Duration::from_millis(20)).await;
        }
    }
}
