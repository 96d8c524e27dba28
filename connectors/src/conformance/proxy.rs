//! A TCP proxy that simulates network faults while the server stays up.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The most bytes that one direction of a connection buffers. At this bound the proxy stops
/// reading, as a full pipe does.
const MAX_HELD_BYTES: usize = 1 << 20;
/// The most bytes read at once.
const MAX_READ_BYTES: usize = 16 << 10;

/// The direction of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From client to server: requests.
    Up,
    /// From server to client: answers.
    Down,
}

/// The treatment of the bytes of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Flow {
    /// Forward them.
    #[default]
    Pass,
    /// Hold them: connections stay open and silent, new ones too. Later everything is forwarded, in
    /// order.
    Stall,
    /// Discard them. A connection that lost bytes is reset at the next [`Proxy::heal`], because no
    /// protocol survives a gap.
    Drop,
    /// Forward each this much later, in order.
    Delay(Duration),
    /// Forward at most this many bytes a second on each connection.
    Throttle(u32),
}

/// A proxy on a free loopback port. Dropping the proxy ends every connection.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    _end: DropGuard,
}

#[derive(Debug)]
struct Shared {
    target: Mutex<String>,
    /// Indexed by [`Direction`].
    flows: [watch::Sender<Flow>; 2],
    /// The current connections; later connections belong to the next era.
    era: Mutex<Era>,
    refusing: AtomicBool,
    open: AtomicUsize,
    accepted: AtomicUsize,
}

/// Signals to all connections of one era.
#[derive(Debug, Clone, Default)]
struct Era {
    /// Resets the connections.
    reset: CancellationToken,
    /// Closes the server's side only: the client's side stays open and silent.
    stranded: CancellationToken,
}

impl Proxy {
    /// Starts a proxy to this `host:port`.
    ///
    /// # Errors
    /// No port is available.
    pub async fn start(target: impl Into<String>) -> io::Result<Proxy> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            target: Mutex::new(target.into()),
            flows: [watch::Sender::new(Flow::Pass), watch::Sender::new(Flow::Pass)],
            era: Mutex::default(),
            refusing: AtomicBool::new(false),
            open: AtomicUsize::new(0),
            accepted: AtomicUsize::new(0),
        });
        let end = CancellationToken::new();
        tokio::spawn(end.clone().run_until_cancelled_owned(accept(
            listener,
            Arc::clone(&shared),
            end.clone(),
        )));
        Ok(Proxy { address, shared, _end: end.drop_guard() })
    }

    /// The listening address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes the target and resets open connections, as a service address that moves.
    pub fn lead_to(&self, target: impl Into<String>) {
        *self.shared.target.lock() = target.into();
        self.reset();
    }

    /// Sets the treatment of bytes from now on.
    pub fn set(&self, direction: Direction, flow: Flow) {
        self.shared.flows[direction as usize].send_replace(flow);
    }

    /// Resets every connection, and each new one at once, until [`Proxy::heal`].
    pub fn cut(&self) {
        self.shared.refusing.store(true, Ordering::SeqCst);
        self.reset();
    }

    /// Resets the current connections; new ones work.
    pub fn reset(&self) {
        std::mem::take(&mut *self.shared.era.lock()).reset.cancel();
    }

    /// Closes the server's side of the current connections without notice to the client. Dropping
    /// the returned value resets the client's side, as a restarted host does that does not know the
    /// connections. New connections work.
    #[must_use = "dropped, it resets them"]
    pub fn strand(&self) -> Stranded {
        let era = std::mem::take(&mut *self.shared.era.lock());
        era.stranded.cancel();
        Stranded { _reset: era.reset.drop_guard() }
    }

    /// Forwards everything again. A connection that lost bytes is reset.
    pub fn heal(&self) {
        self.shared.refusing.store(false, Ordering::SeqCst);
        for flow in &self.shared.flows {
            flow.send_replace(Flow::Pass);
        }
    }

    /// The number of connections open on the client's side.
    #[must_use]
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// The number of connections accepted so far.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }
}

/// Connections whose server side is closed.
#[derive(Debug)]
pub struct Stranded {
    _reset: DropGuard,
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, end: CancellationToken) {
    loop {
        // For example out of file descriptors: the next accept may succeed.
        let Ok((client, _)) = listener.accept().await else { continue };
        let era = shared.era.lock().clone();
        if shared.refusing.load(Ordering::SeqCst) {
            let _ = client.set_zero_linger();
            continue;
        }
        shared.accepted.fetch_add(1, Ordering::SeqCst);
        shared.open.fetch_add(1, Ordering::SeqCst);
        let (shared, end) = (Arc::clone(&shared), end.clone());
        tokio::spawn(async move {
            // The error means that the server is not there: the client's connection ends anyway.
            let _ = end.run_until_cancelled(connection(client, era, &shared)).await;
            shared.open.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

/// Runs one connection to its end.
async fn connection(client: TcpStream, era: Era, shared: &Shared) -> io::Result<()> {
    let target = shared.target.lock().clone();
    let reset = era.reset.cancelled();
    tokio::pin!(reset);
    let server = tokio::select! {
        server = TcpStream::connect(target) => server,
        () = &mut reset => Err(io::ErrorKind::ConnectionReset.into()),
    };
    let server = server.or_else(|error| client.set_zero_linger().and(Err(error)))?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let mut up = Forwarder {
        from: from_client,
        to: to_server,
        flow: shared.flows[Direction::Up as usize].subscribe(),
    };
    let mut down = Forwarder {
        from: from_server,
        to: to_client,
        flow: shared.flows[Direction::Down as usize].subscribe(),
    };
    let ended = tokio::select! {
        ended = async { tokio::try_join!(up.run(), down.run()) } => Some(ended.is_ok()),
        () = &mut reset => Some(false),
        () = era.stranded.cancelled() => None,
    };
    let Forwarder { from: mut from_client, to: to_server, .. } = up;
    let Forwarder { from: from_server, to: to_client, .. } = down;
    match ended {
        // Both sides closed, and all bytes were forwarded.
        Some(true) => return Ok(()),
        Some(false) => {
            let _ = from_server.as_ref().set_zero_linger();
            to_server.forget();
        }
        None => {
            drop((from_server, to_server));
            // Discards the bytes that the client still sends. When the client closes, nothing is
            // left to reset.
            let mut unheard = vec![0; MAX_READ_BYTES];
            tokio::select! {
                () = reset => {}
                () = async { while from_client.read(&mut unheard).await.is_ok_and(|size| size > 0) {} } => {}
            }
        }
    }
    let _ = from_client.as_ref().set_zero_linger();
    // A drop would close the connection orderly instead of resetting it.
    to_client.forget();
    Ok(())
}

/// One direction of one connection.
struct Forwarder {
    from: OwnedReadHalf,
    to: OwnedWriteHalf,
    flow: watch::Receiver<Flow>,
}

impl Forwarder {
    /// Runs until the sender closes and all bytes are forwarded. An error means that the connection
    /// must be reset.
    async fn run(&mut self) -> io::Result<()> {
        let mut held: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
        let (mut size, mut ended, mut holed) = (0, false, false);
        let mut chunk = vec![0; MAX_READ_BYTES];
        loop {
            let flow = *self.flow.borrow_and_update();
            if holed && flow != Flow::Drop {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            if ended && held.is_empty() {
                return self.to.shutdown().await;
            }
            let moves = flow != Flow::Stall;
            let next = held.front().map_or_else(Instant::now, |(at, _)| *at);
            tokio::select! {
                // The error means that the proxy is dropped; this task is then cancelled.
                changed = self.flow.changed() => changed.map_err(io::Error::other)?,
                read = self.from.read(&mut chunk), if moves && !ended && size < MAX_HELD_BYTES => {
                    let read = read?;
                    match flow {
                        _ if read == 0 => ended = true,
                        Flow::Drop => holed = true,
                        Flow::Delay(late) => held.push_back((Instant::now() + late, chunk[..read].to_vec())),
                        Flow::Pass | Flow::Stall | Flow::Throttle(_) => held.push_back((Instant::now(), chunk[..read].to_vec())),
                    }
                    size = held.iter().map(|(_, bytes)| bytes.len()).sum();
                }
                () = tokio::time::sleep_until(next), if moves && !held.is_empty() => {
                    let Some((at, mut bytes)) = held.pop_front() else { continue };
                    if let Flow::Throttle(rate) = flow {
                        let piece = usize::try_from(rate / 20).unwrap_or(MAX_READ_BYTES).clamp(1, MAX_READ_BYTES);
                        if bytes.len() > piece {
                            held.push_front((at, bytes.split_off(piece)));
                        }
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                    self.to.write_all(&bytes).await?;
                    size -= bytes.len();
                }
            }
        }
    }
}
