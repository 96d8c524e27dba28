//! From exec to ready, and what a process uses that has nothing to do, while jobs wait.

use std::time::Duration;

use super::Options;
use super::fixture::Fixture;
use super::machine::Machine;
use super::metric::{self, Run};
use dwell::clock;
use dwell_testkit::environment::Failure;
use dwell_testkit::usage::Usage;

/// After a start, before idleness is measured: what it begins with is over.
const CALM: Duration = Duration::from_secs(2);

/// Starts `dwell run` so many times, after a first time that makes what is missing; then leaves it alone for so long.
///
/// # Errors
/// The servers failed, or Dwell did not get ready.
pub async fn run(options: &Options, times: usize, idle: Duration) -> Result<(Run, Machine), Failure> {
    let mut fixture = Fixture::prepare(&Options { instances: 1, ..options.clone() }).await?;
    let mut run = Run::default();
    run.note_known(&metric::FILL, fixture.fill().await?);
    for time in 0..=times.max(1) {
        let dwell = &mut fixture.dwells[0];
        dwell.stop().await?;
        let began = clock::now();
        dwell.restart().await?;
        let took_ms = clock::now().duration_since(began).as_secs_f64() * 1000.0;
        run.note(if time == 0 { &metric::FIRST_START } else { &metric::START }, took_ms);
    }
    clock::sleep(CALM).await;
    let before = fixture.meter().await?;
    clock::sleep(idle).await;
    let (dwell, redis) = fixture.meter().await?.since(&before).cores();
    #[allow(clippy::cast_precision_loss, reason = "bytes of a process")]
    run.note_known(&metric::RSS, Usage::of(fixture.pids()).map(|usage| usage.rss as f64));
    run.note_known(&metric::IDLE_DWELL, dwell);
    run.note(&metric::IDLE_REDIS, redis);
    Ok((run, fixture.stop().await?))
}
