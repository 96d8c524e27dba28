//! The shares of a listener's connections that calls which wait may have. The rest is for calls
//! that are answered at once, however many consumers wait: those of one peer leave some of its own.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderValue, header};
use axum::response::Response;
use futures_util::FutureExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::clock::{self, Instant};
use crate::store::error::{Class, StoreError};

/// The longest wait of a call beyond the share: its client asks again at once.
const MAX_WAIT_BEYOND_SHARE: Duration = Duration::from_secs(1);
/// The number of peers from which on those that have gone are forgotten.
const MIN_PRUNED_PEERS: usize = 64;

/// The calls that may wait at a listener.
#[derive(Debug)]
pub(super) struct WaitShares {
    of_listener: Arc<Semaphore>,
    /// That of all listeners which share their room.
    of_all: Arc<Semaphore>,
    /// The most connections of one peer.
    most_of_peer: usize,
    /// Of the peers that have connections, and of some that had.
    peers: HashMap<IpAddr, Weak<Inner>>,
    /// The number of peers at which those that have gone are forgotten.
    prune_at: usize,
}

/// The calls of one peer that may wait at a listener. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct WaitShare(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// For long: of the peer, the listener, and all listeners.
    long: [Arc<Semaphore>; 3],
    /// For a moment.
    brief: Arc<Semaphore>,
}

impl WaitShares {
    /// The shares of a listener of so many connections, within that of all listeners.
    pub(super) fn new(
        connections: usize,
        most_of_peer: usize,
        of_all: Arc<Semaphore>,
    ) -> WaitShares {
        WaitShares {
            of_listener: places(connections),
            of_all,
            most_of_peer,
            peers: HashMap::new(),
            prune_at: MIN_PRUNED_PEERS,
        }
    }

    /// The share of this peer: of its connections, seven eighths for long, and a sixteenth for a
    /// moment.
    pub(super) fn of_peer(&mut self, peer: IpAddr) -> WaitShare {
        if let Some(share) = self.peers.get(&peer).and_then(Weak::upgrade) {
            return WaitShare(share);
        }
        if self.peers.len() >= self.prune_at {
            self.peers.retain(|_, share| share.strong_count() > 0);
            self.prune_at = MIN_PRUNED_PEERS.max(self.peers.len() * 2);
        }
        let most = self.most_of_peer;
        let share = Arc::new(Inner {
            long: [
                semaphore(most - most.div_ceil(8)),
                self.of_listener.clone(),
                self.of_all.clone(),
            ],
            brief: semaphore(most / 16),
        });
        self.peers.insert(peer, Arc::downgrade(&share));
        WaitShare(share)
    }
}

impl WaitShare {
    /// The share of the peer that this request came from, at its listener.
    pub(crate) fn of(extensions: &Extensions) -> WaitShare {
        // Without a listener there are no other calls.
        extensions.get().cloned().unwrap_or_else(WaitShare::endless)
    }

    /// Without a bound.
    pub(super) fn endless() -> WaitShare {
        WaitShares::new(usize::MAX, usize::MAX, places(usize::MAX))
            .of_peer(Ipv4Addr::UNSPECIFIED.into())
    }

    /// A call that waits until then; for [`MAX_WAIT_BEYOND_SHARE`] if the share is taken; not at
    /// all if too many others of its own peer wait.
    pub(crate) fn wait(&self, until: Instant) -> Wait {
        let take = |share: &Arc<Semaphore>| share.clone().try_acquire_owned().ok();
        let [of_peer, of_listener, of_all] = &self.0.long;
        let now = clock::now();
        let peer = match take(of_peer) {
            None => None,
            Some(peer) => match take(of_listener).zip(take(of_all)) {
                Some((listener, all)) => {
                    return Wait { until, places: Places::Long([peer, listener, all]) };
                }
                // Others have taken the share: the peer has room for calls that do not wait.
                None => Some(peer),
            },
        };
        match peer.or_else(|| take(&self.0.brief)) {
            Some(brief) => {
                Wait { until: until.min(now + MAX_WAIT_BEYOND_SHARE), places: Places::Brief(brief) }
            }
            None => Wait { until: until.min(now), places: Places::None },
        }
    }
}

/// The places of calls that wait: three quarters of so many connections.
pub(super) fn places(connections: usize) -> Arc<Semaphore> {
    semaphore((connections / 4 * 3).max(1))
}

fn semaphore(places: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(places.min(Semaphore::MAX_PERMITS)))
}

impl<S: Send + Sync> FromRequestParts<S> for WaitShare {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(WaitShare::of(&parts.extensions))
    }
}

/// A call that waits.
#[derive(Debug)]
pub(crate) struct Wait {
    until: Instant,
    places: Places,
}

/// The places of a call in the shares.
#[derive(Debug)]
enum Places {
    Long(#[allow(dead_code, reason = "given back when dropped")] [OwnedSemaphorePermit; 3]),
    Brief(#[allow(dead_code, reason = "given back when dropped")] OwnedSemaphorePermit),
    None,
}

impl Wait {
    /// Refuses a call without a place: an empty answer that comes at once would have its consumer
    /// ask again at once.
    ///
    /// # Errors
    /// [`Class::Memory`]: others of its peer have the places.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        match self.places {
            Places::Long(_) | Places::Brief(_) => Ok(()),
            Places::None => Err(StoreError::new(
                Class::Memory,
                "the pops of this address that wait have all of its places",
            )
            .hint("try again in a second, wait in fewer calls at a time, or run more instances")),
        }
    }

    /// The end of the wait.
    pub(crate) fn until(&self) -> Instant {
        self.until
    }

    /// The answer, which keeps its place in the share until it is there. Beyond the share it ends
    /// its connection: others have waited for one longer than its client has for its next call.
    pub(crate) fn kept(
        self,
        answer: impl Future<Output = Response>,
    ) -> impl Future<Output = Response> {
        let places = self.places;
        // Combined: a future that is awaited here has its place twice.
        answer.map(move |mut response| {
            if !matches!(places, Places::Long(_)) {
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert(header::CONNECTION, close);
            }
            drop(places);
            response
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The share of one peer of a listener, which may have all of its connections.
    fn share(connections: usize, of_all: Arc<Semaphore>) -> WaitShare {
        WaitShares::new(connections, 1000, of_all).of_peer(Ipv4Addr::LOCALHOST.into())
    }

    /// Whether the answer to this call ends its connection.
    async fn closes(wait: Wait) -> bool {
        let answer = wait.kept(std::future::ready(Response::default())).await;
        answer.headers().contains_key(header::CONNECTION)
    }

    #[tokio::test(start_paused = true)]
    async fn three_quarters_wait_for_long_and_the_rest_for_a_moment() {
        let share = share(16, places(1000));
        let until = clock::now() + MAX_WAIT_BEYOND_SHARE * 60;
        let within: Vec<Wait> = (0..12).map(|_| share.wait(until)).collect();
        assert!(within.iter().all(|wait| wait.until() == until));
        for asked in [until, clock::now()] {
            let beyond = share.clone().wait(asked);
            let moment = clock::now() + MAX_WAIT_BEYOND_SHARE;
            assert_eq!(beyond.until(), asked.min(moment));
            assert!(closes(beyond).await);
        }
        for wait in within {
            assert!(!closes(wait).await);
        }
        assert_eq!(share.wait(until).until(), until, "an answered call has no place");
    }

    #[tokio::test(start_paused = true)]
    async fn listeners_that_share_their_room_share_its_places() {
        let all = places(16);
        let [one, other] = [(); 2].map(|()| share(16, all.clone()));
        let until = clock::now() + MAX_WAIT_BEYOND_SHARE * 60;
        let mut within: Vec<Wait> = (0..12).map(|_| one.wait(until)).collect();
        assert!(other.wait(until).until() < until);
        within.pop();
        assert_eq!(other.wait(until).until(), until, "a call that was refused there has no place");
    }

    #[tokio::test(start_paused = true)]
    async fn the_calls_of_a_peer_that_wait_leave_connections_to_its_others() {
        let mut shares = WaitShares::new(1000, 32, places(1000));
        let [one, other] = [1, 2].map(|last| shares.of_peer(Ipv4Addr::new(192, 0, 2, last).into()));
        let (now, moment) = (clock::now(), clock::now() + MAX_WAIT_BEYOND_SHARE);
        let until = now + MAX_WAIT_BEYOND_SHARE * 60;
        let same = shares.of_peer(Ipv4Addr::new(192, 0, 2, 1).into());
        let mut waits: Vec<Wait> = (0..32).map(|_| same.wait(until)).collect();
        let ends = |of: Instant| waits.iter().filter(|wait| wait.until() == of).count();
        assert_eq!([until, moment, now].map(ends), [28, 2, 2]);
        let refused: Vec<bool> = waits.iter().map(|wait| wait.check().is_err()).collect();
        assert_eq!(refused, [vec![false; 30], vec![true; 2]].concat());
        assert_eq!(other.wait(until).until(), until, "another peer has its own");
        assert!(closes(waits.remove(31)).await && closes(waits.remove(29)).await);
        assert_eq!(one.wait(until).until(), moment, "an answered call has no place");
        assert!(!closes(waits.remove(0)).await);
        assert_eq!(one.wait(until).until(), until);
    }

    #[test]
    fn peers_that_have_gone_are_forgotten() {
        let mut shares = WaitShares::new(1000, 32, places(1000));
        let stays = shares.of_peer(Ipv4Addr::LOCALHOST.into());
        for last in 0..10_000 {
            shares.of_peer(Ipv4Addr::from_bits(last).into());
        }
        assert!(shares.peers.len() <= MIN_PRUNED_PEERS, "{}", shares.peers.len());
        assert!(Arc::ptr_eq(&shares.of_peer(Ipv4Addr::LOCALHOST.into()).0, &stays.0));
    }
}
