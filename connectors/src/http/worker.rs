//! The tasks of a host: each carries one request at a time, and owns what it needs for that.

use std::error::Error;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper_util::client::legacy::connect::Connection;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use super::host::{Attempt, Host, Next};
use super::link::{Http1, Http2, Link, Waited, http2};
use super::outcome;
use super::request::request;
use crate::Outcome;
use crate::error::innermost;

/// The most bytes of an answer's body that are read.
const BODY_MAX: usize = 4 << 10;
/// How long the body of an answer may take: the status has decided.
const BODY_TIME: Duration = Duration::from_secs(1);

/// What becomes of a link after an attempt.
enum After {
    /// It can carry another.
    Free,
    /// It cannot.
    Over,
    /// It ended before any of the request was sent.
    GivenBack(Box<Attempt>),
}

/// Connects to a host, and carries its requests while the connection is of use.
pub(super) async fn work(host: Arc<Host>) {
    loop {
        let began = Instant::now();
        match host.hosts.connect.connect(host.uri.clone()).await {
            Ok(stream) if stream.connected().is_negotiated_h2() => match http2(stream).await {
                Ok((link, running)) => {
                    if host.connected_by_http2(link) {
                        // Its requests hear why it ended.
                        let _ = running.await;
                        host.http2_ended();
                    }
                    break;
                }
                Err(error) => not_connected(&host, began, &error),
            },
            Ok(stream) => match Http1::begin(stream).await {
                Ok(link) => {
                    if !carry(&host, link).await {
                        break;
                    }
                }
                Err(error) => not_connected(&host, began, &error),
            },
            Err(error) => not_connected(&host, began, &*error),
        }
        if !host.connects_again() {
            break;
        }
    }
    host.hosts.forget(&host);
}

/// Reports the attempt that a failed connection costs, if there is one.
fn not_connected(host: &Host, began: Instant, error: &(dyn Error + 'static)) {
    if let Some(attempt) = host.not_connected(began) {
        host.hosts.report(vec![(attempt.token, outcome::of_unreachable(&innermost(error)))]);
    }
}

/// Carries the requests of a host over an HTTP/1.1 connection. Returns whether the worker is still
/// counted.
async fn carry(host: &Arc<Host>, mut link: Http1) -> bool {
    let mut timer = pin!(sleep_until(Instant::now()));
    let mut next = host.connected();
    loop {
        let attempt = match next {
            Next::Attempt(attempt) => attempt,
            Next::Wait(given) => match link.wait(given).await {
                Waited::Given(attempt) => attempt,
                Waited::TooLate(attempt) => {
                    host.push(attempt);
                    return true;
                }
                Waited::Ended => {
                    link.close().await;
                    return true;
                }
            },
            Next::Leave => {
                link.close().await;
                return false;
            }
        };
        match exchange(host, &mut link, attempt, timer.as_mut()).await {
            After::Free => next = host.next(),
            After::Over => return true,
            After::GivenBack(attempt) => {
                host.push(attempt);
                return true;
            }
        }
    }
}

/// Carries an attempt over the HTTP/2 connection of a host, and others that wait for a slot.
pub(super) async fn share(host: Arc<Host>, link: Http2, attempt: Box<Attempt>) {
    let mut timer = pin!(sleep_until(Instant::now()));
    let mut next = Some((link, attempt));
    while let Some((mut link, attempt)) = next {
        if let After::GivenBack(attempt) = exchange(&host, &mut link, attempt, timer.as_mut()).await {
            host.push(attempt);
        }
        next = host.next_stream();
    }
    host.hosts.forget(&host);
}

/// Sends one request, and reports its outcome once. A body that the report does not need is read
/// after it, so that the connection can be used again.
async fn exchange(host: &Host, link: &mut impl Link, mut attempt: Box<Attempt>, mut timer: Pin<&mut Sleep>) -> After {
    let token = attempt.token;
    let report = |outcome: Outcome| host.hosts.report(vec![(token, outcome)]);
    if Instant::now() >= attempt.until {
        report(outcome::of_no_time());
        return After::Free;
    }
    let request = match request(&attempt.message, &attempt.dedupe_id, host.hosts.signer.as_deref()) {
        Ok(request) => request,
        Err(why) => {
            report(Outcome::Invalid(why));
            return After::Free;
        }
    };
    timer.as_mut().reset(attempt.until);
    // The timer first: a process that was suspended sends nothing afterwards.
    let answer = tokio::select! {
        biased;
        () = timer => Err(()),
        answer = link.send(request, &attempt.target) => Ok(answer),
    };
    let (head, body) = match answer {
        Ok(Ok(answer)) => answer.into_parts(),
        Ok(Err(mut error)) => {
            if error.take_message().is_none() {
                report(outcome::of_error(&error.into_error()));
            } else if attempt.was_given_back {
                report(outcome::of_given_back(&error.into_error()));
            } else {
                attempt.was_given_back = true;
                return After::GivenBack(attempt);
            }
            return After::Over;
        }
        Err(()) => {
            report(outcome::of_silence(attempt.begun.elapsed()));
            return After::Over;
        }
    };
    drop(attempt);
    let is_taken = head.status.is_success();
    if is_taken {
        report(outcome::of_answer(head.status, &head.headers, b""));
    }
    let mut start = Start::default();
    if body.is_end_stream() {
        start.is_whole = true;
    } else {
        // What came until then is enough.
        let _ = timeout(BODY_TIME, link.beside(start.read(body))).await;
    }
    if !is_taken {
        report(outcome::of_answer(head.status, &head.headers, &start.bytes));
    }
    if start.is_whole && link.is_free(BODY_TIME).await { After::Free } else { After::Over }
}

/// The start of a body: at most [`BODY_MAX`] bytes. A longer body is not read on: its connection is
/// closed.
#[derive(Default)]
struct Start {
    bytes: Vec<u8>,
    is_whole: bool,
}

impl Start {
    async fn read(&mut self, mut body: Incoming) {
        while self.bytes.len() < BODY_MAX {
            match body.frame().await {
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.bytes.extend_from_slice(&data[..data.len().min(BODY_MAX - self.bytes.len())]);
                    }
                }
                Some(Err(_)) => return,
                None => {
                    self.is_whole = true;
                    return;
                }
            }
        }
    }
}
