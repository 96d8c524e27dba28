//! The most connections that all listeners together may hold, by the system's limit of open files.
//! The rest is for Redis, the brokers and the targets: no caller may take their descriptors.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::Semaphore;

use super::MAX_CONSUMER_CONNECTIONS;
use super::buffers::Buffers;
use crate::http::server::waits;

/// The most files that are kept for everything else; of few files, half.
const RESERVED_FILES: u64 = 2048;
/// The most files of a listener that others never take.
const MAX_OWN_FILES: u64 = 32;
/// The listeners: probes, admin API, and the two of `[compat]`.
const LISTENER_COUNT: u64 = 4;
/// No kernel gives a process more by default.
const MAX_FILES: u64 = 1 << 20;

/// The room of all listeners. Clones share it.
#[derive(Debug, Clone)]
pub struct Room(Arc<Inner>, Buffers);

#[derive(Debug)]
struct Inner {
    /// The connections of each listener that take no place.
    own: usize,
    places: usize,
    taken: AtomicUsize,
    /// The places of calls that wait, at whichever listener.
    waits: Arc<Semaphore>,
}

/// The permit of one connection, given back when dropped.
#[derive(Debug)]
pub(super) struct ConnectionPermit(Arc<Inner>);

impl Room {
    /// Raises the limit of open files to the most that the system allows, and divides it.
    #[must_use]
    pub fn of_system() -> Room {
        let limit = getrlimit(Resource::Nofile);
        let most = limit.maximum.unwrap_or(MAX_FILES).min(MAX_FILES);
        let now = limit.current.unwrap_or(MAX_FILES);
        if now >= most
            || setrlimit(Resource::Nofile, Rlimit { current: Some(most), ..limit }).is_err()
        {
            return Room::of(now);
        }
        Room::of(most)
    }

    /// The room within so many files.
    pub(super) fn of(files: u64) -> Room {
        let own = (files / 32).min(MAX_OWN_FILES);
        let places = files - (files / 2).min(RESERVED_FILES) - own * LISTENER_COUNT;
        let [own, places] = [own, places].map(|files| usize::try_from(files).unwrap_or(usize::MAX));
        let waits = waits::places(places.saturating_add(own));
        Room(Arc::new(Inner { own, places, taken: AtomicUsize::new(0), waits }), Buffers::default())
    }

    /// The most connections of one listener.
    #[must_use]
    pub fn most(&self) -> usize {
        self.0.places + self.0.own
    }

    /// The connections of each listener that take no place.
    pub(super) fn own(&self) -> usize {
        self.0.own
    }

    /// The same room with buffers of its own: for probes, which answer whatever others do.
    #[must_use]
    pub fn for_probes(&self) -> Room {
        Room(self.0.clone(), Buffers::default())
    }

    /// The buffers of all connections.
    pub(super) fn buffers(&self) -> &Buffers {
        &self.1
    }

    /// The places of calls that wait, at whichever listener.
    pub(super) fn waits(&self) -> Arc<Semaphore> {
        self.0.waits.clone()
    }

    pub(super) fn has_place(&self) -> bool {
        self.0.taken.load(Ordering::Relaxed) < self.0.places
    }

    /// Takes a place, if there is one.
    pub(super) fn take(&self) -> Option<ConnectionPermit> {
        let more = |taken| (taken < self.0.places).then_some(taken + 1);
        self.0.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(ConnectionPermit(self.0.clone()))
    }
}

impl Default for Room {
    /// Room for every listener's own limit.
    fn default() -> Room {
        Room::of(LISTENER_COUNT * MAX_CONSUMER_CONNECTIONS as u64 + RESERVED_FILES * 2)
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_few_files_and_enough_of_many_are_kept_for_the_rest() {
        let of = |files| (Room::of(files).0.places, Room::of(files).own());
        assert_eq!([of(64), of(1024), of(20_000)], [(24, 2), (384, 32), (17_824, 32)]);
        for files in [0, 1, 31, 64, 1000, 4096, 20_000, MAX_FILES] {
            let (places, own) = of(files);
            assert!(
                places as u64 + own as u64 * LISTENER_COUNT + (files / 2).min(RESERVED_FILES)
                    <= files,
                "{files}"
            );
        }
    }

    #[test]
    fn a_place_is_free_again_after_its_connection() {
        let room = Room::of(64);
        let permits: Vec<ConnectionPermit> = std::iter::from_fn(|| room.take()).collect();
        assert_eq!((permits.len(), room.has_place()), (24, false));
        drop(permits);
        assert!(room.has_place() && room.take().is_some());
    }
}
