//! The bytes of one connection, and the bodies of its requests and answers; reports their state to
//! its slot.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody as _};
use hyper::body::{Frame, Incoming, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::slots::{BusyGuard, Slot};
use crate::clock;

/// How long a client may read nothing of an answer.
pub(super) const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Ends a connection whose client reads nothing for [`WRITE_TIMEOUT`].
pub(super) struct TimedIo {
    stream: TcpStream,
    slot: Arc<Slot>,
    /// What is read before the bytes of the stream.
    ahead: Bytes,
    /// Runs while the client reads nothing.
    timeout: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl TimedIo {
    pub(super) fn new(stream: TcpStream, slot: Arc<Slot>) -> Self {
        TimedIo { stream, slot, ahead: Bytes::new(), timeout: None }
    }

    /// Makes these bytes the next that are read.
    pub(super) fn put_ahead(&mut self, mut bytes: Vec<u8>) {
        bytes.extend_from_slice(&self.ahead);
        self.ahead = bytes.into();
    }

    /// Waits for bytes of the client, and leaves them there: whether there are any, or else the end.
    /// A stream that failed has ended.
    pub(super) fn poll_peek(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        if !self.ahead.is_empty() {
            return Poll::Ready(true);
        }
        let mut byte = [0];
        self.stream.poll_peek(context, &mut ReadBuf::new(&mut byte)).map(|count| count.is_ok_and(|count| count > 0))
    }

    fn written<T>(&mut self, context: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            if self.timeout.take().is_some() {
                self.slot.set_stuck(false);
            }
            return polled;
        }
        self.slot.set_stuck(true);
        let timeout = self.timeout.get_or_insert_with(|| Box::pin(clock::sleep(WRITE_TIMEOUT)));
        timeout.as_mut().poll(context).map(|()| Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read the answer")))
    }
}

impl AsyncRead for TimedIo {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.ahead.is_empty() {
            let count = self.ahead.len().min(into.remaining());
            into.put_slice(&self.ahead.split_to(count));
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for TimedIo {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(context, polled)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, context: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.written(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// The body of a request. Tells whether the call has read it to its end.
pub(super) struct AskedBody {
    body: Incoming,
    is_read: Arc<AtomicBool>,
}

impl AskedBody {
    pub(super) fn new(body: Incoming) -> Self {
        let is_read = Arc::new(AtomicBool::new(body.is_end_stream()));
        AskedBody { body, is_read }
    }

    /// Whether the call has read the body to its end: then no byte of the stream is one of the body.
    pub(super) fn is_read(&self) -> Arc<AtomicBool> {
        self.is_read.clone()
    }
}

impl hyper::body::Body for AskedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if matches!(polled, Poll::Ready(None)) {
            self.is_read.store(true, Ordering::Relaxed);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of an answer. The connection is busy until the body ends: an event stream, too.
pub(super) struct AnswerBody {
    body: Body,
    _work: BusyGuard,
}

impl AnswerBody {
    pub(super) fn new(body: Body, work: BusyGuard) -> Self {
        AnswerBody { body, _work: work }
    }
}

impl hyper::body::Body for AnswerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
