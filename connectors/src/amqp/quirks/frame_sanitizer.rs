//! The stream that the library reads, with each frame put right before its parser sees it (see `sanitize`).
//!
//! Bodies pass untouched, without a copy. Frames with methods and headers are put right where they lie; only one that comes in pieces is kept until it
//! is whole.

use std::io::{self, Error, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use async_rs::traits::Reactor;
use async_rs::util::RuntimeParts;
use async_rs::{Runtime, Tokio};
use futures_io::{AsyncRead, AsyncWrite, IoSlice};
use futures_util::Stream;
use lapin::AsyncTcpStream;
use tracing::{debug, warn};

use crate::amqp::gate::Gate;
use crate::amqp::quirks::sanitize::{HEADER, METHOD, sanitize};

/// Type, channel and size.
const HEAD: usize = 7;
/// The byte that ends each frame.
const END: usize = 1;
/// The most bytes of a frame that is kept until it is whole. The server keeps to the `frame_max` that was agreed on, 128 KiB unless set otherwise:
/// more than this makes no sense.
const MOST: usize = 16 << 20;
/// The most bytes that are read at once where there is a gate: what is read is let through.
const PIECE: usize = 128 << 10;
/// A sign of life as the server would send it.
const HEARTBEAT: [u8; HEAD + END] = [8, 0, 0, 0, 0, 0, 0, 0xCE];

/// A runtime whose streams are guarded: the library's own in all else.
pub(in crate::amqp) fn runtime() -> Runtime<RuntimeParts<Tokio, SanitizingReactor>> {
    Runtime::new(RuntimeParts::new(Tokio::current(), SanitizingReactor(Tokio::current())))
}

/// What the library connects by.
#[derive(Clone, Debug)]
pub(in crate::amqp) struct SanitizingReactor(Tokio);

impl Reactor for SanitizingReactor {
    type TcpStream = FrameSanitizer<AsyncTcpStream<<Tokio as Reactor>::TcpStream>>;
    type Sleep = <Tokio as Reactor>::Sleep;

    fn register<H: Read + Write + AsFd + AsRawFd + Send + 'static>(
        &self,
        socket: H,
    ) -> io::Result<impl AsyncRead + AsyncWrite + Send + Unpin + 'static> {
        self.0.register(socket)
    }

    fn sleep(&self, time: Duration) -> Self::Sleep {
        self.0.sleep(time)
    }

    fn interval(&self, time: Duration) -> impl Stream<Item = Instant> + Send + 'static {
        self.0.interval(time)
    }

    fn tcp_connect_addr(&self, address: SocketAddr) -> impl Future<Output = io::Result<Self::TcpStream>> + Send + 'static {
        let connecting = self.0.tcp_connect_addr(address);
        async move { Ok(FrameSanitizer::new(AsyncTcpStream::Plain(connecting.await?), address.to_string(), None)) }
    }
}

/// A stream, guarded.
#[derive(Debug)]
pub(in crate::amqp) struct FrameSanitizer<S> {
    stream: S,
    place: String,
    /// What bounds how much is read, of a source.
    gate: Option<Arc<Gate>>,
    /// How many bytes pass yet as they are.
    passing: usize,
    /// The beginning of a frame.
    held: Vec<u8>,
    /// What was held and is put right, and how much of it was given.
    whole: Vec<u8>,
    given: usize,
    /// A message was altered.
    altered: bool,
    /// What the server says of its version, which the library does not tell.
    version: Arc<OnceLock<String>>,
}

/// What a frame's beginning says of it.
enum Next {
    /// That many more bytes are needed to say anything.
    Unknown(usize),
    /// So many bytes, to be put right.
    Look(usize),
    /// So many bytes, to pass as they are.
    Pass(usize),
}

impl Next {
    fn of(bytes: &[u8]) -> io::Result<Self> {
        match (bytes.first(), bytes.get(3..HEAD)) {
            (None, _) => Ok(Next::Unknown(HEAD)),
            // The server's version, where it speaks another one: `AMQP` and four numbers.
            (Some(b'A'), _) => Ok(Next::Pass(8)),
            (Some(&(METHOD | HEADER | 3 | 8)), None) => Ok(Next::Unknown(HEAD - bytes.len())),
            (Some(&kind @ (METHOD | HEADER | 3 | 8)), Some(size)) => {
                let size = size.iter().fold(0, |size, byte| size << 8 | usize::from(*byte));
                match kind {
                    METHOD | HEADER if size > MOST => Err(Error::new(ErrorKind::InvalidData, format!("a frame of {size} bytes"))),
                    METHOD | HEADER => Ok(Next::Look(HEAD + size + END)),
                    _ => Ok(Next::Pass(HEAD + size + END)),
                }
            }
            // No AMQP: the parser says so at this byte, and reads no further.
            (Some(_), _) => Ok(Next::Pass(usize::MAX)),
        }
    }
}

impl<S> FrameSanitizer<S> {
    /// `place` is the server, for the log.
    pub(in crate::amqp) fn new(stream: S, place: String, gate: Option<Arc<Gate>>) -> Self {
        let version = Arc::default();
        FrameSanitizer { stream, place, gate, passing: 0, held: Vec::new(), whole: Vec::new(), given: 0, altered: false, version }
    }

    /// The same, which says here what the server's version is.
    pub(in crate::amqp) fn telling(self, version: Arc<OnceLock<String>>) -> Self {
        FrameSanitizer { version, ..self }
    }

    /// Puts whole frames right in what was read, and holds the beginning of one behind them: how many bytes are to be handed on.
    fn look(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut at = 0;
        loop {
            let pass = self.passing.min(bytes.len() - at);
            self.passing -= pass;
            at += pass;
            match Next::of(&bytes[at..])? {
                Next::Pass(length) => self.passing = length,
                Next::Look(length) if length <= bytes.len() - at => {
                    self.put_right(&mut bytes[at..at + length]);
                    at += length;
                }
                Next::Look(_) | Next::Unknown(_) => {
                    self.held.extend_from_slice(&bytes[at..]);
                    return Ok(at);
                }
            }
        }
    }

    /// How many more bytes belong to what is held; 0 when it is whole, and was put right.
    fn missing(&mut self) -> io::Result<usize> {
        let missing = match Next::of(&self.held)? {
            Next::Unknown(missing) => missing,
            Next::Look(length) => length - self.held.len(),
            Next::Pass(length) => {
                self.passing = length - self.held.len();
                0
            }
        };
        if missing == 0 {
            std::mem::swap(&mut self.held, &mut self.whole);
            self.held.clear();
            self.given = 0;
            if self.passing == 0 {
                let mut whole = std::mem::take(&mut self.whole);
                self.put_right(&mut whole);
                self.whole = whole;
            }
        }
        Ok(missing)
    }

    fn put_right(&mut self, frame: &mut [u8]) {
        let (kind, end) = (frame[0], frame.len() - END);
        if let Some(version) = version(&frame[HEAD..end]).filter(|_| kind == METHOD) {
            // A server says it once.
            let _ = self.version.set(version);
        }
        if let Some(gate) = self.gate.as_ref().filter(|_| kind == HEADER) {
            gate.let_through(&frame[HEAD..end]);
        }
        if sanitize(kind, &mut frame[HEAD..end]) {
            let place = self.place.as_str();
            let what = "amqp sent what cannot be read as it is: bytes that are not UTF-8 became `?`, what is nested too deep became bytes";
            if std::mem::replace(&mut self.altered, true) {
                debug!(place, "{what}");
            } else {
                warn!(place, "{what}");
            }
        }
    }
}

/// The version in `connection.start`: a text in the table of the server's properties.
fn version(method: &[u8]) -> Option<String> {
    const NAME: &[u8] = b"\x07versionS";
    let rest = method.strip_prefix(&[0, 10, 0, 10])?;
    let at = rest.windows(NAME.len()).position(|bytes| bytes == NAME)? + NAME.len();
    let (length, text) = rest[at..].split_first_chunk()?;
    let text = text.get(..usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
    String::from_utf8(text.to_vec()).ok()
}

impl<S: AsyncRead + Unpin> AsyncRead for FrameSanitizer<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let sanitizer = self.get_mut();
        loop {
            let left = &sanitizer.whole[sanitizer.given..];
            if !left.is_empty() {
                let count = left.len().min(into.len());
                into[..count].copy_from_slice(&left[..count]);
                sanitizer.given += count;
                return Poll::Ready(Ok(count));
            }
            let most = if let Some(gate) = &sanitizer.gate {
                // Between two frames alone, because a sign of life is one.
                if sanitizer.passing == 0 && ready!(gate.poll_room(context)) {
                    (sanitizer.whole, sanitizer.given) = (HEARTBEAT.to_vec(), 0);
                    continue;
                }
                into.len().min(PIECE)
            } else {
                into.len()
            };
            if sanitizer.held.is_empty() {
                let count = ready!(Pin::new(&mut sanitizer.stream).poll_read(context, &mut into[..most]))?;
                let whole = sanitizer.look(&mut into[..count])?;
                if count == 0 || whole > 0 {
                    return Poll::Ready(Ok(whole));
                }
            } else {
                let missing = sanitizer.missing()?;
                let mut more = [0; 4096];
                let most = missing.min(more.len());
                if most > 0 {
                    let count = ready!(Pin::new(&mut sanitizer.stream).poll_read(context, &mut more[..most]))?;
                    if count == 0 {
                        return Poll::Ready(Ok(0));
                    }
                    sanitizer.held.extend_from_slice(&more[..count]);
                }
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FrameSanitizer<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, from)
    }

    fn poll_write_vectored(self: Pin<&mut Self>, context: &mut Context<'_>, from: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(context, from)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_close(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_close(context)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests;
