//! What a waiting job costs Redis, and how much memory Dwell takes when large bodies come and go as fast as they can.

use super::figure::{self, Run};
use super::machine::Machine;
use super::party::Party;
use super::{IN, Options, fill};
use dwell::clock;
use dwell_testkit::stage::Failure;
use dwell_testkit::usage::Usage;

/// Bytes of an id that Dwell makes.
const ID: usize = 32;

/// Large bodies, all due at one instant.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// How many.
    pub jobs: u64,
    /// Bytes of each.
    pub body: usize,
}

/// Fills the store with `options.pending` jobs, then lets the load through.
///
/// # Errors
/// The servers or the connectors failed. Faults of the jobs are in the tally.
pub async fn run(options: &Options, load: Load) -> Result<(Run, Machine), Failure> {
    // The consumer's ledger is for the load: what waits never arrives.
    let mut party = Party::gather(&Options { body: load.body, ..options.clone() }).await?;
    let mut run = Run::default();
    party.start().await?;
    note_peak(&party, &mut run, &figure::RSS, |usage| usage.rss);
    let before = party.saved().await?;
    let rate = fill::far(&party.stage, options).await?;
    let after = party.saved().await?;
    run.note(&figure::FILL, rate);
    #[allow(clippy::cast_precision_loss, reason = "bytes of one Redis")]
    let each = after.data_bytes.saturating_sub(before.data_bytes) as f64 / options.pending.max(1) as f64;
    #[allow(clippy::cast_precision_loss, reason = "bytes of a body")]
    run.note(&figure::OVERHEAD, each - (ID + options.body) as f64);
    if load.jobs > 0 {
        party.new_round();
        party.send(IN, load.jobs, clock::wall_ms()).await?;
        party.arrived(load.jobs).await?;
        run.tally += party.ledger.lock().tally(i64::MAX);
        note_peak(&party, &mut run, &figure::LOADED_RSS, |usage| usage.peak_rss);
    }
    if let Some(redis) = party.stage.redis() {
        let slow = redis.order(&["SLOWLOG", "LEN"]).await?;
        run.note_known(&figure::SLOW_CALLS, slow.first().and_then(|count| count.parse().ok()));
    }
    Ok((run, party.tear_down().await?))
}

/// Notes this of the instance that has the most of it.
#[allow(clippy::cast_precision_loss, reason = "bytes of a process")]
fn note_peak(party: &Party, run: &mut Run, kind: &'static figure::Kind, of: fn(&Usage) -> u64) {
    let most = party.pids().filter_map(|pid| Usage::of([pid])).map(|usage| of(&usage)).max();
    run.note_known(kind, most.map(|bytes| bytes as f64));
}
