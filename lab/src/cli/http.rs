//! `dwell-lab http`: jobs for HTTP targets, measured.

use clap::Subcommand;

use crate::http::receiving::{self, Hosts};
use crate::http::{drain, hosts};
use dwell::cli::common::Common;
use dwell::cli::exit::{Exit, Stop};

/// `dwell-lab http`
#[derive(Debug, Clone, Subcommand)]
pub(super) enum What {
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
pub(super) async fn run(common: &Common, what: What) -> Result<Exit, Stop> {
    let say = super::progress(common);
    super::until_signal(Box::pin(async {
        match what {
            What::Drain(options) => super::figures(common, &drain::run(options, say).await?),
            What::Hosts(options) => super::figures(common, &hosts::run(options, say).await?),
            What::Receive { hosts } => {
                receiving::serve(hosts).await?;
                Ok(Exit::Ok)
            }
        }
    }))
    .await
}
