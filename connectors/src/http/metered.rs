//! A connection whose reads are bounded: no server that sends without an end holds up other tasks.
//! The frames that go out over HTTP/2 are inspected.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connection::Stream;
use super::limits::MAX_HEADERS_BYTES;
use super::outgoing::Sent;

/// The most bytes that are read before other tasks get a turn.
const MAX_TURN_BYTES: usize = 64 << 10;

/// A connection to a host.
pub(super) struct Metered {
    stream: TokioIo<Stream>,
    /// Bytes that were read in this turn.
    turn: usize,
    head: HeadLimit,
    /// Of HTTP/2.
    sent: Option<Sent>,
}

/// The most bytes that may come before the headers of an answer end, interim answers (1xx)
/// included: the client reads these in one go, however many there are.
#[derive(Clone)]
pub(super) struct HeadLimit(Arc<AtomicUsize>);

impl HeadLimit {
    const NONE: usize = usize::MAX;

    /// A request is sent.
    pub(super) fn begin(&self) {
        self.0.store(MAX_HEADERS_BYTES, Ordering::Relaxed);
    }

    /// The headers of its answer are here.
    pub(super) fn end(&self) {
        self.0.store(HeadLimit::NONE, Ordering::Relaxed);
    }
}

impl Metered {
    pub(super) fn new(stream: Stream) -> Self {
        Metered {
            stream: TokioIo::new(stream),
            turn: 0,
            head: HeadLimit(Arc::new(AtomicUsize::new(HeadLimit::NONE))),
            sent: None,
        }
    }

    /// The same for HTTP/2: `sent` learns which frames go out.
    pub(super) fn watched_by(self, sent: Sent) -> Self {
        Metered { sent: Some(sent), ..self }
    }

    /// The limit for the headers of answers, which says when they begin and end.
    pub(super) fn head_limit(&self) -> HeadLimit {
        self.head.clone()
    }
}

impl AsyncRead for Metered {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.turn >= MAX_TURN_BYTES {
            self.turn = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let left = self.head.0.load(Ordering::Relaxed);
        if left == 0 {
            let why = format!(
                "the headers of the answer, with those of interim answers, are longer than {} KiB",
                MAX_HEADERS_BYTES >> 10
            );
            return Poll::Ready(Err(io::Error::other(why)));
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let size = buffer.filled().len() - before;
        self.turn = if read.is_pending() { 0 } else { self.turn + size };
        if left != HeadLimit::NONE {
            self.head.0.store(left.saturating_sub(size), Ordering::Relaxed);
        }
        read
    }
}

impl AsyncWrite for Metered {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(bytes)])
    }

    /// Also where nothing goes out any more: TLS may still hold bytes that count as sent.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let metered = &mut *self;
        let stream = Pin::new(&mut metered.stream);
        match &metered.sent {
            Some(sent) => sent.write(parts, || stream.poll_write_vectored(cx, parts)),
            None => stream.poll_write_vectored(cx, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
