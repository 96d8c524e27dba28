//! A server that says what it is told to, byte by byte.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};

/// A server on a free loopback port, until the value is dropped.
pub(crate) struct Raw {
    address: SocketAddr,
    counts: Arc<Counts>,
    _end: DropGuard,
}

#[derive(Default)]
struct Counts {
    open: AtomicUsize,
    most: AtomicUsize,
    requests: AtomicUsize,
}

/// A request as it came.
pub(crate) struct Request {
    /// The lines before the body.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

/// The server's end of a connection.
pub(crate) struct Link {
    stream: TcpStream,
    heard: Vec<u8>,
    counts: Arc<Counts>,
}

impl Raw {
    /// Starts a server that serves each connection so.
    pub(crate) async fn start<F: Future<Output = ()> + Send + 'static>(
        serve: impl Fn(Link) -> F + Send + Sync + 'static,
    ) -> Self {
        Raw::on("127.0.0.1:0", serve).await
    }

    /// The same on this address.
    pub(crate) async fn on<F: Future<Output = ()> + Send + 'static>(
        address: &str,
        serve: impl Fn(Link) -> F + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let counts = Arc::<Counts>::default();
        let end = CancellationToken::new();
        let (counting, ending) = (Arc::clone(&counts), end.clone());
        tokio::spawn(end.clone().run_until_cancelled_owned(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { continue };
                let open = counting.open.fetch_add(1, Ordering::SeqCst) + 1;
                counting.most.fetch_max(open, Ordering::SeqCst);
                let link = Link { stream, heard: Vec::new(), counts: Arc::clone(&counting) };
                tokio::spawn(ending.clone().run_until_cancelled_owned(serve(link)));
            }
        }));
        Raw { address, counts, _end: end.drop_guard() }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// The number of requests so far.
    pub(crate) fn requests(&self) -> usize {
        self.counts.requests.load(Ordering::SeqCst)
    }

    /// The connections that are open.
    pub(crate) fn open(&self) -> usize {
        self.counts.open.load(Ordering::SeqCst)
    }

    /// The most connections that were open at a time.
    pub(crate) fn most(&self) -> usize {
        self.counts.most.load(Ordering::SeqCst)
    }
}

impl Link {
    /// The next request; `None` at the end of the connection.
    pub(crate) async fn request(&mut self) -> Option<Request> {
        let ends = loop {
            if let Some(at) = self.heard.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            self.hear().await?;
        };
        let head = String::from_utf8_lossy(&self.heard[..ends]).into_owned();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .map_or(0, |length| length.parse().unwrap());
        while self.heard.len() < ends + length {
            self.hear().await?;
        }
        let body = self.heard.drain(..ends + length).skip(ends).collect();
        self.counts.requests.fetch_add(1, Ordering::SeqCst);
        Some(Request { head, body })
    }

    async fn hear(&mut self) -> Option<()> {
        self.stream.read_buf(&mut self.heard).await.ok().filter(|size| *size > 0).map(|_| ())
    }

    /// Sends bytes; false once the client has closed the connection.
    pub(crate) async fn say(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).await.is_ok()
    }

    /// Waits until the client closes the connection.
    pub(crate) async fn closed(&mut self) {
        while self.hear().await.is_some() {}
    }

    /// Ends the connection by a reset.
    pub(crate) fn reset(self) {
        self.stream.set_zero_linger().unwrap();
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.counts.open.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Request {
    pub(crate) fn path(&self) -> &str {
        self.head.split(' ').nth(1).unwrap()
    }
}
