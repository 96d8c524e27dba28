//! The options of the queue scenario.

use std::path::PathBuf;

use dwell::config::{Durability, RedisMode};

use crate::chaos::campaign::options::run_name;
use crate::chaos::fault::FaultKind;
use crate::chaos::history::QUEUE;
use crate::words;

/// The options of a campaign.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// How many jobs
    #[arg(long, default_value_t = 200_000)]
    pub jobs: u64,
    /// Jobs scheduled a second, due within two seconds; 0: as many as possible
    #[arg(long, default_value_t = 1000)]
    pub rate: u64,
    /// Other queues with a job each, every second one cancelled
    #[arg(long, default_value_t = 10_000)]
    pub names: u64,
    /// How many consumers
    #[arg(long, default_value_t = 50)]
    pub consumers: usize,
    /// The share of the consumers that is killed, from 0 to 1: each of them lives for a random time
    /// of at most 4 s, is killed whatever it is doing (while it waits, between a pop and its
    /// finish, while its finish is under way), and another one takes its place. The lease of a pop
    /// is 2 s
    #[arg(long, default_value_t = 0.33, value_parser = share)]
    pub killed: f64,
    /// How many instances; the first one is never killed
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub instances: u16,
    /// `redis.mode`: single (with a replica at durability replica), cluster or sentinel
    #[arg(long, default_value = "single", value_parser = words::parse::<RedisMode>)]
    pub redis: RedisMode,
    /// `redis.durability`: memory, fsync, replica or fsync+replica
    #[arg(long, default_value = "replica", value_parser = words::parse::<Durability>)]
    pub durability: Durability,
    /// Kill consumers only
    #[arg(long, conflicts_with = "only")]
    pub consumers_only: bool,
    /// Only these kinds of faults, separated by commas; by default those that kill instances and
    /// Redis, replace its master or move slots, as far as they apply
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<FaultKind>,
    /// The seed; by default a new one
    #[arg(long)]
    pub seed: Option<u64>,
    /// The folder for history and report, and for the logs after a violation; by default they are
    /// not kept
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

impl Options {
    /// The name of the run in the names of its files.
    pub(super) fn name(&self, seed: u64) -> String {
        run_name(QUEUE, self.redis, seed)
    }

    /// The arguments of `dwell-lab chaos` that repeat a run.
    pub(crate) fn repeat(&self, seed: u64) -> String {
        let Options { jobs, rate, names, consumers, killed, instances, only, .. } = self;
        let (redis, durability) = (words::word(&self.redis), words::word(&self.durability));
        let only: Vec<String> = only.iter().map(ToString::to_string).collect();
        let faults = match (self.consumers_only, only.is_empty()) {
            (true, _) => " --consumers-only".to_owned(),
            (_, true) => String::new(),
            _ => format!(" --only {}", only.join(",")),
        };
        format!(
            "queue --jobs {jobs} --rate {rate} --names {names} --consumers {consumers} --killed {killed} \
             --instances {instances} --redis {redis} --durability {durability} --seed {seed}{faults}"
        )
    }

    /// The number of consumers that are killed again and again.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a share of consumers"
    )]
    pub(super) fn mortal(&self) -> usize {
        (self.consumers as f64 * self.killed).ceil() as usize
    }
}

fn share(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| "write a number from 0 to 1".to_owned())
}
