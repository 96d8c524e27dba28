//! The time from exec to ready, and the resources of an idle process while jobs wait.

use std::time::Duration;

use super::Options;
use super::fixture::Fixture;
use super::metric::{self, Run};
use dwell::clock;
use dwell_testkit::environment::Result;
use dwell_testkit::usage::Usage;

/// The pause between the start and the idle measurement.
const IDLE_PAUSE: Duration = Duration::from_secs(2);

/// Starts `dwell run` this many times, after a first start that creates what is missing; then
/// measures it idle for this time.
///
/// # Errors
/// The servers failed, or Dwell did not become ready.
pub async fn run(options: &Options, times: usize, idle: Duration) -> Result<Run> {
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
    clock::sleep(IDLE_PAUSE).await;
    let before = fixture.cost().await?;
    clock::sleep(idle).await;
    let (dwell, redis) = fixture.cost().await?.since(&before).cores();
    run.note_known(&metric::RSS, Usage::of(fixture.pids()).map(|usage| usage.rss as f64));
    run.note_known(&metric::IDLE_DWELL, dwell);
    run.note(&metric::IDLE_REDIS, redis);
    fixture.finish(run).await
}
