//! How fast jobs leave that are all due at one instant, and how that compares with a bare relay.

use dwell_connectors::{Destination, Role};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::ledger::Tally;
use super::{Bench, Cpu, IN, Memory, OUT, Options, per_second, redis_words, relay, seconds};
use crate::clock;
use crate::stage::Failure;

/// Where the messages wait that the bare relay moves.
const RELAY: &str = "bench.relay";
/// Jobs that go through first: connections, consumers and scripts are warm, and the rate is known.
const WARM_UP: u64 = 2000;
/// Between the moment when all jobs wait and the instant at which they are due, ms.
const CALM_MS: i64 = 500;
/// How often the instant is set anew because jobs were not accepted before it.
const ROUNDS: u32 = 4;

/// What was measured.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// `drain`
    pub bench: &'static str,
    /// How many jobs.
    pub jobs: u64,
    /// Bytes of each body.
    pub body: usize,
    /// How many `dwell run`.
    pub instances: usize,
    /// Which Redis.
    pub redis: &'static str,
    /// Requests that were sent and stored a second, from the first sent to the last stored.
    pub accepted_per_s: f64,
    /// From the due instant to the first arrival at the consumer, ms.
    pub first_ms: f64,
    /// From the due instant to the last arrival at the consumer, seconds.
    pub drain_s: f64,
    /// Jobs a second over that time.
    pub per_s: f64,
    /// The bare relay beside it.
    pub relay: Option<Relay>,
    /// What came of the jobs.
    pub tally: Tally,
    /// CPU time while requests were accepted.
    pub accept_cpu: Cpu,
    /// CPU time from the due instant to the last arrival.
    pub drain_cpu: Cpu,
    /// Memory of Dwell.
    pub memory: Option<Memory>,
}

/// What the bare relay did with as many messages.
#[derive(Debug, Clone, Serialize)]
pub struct Relay {
    /// From its start to the last arrival at the consumer, seconds.
    pub drain_s: f64,
    /// Messages a second over that time.
    pub per_s: f64,
    /// Dwell's rate over this one.
    pub ratio: f64,
    /// What came of the messages.
    pub tally: Tally,
    /// CPU time meanwhile: the relay runs in the load generator.
    pub cpu: Cpu,
}

/// Sends `jobs` jobs that are due at one instant, and measures from there.
///
/// # Errors
/// The servers or the connectors failed. Faults of the jobs are in the report.
pub async fn run(options: &Options, jobs: u64, vs_relay: bool) -> Result<Report, Failure> {
    let mut bench = Bench::set_up(options).await?;
    let warm = jobs.min(WARM_UP);
    bench.new_round();
    let began = clock::wall_us();
    bench.send(IN, warm, began / 1000).await?;
    bench.arrived(warm).await?;
    let last = bench.ledger.lock().last_us().unwrap_or(began);
    let warm_rate = per_second(warm, last - began).max(1.0);
    (options.say)(&format!("warmed up: {warm} jobs from producer to consumer at {warm_rate:.0}/s"));

    let relay = if vs_relay { Some(relay_drain(&mut bench, jobs).await?) } else { None };

    // A cold process is slower than a warm one, so that this is ample.
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "some seconds")]
    let mut lead_ms = 2000 + (jobs as f64 / warm_rate * 1000.0) as i64;
    for _ in 0..ROUNDS {
        bench.new_round();
        let before = bench.meter();
        let began = clock::wall_us();
        let due_ms = began / 1000 + lead_ms;
        bench.send(IN, jobs, due_ms).await?;
        if !bench.waiting(jobs, due_ms - CALM_MS).await? {
            (options.say)(&format!("not all jobs were accepted within {lead_ms} ms; once more, with twice the time"));
            bench.arrived(jobs).await?;
            lead_ms *= 2;
            continue;
        }
        let accepted_us = clock::wall_us() - began;
        let full = bench.meter();
        (options.say)(&format!(
            "{jobs} jobs wait, accepted at {:.0}/s; due in {:.1} s",
            per_second(jobs, accepted_us),
            seconds(due_ms * 1000 - clock::wall_us())
        ));
        bench.arrived(jobs).await?;
        let drained = bench.meter();
        let (tally, first, last) = {
            let ledger = bench.ledger.lock();
            (ledger.tally(i64::MAX), ledger.first_us().unwrap_or(0), ledger.last_us().unwrap_or(0))
        };
        let took_us = last - due_ms * 1000;
        let per_s = per_second(tally.arrived, took_us);
        let relay = relay.map(|relay| Relay { ratio: if relay.per_s > 0.0 { per_s / relay.per_s } else { 0.0 }, ..relay });
        let memory = bench.memory();
        let accept_cpu = full.since(&before);
        bench.tear_down().await?;
        return Ok(Report {
            bench: "drain",
            jobs,
            body: options.body,
            instances: options.instances,
            redis: redis_words(options),
            accepted_per_s: per_second(jobs, accepted_us),
            first_ms: seconds(first - due_ms * 1000) * 1000.0,
            drain_s: seconds(took_us),
            per_s,
            relay,
            tally,
            accept_cpu,
            drain_cpu: drained.since(&full),
            memory,
        });
    }
    Err(Failure::Course(format!("jobs are not accepted as fast as they are sent: even {lead_ms} ms were not enough for {jobs}")))
}

/// The same messages through the same connectors, with nothing between source and sink.
async fn relay_drain(bench: &mut Bench, jobs: u64) -> Result<Relay, Failure> {
    bench.stage.declare(&[RELAY], Role::Ingest).await?;
    bench.new_round();
    bench.send(RELAY, jobs, clock::wall_ms()).await?;
    (bench.say)(&format!("{jobs} messages wait for the bare relay"));
    let stop = CancellationToken::new();
    let before = bench.meter();
    let began = clock::wall_us();
    let relay = tokio::spawn(relay::run(bench.stage.broker().clone(), RELAY.to_owned(), Destination::new(OUT), stop.clone()));
    bench.arrived(jobs).await?;
    let after = bench.meter();
    stop.cancel();
    relay.await.map_err(|error| Failure::Course(format!("the relay failed: {error}")))??;
    let ledger = bench.ledger.lock();
    let took_us = ledger.last_us().unwrap_or(began) - began;
    let tally = ledger.tally(i64::MAX);
    let per_s = per_second(tally.arrived, took_us);
    (bench.say)(&format!("the bare relay moved them at {per_s:.0}/s"));
    Ok(Relay { drain_s: seconds(took_us), per_s, ratio: 0.0, tally, cpu: after.since(&before) })
}

impl Report {
    /// What is wrong; `None` where nothing is.
    #[must_use]
    pub fn wrong(&self) -> Option<String> {
        let relay = self.relay.as_ref().and_then(|relay| Some(format!("the bare relay: {}", relay.tally.wrong()?)));
        self.tally.wrong().or(relay)
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Report { jobs, body, instances, redis, accepted_per_s, first_ms, drain_s, per_s, .. } = self;
        writeln!(f, "drain: {jobs} jobs of {body} bytes, {instances} x dwell, redis {redis}")?;
        writeln!(f, "  accepted   {accepted_per_s:.0}/s")?;
        writeln!(f, "  drained    {per_s:.0}/s: {drain_s:.2} s from the due instant to the last arrival, {first_ms:.1} ms to the first")?;
        if let Some(Relay { drain_s, per_s, ratio, .. }) = &self.relay {
            writeln!(f, "  bare relay {per_s:.0}/s: {drain_s:.2} s; dwell is at {ratio:.2} of it")?;
        }
        writeln!(f, "  ledger     {}", self.tally)?;
        writeln!(f, "  cpu        accepting: {}", self.accept_cpu)?;
        write!(f, "             draining: {}", self.drain_cpu)?;
        if let Some(relay) = &self.relay {
            write!(f, "\n             bare relay: {}", relay.cpu)?;
        }
        self.memory.map_or(Ok(()), |memory| write!(f, "\n  memory     dwell {memory}"))
    }
}
