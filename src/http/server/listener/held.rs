//! Probes whose peer has no room for them yet.

use std::collections::VecDeque;
use std::net::IpAddr;

use tokio::net::TcpStream;

/// The most connections of one peer: kubelet sends its probes side by side.
const MAX_OF_PEER: usize = 2;
/// The most connections of all peers: none of them has a place in the room of the listeners.
const MAX_HELD: usize = 8;

/// Accepted connections of peers at their limit whose own connections are all busy. A probe is
/// answered at once, so one of them waits for its client soon.
#[derive(Debug, Default)]
pub(super) struct Held(VecDeque<(TcpStream, IpAddr)>);

impl Held {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Holds a connection. If there are too many, the oldest one is closed, of the same peer if
    /// that has too many. Returns the peer of the closed one.
    pub(super) fn push(&mut self, stream: TcpStream, peer: IpAddr) -> Option<IpAddr> {
        let of_peer: Vec<usize> = (0..self.0.len()).filter(|at| self.0[*at].1 == peer).collect();
        let goes = match of_peer[..] {
            [oldest, ..] if of_peer.len() >= MAX_OF_PEER => Some(oldest),
            _ => (self.0.len() >= MAX_HELD).then_some(0),
        };
        let gone = goes.and_then(|at| self.0.remove(at));
        self.0.push_back((stream, peer));
        gone.map(|(_, peer)| peer)
    }

    /// Takes the oldest connection whose peer has room.
    pub(super) fn take(
        &mut self,
        has_room_of: impl Fn(IpAddr) -> bool,
    ) -> Option<(TcpStream, IpAddr)> {
        let at = self.0.iter().position(|(_, peer)| has_room_of(*peer))?;
        self.0.remove(at)
    }
}
