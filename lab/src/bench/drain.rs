//! The drain rate of jobs that are all due at one instant, compared with a bare relay and with the
//! scripts alone.

use super::cost::Cost;
use super::metric::{self, Run, over};
use super::round::RoundResult;

use super::fixture::Fixture;
use super::{Options, REQUEST_DESTINATION, baseline, ms, per_second, relay};
use dwell::clock;
use dwell_testkit::environment::Result;

/// Jobs for the warm-up: they open connections and load scripts, and show the rate.
const WARM_UP_JOBS: u64 = 2000;
/// The pause between the last stored job and the due instant, ms.
const CALM_PAUSE_MS: i64 = 500;
/// The most postponements of the due instant because jobs were not accepted before it.
const MAX_POSTPONEMENTS: u32 = 4;

/// One drain.
#[derive(Debug, Clone, Copy)]
pub(super) struct Drained {
    /// Jobs a second, from the first sent to the last stored.
    pub(super) accept_per_s: f64,
    /// Jobs a second, from the due instant to the last arrival.
    pub(super) per_s: f64,
    /// From the due instant to the first arrival.
    pub(super) first_ms: f64,
    /// The result of the jobs.
    pub(super) result: RoundResult,
    /// From the first sent job to the last settled one.
    pub(super) cost: Cost,
}

/// Sends `jobs` jobs that are due at one instant and measures from that instant; `beside`: adds the
/// bare relay, the scripts alone and a SET.
///
/// # Errors
/// The servers or the connectors failed. Wrong jobs are in the result.
pub async fn run(options: &Options, jobs: u64, beside: bool) -> Result<Run> {
    let mut fixture = Fixture::running(options).await?;
    let mut run = Run::default();
    let (warm_rate, warmed) = warm_up(&mut fixture, jobs).await?;
    run.result += warmed;
    let parts = if beside {
        let relayed = relay::once(&mut fixture, jobs).await?;
        let scripts = baseline::scripts(&fixture, jobs).await?;
        fixture.say(&format!("the scripts alone: {:.0}/s", scripts.per_s));
        fixture.saved().await?;
        run.result += relayed.result;
        Some((relayed, scripts))
    } else {
        None
    };
    let drained = once(&mut fixture, jobs, warm_rate).await?;
    run.result += drained.result;
    run.note(&metric::DRAIN, drained.per_s);
    run.note(&metric::FIRST, drained.first_ms);
    if let Some((relayed, scripts)) = parts {
        let ceiling = metric::ceiling(relayed.per_s, scripts.per_s);
        run.note(&metric::RELAY, relayed.per_s);
        run.note(&metric::SCRIPTS, scripts.per_s);
        run.note(&metric::CEILING, ceiling);
        run.note(&metric::OF_CEILING, over(drained.per_s, ceiling));
        run.note(&metric::OF_RELAY, over(drained.per_s, relayed.per_s));
        run.note(&metric::SCRIPTS_CPU, scripts.cpu_us);
    }
    run.note(&metric::ACCEPT, drained.accept_per_s);
    drained.cost.note_per_job(&mut run, jobs);
    if beside {
        let set_us = baseline::set(&fixture, jobs).await?;
        run.note(&metric::SET, set_us);
        let life_us = run.value(&metric::REDIS_LIFE).unwrap_or_default();
        run.note(&metric::LIFE_IN_SETS, over(life_us, set_us));
    }
    fixture.note_memory(&mut run);
    fixture.finish(run).await
}

/// Runs some jobs, and returns their rate and their result.
pub(super) async fn warm_up(fixture: &mut Fixture, jobs: u64) -> Result<(f64, RoundResult)> {
    let warm = jobs.min(WARM_UP_JOBS);
    fixture.new_round();
    let began = clock::wall_us();
    fixture.send(REQUEST_DESTINATION, warm, began / 1000).await?;
    fixture.arrived(warm).await?;
    let last = fixture.round.lock().last_us().unwrap_or(began);
    let rate = per_second(warm, last - began).max(1.0);
    fixture.say(&format!("warmed up: {warm} jobs from producer to consumer at {rate:.0}/s"));
    Ok((rate, fixture.result()))
}

/// One drain of jobs that are stored at `warm_rate` at least.
pub(super) async fn once(fixture: &mut Fixture, jobs: u64, warm_rate: f64) -> Result<Drained> {
    // A cold process is slower than a warm one, so this time is ample.
    let mut lead_ms = 2000 + (jobs as f64 / warm_rate * 1000.0) as i64;
    let others = fixture.store.reader.waiting().await?;
    let mut judged = RoundResult::default();
    for _ in 0..MAX_POSTPONEMENTS {
        fixture.new_round();
        let before = fixture.cost().await?;
        let began = clock::wall_us();
        let due_ms = began / 1000 + lead_ms;
        fixture.send(REQUEST_DESTINATION, jobs, due_ms).await?;
        if !fixture.stored(others + jobs, due_ms - CALM_PAUSE_MS).await? {
            fixture.say(&format!(
                "not all jobs were accepted within {lead_ms} ms; once more, with twice the time"
            ));
            fixture.arrived(jobs).await?;
            judged += fixture.result();
            lead_ms *= 2;
            continue;
        }
        let accept_per_s = per_second(jobs, clock::wall_us() - began);
        fixture.say(&format!(
            "{jobs} jobs wait, accepted at {accept_per_s:.0}/s; due in {:.0} ms",
            ms(due_ms * 1000 - clock::wall_us())
        ));
        fixture.arrived(jobs).await?;
        let after = fixture.cost().await?;
        let result = fixture.result();
        let first = fixture.round.lock().first_us().unwrap_or(0);
        let last = fixture.round.lock().last_us().unwrap_or(0);
        let per_s = per_second(result.arrived, last - due_ms * 1000);
        fixture.say(&format!("drained at {per_s:.0}/s"));
        judged += result;
        return Ok(Drained {
            accept_per_s,
            per_s,
            first_ms: ms(first - due_ms * 1000),
            result: judged,
            cost: after.since(&before),
        });
    }
    let missed = format!("even {lead_ms} ms were not enough for {jobs}");
    Err(format!("jobs are not accepted as fast as they are sent: {missed}").into())
}
