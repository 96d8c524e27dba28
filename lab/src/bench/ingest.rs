//! The ingest rate: requests from the broker to the store, acknowledged. `dwell-lab bench
//! schedule`.

use super::fixture::Fixture;
use super::metric::{self, Run, over};
use super::{ARRIVAL_TIMEOUT, CHECK_INTERVAL, Options, REQUEST_DESTINATION, baseline, per_second};
use dwell::clock;
use dwell_testkit::environment::Result;

/// The delay of the jobs, which must not fall due during the measurement, ms.
const FAR_DELAY_MS: i64 = 3_600_000;

/// Starts the instances on a backlog of `jobs` requests, then sends as many while they run;
/// `beside`: adds the source and the script alone.
///
/// # Errors
/// The servers or the connectors failed.
pub async fn run(options: &Options, jobs: u64, beside: bool) -> Result<Run> {
    let mut fixture = Fixture::prepare(options).await?;
    let mut run = Run::default();
    run.note_known(&metric::FILL, fixture.fill().await?);
    let parts = if beside {
        let source = baseline::source(&mut fixture, jobs).await?;
        fixture.say(&format!("the source alone: {source:.0}/s"));
        let script = baseline::schedule(&fixture, jobs).await?;
        fixture.say(&format!("the script alone: {:.0}/s", script.per_s));
        fixture.saved().await?;
        Some((source, script))
    } else {
        None
    };
    let due_ms = clock::wall_ms() + FAR_DELAY_MS;
    fixture.new_round();
    fixture.send(REQUEST_DESTINATION, jobs, due_ms).await?;
    fixture.say(&format!("{jobs} requests wait on the broker"));
    let others = fixture.store.reader.waiting().await?;
    fixture.start().await?;
    let ingest = waits(&fixture, others, jobs).await?;
    fixture.say(&format!("stored at {ingest:.0}/s"));
    run.note(&metric::INGEST, ingest);
    if let Some((source, script)) = parts {
        let ceiling = metric::ceiling(source, script.per_s);
        run.note(&metric::SOURCE, source);
        run.note(&metric::SCHEDULE, script.per_s);
        run.note(&metric::INGEST_CEILING, ceiling);
        run.note(&metric::OF_INGEST_CEILING, over(ingest, ceiling));
        run.note(&metric::SCHEDULE_CPU, script.cpu_us);
    }
    let began = clock::wall_us();
    fixture.send(REQUEST_DESTINATION, jobs, due_ms).await?;
    waits(&fixture, others + jobs, jobs).await?;
    run.note(&metric::ACCEPT, per_second(jobs, clock::wall_us() - began));
    // No job is due yet.
    run.result += fixture.round.lock().result(clock::wall_ms());
    fixture.note_memory(&mut run);
    fixture.finish(run).await
}

/// Waits until `jobs` more than `others` are stored. Returns the rate since the first check that
/// saw one.
async fn waits(fixture: &Fixture, others: u64, jobs: u64) -> Result<f64> {
    let (mut first, mut seen, mut moved) = (None, others, clock::now());
    loop {
        let waiting = fixture.store.reader.waiting().await?;
        let now_us = clock::wall_us();
        if waiting > seen {
            (seen, moved) = (waiting, clock::now());
            first.get_or_insert((now_us, waiting));
        }
        if waiting > others + jobs {
            return Err(format!("{} jobs are stored of {jobs} requests", waiting - others).into());
        }
        if waiting == others + jobs {
            // All jobs were stored at the first check: the interval between two checks is the only
            // known time.
            let (since, had) = first
                .filter(|(_, had)| *had < waiting)
                .unwrap_or((now_us - 1000 * i64::from(CHECK_INTERVAL.subsec_millis()), others));
            return Ok(per_second(waiting - had, now_us - since));
        }
        if clock::now().duration_since(moved) > ARRIVAL_TIMEOUT {
            let stored = waiting.saturating_sub(others);
            let then = format!("and then none for {} s", ARRIVAL_TIMEOUT.as_secs());
            return Err(format!("{stored} of {jobs} requests were stored, {then}").into());
        }
        clock::sleep(CHECK_INTERVAL).await;
    }
}
