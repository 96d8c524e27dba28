//! The HTTP/2 connection of a host, in which each request has a stream.
//!
//! `h2` is used without `hyper`: it tells how many streams the server takes, and a stream ends as
//! soon as its answer is there. So no request waits where it does not show that it was not sent.

use std::convert::Infallible;
use std::error::Error;
use std::future::{pending, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, Connection, SendRequest};
use h2::{Ping, PingPong, Reason, RecvStream, SendStream};
use http::response::Parts;
use http::{Request, Version};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::limits::{MAX_HEADERS_BYTES, MAX_STREAMS_PER_HOST};
use super::link::{Link, Unanswered};
use super::metered::Metered;
use super::outcome::{self, GoneAway};
use super::outgoing::Sent;
use super::targets::Target;
use crate::Outcome;

/// The interval between two probes of a connection, and the longest wait for the answer.
const PING_INTERVAL: Duration = Duration::from_secs(5);
/// The most interim answers (1xx) to a request.
const MAX_INTERIM_ANSWERS: usize = 100;
/// The number of reset streams that are remembered. Each later frame of another is answered by a
/// reset.
const MAX_RESET_STREAMS: usize = 1024;
/// The most streams of a server that has not said how many it takes.
const UNKNOWN_STREAM_LIMIT: usize = usize::MAX - 1;

/// Sends requests over the HTTP/2 connection of a host. Clones share the connection, which ends
/// with the last of them.
#[derive(Clone)]
pub(super) struct Http2 {
    requests: SendRequest<Bytes>,
    shared: Arc<Shared>,
    /// Dropped after `requests`: the end of the last one wakes the connection.
    _user: mpsc::Sender<Infallible>,
}

#[derive(Default)]
struct Shared {
    /// Answers that came.
    answers: AtomicUsize,
    /// No request goes here any more.
    is_left: AtomicBool,
    /// The server answers no ping.
    is_silent: AtomicBool,
    sent: Sent,
}

/// Runs a connection.
pub(super) struct Running {
    connection: Connection<Metered, Bytes>,
    ping: Option<PingPong>,
    users: mpsc::Receiver<Infallible>,
    shared: Arc<Shared>,
}

/// A request on the connection.
pub(super) struct Exchange {
    stream: Option<SendStream<Bytes>>,
    body: Option<RecvStream>,
    /// The number of answers that had come when the request was sent.
    answers: usize,
    link: Http2,
}

/// An HTTP/2 connection over this stream, whose server has said how many requests it takes.
pub(super) async fn begin(
    stream: Metered,
) -> Result<(Http2, Running), Box<dyn Error + Send + Sync>> {
    let shared = Arc::<Shared>::default();
    let stream = stream.watched_by(shared.sent.clone());
    let mut builder = Builder::new();
    builder
        .initial_max_send_streams(UNKNOWN_STREAM_LIMIT)
        .max_header_list_size(MAX_HEADERS_BYTES as u32)
        .enable_push(false);
    // The rest of a long answer is reset, and its frames that are under way still come. `h2` counts
    // these frames, small ones at once and the others once it has forgotten the stream, over the
    // whole life of the connection. `h2` ends the connection at its limits: all open streams would
    // end without an answer.
    builder
        .max_concurrent_reset_streams(MAX_RESET_STREAMS)
        .max_local_error_reset_streams(None)
        .data_frame_budget(usize::MAX);
    let (requests, mut connection) = builder.handshake::<_, Bytes>(stream).await?;
    let ping = connection.ping_pong();
    poll_fn(|cx| match Pin::new(&mut connection).poll(cx) {
        Poll::Pending if connection.max_concurrent_send_streams() == UNKNOWN_STREAM_LIMIT => {
            Poll::Pending
        }
        Poll::Pending => Poll::Ready(Ok(())),
        // With GOAWAY behind its SETTINGS: it takes no request, as while it stops.
        Poll::Ready(Ok(())) if connection.max_concurrent_send_streams() != UNKNOWN_STREAM_LIMIT => {
            Poll::Ready(Err(GoneAway("the server ended the connection (GOAWAY)".to_owned()).into()))
        }
        Poll::Ready(Ok(())) => {
            Poll::Ready(Err("the server closed the connection before its SETTINGS".into()))
        }
        Poll::Ready(Err(error)) if error.is_go_away() && error.is_remote() => {
            Poll::Ready(Err(GoneAway(outcome::of_h2(&error)).into()))
        }
        Poll::Ready(Err(error)) => Poll::Ready(Err(Box::<dyn Error + Send + Sync>::from(error))),
    })
    .await?;
    let (user, users) = mpsc::channel(1);
    Ok((
        Http2 { requests, shared: Arc::clone(&shared), _user: user },
        Running { connection, ping, users, shared },
    ))
}

impl Running {
    /// Runs the connection until its end. Calls `more_room` when the server takes more requests
    /// than before.
    pub(super) async fn until_end(mut self, more_room: impl Fn()) {
        let mut silence = pin!(silence(self.ping.take()));
        let (mut is_used, mut room) = (true, self.connection.max_concurrent_send_streams());
        poll_fn(|cx| {
            // Without users the connection closes, but sees that only when it is polled.
            is_used = is_used && self.users.poll_recv(cx).is_pending();
            // Its last frames would not go out.
            if !is_used && self.shared.sent.is_sealed() {
                return Poll::Ready(());
            }
            // The pings of a sealed connection do not go out.
            if !self.shared.sent.is_sealed() && silence.as_mut().poll(cx).is_ready() {
                self.shared.is_silent.store(true, Ordering::Relaxed);
                return Poll::Ready(());
            }
            // Requests hear why it ended.
            let ended = Pin::new(&mut self.connection).poll(cx).map(drop);
            let before =
                std::mem::replace(&mut room, self.connection.max_concurrent_send_streams());
            if room > before {
                more_room();
            }
            ended
        })
        .await;
    }
}

/// Waits until a ping has no answer.
async fn silence(ping: Option<PingPong>) {
    let Some(mut ping) = ping else { return pending().await };
    loop {
        sleep(PING_INTERVAL).await;
        match timeout(PING_INTERVAL, ping.ping(Ping::opaque())).await {
            Ok(Ok(_)) => {}
            // The connection itself has ended.
            Ok(Err(_)) => return pending().await,
            Err(_) => return,
        }
    }
}

impl Http2 {
    /// Whether the connection takes no requests any more.
    pub(super) fn is_closed(&mut self) -> bool {
        let ready = self.requests.poll_ready(&mut Context::from_waker(Waker::noop()));
        self.shared.is_left.load(Ordering::Relaxed) || matches!(ready, Poll::Ready(Err(_)))
    }

    /// The number of requests that the connection takes at a time.
    pub(super) fn room(&self) -> usize {
        self.requests.current_max_send_streams().min(MAX_STREAMS_PER_HOST)
    }
}

impl Exchange {
    /// For a request that the connection has room for.
    pub(super) fn new(link: Http2) -> Self {
        Exchange { stream: None, body: None, answers: 0, link }
    }

    fn shared(&self) -> &Shared {
        &self.link.shared
    }

    /// Ends the stream: the rest of the request is not sent, and the rest of the answer not read.
    fn end(&mut self, why: Reason) {
        self.body = None;
        if let Some(mut stream) = self.stream.take() {
            // Says nothing where both ends are through.
            stream.send_reset(why);
        }
    }

    /// Whether the server can know the request. Otherwise it never will: the connection is left,
    /// and ends with the requests that the server has.
    fn is_opened(&self) -> bool {
        let Some(stream) = &self.stream else { return false };
        let is_opened = self.shared().sent.seal_unless_opened(stream.stream_id().into());
        if !is_opened {
            self.shared().is_left.store(true, Ordering::Relaxed);
        }
        is_opened
    }

    /// The stream ended by this error.
    fn unanswered(&self, error: &h2::Error) -> Unanswered {
        let (why, outcome) = if self.shared().is_silent.load(Ordering::Relaxed) {
            let why = format!("no answer to a ping within {PING_INTERVAL:?}");
            let outcome = outcome::of_broken(&why);
            (why, outcome)
        } else {
            (outcome::of_h2(error), outcome::of_http2(error))
        };
        match outcome {
            Outcome::Unknown(_) if !self.is_opened() => Unanswered::Unsent(why),
            outcome => Unanswered::Ended(outcome),
        }
    }
}

impl Link for Exchange {
    async fn send(
        &mut self,
        request: Request<Bytes>,
        target: &Target,
    ) -> Result<Parts, Unanswered> {
        let (mut head, body) = request.into_parts();
        (head.uri, head.version) = (target.uri.clone(), Version::HTTP_2);
        self.answers = self.shared().answers.load(Ordering::Relaxed);
        let (mut answer, mut stream) =
            match self.link.requests.send_request(Request::from_parts(head, ()), body.is_empty()) {
                Ok(sent) => sent,
                Err(error) => return Err(Unanswered::Unsent(outcome::of_h2(&error))),
            };
        if !body.is_empty() {
            // The client keeps the bytes that the server does not take yet. An error shows in the
            // answer.
            let _ = stream.send_data(body, true);
        }
        self.stream = Some(stream);
        let mut interim = 0;
        let head = poll_fn(|cx| {
            while let Poll::Ready(Some(Ok(_))) = answer.poll_informational(cx) {
                interim += 1;
                if interim > MAX_INTERIM_ANSWERS {
                    return Poll::Ready(Err(None));
                }
            }
            Pin::new(&mut answer).poll(cx).map_err(Some)
        });
        match head.await {
            Ok(answer) => {
                self.shared().answers.fetch_add(1, Ordering::Relaxed);
                let (head, body) = answer.into_parts();
                self.body = Some(body);
                Ok(head)
            }
            Err(Some(error)) => Err(self.unanswered(&error)),
            Err(None) => {
                self.end(Reason::CANCEL);
                self.shared().is_left.store(true, Ordering::Relaxed);
                Err(Unanswered::Ended(outcome::of_broken(&format!(
                    "more than {MAX_INTERIM_ANSWERS} interim answers came"
                ))))
            }
        }
    }

    async fn body(&mut self) -> Option<io::Result<Bytes>> {
        let body = self.body.as_mut()?;
        let data = body.data().await?.map_err(io::Error::other);
        if let Ok(data) = &data {
            // Refused only beyond what came.
            let _ = body.flow_control().release_capacity(data.len());
        }
        Some(data)
    }

    async fn is_free(&mut self, is_answer_whole: bool, _patience: Duration) -> bool {
        self.end(if is_answer_whole { Reason::NO_ERROR } else { Reason::CANCEL });
        !self.link.is_closed()
    }

    /// A connection without any answer meanwhile is left, though its server answers pings: it may
    /// take no bodies any more.
    fn give_up(&mut self) -> bool {
        let is_opened = self.is_opened();
        self.end(Reason::CANCEL);
        if self.shared().answers.load(Ordering::Relaxed) == self.answers {
            self.shared().is_left.store(true, Ordering::Relaxed);
        }
        is_opened
    }
}
