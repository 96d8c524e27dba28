//! The bytes of one connection; reports their state to its slot.

use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::buffers::{Buffered, Buffers, Turn};
use super::slot::Slot;
use crate::clock;

/// The longest time that a client may read nothing of an answer.
pub(super) const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest time that a client may take to read an answer. A client that reads a little now and
/// then would keep the answer for ever.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// The time for which a connection that ends still takes the bytes that its client sends. A socket
/// that is closed with unread bytes is reset, and the answer may be lost with it.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);

type Timer = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Ends a connection whose client reads nothing for [`WRITE_TIMEOUT`], or has not read an answer
/// after [`ANSWER_TIMEOUT`].
pub(super) struct TimedIo {
    stream: TcpStream,
    slot: Arc<Slot>,
    buffers: Buffers,
    /// The connection has buffers: from the first bytes of its client on.
    buffered: Option<Buffered>,
    /// Runs while the connection waits for buffers.
    turn: Option<Turn>,
    /// The bytes to read before those of the stream.
    ahead: Bytes,
    /// Runs while the client reads nothing.
    timeout: Option<Timer>,
    /// Runs while there are bytes that the client has not read.
    answer: Option<Timer>,
    /// Runs from the last answer until the client ends the connection.
    linger: Option<Timer>,
}

impl TimedIo {
    pub(super) fn new(stream: TcpStream, slot: Arc<Slot>, buffers: Buffers) -> Self {
        TimedIo {
            stream,
            slot,
            buffers,
            buffered: None,
            turn: None,
            ahead: Bytes::new(),
            timeout: None,
            answer: None,
            linger: None,
        }
    }

    /// Makes these bytes the next that are read.
    pub(super) fn put_ahead(&mut self, mut bytes: Vec<u8>) {
        bytes.extend_from_slice(&self.ahead);
        self.ahead = bytes.into();
    }

    /// Whether there are bytes that are read before those of the stream.
    pub(super) fn has_ahead(&self) -> bool {
        !self.ahead.is_empty()
    }

    /// The client's further bytes get no answer.
    pub(super) fn forget_ahead(&mut self) {
        self.ahead = Bytes::new();
    }

    /// The connection has given its buffers back, but for the bytes that are read before those of
    /// the stream.
    pub(super) fn unbuffered(&mut self) {
        self.slot.set_ahead(!self.ahead.is_empty());
        if self.ahead.is_empty() {
            self.buffered = None;
        }
    }

    /// Waits until the client sends something or ends its side. Whether it did so within `time`.
    pub(super) async fn readable(&mut self, time: Duration) -> bool {
        // Reading tells of an error.
        !self.ahead.is_empty() || clock::timeout(time, self.stream.readable()).await.is_some()
    }

    /// Waits until the client ends its side, and leaves its bytes where they are; or until another
    /// connection needs the room of the bytes that are ahead.
    pub(super) async fn hung_up(&mut self) {
        tokio::select! {
            () = ended(&self.stream) => {}
            () = self.slot.yields().notified(), if !self.ahead.is_empty() => {}
        }
    }

    /// Reads what the client sends until its end, and keeps nothing.
    pub(super) async fn ignore_all(&mut self) {
        poll_fn(|context| self.poll_ignore(context)).await;
    }

    /// Reads what the client has sent, and keeps nothing; ready at its end. A stream that failed
    /// has ended.
    fn poll_ignore(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut bytes = [0; 4096];
        loop {
            let mut into = ReadBuf::new(&mut bytes);
            let is_read = ready!(Pin::new(&mut self.stream).poll_read(context, &mut into)).is_ok();
            if !is_read || into.filled().is_empty() {
                return Poll::Ready(());
            }
        }
    }

    /// Waits for bytes, and then for buffers.
    fn poll_buffered(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.buffered.is_some() {
            return Poll::Ready(Ok(()));
        }
        if self.ahead.is_empty() {
            ready!(self.stream.poll_read_ready(context))?;
        }
        if self.turn.is_none() {
            self.buffered = self.buffers.try_take(&self.slot);
        }
        if self.buffered.is_none() {
            self.slot.set_queued(true);
            self.buffered = ready!(
                self.turn
                    .get_or_insert_with(|| self.buffers.turn(&self.slot))
                    .as_mut()
                    .poll(context)
            );
            self.turn = None;
            self.slot.set_queued(false);
        }
        Poll::Ready(Ok(()))
    }

    /// Waits for bytes of the client, and then for buffers: until then nothing reads them, and no
    /// time of a reader runs.
    pub(super) async fn buffered(&mut self) -> io::Result<()> {
        poll_fn(|context| self.poll_buffered(context)).await
    }

    fn written<T>(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            if let Some(buffered) = &mut self.buffered {
                buffered.written();
            }
            if self.timeout.take().is_some() {
                self.slot.set_stuck(false);
            }
            return polled;
        }
        self.slot.set_stuck(true);
        let timeout = self
            .timeout
            .get_or_insert_with(|| Box::pin(clock::sleep(WRITE_TIMEOUT)))
            .as_mut()
            .poll(context);
        let answer = self
            .answer
            .get_or_insert_with(|| Box::pin(clock::sleep(ANSWER_TIMEOUT)))
            .as_mut()
            .poll(context);
        if timeout.is_pending() && answer.is_pending() {
            return Poll::Pending;
        }
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the client does not read the answer",
        )))
    }
}

/// Waits until the client ends its side.
async fn ended(stream: &TcpStream) {
    #[cfg(target_os = "linux")]
    {
        // Its end is seen beside bytes that nobody reads, such as its next request.
        let ready = stream.ready(tokio::io::Interest::PRIORITY).await;
        if ready.is_ok_and(|ready| !ready.is_read_closed()) {
            std::future::pending::<()>().await;
        }
    }
    #[cfg(not(target_os = "linux"))]
    if stream.peek(&mut [0]).await.is_ok_and(|count| count > 0) {
        std::future::pending::<()>().await;
    }
}

impl AsyncRead for TimedIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_buffered(context))?;
        if !self.ahead.is_empty() {
            let count = self.ahead.len().min(into.remaining());
            into.put_slice(&self.ahead.split_to(count));
            return Poll::Ready(Ok(()));
        }
        let before = into.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, into);
        match &mut self.buffered {
            Some(buffered) if into.filled().len() > before => {
                buffered.renew();
                self.slot.received();
            }
            _ => {}
        }
        polled
    }
}

impl AsyncWrite for TimedIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(context, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.written(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // hyper has written all that it had.
        self.answer = None;
        // hyper also flushes while a request comes, and between the parts of an answer.
        let TimedIo { slot, buffered, .. } = &mut *self;
        if let Some(buffered) =
            buffered.as_mut().filter(|buffered| buffered.has_written() && !slot.is_busy())
        {
            if buffered.answered() {
                slot.set_over();
            }
            buffered.offer();
        }
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.linger.is_none() {
            self.buffered = None;
            ready!(Pin::new(&mut self.stream).poll_shutdown(context))?;
            if !self.slot.is_unread() {
                return Poll::Ready(Ok(()));
            }
            self.linger = Some(Box::pin(clock::sleep(LINGER_TIMEOUT)));
        }
        if self.poll_ignore(context).is_ready() {
            return Poll::Ready(Ok(()));
        }
        self.linger
            .as_mut()
            .map_or(Poll::Ready(Ok(())), |linger| linger.as_mut().poll(context).map(Ok))
    }
}
