//! How late jobs are at a steady rate, while many others wait.

use std::time::Duration;

use dwell_connectors::Destination;
use serde::Serialize;

use super::ledger::{Ledger, Tally};
use super::spread::{Spread, Times};
use super::{Bench, Cpu, IN, Memory, Options, per_second, redis_words, request};
use crate::clock;
use crate::stage::Failure;

/// Jobs that only wait are due so much later, ms: an hour, and spread over another.
const FAR_MS: i64 = 3_600_000;
/// A job is sent at least so long before it is due, ms.
const LEAD_MS: std::ops::RangeInclusive<i64> = 1000..=3000;
/// How often the producer looks whether a job is to be sent.
const BEAT: Duration = Duration::from_millis(5);

/// What was measured.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// `lateness`
    pub bench: &'static str,
    /// Jobs due a second.
    pub rate: u64,
    /// For how long, seconds.
    pub secs: u64,
    /// Jobs that waited for later meanwhile.
    pub pending: u64,
    /// Bytes of each body.
    pub body: usize,
    /// How many `dwell run`.
    pub instances: usize,
    /// Which Redis.
    pub redis: &'static str,
    /// Receipt at the consumer minus due time.
    pub lateness: Spread,
    /// How late the producer was with sending: beyond some ms the machine was not idle.
    pub sending: Spread,
    /// What came of the jobs.
    pub tally: Tally,
    /// CPU time while jobs were due.
    pub cpu: Cpu,
    /// Memory of Dwell.
    pub memory: Option<Memory>,
}

/// Fills the store with `pending` jobs, then sends jobs so that `rate` a second are due for `secs` seconds.
///
/// # Errors
/// The servers or the connectors failed. Faults of the jobs are in the report.
pub async fn run(options: &Options, rate: u64, pending: u64, secs: u64) -> Result<Report, Failure> {
    let mut bench = Bench::set_up(options).await?;
    fill(&mut bench, pending).await?;
    bench.new_round();
    let before = bench.meter();
    let sending = steady(&mut bench, rate, secs).await?;
    bench.arrived(rate * secs).await?;
    let after = bench.meter();
    let (lateness, tally) = {
        let ledger = bench.ledger.lock();
        (ledger.lateness(), ledger.tally(i64::MAX))
    };
    let memory = bench.memory();
    bench.tear_down().await?;
    let (body, instances, redis) = (options.body, options.instances, redis_words(options));
    let cpu = after.since(&before);
    Ok(Report { bench: "lateness", rate, secs, pending, body, instances, redis, lateness, sending, tally, cpu, memory })
}

/// Jobs that wait for a time that does not come.
async fn fill(bench: &mut Bench, pending: u64) -> Result<(), Failure> {
    let began = clock::wall_us();
    let mut ledger = Ledger::new(u64::MAX, bench.body);
    let messages = (0..pending).map(|_| {
        let due_ms = began / 1000 + FAR_MS + rand::random_range(0..FAR_MS);
        request(ledger.enter(due_ms), due_ms)
    });
    bench.producer.send(&Destination::new(IN), messages).await?;
    bench.producer.flush().await?;
    if !bench.waiting(pending, began / 1000 + FAR_MS).await? {
        return Err(Failure::Course(format!("{pending} jobs were not accepted within an hour")));
    }
    (bench.say)(&format!("{pending} jobs wait, accepted at {:.0}/s", per_second(pending, clock::wall_us() - began)));
    Ok(())
}

/// Sends each job when it is its turn, whatever became of those before: an open loop. Says how late it was with that.
async fn steady(bench: &mut Bench, rate: u64, secs: u64) -> Result<Spread, Failure> {
    let start_ms = clock::wall_ms() + LEAD_MS.end() + 100;
    let mut plan: Vec<(i64, i64)> = (0..rate * secs)
        .map(|job| {
            let due_ms = start_ms + i64::try_from(job * 1000 / rate).unwrap_or(i64::MAX);
            (due_ms - rand::random_range(LEAD_MS), due_ms)
        })
        .collect();
    plan.sort_unstable();
    (bench.say)(&format!("{} jobs, {rate} of them due each second for {secs} s", plan.len()));
    let to = Destination::new(IN);
    let mut sending = Times::new();
    let mut rest = plan.as_slice();
    while !rest.is_empty() {
        let now_us = clock::wall_us();
        let (turn, later) = rest.split_at(rest.partition_point(|(send_ms, _)| send_ms * 1000 <= now_us));
        turn.iter().for_each(|(send_ms, _)| sending.add(now_us - send_ms * 1000));
        let messages: Vec<_> = {
            let mut ledger = bench.ledger.lock();
            turn.iter().map(|(_, due_ms)| request(ledger.enter(*due_ms), *due_ms)).collect()
        };
        bench.producer.send(&to, messages).await?;
        rest = later;
        clock::sleep(BEAT).await;
    }
    bench.producer.flush().await?;
    Ok(sending.spread())
}

impl Report {
    /// What is wrong; `None` where nothing is.
    #[must_use]
    pub fn wrong(&self) -> Option<String> {
        self.tally.wrong()
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Report { rate, secs, pending, body, instances, redis, lateness, sending, tally, cpu, memory, .. } = self;
        writeln!(f, "lateness: {rate} jobs/s for {secs} s, {pending} pending, {body} bytes, {instances} x dwell, redis {redis}")?;
        writeln!(f, "  lateness   {lateness}")?;
        writeln!(f, "  sending    {sending} behind the plan")?;
        writeln!(f, "  ledger     {tally}")?;
        write!(f, "  cpu        {cpu}")?;
        memory.map_or(Ok(()), |memory| write!(f, "\n  memory     dwell {memory}"))
    }
}
