//! Outgoing frames of an HTTP/2 connection: they tell which streams the server can know.
//!
//! `h2` gives a stream its number at once, and holds it back while the connection takes no bytes,
//! or while earlier streams whose resets have not gone out use up what the server takes.

use std::io;
use std::sync::Arc;
use std::task::Poll;

use parking_lot::Mutex;

/// The bytes of a client before its first frame (RFC 9113 §3.4).
const PREFACE_BYTES: usize = 24;
/// The bytes before the payload of a frame: its length in 3, type, flags, stream in 4 (§4.1).
const FRAME_HEAD_BYTES: usize = 9;
/// The type of the frame that opens a stream.
const HEADERS: u8 = 1;

/// The frames that went out on a connection.
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

    /// Writes these bytes, and reads which streams they open.
    pub(super) fn write(
        &self,
        parts: &[io::IoSlice<'_>],
        write: impl FnOnce() -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        // Locked while the bytes go: a stream cannot open after it was said not to.
        let mut frames = self.0.lock();
        if frames.is_sealed {
            // Dropped, not held back: `h2` reads no answer while it cannot write.
            return Poll::Ready(Ok(parts.iter().map(|part| part.len()).sum()));
        }
        let written = write();
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

    #[test]
    fn the_bytes_of_a_write_that_fails_count_as_sent_and_those_of_one_that_waits_do_not() {
        let bytes = [vec![0; PREFACE_BYTES], frame(HEADERS, 1, b"")].concat();
        let parts = [io::IoSlice::new(&bytes)];
        let sent = Sent::default();
        assert!(sent.write(&parts, || Poll::Pending).is_pending());
        assert_eq!(sent.0.lock().last_stream, 0);
        let failed = sent.write(&parts, || Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())));
        assert!(matches!(failed, Poll::Ready(Err(_))));
        assert!(sent.seal_unless_opened(1), "the server may know the stream");
    }

    #[test]
    fn a_sealed_connection_takes_bytes_and_sends_none() {
        let sent = Sent::default();
        assert!(!sent.seal_unless_opened(1));
        let parts = [io::IoSlice::new(b"ab"), io::IoSlice::new(b"c")];
        let written = sent.write(&parts, || panic!("bytes went out"));
        assert!(matches!(written, Poll::Ready(Ok(3))));
    }
}
