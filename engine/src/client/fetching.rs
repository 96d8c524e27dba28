//! The pops of a client, and one connection for wake-ups.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dwell_store::config::Redis;
use dwell_store::consumers::Consumers;
use dwell_store::fleet;
use dwell_store::policy::late::LateRules;
use dwell_store::store::Store;
use tokio_util::sync::CancellationToken;

/// The pops of a client. Dropped with the last clone of the client; then its tasks end.
pub(crate) struct Fetching {
    pub(crate) consumers: Consumers,
    pub(crate) settings: Redis,
    channel: String,
    stop: CancellationToken,
    is_listening: AtomicBool,
}

impl Fetching {
    pub(super) fn new(store: Arc<Store>, settings: &Redis) -> Fetching {
        let (stop, channel) = (CancellationToken::new(), store.keys().wake());
        let consumers = Consumers::new(store, LateRules::default(), Arc::new(()), stop.clone());
        Fetching {
            consumers,
            settings: settings.clone(),
            channel,
            stop,
            is_listening: AtomicBool::new(false),
        }
    }

    /// Listens for wake-ups from the first call on. Without them, a waiting pop finds a job by its
    /// floor poll.
    pub(crate) fn listen(&self) {
        if self.is_listening.swap(true, Ordering::Relaxed) {
            return;
        }
        let (hearing, missing) = (self.consumers.clone(), self.consumers.clone());
        let (settings, channel, stop) =
            (self.settings.clone(), self.channel.clone(), self.stop.clone());
        tokio::spawn(fleet::follow(
            settings,
            channel,
            move || missing.look_again(),
            move |head| hearing.wake(&head),
            stop,
        ));
    }
}

impl Drop for Fetching {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
