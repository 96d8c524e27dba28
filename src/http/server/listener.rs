//! Binds an address and serves a router on it until shutdown.
//!
//! No client may block others by holding connections: request heads are limited in size and time, a
//! client that does not read its answer is disconnected, and at the limit of connections the one
//! that has waited for its client the longest is closed for a new one. Calls that wait have a share
//! of the connections, and of those of their peer.
//!
//! - `bind`: the address; `slots`: the connections; `slot`: the state of one; `conversation`: one
//!   connection, from request to request; `connection`: its bytes; `bodies`: those of its requests
//!   and answers; `waiting`: a call that waits; `buffers`: which connections have some; `doubled`:
//!   headers that may come once; `room`: how many connections all listeners may hold; `held`:
//!   probes that wait for room of their peer.

mod bind;
mod bodies;
mod buffers;
mod connection;
mod conversation;
mod doubled;
mod held;
mod room;
mod slot;
mod slots;
mod waiting;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use axum::Router;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::account::Memory;
use super::waits::WaitShares;
use crate::clock;
use connection::TimedIo;
use conversation::{Calls, converse};
use held::Held;
pub use room::Room;
use slot::Slot;
use slots::{MAX_CONNECTIONS, Slots};

/// The time that the end waits for slow clients.
pub const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);
/// The most connections of a listener for consumers, each of which may wait for a minute.
pub const MAX_CONSUMER_CONNECTIONS: usize = 16_384;
/// The pause after a failed accept: no file descriptor is left, or all connections are busy.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Why an address could not be bound.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The setting is not an address of this machine: exit code 78.
    #[error(
        "{setting} = \"{listen}\" is not an address to listen on ({error}): write HOST:PORT with an address of this machine, such as {}",
        example(setting)
    )]
    Setting {
        /// The setting's name.
        setting: &'static str,
        /// Its value.
        listen: String,
        /// The error of the system.
        error: io::Error,
    },
    /// The address is in use or not permitted: exit code 69.
    #[error("cannot listen on {setting} = \"{listen}\" ({error}): {hint}")]
    Unavailable {
        /// The setting's name.
        setting: &'static str,
        /// Its value.
        listen: String,
        /// The error of the system.
        error: io::Error,
        /// The remedy.
        hint: &'static str,
    },
}

impl ListenError {
    /// The exit code of the process.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            ListenError::Setting { .. } => 78,
            ListenError::Unavailable { .. } => 69,
        }
    }
}

/// An address for this setting.
fn example(setting: &str) -> &'static str {
    match setting {
        "http.listen" => "127.0.0.1:7464 or [::1]:7464",
        "compat.delay_queue" => "127.0.0.1:9277",
        "compat.lmstfy" => "127.0.0.1:7777",
        _ => "[::]:9464",
    }
}

/// A bound address. Connections queue until [`Listener::serve`] answers them.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    address: SocketAddr,
    most: usize,
    most_of_peer: usize,
    room: Room,
    memory: Memory,
    /// A connection whose peer has no room is held until it has: see [`Held`].
    holds: bool,
}

impl Listener {
    /// Binds `listen` (HOST:PORT; port 0 takes a free one). `setting` is its name in errors:
    /// `probes.listen`.
    pub async fn bind(setting: &'static str, listen: &str) -> Result<Self, ListenError> {
        let bound = async {
            let listener = bind::bind(listen).await?;
            let address = listener.local_addr()?;
            let (room, memory) = (Room::default(), Memory::endless());
            Ok(Listener {
                listener,
                address,
                most: MAX_CONNECTIONS,
                most_of_peer: MAX_CONNECTIONS / 2,
                room,
                memory,
                holds: false,
            })
        };
        bound.await.map_err(|error: io::Error| {
            let listen = listen.to_owned();
            match error.kind() {
                io::ErrorKind::AddrInUse => ListenError::Unavailable {
                    setting,
                    listen,
                    error,
                    hint: "another program uses the port: choose another port, or stop that program",
                },
                io::ErrorKind::PermissionDenied => {
                    ListenError::Unavailable { setting, listen, error, hint: "ports below 1024 need a privilege: choose a higher one" }
                }
                _ => ListenError::Setting { setting, listen, error },
            }
        })
    }

    /// The same for consumers that wait: at most [`MAX_CONSUMER_CONNECTIONS`] connections, three
    /// quarters of them of one peer.
    #[must_use]
    pub fn for_consumers(self) -> Self {
        Listener {
            most: MAX_CONSUMER_CONNECTIONS,
            most_of_peer: MAX_CONSUMER_CONNECTIONS / 4 * 3,
            ..self
        }
    }

    /// The same for probes: one of a peer whose connections are all busy waits for one of them
    /// (two of a peer do, and eight in all).
    #[must_use]
    pub fn for_probes(self) -> Self {
        Listener { holds: true, ..self }
    }

    /// The same within the room of all listeners, and the memory of all calls.
    #[must_use]
    pub fn within(self, room: &Room, memory: &Memory) -> Self {
        let most = self.most.min(room.most());
        let most_of_peer = (self.most_of_peer * most / self.most).max(1);
        Listener { most, most_of_peer, room: room.clone(), memory: memory.clone(), ..self }
    }

    /// The address with its real port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `shutdown`, then answers the requests that have begun, for at most
    /// [`SHUTDOWN_GRACE`], and returns.
    pub async fn serve(self, router: Router, shutdown: CancellationToken) -> io::Result<()> {
        let mut waits = WaitShares::new(self.most, self.most_of_peer, self.room.waits());
        // Dropping the set closes the remaining connections.
        let mut connections = JoinSet::new();
        let buffers = self.room.buffers().clone();
        let mut slots = Slots::new(self.most, self.most_of_peer, self.room);
        // Accepted, and without room: by then a connection that waited for its client has a request.
        let mut next: Option<(TcpStream, IpAddr)> = None;
        let mut held = Held::default();
        loop {
            let held_one = held.take(|peer| slots.make_room(peer, true));
            let admitted = held_one.or_else(|| {
                let (mut stream, mut peer) = next.take_if(|_| slots.has_room())?;
                if self.holds {
                    if let Some(room) = slots.make_room(peer, true) {
                        return Some((stream, peer, room));
                    }
                    // The one that is held no longer is treated as by a listener that holds none.
                    (stream, peer) = held.push(stream, peer)?;
                }
                slots.make_room(peer, false).map(|room| (stream, peer, room))
            });
            if let Some((stream, peer, room)) = admitted {
                conversation::prepare(&stream);
                let slot = Slot::new(peer, waits.of_peer(peer));
                let calls = Calls::new(slot.clone(), router.clone(), self.memory.clone());
                let stream = TimedIo::new(stream, slot.clone(), buffers.clone());
                let task = connections.spawn(converse(stream, calls, shutdown.clone()));
                slots.add(slot, task, room);
                continue;
            }
            let has_room = next.is_none() && slots.has_room();
            tokio::select! {
                () = shutdown.cancelled() => break,
                Some(ended) = connections.join_next_with_id() => {
                    slots.remove(ended.map_or_else(|error| error.id(), |(id, ())| id));
                }
                accepted = self.listener.accept(), if has_room => match accepted {
                    Ok((stream, peer)) => next = Some((stream, peer.ip().to_canonical())),
                    Err(error) => {
                        tracing::debug!(%error, "a connection was not accepted");
                        clock::sleep(ACCEPT_RETRY_INTERVAL).await;
                    }
                },
                () = clock::sleep(ACCEPT_RETRY_INTERVAL), if !has_room || !held.is_empty() => {}
            }
        }
        // A connection without room by now gets none.
        drop((self.listener, held, next));
        let answered = async { while connections.join_next().await.is_some() {} };
        // Connections without a request by then are closed.
        let _ = clock::timeout(SHUTDOWN_GRACE, answered).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::conversation::HEAD_TIMEOUT;
    use super::*;

    #[tokio::test]
    async fn a_client_that_never_ends_its_request_does_not_hold_up_the_end() {
        let listener = Listener::bind("probes.listen", "127.0.0.1:0").await.unwrap();
        let mut half = TcpStream::connect(listener.address()).await.unwrap();
        let mut whole = TcpStream::connect(listener.address()).await.unwrap();
        let shutdown = CancellationToken::new();
        let server = tokio::spawn(listener.serve(Router::new(), shutdown.clone()));
        half.write_all(b"GET / HTTP/1.1\r\nhost:").await.unwrap();
        // When this request is answered, both connections are accepted.
        whole
            .write_all(b"GET / HTTP/1.1\r\nhost: dwell\r\nconnection: close\r\n\r\n")
            .await
            .unwrap();
        let mut answer = String::new();
        whole.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
        shutdown.cancel();
        clock::timeout(SHUTDOWN_GRACE * 5, server)
            .await
            .expect("the server ends")
            .unwrap()
            .unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_is_slow_to_ask_is_hung_up_on() {
        let listener = Listener::bind("probes.listen", "127.0.0.1:0").await.unwrap();
        let mut half = TcpStream::connect(listener.address()).await.unwrap();
        let server = tokio::spawn(listener.serve(Router::new(), CancellationToken::new()));
        half.write_all(b"GET / HTTP/1.1\r\nhost:").await.unwrap();
        let begun = clock::now();
        let mut answer = Vec::new();
        half.read_to_end(&mut answer).await.unwrap();
        let took = clock::now().duration_since(begun);
        assert!(took >= HEAD_TIMEOUT && took < HEAD_TIMEOUT * 2, "{took:?}");
        server.abort();
    }

    #[tokio::test]
    async fn a_connection_that_gave_its_buffers_back_serves_its_next_request() {
        let listener =
            Listener::bind("probes.listen", "127.0.0.1:0").await.unwrap().for_consumers();
        let (address, shutdown) = (listener.address(), CancellationToken::new());
        let server = tokio::spawn(listener.serve(Router::new(), shutdown.clone()));
        let mut links = Vec::new();
        for _ in 0..buffers::MAX_BUFFERED_CONNECTIONS + 9 {
            links.push(TcpStream::connect(address).await.unwrap());
        }
        for _ in 0..2 {
            for link in &mut links {
                link.write_all(b"GET / HTTP/1.1\r\nhost: dwell\r\n\r\n").await.unwrap();
                let mut answer = [0; 512];
                let count = link.read(&mut answer).await.unwrap();
                assert!(
                    answer[..count].starts_with(b"HTTP/1.1 404"),
                    "{:?}",
                    String::from_utf8_lossy(&answer[..count])
                );
            }
        }
        shutdown.cancel();
        server.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_taken_port_is_unavailable_and_names_the_setting() {
        let first = Listener::bind("probes.listen", "127.0.0.1:0").await.unwrap();
        let listen = first.address().to_string();
        let error = Listener::bind("probes.listen", &listen).await.unwrap_err();
        assert_eq!(error.exit_code(), 69);
        let text = error.to_string();
        assert!(
            text.contains("probes.listen")
                && text.contains(&listen)
                && text.contains("another port"),
            "{text}"
        );
    }

    #[tokio::test]
    async fn what_is_no_address_is_a_settings_error() {
        for listen in ["9464", "", "127.0.0.1:99999", "192.0.2.1:9464"] {
            let error = Listener::bind("probes.listen", listen).await.unwrap_err();
            assert_eq!(error.exit_code(), 78, "{error}");
            assert!(error.to_string().contains("HOST:PORT"), "{error}");
        }
        let error = Listener::bind("http.listen", "192.0.2.1:7464").await.unwrap_err().to_string();
        assert!(error.ends_with("such as 127.0.0.1:7464 or [::1]:7464"), "{error}");
    }
}
