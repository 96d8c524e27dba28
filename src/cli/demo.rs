//! `dwell demo`: real servers of its own, a bridge, jobs, what arrives and how late.

use clap::ValueEnum;

/// `dwell demo`
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The broker to show
    #[arg(long, default_value = "nats")]
    pub broker: Kind,
}

/// The brokers that the demo can start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// NATS JetStream.
    Nats,
}
