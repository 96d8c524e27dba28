//! What goes out on an HTTP/2 connection: the frames tell which streams the server can know.
//!
//! `h2` gives a stream its number at once, and holds it back while the connection takes no bytes,
//! or while earlier streams whose resets have not gone out use up what the server takes.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::metered::Metered;

/// The bytes of a client before its first frame (RFC 9113 §3.4).
const PREFACE_BYTES: usize = 24;
/// The bytes before the payload of a frame: its length in 3, type, flags, stream in 4 (§4.1).
const FRAME_HEAD_BYTES: usize = 9;
/// The type of the frame that opens a stream.
const HEADERS: u8 = 1;

/// A connection whose frames are looked at as they go out.
pub(super) struct Outgoing {
    stream: Metered,
    sent: Sent,
}

/// What went out on a connection.
#[derive(Clone, Default)]
pub(super) struct Sent(Arc<Mutex<Frames>>);

struct Frames {
    /// The start of a frame, and how many bytes of it are there.
    head: [u8; FRAME_HEAD_BYTES],
    filled: usize,
    /// The bytes before the next frame.
    rest: usize,
    /// The stream that was opened last. Streams are opened in the order of their numbers.
    last_stream: u32,
    is_sealed: bool,
}

impl Default for Frames {
    fn default() -> Self {
        Frames {
            head: [0; FRAME_HEAD_BYTES],
            filled: 0,
            rest: PREFACE_BYTES,
            last_stream: 0,
            is_sealed: false,
        }
    }
}

impl Frames {
    /// These bytes go out.
    fn read(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.rest > 0 {
                let size = self.rest.min(bytes.len());
                self.rest -= size;
                bytes = &bytes[size..];
                continue;
            }
            let size = (FRAME_HEAD_BYTES - self.filled).min(bytes.len());
            self.head[self.filled..self.filled + size].copy_from_slice(&bytes[..size]);
            self.filled += size;
            bytes = &bytes[size..];
            if self.filled == FRAME_HEAD_BYTES {
                let [high, middle, low, kind, _flags, stream @ ..] = self.head;
                self.filled = 0;
                self.rest = u32::from_be_bytes([0, high, middle, low]) as usize;
                if kind == HEADERS {
                    self.last_stream = self.last_stream.max(u32::from_be_bytes(stream));
                }
            }
        }
    }
}

impl Sent {
    /// Returns whether this stream was opened. Otherwise nothing goes out any more, so that it
    /// never is; the answers of the others still come in.
    pub(super) fn seal_unless_opened(&self, stream: u32) -> bool {
        let mut frames = self.0.lock();
        let is_opened = stream <= frames.last_stream;
        frames.is_sealed |= !is_opened;
        is_opened
    }

    /// Whether nothing goes out any more.
    pub(super) fn is_sealed(&self) -> bool {
        self.0.lock().is_sealed
    }
}

impl Outgoing {
    pub(super) fn new(stream: Metered, sent: Sent) -> Self {
        Outgoing { stream, sent }
    }
}

impl AsyncRead for Outgoing {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Outgoing {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(bytes)])
    }

    /// The bytes that the server has been sent before, and TLS still holds.
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
        let outgoing = &mut *self;
        // Locked while the bytes go: a stream cannot open after it was said not to.
        let mut frames = outgoing.sent.0.lock();
        if frames.is_sealed {
            // Dropped, not held back: `h2` reads no answer while it cannot write.
            return Poll::Ready(Ok(parts.iter().map(|part| part.len()).sum()));
        }
        let written = Pin::new(&mut outgoing.stream).poll_write_vectored(cx, parts);
        let mut size = match &written {
            Poll::Ready(Ok(size)) => *size,
            // TLS may have sent a part before the error.
            Poll::Ready(Err(_)) => usize::MAX,
            Poll::Pending => 0,
        };
        for part in parts {
            let taken = size.min(part.len());
            frames.read(&part[..taken]);
            size -= taken;
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn frame(kind: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, 0], &stream.to_be_bytes(), payload].concat()
    }

    #[test]
    fn a_stream_is_opened_by_the_head_of_its_headers_however_the_bytes_are_cut() {
        const DATA: u8 = 0;
        // A payload that looks like the headers of stream 9.
        let inner = frame(HEADERS, 9, b"");
        let sent = [
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
            frame(HEADERS, 1, &inner),
            frame(DATA, 1, &inner),
            frame(HEADERS, 3, b"x"),
        ]
        .concat();
        for size in 1..=sent.len() {
            let mut frames = Frames::default();
            sent.chunks(size).for_each(|bytes| frames.read(bytes));
            assert_eq!(frames.last_stream, 3, "in parts of {size}");
        }
        let mut frames = Frames::default();
        frames.read(&sent[..sent.len() - 2]);
        assert_eq!(frames.last_stream, 1, "without the last byte of a head");
    }

    #[test]
    fn a_stream_that_was_not_opened_seals_the_connection() {
        let sent = Sent::default();
        sent.0.lock().last_stream = 5;
        assert!(sent.seal_unless_opened(5) && !sent.is_sealed());
        assert!(!sent.seal_unless_opened(7) && sent.is_sealed());
        assert!(sent.seal_unless_opened(5), "a stream that was opened stays so");
    }
}
