//! `dwell ls`: the jobs, by due time, straight from Redis.

use clap::ValueEnum;

/// `dwell ls`
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Which jobs
    #[arg(long, default_value = "scheduled")]
    pub state: State,
    /// Only jobs for this target
    #[arg(long)]
    pub target: Option<String>,
    /// Only jobs due at this time or later: 2026-01-31T12:00:00Z or epoch milliseconds
    #[arg(long, value_name = "TIME")]
    pub from: Option<String>,
    /// Only jobs due before this time
    #[arg(long, value_name = "TIME")]
    pub to: Option<String>,
    /// How many jobs at most
    #[arg(long, default_value_t = 100)]
    pub limit: usize,
    /// Go on showing them until interrupted
    #[arg(long)]
    pub watch: bool,
}

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum State {
    /// Waits for its time, or for its next attempt.
    Scheduled,
    /// An attempt is out, or waits for its consumer.
    Reserved,
    /// Kept as a dead letter.
    Dead,
}
