//! Those in this process that wait for places of limited queues.

use std::sync::Weak;

use parking_lot::Mutex;

/// Is told of places of limited queues that this process gave back. The pops that wait implement it.
pub trait PlaceObserver: Send + Sync {
    /// So many places of this queue are free. It does not wait.
    fn places_free(&self, queue: &str, count: usize);
}

/// The observers of a namespace.
#[derive(Default)]
pub(super) struct PlaceObservers(Mutex<Vec<Weak<dyn PlaceObserver>>>);

impl PlaceObservers {
    /// Has the observer told as long as it lives.
    pub(super) fn add(&self, observer: Weak<dyn PlaceObserver>) {
        let mut observers = self.0.lock();
        observers.retain(|known| known.strong_count() > 0);
        observers.push(observer);
    }

    /// Tells all of them.
    pub(super) fn tell(&self, queue: &str, count: usize) {
        let living: Vec<_> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        living.iter().for_each(|observer| observer.places_free(queue, count));
    }
}
