//! The state that producer and consumers share.

use parking_lot::Mutex;
use rand::RngExt;
use rand::rngs::StdRng;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::ledger::Ledger;
use super::tally::Tally;
use crate::client::Link;

/// The queue of every job.
pub(super) const QUEUE: &str = "lab.jobs";

/// The scene of a campaign.
pub(super) struct Scene {
    pub(super) ledger: Mutex<Ledger>,
    pub(super) tally: Tally,
    /// The ports of the instances. The first one is never killed.
    pub(super) ports: Vec<u16>,
    pub(super) stop: CancellationToken,
    /// Questions about the words of dead consumers.
    pub(super) inquests: Mutex<JoinSet<()>>,
}

impl Scene {
    pub(super) fn new(ports: Vec<u16>) -> Scene {
        Scene {
            ledger: Mutex::default(),
            tally: Tally::default(),
            ports,
            stop: CancellationToken::new(),
            inquests: Mutex::default(),
        }
    }

    /// A link to any instance.
    pub(super) fn link(&self, random: &mut StdRng) -> Link {
        Link::to(self.ports[random.random_range(0..self.ports.len())])
    }
}
