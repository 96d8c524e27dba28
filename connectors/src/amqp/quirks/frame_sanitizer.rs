//! A stream for lapin that sanitizes frames before lapin's parser sees them.
//!
//! - Behaviour: lapin offers no hook between its socket and its parser. lapin 4.12 also buffers
//!   deliveries without a bound (`Consumer` in `src/consumer.rs`), and keeps the server's
//!   properties to itself (`connection.start`).
//! - Workaround: lapin takes its stream from a connector function, so Dwell wraps that stream. The
//!   wrapper sanitizes frames (see `sanitize`), stops reading while the source is at its bound in
//!   bytes (see `read_limiter`), and extracts the server's version.
//! - May go when lapin does all three: parses such frames, bounds its buffer in bytes, and shows
//!   the server's version.
//!
//! Bodies pass unchanged, without a copy. Method and header frames are sanitized in place; only a
//! frame that arrives in pieces is buffered until it is complete.

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

use crate::amqp::quirks::sanitize::{HEADER_FRAME, METHOD_FRAME, sanitize};
use crate::amqp::read_limiter::ReadLimiter;

/// The bytes of a frame header: type, channel and size.
const FRAME_HEAD_BYTES: usize = 7;
/// The bytes of a frame end.
const FRAME_END_BYTES: usize = 1;
/// The most bytes of a frame that is buffered. Servers keep to the agreed `frame_max`, 128 KiB by
/// default, so a larger frame is an error.
const MAX_FRAME_BYTES: usize = 16 << 20;
/// The most bytes of one read with a limiter: all that is read passes the limiter.
const MAX_READ_BYTES: usize = 128 << 10;
/// A heartbeat frame as the server sends it.
const HEARTBEAT_FRAME: [u8; FRAME_HEAD_BYTES + FRAME_END_BYTES] = [8, 0, 0, 0, 0, 0, 0, 0xCE];

/// lapin's own runtime, with sanitized streams.
pub(in crate::amqp) fn runtime() -> Runtime<RuntimeParts<Tokio, SanitizingReactor>> {
    Runtime::new(RuntimeParts::new(Tokio::current(), SanitizingReactor(Tokio::current())))
}

/// The reactor through which lapin connects.
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

    fn tcp_connect_addr(
        &self,
        address: SocketAddr,
    ) -> impl Future<Output = io::Result<Self::TcpStream>> + Send + 'static {
        let connecting = self.0.tcp_connect_addr(address);
        async move {
            Ok(FrameSanitizer::new(
                AsyncTcpStream::Plain(connecting.await?),
                address.to_string(),
                None,
            ))
        }
    }
}

/// A stream that sanitizes what it reads.
#[derive(Debug)]
pub(in crate::amqp) struct FrameSanitizer<S> {
    stream: S,
    place: String,
    /// The bound of a source.
    limiter: Option<Arc<ReadLimiter>>,
    /// The number of bytes that still pass unchanged.
    passing: usize,
    /// The start of an incomplete frame.
    held: Vec<u8>,
    /// A sanitized frame, and how much of it lapin has read.
    whole: Vec<u8>,
    given: usize,
    /// A frame was changed before.
    altered: bool,
    /// The server's version.
    version: Arc<OnceLock<String>>,
}

/// The next step, as the start of a frame shows it.
enum Next {
    /// At least this many more bytes are needed.
    Unknown(usize),
    /// A frame of this many bytes, to be sanitized.
    Look(usize),
    /// This many bytes, to pass unchanged.
    Pass(usize),
}

impl Next {
    fn of(bytes: &[u8]) -> io::Result<Self> {
        match (bytes.first(), bytes.get(3..FRAME_HEAD_BYTES)) {
            (None, _) => Ok(Next::Unknown(FRAME_HEAD_BYTES)),
            // A server of another protocol version answers `AMQP` and four numbers.
            (Some(b'A'), _) => Ok(Next::Pass(8)),
            (Some(&(METHOD_FRAME | HEADER_FRAME | 3 | 8)), None) => {
                Ok(Next::Unknown(FRAME_HEAD_BYTES - bytes.len()))
            }
            (Some(&kind @ (METHOD_FRAME | HEADER_FRAME | 3 | 8)), Some(size)) => {
                let size = size.iter().fold(0, |size, byte| size << 8 | usize::from(*byte));
                match kind {
                    METHOD_FRAME | HEADER_FRAME if size > MAX_FRAME_BYTES => {
                        Err(Error::new(ErrorKind::InvalidData, format!("a frame of {size} bytes")))
                    }
                    METHOD_FRAME | HEADER_FRAME => {
                        Ok(Next::Look(FRAME_HEAD_BYTES + size + FRAME_END_BYTES))
                    }
                    _ => Ok(Next::Pass(FRAME_HEAD_BYTES + size + FRAME_END_BYTES)),
                }
            }
            // Not AMQP: the parser fails at this byte and reads no further.
            (Some(_), _) => Ok(Next::Pass(usize::MAX)),
        }
    }
}

impl<S> FrameSanitizer<S> {
    /// `place` is the server, for the log.
    pub(in crate::amqp) fn new(
        stream: S,
        place: String,
        limiter: Option<Arc<ReadLimiter>>,
    ) -> Self {
        let version = Arc::default();
        FrameSanitizer {
            stream,
            place,
            limiter,
            passing: 0,
            held: Vec::new(),
            whole: Vec::new(),
            given: 0,
            altered: false,
            version,
        }
    }

    /// Also stores the server's version here.
    pub(in crate::amqp) fn telling(self, version: Arc<OnceLock<String>>) -> Self {
        FrameSanitizer { version, ..self }
    }

    /// Sanitizes complete frames in the bytes read, and buffers an incomplete one at the end.
    /// Returns the number of bytes for lapin.
    fn inspect(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut at = 0;
        loop {
            let pass = self.passing.min(bytes.len() - at);
            self.passing -= pass;
            at += pass;
            match Next::of(&bytes[at..])? {
                Next::Pass(length) => self.passing = length,
                Next::Look(length) if length <= bytes.len() - at => {
                    self.sanitize_frame(&mut bytes[at..at + length]);
                    at += length;
                }
                Next::Look(_) | Next::Unknown(_) => {
                    self.held.extend_from_slice(&bytes[at..]);
                    return Ok(at);
                }
            }
        }
    }

    /// The number of bytes missing in the buffered frame; 0 when it is complete, and sanitized.
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
                self.sanitize_frame(&mut whole);
                self.whole = whole;
            }
        }
        Ok(missing)
    }

    fn sanitize_frame(&mut self, frame: &mut [u8]) {
        let (kind, end) = (frame[0], frame.len() - FRAME_END_BYTES);
        if let Some(version) =
            version(&frame[FRAME_HEAD_BYTES..end]).filter(|_| kind == METHOD_FRAME)
        {
            // The server sends it once.
            let _ = self.version.set(version);
        }
        if let Some(limiter) = self.limiter.as_ref().filter(|_| kind == HEADER_FRAME) {
            limiter.message_started(&frame[FRAME_HEAD_BYTES..end]);
        }
        if sanitize(kind, &mut frame[FRAME_HEAD_BYTES..end]) {
            let place = self.place.as_str();
            let what = "changed an AMQP frame that the client library cannot parse: short strings that are not UTF-8 are marked, lists and tables nested too deep became bytes";
            if std::mem::replace(&mut self.altered, true) {
                debug!(place, "{what}");
            } else {
                warn!(place, "{what}");
            }
        }
    }
}

/// The version in `connection.start`: a long string in the table of server properties.
fn version(method: &[u8]) -> Option<String> {
    const VERSION_FIELD: &[u8] = b"\x07versionS";
    let rest = method.strip_prefix(&[0, 10, 0, 10])?;
    let at = rest.windows(VERSION_FIELD.len()).position(|bytes| bytes == VERSION_FIELD)?
        + VERSION_FIELD.len();
    let (length, text) = rest[at..].split_first_chunk()?;
    let text = text.get(..usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
    String::from_utf8(text.to_vec()).ok()
}

impl<S: AsyncRead + Unpin> AsyncRead for FrameSanitizer<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let sanitizer = self.get_mut();
        loop {
            let left = &sanitizer.whole[sanitizer.given..];
            if !left.is_empty() {
                let count = left.len().min(into.len());
                into[..count].copy_from_slice(&left[..count]);
                sanitizer.given += count;
                return Poll::Ready(Ok(count));
            }
            let most = if let Some(limiter) = &sanitizer.limiter {
                // Only between two frames, because a heartbeat is a frame.
                if sanitizer.passing == 0 && ready!(limiter.poll_room(context)) {
                    (sanitizer.whole, sanitizer.given) = (HEARTBEAT_FRAME.to_vec(), 0);
                    continue;
                }
                into.len().min(MAX_READ_BYTES)
            } else {
                into.len()
            };
            if sanitizer.held.is_empty() {
                let count =
                    ready!(Pin::new(&mut sanitizer.stream).poll_read(context, &mut into[..most]))?;
                let whole = sanitizer.inspect(&mut into[..count])?;
                if count == 0 || whole > 0 {
                    return Poll::Ready(Ok(whole));
                }
            } else {
                let missing = sanitizer.missing()?;
                let mut more = [0; 4096];
                let most = missing.min(more.len());
                if most > 0 {
                    let count = ready!(
                        Pin::new(&mut sanitizer.stream).poll_read(context, &mut more[..most])
                    )?;
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
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, from)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
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
