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
use dwell_testkit::environment::Failure;
use http::Response;
use http_body_util::Full;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::oneshot;

use super::receiver::{Answer, Arrival, Receiver, status};
use crate::bench::percentiles::{Latencies, Percentiles};
use crate::queue::http::Link;

/// The path of what is counted.
pub const PATH: &str = "/hooks/lab";

/// What arrived since the last reset.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Requests that were answered.
    pub answered: u64,
    /// Requests to receivers that say nothing.
    pub unanswered: u64,
    /// The first and the last of the answered, epoch µs.
    pub first_us: i64,
    /// See `first_us`.
    pub last_us: i64,
    /// From due to arrival, of the answered.
    pub late: Percentiles,
}

#[derive(Default)]
struct Counting {
    counts: Counts,
    late: Latencies,
}

/// Serves `hosts` ports, the first of which answer, and the last `hanging` of which say nothing,
/// until the input ends.
///
/// # Errors
/// No port is free.
pub async fn serve(hosts: usize, hanging: usize) -> Result<(), Failure> {
    let counting = Arc::new(Mutex::new(Counting::default()));
    let mut receivers = Vec::with_capacity(hosts + 1);
    for host in 0..=hosts {
        let (counting, hangs) = (Arc::clone(&counting), host + hanging > hosts);
        let handler = move |arrival: Arrival| count(&counting, &arrival, hangs);
        // The first one tells the counts too, and is no target where others are.
        receivers.push(Receiver::start(0, Arc::new(handler)).await?);
    }
    let ports: Vec<u16> = receivers.iter().map(Receiver::port).collect();
    writeln!(std::io::stdout(), "{}", serde_json::json!(ports))?;
    let (ended, end) = oneshot::channel();
    std::thread::spawn(move || {
        // Whatever ends the input ends the process.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = ended.send(());
    });
    let _ = end.await;
    Ok(())
}

fn count(counting: &Mutex<Counting>, arrival: &Arrival, hangs: bool) -> Answer {
    let mut counting = counting.lock();
    match arrival.path.as_str() {
        PATH if hangs => {
            counting.counts.unanswered += 1;
            Answer::Nothing
        }
        PATH => {
            let counts = &mut counting.counts;
            counts.answered += 1;
            counts.last_us = arrival.at_us;
            if counts.answered == 1 {
                counts.first_us = arrival.at_us;
            }
            if let Some(due_ms) = arrival.headers.get(DUE).and_then(|due| due.to_str().ok()?.parse::<i64>().ok()) {
                counting.late.add(arrival.at_us - due_ms * 1000);
            }
            status(200)
        }
        "/reset" => {
            *counting = Counting::default();
            status(200)
        }
        _ => {
            let counts = Counts { late: counting.late.percentiles(), ..counting.counts };
            Answer::Send(Response::new(Full::new(Bytes::from(serde_json::to_vec(&counts).unwrap_or_default()))))
        }
    }
}

/// The process, seen by its parent.
pub(super) struct Process {
    child: Child,
    asking: Link,
    /// The ports of the targets: first those that answer.
    pub(super) ports: Vec<u16>,
}

impl Process {
    /// Starts the process.
    pub(super) async fn start(hosts: usize, hanging: usize) -> Result<Process, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["http", "receive", "--hosts", &hosts.to_string(), "--hanging", &hanging.to_string()]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut line).await?;
        }
        let odd = |error| Failure::Unexpected(format!("the receivers did not tell their ports: {error}: {line}"));
        let mut ports: Vec<u16> = serde_json::from_str(&line).map_err(odd)?;
        let asking = Link::to(ports.remove(0));
        Ok(Process { child, asking, ports })
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    pub(super) async fn counts(&mut self) -> Result<Counts, Failure> {
        let (_, answer) = self.asking.get("/").await?;
        serde_json::from_slice(&answer).map_err(|error| Failure::Unexpected(format!("the counts of the receivers: {error}")))
    }

    pub(super) async fn reset(&mut self) -> Result<(), Failure> {
        Ok(self.asking.get("/reset").await.map(drop)?)
    }

    /// Waits until so many requests were answered; an error if none comes for `patience`.
    pub(super) async fn answered(&mut self, count: u64, patience: Duration) -> Result<Counts, Failure> {
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
                return Err(Failure::Unexpected(format!("{last} of {count} jobs arrived, and no more within {patience:?}")));
            }
            clock::sleep(Duration::from_millis(20)).await;
        }
    }
}
