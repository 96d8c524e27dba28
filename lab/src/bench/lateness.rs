//! The lateness of jobs at a steady rate while others wait. An open loop: each job is sent at its
//! time, whatever happened to earlier ones. Lateness counts from the due time, so that a stall
//! cannot hide behind jobs that were not sent.

use std::time::Duration;

use dwell_connectors::Destination;

use super::fixture::Fixture;
use super::metric::{self, Run};
use super::percentiles::{Latencies, Percentiles};
use super::round::request;
use super::{Options, REQUEST_DESTINATION, drain};
use dwell::clock;
use dwell_testkit::environment::Result;

/// The least time between sending and due time, ms.
const SEND_LEAD_MS: std::ops::RangeInclusive<i64> = 1000..=3000;
/// The interval at which the producer sends the jobs that are next.
const SEND_INTERVAL: Duration = Duration::from_millis(5);
/// The number of jobs of the drain that the rate `half` comes from.
const DRAIN_JOBS: u64 = 50_000;

/// The rate of due jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rate {
    /// Jobs a second.
    Of(u64),
    /// Half of the drain rate just before; requests arrive at the same rate.
    Half,
    /// Half of the drain rate; all jobs are stored before the first is due, so that no requests
    /// arrive meanwhile.
    HalfStored,
}

impl std::str::FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse()) {
            ("half", _) => Ok(Rate::Half),
            ("half-stored", _) => Ok(Rate::HalfStored),
            (_, Ok(rate)) if rate > 0 => Ok(Rate::Of(rate)),
            _ => Err("write jobs a second, `half` for half of the drain rate, or `half-stored` where all are stored before".to_owned()),
        }
    }
}

impl std::fmt::Display for Rate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Rate::Of(rate) => write!(f, "{rate}"),
            Rate::Half => f.write_str("half"),
            Rate::HalfStored => f.write_str("half-stored"),
        }
    }
}

/// Fills the store with `options.pending` jobs, then sends jobs so that `rate` a second are due for
/// `secs` seconds.
///
/// # Errors
/// The servers or the connectors failed. Wrong jobs are in the result.
pub async fn run(options: &Options, rate: Rate, secs: u64) -> Result<Run> {
    let mut fixture = Fixture::running(options).await?;
    let mut run = Run::default();
    let (warm_rate, warmed) = drain::warm_up(&mut fixture, DRAIN_JOBS).await?;
    run.result += warmed;
    let (per_s, capacity, stored_at) = if let Rate::Of(rate) = rate {
        (rate, None, None)
    } else {
        let drained = drain::once(&mut fixture, DRAIN_JOBS, warm_rate).await?;
        run.result += drained.result;
        let half = ((drained.per_s / 2.0) as u64).max(1);
        let capacity = half as f64 / metric::ceiling(drained.accept_per_s, drained.per_s).max(1.0);
        let is_stored = rate == Rate::HalfStored;
        (half, (!is_stored).then_some(capacity), is_stored.then_some(drained.accept_per_s.max(1.0)))
    };
    fixture.new_round();
    let (before, behind_ms) = match stored_at {
        None => (fixture.cost().await?, Some(steady(&mut fixture, per_s, secs).await?.p99_ms)),
        Some(accept_per_s) => {
            stored(&mut fixture, per_s, secs, accept_per_s).await?;
            (fixture.cost().await?, None)
        }
    };
    fixture.arrived(per_s * secs).await?;
    let cost = fixture.cost().await?.since(&before);
    let result = fixture.result();
    run.result += result;
    run.note_lateness(&fixture.round.lock().lateness());
    // The time before the first due job does not count.
    let (dwell, redis) = cost.cores_over(secs as f64 * 1e6);
    run.note(&metric::EARLY, result.early as f64);
    run.note(&metric::RATE, per_s as f64);
    run.note_known(&metric::BEHIND_P99, behind_ms);
    run.note_known(&metric::CAPACITY, capacity);
    run.note_known(&metric::DWELL_CORE, dwell);
    run.note(&metric::REDIS_CORE, redis);
    fixture.note_memory(&mut run);
    fixture.finish(run).await
}

/// Sends each job at its time. Returns the lateness of sending.
pub(super) async fn steady(fixture: &mut Fixture, rate: u64, secs: u64) -> Result<Percentiles> {
    let start_ms = clock::wall_ms() + SEND_LEAD_MS.end() + 100;
    let mut plan: Vec<(i64, i64)> = dues(start_ms, rate, secs)
        .map(|due_ms| (due_ms - rand::random_range(SEND_LEAD_MS), due_ms))
        .collect();
    plan.sort_unstable();
    fixture.say(&format!("{} jobs, {rate} of them due each second for {secs} s", plan.len()));
    let to = Destination::new(REQUEST_DESTINATION);
    let mut sending = Latencies::default();
    let mut rest = plan.as_slice();
    while !rest.is_empty() {
        let now_us = clock::wall_us();
        let (turn, later) =
            rest.split_at(rest.partition_point(|(send_ms, _)| send_ms * 1000 <= now_us));
        turn.iter().for_each(|(send_ms, _)| sending.add(now_us - send_ms * 1000));
        let messages: Vec<_> = {
            let mut round = fixture.round.lock();
            turn.iter().map(|(_, due_ms)| request(round.enter(*due_ms), *due_ms)).collect()
        };
        fixture.producer.send(&to, messages).await?;
        rest = later;
        clock::sleep(SEND_INTERVAL).await;
    }
    fixture.producer.flush().await?;
    Ok(sending.percentiles())
}

/// Stores all jobs before the first is due.
async fn stored(fixture: &mut Fixture, rate: u64, secs: u64, accept_per_s: f64) -> Result<()> {
    let jobs = rate * secs;
    let lead_ms = 5000 + (jobs as f64 / accept_per_s * 2000.0) as i64;
    let others = fixture.store.reader.waiting().await?;
    let start_ms = clock::wall_ms() + lead_ms;
    fixture.say(&format!(
        "{jobs} jobs, {rate} of them due each second for {secs} s, from {} s on",
        lead_ms / 1000
    ));
    fixture.send_due(REQUEST_DESTINATION, dues(start_ms, rate, secs)).await?;
    if fixture.stored(others + jobs, start_ms).await? {
        return Ok(());
    }
    Err(format!("{jobs} jobs were not accepted within {lead_ms} ms").into())
}

/// The due time of each job.
fn dues(start_ms: i64, rate: u64, secs: u64) -> impl Iterator<Item = i64> + Send + 'static {
    (0..rate * secs).map(move |job| start_ms + i64::try_from(job * 1000 / rate).unwrap_or(i64::MAX))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_number_or_half() {
        assert_eq!(
            ("200".parse(), "half".parse(), "half-stored".parse()),
            (Ok(Rate::Of(200)), Ok(Rate::Half), Ok(Rate::HalfStored))
        );
        assert!("0".parse::<Rate>().is_err() && "fast".parse::<Rate>().is_err());
        for rate in ["half", "half-stored", "7"] {
            assert_eq!(rate.parse::<Rate>().unwrap().to_string(), rate);
        }
    }
}
