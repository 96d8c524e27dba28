//! `dwell bench`: load on real servers, and what came of it.

use clap::Subcommand;

/// `dwell bench`
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// What is measured
    #[command(subcommand)]
    pub what: What,
}

/// What is measured.
#[derive(Debug, Clone, Subcommand)]
pub enum What {
    /// How fast jobs leave that are all due at one instant
    Drain {
        /// How many jobs
        #[arg(long, default_value_t = 100_000)]
        jobs: u64,
        /// Bytes of each body
        #[arg(long, default_value_t = 200)]
        size: usize,
        /// Beside a bare relay through the same connectors
        #[arg(long)]
        vs_relay: bool,
    },
    /// How late jobs are at a steady rate
    Lateness {
        /// Jobs due a second
        #[arg(long, default_value_t = 1000)]
        rate: u64,
        /// Jobs that are waiting for later meanwhile
        #[arg(long, default_value_t = 100_000)]
        pending: u64,
        /// For how long, in seconds
        #[arg(long, default_value_t = 20)]
        seconds: u64,
    },
}
