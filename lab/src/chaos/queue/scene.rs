//! The state that producer and consumers share.

use std::sync::Arc;

use parking_lot::Mutex;
use rand::RngExt;
use rand::rngs::StdRng;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::chaos::history::Tally;
use crate::chaos::recorder::Recorder;
use crate::client::Link;

/// The queue of every job.
pub(crate) const QUEUE: &str = "lab.jobs";

/// The scene of a campaign.
pub(crate) struct Scene {
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) tally: Mutex<Tally>,
    /// The ports of the instances. The first one is never killed.
    pub(crate) ports: Vec<u16>,
    pub(crate) stop: CancellationToken,
    /// Questions about the words of dead consumers.
    pub(crate) inquests: Mutex<JoinSet<()>>,
}

impl Scene {
    pub(crate) fn new(recorder: Arc<Recorder>, ports: Vec<u16>) -> Scene {
        let (tally, stop, inquests) = Default::default();
        Scene { recorder, tally, ports, stop, inquests }
    }

    /// A link to any instance.
    pub(super) fn link(&self, random: &mut StdRng) -> Link {
        Link::to(self.ports[random.random_range(0..self.ports.len())])
    }
}
