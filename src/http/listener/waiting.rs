//! A call that waits, without hyper. For each connection hyper keeps two buffers of 8 KiB, which make up
//! most of what a waiting consumer costs, and nothing makes hyper give them back.
//!
//! So the connection leaves hyper for the wait, and enters a new one with the answer. hyper answers
//! only requests: it reads one that says what the answer depends on, before the next bytes of the
//! client.

use std::future::poll_fn;
use std::task::Poll;

use axum::http::{Request, header};
use axum::response::Response;

use super::connection::TimedIo;
use super::slots::BusyGuard;
use crate::http::later::Later;

/// A call that waits for its answer. Dropped, the call ends.
pub(super) struct Waiting {
    answer: Later,
    head: Head,
    work: BusyGuard,
}

/// An answer, and what marks its connection as busy until the answer is written.
pub(super) struct Answer {
    pub(super) response: Response,
    pub(super) work: BusyGuard,
}

impl Waiting {
    pub(super) fn new(answer: Later, head: Head, work: BusyGuard) -> Self {
        Waiting { answer, head, work }
    }

    /// Waits for the answer, and for the client to go away: then there is none. `is_last`: the
    /// connection ends with this answer.
    pub(super) async fn answer(mut self, io: &mut TimedIo, is_last: impl Fn() -> bool) -> Option<Answer> {
        // The end of a client that sends its next request before the answer is not seen, as by hyper.
        let mut is_watched = true;
        let response = poll_fn(|context| {
            if is_watched && let Poll::Ready(is_there) = io.poll_peek(context) {
                if !is_there {
                    return Poll::Ready(None);
                }
                is_watched = false;
            }
            self.answer.as_mut().poll(context).map(Some)
        });
        let response = response.await?;
        io.put_ahead(self.head.end(is_last()));
        Some(Answer { response, work: self.work })
    }
}

/// What of a request its answer depends on: the method, the version, and whether the client keeps the
/// connection.
pub(super) struct Head(Vec<u8>);

impl Head {
    pub(super) fn of<B>(request: &Request<B>) -> Head {
        let mut head = format!("{} / {:?}\r\n", request.method(), request.version()).into_bytes();
        for value in request.headers().get_all(header::CONNECTION) {
            head.extend_from_slice(b"connection: ");
            head.extend_from_slice(value.as_bytes());
            head.extend_from_slice(b"\r\n");
        }
        Head(head)
    }

    /// The bytes of a request without anything else.
    fn end(self, is_last: bool) -> Vec<u8> {
        let Head(mut bytes) = self;
        if is_last {
            bytes.extend_from_slice(b"connection: close\r\n");
        }
        bytes.extend_from_slice(b"\r\n");
        bytes
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests;
