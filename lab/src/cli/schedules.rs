//! `dwell-lab schedules`: recurring schedules under faults.

use crate::schedules::worker::{self, Work};
use crate::schedules::{self, Options};
use dwell::cli::common::Common;
use dwell::cli::exit::{Exit, Stop};

/// Runs a campaign.
///
/// # Errors
/// A promise was broken, the servers failed, or a signal arrived.
pub(super) async fn run(common: &Common, options: &Options) -> Result<Exit, Stop> {
    let seed = options.seed.unwrap_or_else(|| u64::from(rand::random::<u32>()));
    super::until_signal(Box::pin(async {
        let campaign = schedules::run(options, seed, super::progress(common));
        let summary = Box::pin(campaign).await?;
        common.answer(&summary, &summary.to_string())?;
        let hint = format!("to repeat: the same options with --seed {seed}");
        super::judged(summary.counts.wrongs.wrongs, &hint)
    }))
    .await
}

/// Works until the input ends: a process of a campaign.
///
/// # Errors
/// Redis or the file of the receipts is not available, or a signal arrived.
pub(super) async fn work(options: &Work) -> Result<Exit, Stop> {
    super::until_signal(Box::pin(async {
        Box::pin(worker::work(options)).await?;
        Ok(Exit::Ok)
    }))
    .await
}
