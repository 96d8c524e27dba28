//! The memory of a waiting job in Redis, and the memory of Dwell under a load of large bodies.

use super::fixture::Fixture;
use super::metric::{self, Run};
use super::{Options, REQUEST_DESTINATION, fill};
use dwell::clock;
use dwell_testkit::environment::Result;
use dwell_testkit::usage::Usage;

/// Bytes of a generated id.
const ID_BYTES: usize = 32;

/// Large bodies, all due at one instant.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// The number of bodies.
    pub jobs: u64,
    /// Bytes of each.
    pub body: usize,
}

/// Fills the store with `options.pending` jobs, then runs the load.
///
/// # Errors
/// The servers or the connectors failed. Wrong jobs are in the result.
pub async fn run(options: &Options, load: Load) -> Result<Run> {
    // The consumer's round is that of the load: the waiting jobs never arrive.
    let mut fixture = Fixture::prepare(&Options { body: load.body, ..options.clone() }).await?;
    let mut run = Run::default();
    fixture.start().await?;
    note_peak(&fixture, &mut run, &metric::RSS, |usage| usage.rss);
    let before = fixture.saved().await?;
    let rate = fill::far(&fixture.environment, options).await?;
    let after = fixture.saved().await?;
    run.note(&metric::FILL, rate);
    let each =
        after.data_bytes.saturating_sub(before.data_bytes) as f64 / options.pending.max(1) as f64;
    run.note(&metric::OVERHEAD, each - (ID_BYTES + options.body) as f64);
    if load.jobs > 0 {
        fixture.new_round();
        fixture.send(REQUEST_DESTINATION, load.jobs, clock::wall_ms()).await?;
        fixture.arrived(load.jobs).await?;
        run.result += fixture.result();
        note_peak(&fixture, &mut run, &metric::LOADED_RSS, |usage| usage.peak_rss);
    }
    if let Some(redis) = fixture.environment.redis() {
        let slow = redis.order(&["SLOWLOG", "LEN"]).await?;
        run.note_known(&metric::SLOW_CALLS, slow.first().and_then(|count| count.parse().ok()));
    }
    fixture.finish(run).await
}

/// Notes the highest value of all instances.
fn note_peak(
    fixture: &Fixture,
    run: &mut Run,
    kind: &'static metric::Metric,
    of: fn(&Usage) -> u64,
) {
    let most = fixture.pids().filter_map(|pid| Usage::of([pid])).map(|usage| of(&usage)).max();
    run.note_known(kind, most.map(|bytes| bytes as f64));
}
