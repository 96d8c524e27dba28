//! `dwell-lab demo`: real servers of its own, a bridge, jobs, what arrives and how late.

use crate::demo;
use dwell::cli::common::{Common, Form};
use dwell::cli::exit::{Exit, Stop};
use dwell::shutdown::Signals;
use dwell::telemetry::log;
use dwell_testkit::servers::BrokerKind;

/// `dwell-lab demo`
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Args {
    /// The broker to show
    #[arg(long, default_value = "nats")]
    pub broker: BrokerKind,
}

/// Logs only where they are asked for: they would stand between what is shown.
pub(super) fn start_log() -> Result<(), Stop> {
    if std::env::var_os("DWELL_LOG").is_some() {
        log::start().map_err(|error| Stop::because(Exit::Usage, error.to_string(), ""))?;
    }
    Ok(())
}

/// Shows the bridge at work, and fails where something becomes of a job that must not.
///
/// # Errors
/// The same, or the servers failed, or it was interrupted.
pub(super) async fn run(common: &Common, args: &Args) -> Result<Exit, Stop> {
    start_log()?;
    let mut signals = Signals::new()?;
    let summary = tokio::select! {
        summary = Box::pin(demo::run(args.broker, common.output == Form::Json)) => summary?,
        // The servers and their folders end with the future.
        signal = signals.next() => return Err(Stop::because(Exit::Failed, format!("{signal}: stopped"), "")),
    };
    common.answer(&summary, &format!("\n{summary}"))?;
    if summary.wrong.is_empty() { Ok(Exit::Ok) } else { Err(Stop::because(Exit::Failed, summary.wrong.join("; "), "")) }
}
