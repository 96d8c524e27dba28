//! The lateness of jobs at a steady rate while overdue jobs drain, as after an outage.

use super::fill::{self, Order};
use super::fixture::Fixture;
use super::metric::{self, Run};
use super::{Options, lateness, per_second};
use dwell::clock;
use dwell_testkit::environment::Result;

/// The overdue jobs fell due in the course of this time, ms.
const OUTAGE_MS: i64 = 600_000;
/// The last of them fell due this long before the instances start, ms.
const OVERDUE_MS: i64 = 60_000;

/// Stores `overdue` jobs, starts the instances, and sends jobs so that `rate` a second are due for
/// `secs` seconds. Only the latter count.
///
/// # Errors
/// The servers or the connectors failed. Wrong jobs are in the result.
pub async fn run(options: &Options, overdue: u64, rate: u64, secs: u64) -> Result<Run> {
    let mut fixture = Fixture::prepare(options).await?;
    fixture.fill().await?;
    let (body, kind) = (options.body, options.broker.as_str());
    let due_ms = clock::wall_ms() - OUTAGE_MS - OVERDUE_MS;
    let order = Order { jobs: overdue, body, kind, due_ms, spread_ms: OUTAGE_MS };
    fill::fill(&fixture.environment, &fixture.environment.settings().redis, &order, options.say)
        .await?;
    fixture.saved().await?;
    fixture.new_round();
    fixture.start().await?;
    let began = (clock::wall_us(), fixture.store.reader.waiting().await?);
    lateness::steady(&mut fixture, rate, secs).await?;
    let ended = (clock::wall_us(), fixture.store.reader.waiting().await?);
    fixture.arrived(rate * secs).await?;
    let mut run = Run::default();
    let left = fixture.store.reader.waiting().await?.saturating_sub(options.pending);
    fixture.say(&format!(
        "{left} of {overdue} overdue jobs were still there when the last of the others had arrived"
    ));
    let mut result = fixture.result();
    // The overdue jobs are of another round.
    result.stray = result.stray.saturating_sub(overdue);
    run.result += result;
    run.note_lateness(&fixture.round.lock().lateness());
    run.note(
        &metric::DRAIN,
        per_second(began.1.saturating_sub(ended.1) + rate * secs, ended.0 - began.0),
    );
    fixture.finish(run).await
}
