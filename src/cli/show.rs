//! `dwell show ID`: one job, straight from Redis.

/// `dwell show`
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The job's id
    pub id: String,
    /// Show its body too
    #[arg(long)]
    pub body: bool,
}
