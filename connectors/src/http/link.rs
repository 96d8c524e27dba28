//! What carries requests to a host: an HTTP/1.1 connection, which carries one at a time, or a share
//! in the HTTP/2 connection of the host.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Version, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::sync::oneshot;
use tokio::task::coop::unconstrained;
use tokio::time::timeout;

use super::connection::Stream;
use super::targets::Target;

/// How often an HTTP/2 connection with open requests is probed, and how long the answer may take.
const PING: Duration = Duration::from_secs(5);
/// The most bytes of an answer's headers.
const HEADERS_MAX: usize = 64 << 10;
/// How long a connection that is not needed any more may take to close.
const CLOSE_TIME: Duration = Duration::from_secs(1);

type Body = Full<Bytes>;

/// Sends requests over the HTTP/2 connection of a host. Clones share the connection, which ends with
/// the last of them.
pub(super) type Http2 = http2::SendRequest<Body>;

/// Carries one request at a time.
pub(super) trait Link {
    /// Sends a request and waits for the head of its answer. The error has the request if none of it
    /// was sent.
    async fn send(&mut self, request: Request<Body>, target: &Target) -> Result<Response<Incoming>, TrySendError<Request<Body>>>;

    /// Runs what depends on the connection.
    async fn beside<F: Future>(&mut self, future: F) -> F::Output;

    /// Whether the link can carry another request: waits for it at most so long.
    async fn is_free(&mut self, patience: Duration) -> bool;
}

/// An HTTP/1.1 connection, which its owner polls: no other task takes part in a request.
pub(super) struct Http1 {
    sender: http1::SendRequest<Body>,
    /// `None` once ended.
    connection: Option<http1::Connection<Stream, Body>>,
}

/// How the wait of a connection without a request ended.
pub(super) enum Waited<T> {
    Given(T),
    /// The request came as the connection ended.
    TooLate(T),
    /// The connection ended, or gets no request any more.
    Ended,
}

impl Link for Http2 {
    async fn send(&mut self, mut request: Request<Body>, target: &Target) -> Result<Response<Incoming>, TrySendError<Request<Body>>> {
        (*request.uri_mut(), *request.version_mut()) = (target.uri.clone(), Version::HTTP_2);
        self.try_send_request(request).await
    }

    async fn beside<F: Future>(&mut self, future: F) -> F::Output {
        // A task of its own runs the connection.
        future.await
    }

    async fn is_free(&mut self, _patience: Duration) -> bool {
        !self.is_closed()
    }
}

impl Link for Http1 {
    async fn send(&mut self, mut request: Request<Body>, target: &Target) -> Result<Response<Incoming>, TrySendError<Request<Body>>> {
        (*request.uri_mut(), *request.version_mut()) = (target.path.clone(), Version::HTTP_11);
        request.headers_mut().insert(header::HOST, target.host.clone());
        let answer = self.sender.try_send_request(request);
        self.beside(answer).await
    }

    /// Only the connection has to wake the task, because the future depends on nothing else. The future
    /// must not wait for the task's budget either.
    async fn beside<F: Future>(&mut self, future: F) -> F::Output {
        let mut future = pin!(unconstrained(future));
        poll_fn(|cx| {
            // Its end shows in the future.
            let _ = self.poll_end(cx);
            future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        })
        .await
    }

    async fn is_free(&mut self, patience: Duration) -> bool {
        if self.sender.is_ready() {
            return true;
        }
        // The rest of the request is still being sent, or the connection ends with this answer.
        let free = poll_fn(|cx| {
            let is_ended = self.poll_end(cx).is_ready();
            self.sender.poll_ready(cx).map(|free| free.is_ok() && !is_ended)
        });
        timeout(patience, free).await.unwrap_or(false)
    }
}

/// An HTTP/2 connection over this stream, and what runs it until its end.
pub(super) async fn http2(stream: Stream) -> hyper::Result<(Http2, impl Future<Output = hyper::Result<()>> + Send)> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.timer(TokioTimer::new()).max_header_list_size(HEADERS_MAX as u32).keep_alive_interval(PING).keep_alive_timeout(PING);
    builder.handshake(stream).await
}

impl Http1 {
    /// A connection over this stream.
    pub(super) async fn begin(stream: Stream) -> hyper::Result<Self> {
        let (sender, connection) = http1::Builder::new().max_buf_size(HEADERS_MAX).handshake(stream).await?;
        Ok(Http1 { sender, connection: Some(connection) })
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
            // Whoever waits longer than that is cut off.
            let _ = timeout(CLOSE_TIME, connection).await;
        }
    }
}
