//! `dwell-lab queue`: queues under faults, and their figures.

use clap::Subcommand;

use crate::chaos::campaign::queue as campaign;
use crate::queue::bench;
use dwell::cli::common::Common;
use dwell::cli::exit::{Exit, Stop};

/// `dwell-lab queue`
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Clone, Subcommand)]
enum What {
    /// Kill consumers, instances and Redis while jobs are fetched, and check every hand-out
    Chaos(campaign::Options),
    /// Measure fetching over HTTP on a private Redis
    Bench(bench::Options),
}

/// Runs a campaign or measures.
///
/// # Errors
/// A promise was broken, the servers failed, or a signal arrived.
pub(super) async fn run(common: &Common, args: &Args) -> Result<Exit, Stop> {
    let say = super::progress(common);
    super::until_signal(Box::pin(async {
        match &args.what {
            What::Chaos(options) => {
                let summary = Box::pin(campaign::run(options, say)).await;
                let summary =
                    summary.map_err(|error| Stop::because(Exit::Failed, error.to_string(), ""))?;
                super::figures(common, &summary)?;
                if summary.wrongs == 0 {
                    Ok(Exit::Ok)
                } else {
                    Err(Stop::because(Exit::Failed, "a promise was broken", ""))
                }
            }
            What::Bench(options) => super::figures(common, &bench::run(*options, say).await?),
        }
    }))
    .await
}
