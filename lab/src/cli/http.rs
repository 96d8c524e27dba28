//! `dwell-lab http`: jobs for HTTP targets, measured.

use clap::Subcommand;

use crate::http::receiving::{self, Hosts};
use crate::http::{drain, hosts};
use dwell::cli::common::{Common, Form};
use dwell::cli::exit::{Exit, Stop};
use dwell::shutdown::Signals;

/// `dwell-lab http`
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Clone, Subcommand)]
enum What {
    /// Measure a backlog for one fast host, in turns with a bare client of the same library
    Drain(drain::Options),
    /// Measure the lateness of many hosts while others answer late or not at all
    Hosts(hosts::Options),
    /// Serve the targets of the other commands, in a process of its own
    #[command(hide = true)]
    Receive {
        #[command(flatten)]
        hosts: Hosts,
    },
}

/// Measures.
///
/// # Errors
/// The servers failed, jobs did not arrive, or a signal arrived.
pub(super) async fn run(common: &Common, args: &Args) -> Result<Exit, Stop> {
    super::demo::start_log()?;
    let say: fn(&str) =
        if common.output == Form::Text { |text| eprintln!("{text}") } else { |_| {} };
    let mut signals = Signals::new()?;
    tokio::select! {
        exit = Box::pin(one(common, &args.what, say)) => exit,
        // The child processes end with the future.
        signal = signals.next() => Err(Stop::because(Exit::Failed, format!("{signal}: stopped"), "")),
    }
}

async fn one(common: &Common, what: &What, say: fn(&str)) -> Result<Exit, Stop> {
    match *what {
        What::Drain(options) => {
            let figures = drain::run(options, say).await?;
            common.answer(&figures, &format!("{figures:#?}"))?;
        }
        What::Hosts(options) => {
            let figures = hosts::run(options, say).await?;
            common.answer(&figures, &format!("{figures:#?}"))?;
        }
        What::Receive { hosts } => receiving::serve(hosts).await?,
    }
    Ok(Exit::Ok)
}
