//! From exec to ready, and the memory of a process that has nothing to do.

use std::time::Duration;

use serde::Serialize;

use super::usage::Usage;
use super::{Memory, Options, redis_words, set_up};
use crate::clock;
use crate::stage::Failure;

/// How long a process is left alone before its memory is read.
const IDLE: Duration = Duration::from_secs(2);

/// What was measured.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// `start`
    pub bench: &'static str,
    /// Which Redis.
    pub redis: &'static str,
    /// From exec to `/readyz`, ms, of the first start: namespace and streams are made.
    pub first_ms: f64,
    /// From exec to `/readyz`, ms, of each start after it. Looked at every 5 ms.
    pub ready_ms: Vec<f64>,
    /// Half of them took at most this, ms.
    pub median_ms: f64,
    /// The longest, ms.
    pub max_ms: f64,
    /// Memory of an idle process.
    pub idle: Option<Memory>,
    /// CPU seconds that an idle process uses in one second.
    pub idle_cpu: Option<f64>,
}

/// Starts `dwell run` so many times, after a first time that makes what is missing.
///
/// # Errors
/// The servers failed, or Dwell did not get ready.
pub async fn run(options: &Options, times: usize) -> Result<Report, Failure> {
    let stage = set_up(options).await?;
    let mut dwell = stage.dwell_to_start()?;
    let mut ready_ms = Vec::new();
    for _ in 0..=times.max(1) {
        dwell.stop().await?;
        let began = clock::now();
        dwell.restart().await?;
        ready_ms.push(clock::now().duration_since(began).as_secs_f64() * 1000.0);
    }
    let usage = || dwell.pid().and_then(|pid| Usage::of([pid]));
    let before = usage();
    clock::sleep(IDLE).await;
    let after = usage();
    let idle = after.map(|usage| Memory { rss: usage.rss, peak_rss: usage.peak_rss });
    let idle_cpu = after.zip(before).map(|(after, before)| (after - before).cpu_s() / IDLE.as_secs_f64());
    dwell.stop().await?;
    stage.tear_down().await?;
    let first_ms = ready_ms.remove(0);
    let mut sorted = ready_ms.clone();
    sorted.sort_unstable_by(f64::total_cmp);
    let (median_ms, max_ms) = (sorted[sorted.len() / 2], sorted[sorted.len() - 1]);
    Ok(Report { bench: "start", redis: redis_words(options), first_ms, ready_ms, median_ms, max_ms, idle, idle_cpu })
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Report { first_ms, ready_ms, median_ms, max_ms, .. } = self;
        let times = ready_ms.len();
        write!(
            f,
            "start: exec to ready in {median_ms:.0} ms (median of {times}, at most {max_ms:.0} ms; the very first {first_ms:.0} ms)"
        )?;
        self.idle.map_or(Ok(()), |idle| write!(f, "\n  idle       {idle}"))?;
        self.idle_cpu.map_or(Ok(()), |cpu| write!(f, ", {:.1} % of a core", cpu * 100.0))
    }
}
