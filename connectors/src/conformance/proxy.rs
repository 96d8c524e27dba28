//! A TCP proxy that does to a link what networks do, while the server behind it lives on.

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

/// The most bytes that one direction of a connection holds back; at the bound it stops reading, as a full pipe does.
const HELD_MAX: usize = 1 << 20;
/// The most bytes read at once.
const CHUNK: usize = 16 << 10;

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From client to server: requests.
    Up,
    /// From server to client: answers.
    Down,
}

/// What becomes of the bytes of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Flow {
    /// They pass.
    #[default]
    Pass,
    /// They wait: connections stay open and silent, new ones too. Afterwards everything comes, in order.
    Stall,
    /// They vanish. A connection that lost some is reset at the next [`Proxy::heal`]: no protocol survives a hole.
    Drop,
    /// Each comes this much later, in order.
    Delay(Duration),
    /// At most so many bytes a second, on each connection.
    Throttle(u32),
}

/// A proxy on a free loopback port. Dropped, it ends, and with it every connection.
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
    /// The connections of now; those of later have the next.
    era: Mutex<Era>,
    refusing: AtomicBool,
    open: AtomicUsize,
    accepted: AtomicUsize,
}

/// What happens to a set of connections together.
#[derive(Debug, Clone, Default)]
struct Era {
    /// They are reset.
    reset: CancellationToken,
    /// The server's side is gone without a word: the client's stays open, and silent.
    stranded: CancellationToken,
}

impl Proxy {
    /// Starts one that leads to this `host:port`.
    ///
    /// # Errors
    /// No port could be had.
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
        tokio::spawn(end.clone().run_until_cancelled_owned(accept(listener, Arc::clone(&shared), end.clone())));
        Ok(Proxy { address, shared, _end: end.drop_guard() })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Leads elsewhere from now on, and resets what is open: a service address that moves.
    pub fn lead_to(&self, target: impl Into<String>) {
        *self.shared.target.lock() = target.into();
        self.reset();
    }

    /// What becomes of bytes that come from now on.
    pub fn set(&self, direction: Direction, flow: Flow) {
        self.shared.flows[direction as usize].send_replace(flow);
    }

    /// Resets every connection, and every new one at once, until [`Proxy::heal`].
    pub fn cut(&self) {
        self.shared.refusing.store(true, Ordering::SeqCst);
        self.reset();
    }

    /// Resets the connections of now; new ones pass.
    pub fn reset(&self) {
        std::mem::take(&mut *self.shared.era.lock()).reset.cancel();
    }

    /// The server's side of the connections of now is gone, and the client is not told until the returned value is dropped: then they are
    /// reset, as by a host that came back and knows nothing of them. New ones pass.
    #[must_use = "dropped, it resets them"]
    pub fn strand(&self) -> Stranded {
        let era = std::mem::take(&mut *self.shared.era.lock());
        era.stranded.cancel();
        Stranded { _reset: era.reset.drop_guard() }
    }

    /// Everything passes again. A connection that lost bytes is reset.
    pub fn heal(&self) {
        self.shared.refusing.store(false, Ordering::SeqCst);
        for flow in &self.shared.flows {
            flow.send_replace(Flow::Pass);
        }
    }

    /// How many connections are open on the client's side.
    #[must_use]
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// How many connections there ever were.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }
}

/// Connections whose server has forgotten them.
#[derive(Debug)]
pub struct Stranded {
    _reset: DropGuard,
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, end: CancellationToken) {
    loop {
        // Out of descriptors, say: the next may do better.
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
            // Its error is that the server is not there: the client's connection ends all the same.
            let _ = end.run_until_cancelled(connection(client, era, &shared)).await;
            shared.open.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

/// One connection, to its end.
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
    let mut up = Pump { from: from_client, to: to_server, flow: shared.flows[Direction::Up as usize].subscribe() };
    let mut down = Pump { from: from_server, to: to_client, flow: shared.flows[Direction::Down as usize].subscribe() };
    let ended = tokio::select! {
        ended = async { tokio::try_join!(up.run(), down.run()) } => Some(ended.is_ok()),
        () = &mut reset => Some(false),
        () = era.stranded.cancelled() => None,
    };
    let Pump { from: mut from_client, to: to_server, .. } = up;
    let Pump { from: from_server, to: to_client, .. } = down;
    match ended {
        // Both sides said their last word, and it was passed on.
        Some(true) => return Ok(()),
        Some(false) => {
            let _ = from_server.as_ref().set_zero_linger();
            to_server.forget();
        }
        None => {
            drop((from_server, to_server));
            // What the client still says is heard by nobody. When it gives up, there is nothing left to reset.
            let mut unheard = vec![0; CHUNK];
            tokio::select! {
                () = reset => {}
                () = async { while from_client.read(&mut unheard).await.is_ok_and(|size| size > 0) {} } => {}
            }
        }
    }
    let _ = from_client.as_ref().set_zero_linger();
    // Dropped, it would say goodbye first.
    to_client.forget();
    Ok(())
}

/// One direction of one connection.
struct Pump {
    from: OwnedReadHalf,
    to: OwnedWriteHalf,
    flow: watch::Receiver<Flow>,
}

impl Pump {
    /// Until the sender's last word has been passed on. The error: the connection is to be reset.
    async fn run(&mut self) -> io::Result<()> {
        let mut held: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
        let (mut size, mut ended, mut holed) = (0, false, false);
        let mut chunk = vec![0; CHUNK];
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
                // Its error is that the proxy is gone; this task is then cancelled.
                changed = self.flow.changed() => changed.map_err(io::Error::other)?,
                read = self.from.read(&mut chunk), if moves && !ended && size < HELD_MAX => {
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
                        let piece = usize::try_from(rate / 20).unwrap_or(CHUNK).clamp(1, CHUNK);
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
