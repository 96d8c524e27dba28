//! A pop that waits for a job. `G` is what it gets: the grant of a bucket.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::places::NamesPlace;
use crate::store::error::StoreError;

/// A pop that waits, in the watches of its queues. Dropped with a grant that it did not take, it
/// gives the grant to the next one.
pub(super) struct Waiter<G> {
    shared: Arc<Shared<G>>,
}

/// The part of a waiting pop that its watches know.
pub(super) struct Shared<G> {
    slot: Mutex<GrantSlot<G>>,
    changed: Notify,
    /// The place of the names of the pop, as long as it waits.
    _names: Option<NamesPlace>,
}

/// The answer to a waiting pop.
enum GrantSlot<G> {
    /// No answer yet.
    Open,
    /// A grant that the pop has not taken yet.
    Granted(Result<G, StoreError>),
    /// Taken: the pop waits no more.
    Taken,
}

impl<G> Waiter<G> {
    pub(super) fn new(names: Option<NamesPlace>) -> Self {
        let slot = Mutex::new(GrantSlot::Open);
        Waiter { shared: Arc::new(Shared { slot, changed: Notify::new(), _names: names }) }
    }

    pub(super) fn shared(&self) -> Weak<Shared<G>> {
        Arc::downgrade(&self.shared)
    }

    /// The grant, if there is one: a grant at the end of the wait counts.
    pub(super) fn take(&self) -> Option<Result<G, StoreError>> {
        let mut slot = self.shared.slot.lock();
        if matches!(*slot, GrantSlot::Open) {
            return None;
        }
        match std::mem::replace(&mut *slot, GrantSlot::Taken) {
            GrantSlot::Granted(granted) => Some(granted),
            GrantSlot::Open | GrantSlot::Taken => None,
        }
    }

    /// Waits for a bucket that has a due job, or for the error of the look-up.
    pub(super) async fn granted(&self) -> Result<G, StoreError> {
        loop {
            let changed = self.shared.changed.notified();
            if let Some(granted) = self.take() {
                return granted;
            }
            changed.await;
        }
    }
}

impl<G> Shared<G> {
    /// Gives a waiting pop its answer, unless it has one.
    pub(super) fn give(&self, granted: Result<G, StoreError>) {
        let mut slot = self.slot.lock();
        if matches!(*slot, GrantSlot::Open) {
            *slot = GrantSlot::Granted(granted);
            self.changed.notify_one();
        }
    }
}
