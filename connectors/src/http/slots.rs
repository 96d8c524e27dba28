//! How many requests each host has at a time, and how many connections: on HTTP/1.1 each request
//! needs one of its own.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// The most requests of one host, and the most connections.
pub(super) const SLOTS: usize = 256;

/// The hosts that have requests (or connections), each with its slots.
#[derive(Debug, Default)]
pub(super) struct HostSlots {
    hosts: Mutex<HashMap<Arc<str>, Arc<Semaphore>>>,
}

/// A slot of one host; free when dropped.
pub(super) struct Slot {
    /// Goes before its host is counted.
    _permit: OwnedSemaphorePermit,
    _host: Host,
}

/// A host that has requests, or requests that wait for a slot.
struct Host {
    slots: Arc<HostSlots>,
    origin: Arc<str>,
    /// `None` once dropped.
    semaphore: Option<Arc<Semaphore>>,
}

impl HostSlots {
    /// Waits for a slot of this host; `None` if none is free by then.
    pub(super) async fn acquire(self: &Arc<Self>, origin: impl Into<Arc<str>>, until: Instant) -> Option<Slot> {
        let origin = origin.into();
        let semaphore = Arc::clone(self.hosts.lock().entry(Arc::clone(&origin)).or_insert_with(|| Arc::new(Semaphore::new(SLOTS))));
        let host = Host { slots: Arc::clone(self), origin, semaphore: Some(Arc::clone(&semaphore)) };
        let permit = match Arc::clone(&semaphore).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => tokio::time::timeout_at(until, semaphore.acquire_owned()).await.ok()?.ok()?,
        };
        Some(Slot { _permit: permit, _host: host })
    }
}

impl Drop for Host {
    /// Forgets the host with its last request: producers name hosts, so they may be many.
    fn drop(&mut self) {
        let mut hosts = self.slots.hosts.lock();
        self.semaphore = None;
        // Only the map has the semaphore: nobody else gets one while the map is locked.
        if hosts.get(&*self.origin).is_some_and(|semaphore| Arc::strong_count(semaphore) == 1) {
            hosts.remove(&*self.origin);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_host_has_so_many_slots_and_is_forgotten_with_the_last() {
        let slots = Arc::new(HostSlots::default());
        let until = Instant::now() + Duration::from_secs(1);
        let mut held = Vec::new();
        for _ in 0..SLOTS {
            held.push(slots.acquire("http://a", until).await.unwrap());
        }
        assert!(slots.acquire("http://a", until).await.is_none(), "the time is over");
        assert!(slots.acquire("http://b", until).await.is_some(), "another host");
        assert_eq!(slots.hosts.lock().len(), 1);
        held.pop();
        held.push(slots.acquire("http://a", until + Duration::from_secs(1)).await.unwrap());
        drop(held);
        assert!(slots.hosts.lock().is_empty());
    }
}
