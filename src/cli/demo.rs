//! `dwell demo`: real servers of its own, a bridge, jobs, what arrives and how late.

use super::exit::{Exit, Stop};
use crate::stage::Kind;
use crate::telemetry::log;

/// `dwell demo`
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The broker to show
    #[arg(long, default_value = "nats")]
    pub broker: Kind,
}

/// Logs only where they are asked for: they would stand between what is shown.
pub(super) fn start_log() -> Result<(), Stop> {
    if std::env::var_os("DWELL_LOG").is_some() {
        log::start().map_err(|error| Stop::because(Exit::Usage, error.to_string(), ""))?;
    }
    Ok(())
}
