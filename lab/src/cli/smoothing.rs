//! `dwell-lab smoothing`: limits, bursts of requests, and events of jobs.

use crate::smoothing::{self, Options};
use dwell::cli::common::Common;
use dwell::cli::exit::{Exit, Stop};

/// Measures and checks one of them.
///
/// # Errors
/// A promise was broken, the servers failed, or a signal arrived.
pub(super) async fn run(common: &Common, options: &Options) -> Result<Exit, Stop> {
    super::until_signal(Box::pin(async {
        let run = smoothing::run(options, super::progress(common));
        let summary = Box::pin(run).await?;
        super::figures(common, &summary)?;
        super::judged(summary.wrongs().wrongs, "")
    }))
    .await
}
