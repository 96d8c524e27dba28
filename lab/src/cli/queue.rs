//! `dwell-lab queue`: queues under faults, and their figures.

use clap::Subcommand;

use crate::chaos::campaign::queue as campaign;
use crate::queue::bench;
use dwell::cli::common::Common;
use dwell::cli::exit::{Exit, Stop};

/// `dwell-lab queue`
#[derive(Debug, Clone, Subcommand)]
pub(super) enum What {
    /// Kill consumers, instances and Redis while jobs are fetched, and check every hand-out
    Chaos(campaign::Options),
    /// Measure fetching over HTTP on a private Redis
    Bench(bench::Options),
}

/// Runs a campaign or measures.
///
/// # Errors
/// A promise was broken, the servers failed, or a signal arrived.
pub(super) async fn run(common: &Common, what: &What) -> Result<Exit, Stop> {
    match what {
        What::Chaos(options) => chaos(common, options).await,
        What::Bench(options) => {
            let say = super::progress(common);
            super::until_signal(Box::pin(async {
                super::figures(common, &bench::run(*options, say).await?)
            }))
            .await
        }
    }
}

/// Runs a campaign: `dwell-lab queue chaos`, and `dwell-lab chaos queue`.
///
/// # Errors
/// A promise was broken, the servers failed, or a signal arrived.
pub(super) async fn chaos(common: &Common, options: &campaign::Options) -> Result<Exit, Stop> {
    let seed = options.seed.unwrap_or_else(rand::random);
    let repeat = format!("to repeat: dwell-lab chaos {}", options.repeat(seed));
    super::until_signal(Box::pin(async {
        let summary = Box::pin(campaign::run(options, seed, super::progress(common))).await;
        let summary = summary
            .map_err(|error| Stop::because(Exit::Failed, error.to_string(), repeat.as_str()))?;
        super::figures(common, &summary)?;
        let history = summary.history.map(|file| format!("history: {}\n  ", file.display()));
        let hint = history.unwrap_or_default() + &repeat;
        super::judged(summary.wrongs as u64, &hint)
    }))
    .await
}
