//! The wake-ups of this process: to its dispatchers and its consumers, and between instances.

use std::collections::HashMap;
use std::sync::Arc;

use dwell_store::maintenance::rescue::WakeReaders;
use futures_util::future::{BoxFuture, FutureExt};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::config::Redis;
use crate::consumers::Consumers;
use crate::fleet::{self, Fleet};
use crate::store::Store;
use crate::store::due_set::DueSet;
use crate::store::wake_up::WakeUp;

/// Sends wake-ups to the dispatchers of this process and to other instances.
#[derive(Clone)]
pub struct WakeUps {
    dispatchers: Arc<HashMap<String, mpsc::UnboundedSender<WakeUp>>>,
    consumers: Consumers,
    store: Arc<Store>,
    fleet: watch::Receiver<Fleet>,
}

impl WakeUps {
    /// Makes wake-ups for the dispatchers of these brokers, and for the consumers of queues.
    #[must_use]
    pub fn new(
        store: Arc<Store>,
        dispatchers: HashMap<String, mpsc::UnboundedSender<WakeUp>>,
        consumers: Consumers,
        fleet: watch::Receiver<Fleet>,
    ) -> Self {
        WakeUps { dispatchers: Arc::new(dispatchers), consumers, store, fleet }
    }

    /// Wakes the dispatcher of this process, or the pops that wait for the queue.
    pub fn wake_own(&self, head: WakeUp) {
        if DueSet::named(&head.broker).is_of_queue() {
            self.consumers.wake(&head);
        } else if let Some(dispatcher) = self.dispatchers.get(&head.broker) {
            // A dispatcher that ended needs no wake-up.
            let _ = dispatcher.send(head);
        }
    }

    /// Wakes the dispatchers of this process, and the other instances if there are any. For a
    /// broker that this process does not deliver to, other instances are assumed: an instance
    /// without dispatchers may not follow the fleet.
    pub async fn wake(&self, wake_ups: Vec<WakeUp>) {
        let foreign: Vec<WakeUp> = {
            let fleet = self.fleet.borrow();
            let is_foreign = |head: &&WakeUp| {
                !self.dispatchers.contains_key(&head.broker) || fleet.has_others(&head.broker)
            };
            wake_ups.iter().filter(is_foreign).cloned().collect()
        };
        wake_ups.into_iter().for_each(|head| self.wake_own(head));
        if let Err(error) = self.store.wake_others(&foreign).await {
            tracing::debug!(%error, "wake-ups were not sent, the floor poll of the others finds the jobs");
        }
    }

    /// Makes the dispatchers of this process read every bucket: wake-ups of other instances may
    /// have been lost.
    fn wake_all(&self) {
        self.consumers.look_again();
        for broker in self.dispatchers.keys() {
            for bucket in 0..self.store.keys().buckets() {
                self.wake_own(WakeUp { bucket, due_ms: 0, broker: broker.clone() });
            }
        }
    }
}

impl WakeReaders for WakeUps {
    fn wake_readers(&self, head: WakeUp) -> BoxFuture<'_, ()> {
        self.wake(vec![head]).boxed()
    }
}

/// Listens for wake-ups of other instances until told to stop. Reads every bucket after each gap in
/// listening.
pub async fn follow_wake_ups(
    settings: Redis,
    channel: String,
    wake_ups: WakeUps,
    stop: CancellationToken,
) {
    let listening = || wake_ups.wake_all();
    let heard = |head| wake_ups.wake_own(head);
    fleet::follow(settings, channel, listening, heard, stop).await;
}
