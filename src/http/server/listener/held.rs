//! Probes whose peer has no room for them yet.

use std::collections::VecDeque;
use std::net::IpAddr;

use tokio::net::TcpStream;

/// The most connections of one peer: kubelet sends its probes side by side.
pub(super) const MAX_OF_PEER: usize = 2;
/// The most connections of all peers: none of them has a place in the room of the listeners.
const MAX_HELD: usize = 8;

/// Accepted connections of peers at their limit, the oldest one first. Each waits until one of the
/// other connections of its peer can be closed for it: one that is not busy. While
/// [`MAX_OF_PEER`] or fewer are not, the one that would be closed must not be new, as it may be a
/// probe itself.
#[derive(Debug, Default)]
pub(super) struct Held(VecDeque<(TcpStream, IpAddr)>);

impl Held {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Holds a connection. If there are too many, returns the oldest one, of the same peer if that
    /// has too many.
    pub(super) fn push(&mut self, stream: TcpStream, peer: IpAddr) -> Option<(TcpStream, IpAddr)> {
        let of_peer: Vec<usize> = (0..self.0.len()).filter(|at| self.0[*at].1 == peer).collect();
        let goes = match of_peer[..] {
            [oldest, ..] if of_peer.len() >= MAX_OF_PEER => Some(oldest),
            _ => (self.0.len() >= MAX_HELD).then_some(0),
        };
        let gone = goes.and_then(|at| self.0.remove(at));
        self.0.push_back((stream, peer));
        gone
    }

    /// Takes the oldest connection whose peer has room, with that room.
    pub(super) fn take<R>(
        &mut self,
        mut room_of: impl FnMut(IpAddr) -> Option<R>,
    ) -> Option<(TcpStream, IpAddr, R)> {
        let mut all = self.0.iter().enumerate();
        let (at, room) = all.find_map(|(at, (_, peer))| Some((at, room_of(*peer)?)))?;
        let (stream, peer) = self.0.remove(at)?;
        Some((stream, peer, room))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests;
