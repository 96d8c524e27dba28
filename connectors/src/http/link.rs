//! The links that carry requests to a host: an HTTP/1.1 connection, which carries one at a time, or
//! a stream of its HTTP/2 connection.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::response::Parts;
use http::{Request, Version, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::sync::oneshot;
use tokio::task::coop::unconstrained;
use tokio::time::timeout;

use super::limits::MAX_HEADERS_BYTES;
use super::metered::{HeadLimit, Metered};
use super::outcome;
use super::targets::Target;
use crate::Outcome;
use crate::error::innermost;

/// The longest time that an unneeded connection may take to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Carries one request at a time.
pub(super) trait Link {
    /// Sends a request and waits for the head of its answer.
    async fn send(&mut self, request: Request<Bytes>, target: &Target)
    -> Result<Parts, Unanswered>;

    /// The next part of the answer's body; `None` at its end.
    async fn body(&mut self) -> Option<io::Result<Bytes>>;

    /// Whether the link can carry another request; waits for that at most `patience`. The rest of
    /// this request is given up.
    async fn is_free(&mut self, is_answer_whole: bool, patience: Duration) -> bool;

    /// The request has no answer in time: gives it up. Returns whether some of it may have been
    /// sent.
    fn give_up(&mut self) -> bool;
}

/// Why a request has no answer.
pub(super) enum Unanswered {
    /// None of it was sent, for this reason.
    Unsent(String),
    Ended(Outcome),
}

/// An HTTP/1.1 connection, which its owner polls: no other task takes part in a request.
pub(super) struct Http1 {
    sender: http1::SendRequest<Full<Bytes>>,
    /// `None` once ended.
    connection: Option<http1::Connection<TokioIo<Metered>, Full<Bytes>>>,
    head_limit: HeadLimit,
    /// Of the answer.
    body: Option<Incoming>,
}

/// The end of the wait of a connection without a request.
pub(super) enum Waited<T> {
    Given(T),
    /// The request came as the connection ended.
    TooLate(T),
    /// The connection ended, or gets no request any more.
    Ended,
}

impl Link for Http1 {
    async fn send(
        &mut self,
        request: Request<Bytes>,
        target: &Target,
    ) -> Result<Parts, Unanswered> {
        let mut request = request.map(Full::new);
        (*request.uri_mut(), *request.version_mut()) = (target.path.clone(), Version::HTTP_11);
        request.headers_mut().insert(header::HOST, target.host.clone());
        self.head_limit.begin();
        let answer = self.sender.try_send_request(request);
        let answer = self.beside(answer).await;
        self.head_limit.end();
        match answer {
            Ok(answer) => {
                let (head, body) = answer.into_parts();
                self.body = Some(body);
                Ok(head)
            }
            Err(mut error) => {
                // The error has the request if none of it was sent.
                let is_unsent = error.take_message().is_some();
                let why = innermost(&error.into_error());
                Err(if is_unsent {
                    Unanswered::Unsent(why)
                } else {
                    Unanswered::Ended(outcome::of_broken(&why))
                })
            }
        }
    }

    async fn body(&mut self) -> Option<io::Result<Bytes>> {
        let mut body = self.body.take()?;
        loop {
            match self.beside(body.frame()).await? {
                Ok(frame) => {
                    if let Ok(data) = frame.into_data() {
                        self.body = Some(body);
                        return Some(Ok(data));
                    }
                }
                Err(error) => return Some(Err(io::Error::other(error))),
            }
        }
    }

    async fn is_free(&mut self, is_answer_whole: bool, patience: Duration) -> bool {
        if !is_answer_whole || self.sender.is_ready() {
            return is_answer_whole;
        }
        // The rest of the request is still being sent, or the connection ends with this answer.
        let free = poll_fn(|cx| {
            let is_ended = self.poll_end(cx).is_ready();
            self.sender.poll_ready(cx).map(|free| free.is_ok() && !is_ended)
        });
        timeout(patience, free).await.unwrap_or(false)
    }

    fn give_up(&mut self) -> bool {
        true
    }
}

impl Http1 {
    /// A connection over this stream.
    pub(super) async fn begin(stream: Metered) -> hyper::Result<Self> {
        let head_limit = stream.head_limit();
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(MAX_HEADERS_BYTES)
            .handshake(TokioIo::new(stream))
            .await?;
        Ok(Http1 { sender, connection: Some(connection), head_limit, body: None })
    }

    /// Only the connection has to wake the task, because the future depends on nothing else. The
    /// future must not wait for the task's budget either.
    async fn beside<F: Future>(&mut self, future: F) -> F::Output {
        let mut future = pin!(unconstrained(future));
        poll_fn(|cx| {
            // Its end shows in the future.
            let _ = self.poll_end(cx);
            future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        })
        .await
    }

    /// Ready once the connection has ended.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(connection) = &mut self.connection else { return Poll::Ready(()) };
        if Pin::new(connection).poll(cx).is_pending() {
            return Poll::Pending;
        }
        // Requests and answers that depend on it hear of the end; why it ended is their error too.
        self.connection = None;
        Poll::Ready(())
    }

    /// Waits for the next request.
    pub(super) async fn wait<T>(&mut self, mut given: oneshot::Receiver<T>) -> Waited<T> {
        poll_fn(|cx| {
            // The connection first: no request is lost on one that is known to have ended.
            if self.poll_end(cx).is_ready() {
                given.close();
                return Poll::Ready(given.try_recv().map_or(Waited::Ended, Waited::TooLate));
            }
            Pin::new(&mut given).poll(cx).map(|given| given.map_or(Waited::Ended, Waited::Given))
        })
        .await
    }

    /// Closes the connection, as TLS wants it.
    pub(super) async fn close(self) {
        drop(self.sender);
        if let Some(connection) = self.connection {
            // A connection that takes longer is cut off.
            let _ = timeout(CLOSE_TIMEOUT, connection).await;
        }
    }
}
