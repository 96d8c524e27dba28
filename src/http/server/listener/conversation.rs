//! One connection, from request to request.

use std::convert::Infallible;
use std::future::{Future, pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::body::HttpBody as _;
use axum::http::{HeaderValue, Request, Response, header};
use axum::response::IntoResponse;
use futures_util::future::Either;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::bodies::{AnswerBody, AskedBody};
use super::connection::TimedIo;
use super::doubled;
use super::slot::{BusyGuard, Slot};
use super::waiting::{Answer, Head, Waiting};
use crate::budget::UsedUp;
use crate::http::server::account::{Account, Memory};
use crate::http::server::later;
use crate::http::server::problem::Problem;

/// The longest time that a client may take to send the head of a request, or to begin the next one.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// The largest head of a request, in bytes.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// The most bytes of an answer that the kernel buffers for its client. The kernel's own limit is
/// megabytes a connection, which count as memory of the container: clients that send requests and
/// never read would fill it.
const SEND_BUFFER_BYTES: usize = 64 << 10;

/// Sets what a connection needs.
pub(super) fn prepare(stream: &TcpStream) {
    // Answers are written whole: delaying small packets gains nothing.
    let _ = stream.set_nodelay(true);
    // The connection also works without it.
    let _ = rustix::net::sockopt::set_socket_send_buffer_size(stream, SEND_BUFFER_BYTES);
}

/// Answers the requests of one connection until it ends, or at `shutdown` after the current
/// request.
pub(super) async fn converse(mut io: TimedIo, calls: Calls, shutdown: CancellationToken) {
    let mut answer = None;
    loop {
        // Before hyper reads: its time for a head runs for the client alone. In boxes, which a wait
        // frees.
        let begins = Box::pin(begins(&mut io, answer.is_some(), &shutdown)).await;
        if !begins {
            return;
        }
        match Box::pin(talk(io, answer.take(), &calls, &shutdown)).await {
            Ok(None) => return,
            Ok(Some(Pause { waiting: Some(waiting), io: paused })) => {
                io = paused;
                answer = waiting.answer(&mut io, || shutdown.is_cancelled()).await;
                calls.slot.set_ahead(false);
                if answer.is_none() {
                    tracing::debug!("a connection ended while its call waited");
                    return;
                }
            }
            Ok(Some(Pause { waiting: None, io: paused })) => io = paused,
            Err(error) => {
                tracing::debug!(%error, "a connection ended early");
                return;
            }
        }
    }
}

/// Waits until the client sends something, and for buffers. False if the connection ends before.
async fn begins(io: &mut TimedIo, has_answer: bool, shutdown: &CancellationToken) -> bool {
    if has_answer {
        return io.buffered().await.is_ok();
    }
    tokio::select! {
        // A request that came before the shutdown is answered.
        biased;
        begins = async { io.readable(HEAD_TIMEOUT).await && io.buffered().await.is_ok() } => begins,
        () = shutdown.cancelled() => false,
    }
}

/// A connection without buffers: its call waits, or no request has come.
struct Pause {
    waiting: Option<Waiting>,
    io: TimedIo,
}

/// Answers requests until the connection ends (`None`), until a call waits, or until another
/// connection needs its buffers. `answer` is the one to the request that is ahead of the stream.
async fn talk(
    io: TimedIo,
    answer: Option<Answer>,
    calls: &Calls,
    shutdown: &CancellationToken,
) -> Result<Option<Pause>, hyper::Error> {
    let waiting = Arc::new(Mutex::new(None));
    let mut connection = {
        let (calls, waiting, answer) = (calls.clone(), waiting.clone(), Mutex::new(answer));
        let service =
            service_fn(move |request| calls.call(request, answer.lock().take(), waiting.clone()));
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(MAX_HEAD_BYTES);
        http.serve_connection(TokioIo::new(io), service)
    };
    let (mut stopped, mut hung_up) =
        (pin!(shutdown.cancelled()), pin!(calls.slot.hang_up().notified()));
    let mut yields = pin!(calls.slot.yields().notified());
    let mut is_last = false;
    let paused = poll_fn(|context| {
        // Others need the memory of the answers that this client does not read.
        if hung_up.as_mut().poll(context).is_ready() {
            return Poll::Ready(Ok(None));
        }
        // First: a connection that ends before hyper has read anything ends without an answer.
        let mut polled = Pin::new(&mut connection).poll(context);
        if polled.is_pending() && !is_last && stopped.as_mut().poll(context).is_ready() {
            is_last = true;
            Pin::new(&mut connection).graceful_shutdown();
            polled = Pin::new(&mut connection).poll(context);
        }
        match polled {
            Poll::Ready(ended) => return Poll::Ready(ended.map(|()| None)),
            Poll::Pending => {}
        }
        // Of an earlier answer, hyper has bytes that the client has not read.
        let waiting = if calls.slot.is_stuck() { None } else { waiting.lock().take() };
        if waiting.is_some() {
            return Poll::Ready(Ok(Some(waiting)));
        }
        // Another connection needs the buffers. A connection that cannot give its buffers back now
        // is asked again.
        while yields.as_mut().poll(context).is_ready() {
            yields.set(calls.slot.yields().notified());
            if calls.slot.is_slow() {
                return Poll::Ready(Ok(None));
            }
            if !is_last && calls.slot.is_idle() {
                return Poll::Ready(Ok(Some(None)));
            }
        }
        Poll::Pending
    });
    let Some(waiting): Option<Option<Waiting>> = paused.await? else { return Ok(None) };
    let parts = connection.into_parts();
    let mut io = parts.io.into_inner();
    match &waiting {
        Some(waiting) if waiting.is_last() => io.forget_ahead(),
        // Copied: even without a byte of the next requests, hyper's bytes hold its buffer. Line
        // ends before a request are none of it (RFC 9112, 2.2).
        _ => {
            let next = parts
                .read_buf
                .iter()
                .position(|byte| !b"\r\n".contains(byte))
                .unwrap_or(parts.read_buf.len());
            io.put_ahead(parts.read_buf[next..].to_vec());
        }
    }
    if waiting.is_none() && io.has_ahead() {
        calls.slot.received();
    }
    io.unbuffered();
    Ok(Some(Pause { waiting, io }))
}

/// The bytes of an answer, as far as they are known.
fn size_of(response: &Response<axum::body::Body>) -> usize {
    usize::try_from(response.body().size_hint().lower()).unwrap_or(usize::MAX)
}

/// The account of a call of this connection.
fn account_of(memory: &Memory, slot: &Slot) -> Account {
    Account::new(memory, slot.peer(), slot.hang_up().clone())
}

/// The part that answers the requests of a connection.
#[derive(Clone)]
pub(super) struct Calls {
    slot: Arc<Slot>,
    calls: TowerToHyperService<Router>,
    /// That of all calls.
    memory: Memory,
}

impl Calls {
    pub(super) fn new(slot: Arc<Slot>, router: Router, memory: Memory) -> Calls {
        Calls { slot, calls: TowerToHyperService::new(router), memory }
    }

    /// Answers a request, with `answer` if there is one. A call that waits goes to `waiting`, and
    /// is not answered here.
    fn call(
        &self,
        mut request: Request<Incoming>,
        answer: Option<Answer>,
        waiting: Arc<Mutex<Option<Waiting>>>,
    ) -> impl Future<Output = Result<Response<AnswerBody>, Infallible>> + use<> {
        let begun = if let Some(answer) = answer {
            Either::Left(answer)
        } else {
            let (head, work) = (Head::of(&request), BusyGuard::new(&self.slot));
            let refused = doubled::refused(request.headers());
            let account = account_of(&self.memory, &self.slot);
            request.extensions_mut().insert(account.clone());
            request.extensions_mut().insert(self.slot.waits().clone());
            let (request, rest) = AskedBody::of(request, account.clone(), self.slot.clone());
            let call = self.calls.call(request);
            let call = async { if let Some(refused) = refused { Ok(refused) } else { call.await } };
            Either::Right((call, rest, head, work, account))
        };
        let (slot, memory) = (self.slot.clone(), self.memory.clone());
        async move {
            let (Answer { mut response, work }, account) = match begun {
                Either::Left(mut answer) => {
                    let account = answer.response.extensions_mut().remove();
                    // What the client sends after this request gets no answer.
                    if answer.response.headers().contains_key(header::CONNECTION) {
                        slot.set_unread();
                    }
                    (answer, account.unwrap_or_else(|| account_of(&memory, &slot)))
                }
                Either::Right((call, rest, head, work, account)) => {
                    let mut response = call.await?;
                    if rest.is_too_much() {
                        response = Problem::from(UsedUp).into_response();
                    }
                    let later = later::take(&mut response);
                    account.body_is_over();
                    let bytes = size_of(&response);
                    if account.count_answer(bytes).is_err() {
                        response = Problem::unsent().into_response();
                    }
                    let is_last = !rest.read().await || slot.is_over();
                    if is_last {
                        slot.set_unread();
                        response
                            .headers_mut()
                            .insert(header::CONNECTION, HeaderValue::from_static("close"));
                    }
                    if let Some(later) = later {
                        *waiting.lock() = Some(Waiting::new(later, head, work, is_last));
                        return pending().await;
                    }
                    (Answer { response, work }, account)
                }
            };
            let share = match account.for_answer(size_of(&response)).await {
                Ok(share) => share,
                // The call is over.
                Err(UsedUp) => {
                    let close = response.headers_mut().remove(header::CONNECTION);
                    response = Problem::unsent().into_response();
                    response.headers_mut().extend(close.map(|close| (header::CONNECTION, close)));
                    None
                }
            };
            Ok(response.map(|body| AnswerBody::new(body, share, work)))
        }
    }
}
