//! The bytes of one connection, and the answers on it, as its seat is told of them.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use hyper::body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::seats::{Seat, Work};
use crate::clock;

/// How long a client may take none of what is written to it.
pub(super) const WRITE: Duration = Duration::from_secs(10);

/// A connection that is cut where its client takes nothing for [`WRITE`].
pub(super) struct Watched {
    stream: TcpStream,
    seat: Arc<Seat>,
    /// Since the client takes nothing.
    patience: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Watched {
    pub(super) fn new(stream: TcpStream, seat: Arc<Seat>) -> Self {
        Watched { stream, seat, patience: None }
    }

    fn written<T>(&mut self, context: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            if self.patience.take().is_some() {
                self.seat.set_stuck(false);
            }
            return polled;
        }
        self.seat.set_stuck(true);
        let patience = self.patience.get_or_insert_with(|| Box::pin(clock::sleep(WRITE)));
        patience.as_mut().poll(context).map(|()| Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes no answer")))
    }
}

impl AsyncRead for Watched {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for Watched {
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

/// The body of an answer. Until it has ended its connection is at work: a stream of events too.
pub(super) struct Answer {
    body: Body,
    _work: Work,
}

impl Answer {
    pub(super) fn new(body: Body, work: Work) -> Self {
        Answer { body, _work: work }
    }
}

impl hyper::body::Body for Answer {
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
