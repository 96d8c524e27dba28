//! `dwell stats`: how many jobs there are, straight from Redis.

/// `dwell stats`
#[derive(Debug, Clone, clap::Args)]
pub struct Args {}
