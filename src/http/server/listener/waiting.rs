//! A call that waits, without hyper. For each connection hyper keeps two buffers of 8 KiB, which
//! are most of the cost of a waiting consumer, and nothing makes hyper give them back.
//!
//! So the connection leaves hyper for the wait, and enters a new one with the answer. hyper answers
//! only requests: it reads one that says what the answer depends on, before the next bytes of the
//! client.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use axum::http::{Request, header};
use axum::response::Response;

use super::connection::TimedIo;
use super::slot::BusyGuard;
use crate::http::server::later::DeferredResponse;

/// A call that waits for its answer. Dropped, the call ends.
pub(super) struct Waiting {
    answer: DeferredResponse,
    head: Head,
    work: BusyGuard,
    /// A part of the request is not read: the connection ends with the answer.
    is_last: bool,
}

/// Ends when the client has gone away. In a box of its own, so that the connection is small
/// otherwise.
type Gone<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// An answer, and the guard that marks its connection as busy until the answer is written.
pub(super) struct Answer {
    pub(super) response: Response,
    pub(super) work: BusyGuard,
}

impl Waiting {
    pub(super) fn new(
        answer: DeferredResponse,
        head: Head,
        work: BusyGuard,
        is_last: bool,
    ) -> Self {
        Waiting { answer, head, work, is_last }
    }

    /// Whether the next bytes of the client are ignored.
    pub(super) fn is_last(&self) -> bool {
        self.is_last
    }

    /// Waits for the answer, and for the client to go away, or for the end of the connection for
    /// others: then there is none. `stops`: whether the connection ends with this answer.
    pub(super) async fn answer(
        mut self,
        io: &mut TimedIo,
        stops: impl Fn() -> bool,
    ) -> Option<Answer> {
        let response = {
            let mut gone: Gone<'_> =
                if self.is_last { Box::pin(io.ignore_all()) } else { Box::pin(io.hung_up()) };
            poll_fn(|context| match gone.as_mut().poll(context) {
                Poll::Ready(()) => Poll::Ready(None),
                Poll::Pending => self.answer.as_mut().poll(context).map(Some),
            })
            .await?
        };
        io.put_ahead(self.head.end(self.is_last || stops()));
        Some(Answer { response, work: self.work })
    }
}

/// The part of a request that its answer depends on: the method, the version, and whether the
/// client keeps the connection.
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
