//! One connection, from request to request.

use std::convert::Infallible;
use std::future::{Future, pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::http::{Request, Response};
use futures_util::future::Either;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::connection::{AnswerBody, AskedBody, TimedIo};
use super::slots::{BusyGuard, Slot};
use super::waiting::{Answer, Head, Waiting};
use crate::http::later;

/// How long a client may take to send the head of a request, or to begin the next one.
pub(super) const HEAD: Duration = Duration::from_secs(30);
/// The largest head of a request, in bytes.
const HEAD_BYTES: usize = 16 << 10;
/// The most bytes of an answer that the kernel buffers for its client. The kernel's own limit is
/// megabytes a connection, which count as memory of the container: clients that send requests and
/// never read would fill it.
const SEND_BYTES: usize = 64 << 10;

/// Answers the requests of one connection until it ends, or at `shutdown` after the current
/// request.
pub(super) async fn converse(stream: TcpStream, slot: Arc<Slot>, router: Router, shutdown: CancellationToken) {
    // Answers are written whole: delaying small packets gains nothing.
    let _ = stream.set_nodelay(true);
    // The connection also works without it.
    let _ = rustix::net::sockopt::set_socket_send_buffer_size(&stream, SEND_BYTES);
    let (mut io, calls) = (TimedIo::new(stream, slot.clone()), Calls { slot, calls: TowerToHyperService::new(router) });
    let mut answer = None;
    loop {
        // In a box, which a wait frees.
        match Box::pin(talk(io, answer.take(), &calls, &shutdown)).await {
            Ok(None) => return,
            Ok(Some(pause)) => {
                io = pause.io;
                answer = pause.waiting.answer(&mut io, || shutdown.is_cancelled()).await;
                if answer.is_none() {
                    tracing::debug!("a client went away while its call waited");
                    return;
                }
            }
            Err(error) => {
                tracing::debug!(%error, "a connection ended early");
                return;
            }
        }
    }
}

/// A connection whose call waits.
struct Pause {
    waiting: Waiting,
    io: TimedIo,
}

/// Answers requests until the connection ends (`None`), or until a call waits. `answer` is the one to
/// the request that is ahead of the stream.
async fn talk(io: TimedIo, answer: Option<Answer>, calls: &Calls, shutdown: &CancellationToken) -> Result<Option<Pause>, hyper::Error> {
    let waiting = Arc::new(Mutex::new(None));
    let mut connection = {
        let (calls, waiting, answer) = (calls.clone(), waiting.clone(), Mutex::new(answer));
        let service = service_fn(move |request| calls.call(request, answer.lock().take(), waiting.clone()));
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(HEAD_BYTES);
        http.serve_connection(TokioIo::new(io), service)
    };
    let mut stopped = pin!(shutdown.cancelled());
    let mut is_last = false;
    let paused = poll_fn(|context| {
        // First: a connection that ends before hyper has read anything ends without an answer.
        let mut polled = Pin::new(&mut connection).poll(context);
        if polled.is_pending() && !is_last && stopped.as_mut().poll(context).is_ready() {
            is_last = true;
            Pin::new(&mut connection).graceful_shutdown();
            polled = Pin::new(&mut connection).poll(context);
        }
        match polled {
            Poll::Ready(ended) => Poll::Ready(ended.map(|()| None)),
            // Of an earlier answer, hyper has bytes that the client does not read.
            Poll::Pending if calls.slot.is_stuck() => Poll::Pending,
            Poll::Pending => waiting.lock().take().map_or(Poll::Pending, |waiting| Poll::Ready(Ok(Some(waiting)))),
        }
    });
    let paused: Option<Waiting> = paused.await?;
    Ok(paused.map(|waiting| {
        let parts = connection.into_parts();
        let mut io = parts.io.into_inner();
        // Copied: even without a byte of the next requests, hyper's bytes hold its buffer.
        io.put_ahead(parts.read_buf.to_vec());
        Pause { waiting, io }
    }))
}

/// What answers the requests of a connection.
#[derive(Clone)]
struct Calls {
    slot: Arc<Slot>,
    calls: TowerToHyperService<Router>,
}

impl Calls {
    /// Answers a request, with `answer` if there is one. A call that waits goes to `waiting`, and is
    /// not answered here.
    fn call(
        &self,
        request: Request<Incoming>,
        answer: Option<Answer>,
        waiting: Arc<Mutex<Option<Waiting>>>,
    ) -> impl Future<Output = Result<Response<AnswerBody>, Infallible>> + use<> {
        let begun = if let Some(answer) = answer {
            Either::Left(answer)
        } else {
            let (head, work) = (Head::of(&request), BusyGuard::new(&self.slot));
            let request = request.map(AskedBody::new);
            let is_read = request.body().is_read();
            Either::Right((self.calls.call(request), is_read, head, work))
        };
        async move {
            let Answer { response, work } = match begun {
                Either::Left(answer) => answer,
                Either::Right((call, is_read, head, work)) => {
                    let mut response = call.await?;
                    match later::take(&mut response) {
                        None => Answer { response, work },
                        // Without hyper, the rest of the body would be taken for the next request.
                        Some(later) if !is_read.load(Ordering::Relaxed) => Answer { response: later.await, work },
                        Some(later) => {
                            *waiting.lock() = Some(Waiting::new(later, head, work));
                            pending().await
                        }
                    }
                }
            };
            Ok(response.map(|body| AnswerBody::new(body, work)))
        }
    }
}
