//! `dwell run`: the sidecar.

/// `dwell run`
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Only dispatch: read no requests
    #[arg(long, conflicts_with = "no_dispatch")]
    pub no_ingest: bool,
    /// Only ingest: publish no due jobs
    #[arg(long)]
    pub no_dispatch: bool,
}
