//! A pop that waits for a job.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::places::NamesPlace;
use super::watch::Call;
use crate::store::error::StoreError;

/// A pop that waits, in the watches of its queues. Dropped with a grant that it did not take, it
/// gives the grant to the next one.
pub(super) struct Waiter {
    shared: Arc<Shared>,
}

/// The part of a waiting pop that its watches know.
#[derive(Default)]
pub(super) struct Shared {
    place: Mutex<Place>,
    changed: Notify,
    /// The place of the names of the pop, as long as it waits.
    _names: Option<NamesPlace>,
}

/// The answer to a waiting pop.
#[derive(Default)]
enum Place {
    /// No answer yet.
    #[default]
    Open,
    /// A grant that the pop has not taken yet.
    Granted(Result<Call, StoreError>),
    /// Taken: the pop waits no more.
    Taken,
}

impl Waiter {
    pub(super) fn new(names: Option<NamesPlace>) -> Waiter {
        Waiter { shared: Arc::new(Shared { _names: names, ..Shared::default() }) }
    }

    pub(super) fn shared(&self) -> Weak<Shared> {
        Arc::downgrade(&self.shared)
    }

    /// The grant, if there is one: a grant at the end of the wait counts.
    pub(super) fn take(&self) -> Option<Result<Call, StoreError>> {
        let mut place = self.shared.place.lock();
        if matches!(*place, Place::Open) {
            return None;
        }
        match std::mem::replace(&mut *place, Place::Taken) {
            Place::Granted(granted) => Some(granted),
            Place::Open | Place::Taken => None,
        }
    }

    /// Waits for a bucket that has a due job, or for the error of the look-up.
    pub(super) async fn granted(&self) -> Result<Call, StoreError> {
        loop {
            let changed = self.shared.changed.notified();
            if let Some(granted) = self.take() {
                return granted;
            }
            changed.await;
        }
    }
}

impl Shared {
    /// Gives a waiting pop its answer, unless it has one.
    pub(super) fn give(&self, granted: Result<Call, StoreError>) {
        let mut place = self.place.lock();
        if matches!(*place, Place::Open) {
            *place = Place::Granted(granted);
            self.changed.notify_one();
        }
    }
}
