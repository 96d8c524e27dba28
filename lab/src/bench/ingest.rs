//! How fast requests come in: from the broker to the store, acknowledged. `dwell-lab bench schedule`.

use super::figure::{self, Run, over};
use super::machine::Machine;
use super::party::Party;
use super::{IN, LOOK, Options, PATIENCE, alone, per_second};
use dwell::clock;
use dwell_testkit::stage::Failure;

/// Jobs are due when all is over, ms.
const FAR_MS: i64 = 3_600_000;

/// `jobs` requests wait on the broker when the instances start, and as many are then sent while they run; `beside`: the source and the script alone.
///
/// # Errors
/// The servers or the connectors failed.
pub async fn run(options: &Options, jobs: u64, beside: bool) -> Result<(Run, Machine), Failure> {
    let mut party = Party::gather(options).await?;
    let mut run = Run::default();
    run.note_known(&figure::FILL, party.fill().await?);
    let parts = if beside {
        let source = alone::source(&mut party, jobs).await?;
        party.say(&format!("the source alone: {source:.0}/s"));
        let script = alone::schedule(&party, jobs).await?;
        party.say(&format!("the script alone: {:.0}/s", script.per_s));
        party.saved().await?;
        Some((source, script))
    } else {
        None
    };
    let due_ms = clock::wall_ms() + FAR_MS;
    party.new_round();
    party.send(IN, jobs, due_ms).await?;
    party.say(&format!("{jobs} requests wait on the broker"));
    let others = party.store.waiting().await?;
    party.start().await?;
    let ingest = waits(&party, others, jobs).await?;
    party.say(&format!("stored at {ingest:.0}/s"));
    run.note(&figure::INGEST, ingest);
    if let Some((source, script)) = parts {
        let ceiling = figure::ceiling(source, script.per_s);
        run.note(&figure::SOURCE, source);
        run.note(&figure::SCHEDULE, script.per_s);
        run.note(&figure::INGEST_CEILING, ceiling);
        run.note(&figure::OF_INGEST_CEILING, over(ingest, ceiling));
        run.note(&figure::SCHEDULE_CPU, script.cpu_us);
    }
    let began = clock::wall_us();
    party.send(IN, jobs, due_ms).await?;
    waits(&party, others + jobs, jobs).await?;
    run.note(&figure::ACCEPT, per_second(jobs, clock::wall_us() - began));
    // None of them is due.
    run.tally += party.ledger.lock().tally(clock::wall_ms());
    party.note_memory(&mut run);
    Ok((run, party.tear_down().await?))
}

/// Waits until `jobs` more than `others` are stored: how many a second, from the first look at which there were some.
async fn waits(party: &Party, others: u64, jobs: u64) -> Result<f64, Failure> {
    let (mut first, mut seen, mut moved) = (None, others, clock::now());
    loop {
        let waiting = party.store.waiting().await?;
        let now_us = clock::wall_us();
        if waiting > seen {
            (seen, moved) = (waiting, clock::now());
            first.get_or_insert((now_us, waiting));
        }
        if waiting > others + jobs {
            return Err(Failure::Course(format!("{} jobs are stored of {jobs} requests", waiting - others)));
        }
        if waiting == others + jobs {
            // All at the first look: too few for a rate, and the time between two looks is all that is known.
            let (since, had) = first.filter(|(_, had)| *had < waiting).unwrap_or((now_us - 1000 * i64::from(LOOK.subsec_millis()), others));
            return Ok(per_second(waiting - had, now_us - since));
        }
        if clock::now().duration_since(moved) > PATIENCE {
            let stored = waiting.saturating_sub(others);
            return Err(Failure::Course(format!("{stored} of {jobs} requests were stored, and then none for {} s", PATIENCE.as_secs())));
        }
        clock::sleep(LOOK).await;
    }
}
