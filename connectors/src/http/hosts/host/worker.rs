//! The tasks of a host: each carries one request at a time, and owns what it needs for that.

use std::error::Error;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use hyper_util::client::legacy::connect::Connection;
use tokio::time::{Instant, Sleep, sleep_until, timeout, timeout_at};

use super::{Host, Next, PendingRequest};
use crate::Outcome;
use crate::error::innermost;
use crate::http::connection::Stream;
use crate::http::http2::{self, Exchange, Http2, Running};
use crate::http::link::{Http1, Link, Unanswered, Waited};
use crate::http::metered::Metered;
use crate::http::outcome::{self, GoneAway};
use crate::http::request::request;

/// The most bytes of an answer's body that are read.
const MAX_BODY_BYTES: usize = 4 << 10;
/// The longest time for the body of an answer: the status has decided.
const BODY_TIMEOUT: Duration = Duration::from_secs(1);

/// The state of a link after an attempt.
enum After {
    /// It can carry another.
    Free,
    /// It cannot.
    Over,
    /// It ended before any of the request was sent.
    GivenBack(Box<PendingRequest>),
}

/// Connects to a host, since `began`, and carries its requests while the connection is of use.
pub(super) async fn work(host: Arc<Host>, mut began: Instant) {
    loop {
        match host.hosts.connect.connect(host.uri.clone()).await {
            Ok(stream) if stream.connected().is_negotiated_h2() => {
                match begin_http2(stream, began + host.hosts.connect.limit).await {
                    Ok((link, running)) => {
                        if host.connected_by_http2(began, link) {
                            running.until_end(|| host.http2_changed()).await;
                            host.http2_changed();
                        }
                        break;
                    }
                    Err(error) => not_connected(&host, began, &*error),
                }
            }
            Ok(stream) => match Http1::begin(Metered::new(stream)).await {
                Ok(link) => {
                    if !carry(&host, began, link).await {
                        break;
                    }
                }
                Err(error) => not_connected(&host, began, &error),
            },
            Err(error) => not_connected(&host, began, &*error),
        }
        match host.connects_again() {
            Some(again) => began = again,
            None => break,
        }
    }
    host.hosts.forget(&host);
}

/// An HTTP/2 connection over this stream, or an error by then.
async fn begin_http2(
    stream: Stream,
    until: Instant,
) -> Result<(Http2, Running), Box<dyn Error + Send + Sync>> {
    timeout_at(until, http2::begin(Metered::new(stream)))
        .await
        .unwrap_or_else(|_| Err("the server sent no SETTINGS in time".into()))
}

/// Reports the attempt that a failed connection costs.
fn not_connected(host: &Host, began: Instant, error: &(dyn Error + 'static)) {
    if let Some(token) = host.not_connected(began) {
        let outcome = match error.downcast_ref::<GoneAway>() {
            Some(gone_away) => outcome::of_unsent(&gone_away.to_string()),
            None => outcome::of_unreachable(&innermost(error)),
        };
        host.hosts.report(vec![(token, outcome)]);
    }
}

/// Carries the requests of a host over an HTTP/1.1 connection. Returns whether the worker is still
/// counted.
async fn carry(host: &Arc<Host>, began: Instant, mut link: Http1) -> bool {
    let mut timer = pin!(sleep_until(Instant::now()));
    let mut next = host.connected(began);
    loop {
        let attempt = match next {
            Next::Request(attempt) => attempt,
            Next::Wait(given, _permit) => match link.wait(given).await {
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
pub(super) async fn share(host: Arc<Host>, link: Http2, attempt: Box<PendingRequest>) {
    let mut timer = pin!(sleep_until(Instant::now()));
    let mut next = Some((link, attempt));
    while let Some((link, attempt)) = next {
        if let After::GivenBack(attempt) =
            exchange(&host, &mut Exchange::new(link), attempt, timer.as_mut()).await
        {
            host.push(attempt);
        }
        next = host.next_stream();
    }
    host.hosts.forget(&host);
}

/// Sends one request, and reports its outcome once. A body that the report does not need is read
/// after it, so that the connection can be used again.
async fn exchange(
    host: &Host,
    link: &mut impl Link,
    mut attempt: Box<PendingRequest>,
    mut timer: Pin<&mut Sleep>,
) -> After {
    let token = attempt.token;
    let report = |outcome: Outcome| host.hosts.report(vec![(token, outcome)]);
    if Instant::now() >= attempt.until {
        report(outcome::of_no_time());
        return After::Free;
    }
    let request = match request(&attempt.message, &attempt.dedupe_id, host.hosts.signer.as_deref())
    {
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
    let head = match answer {
        Ok(Ok(head)) => head,
        Ok(Err(Unanswered::Unsent(_))) if !attempt.was_given_back => {
            attempt.was_given_back = true;
            return After::GivenBack(attempt);
        }
        Ok(Err(unanswered)) => {
            report(match unanswered {
                Unanswered::Unsent(why) => outcome::of_unsent(&why),
                Unanswered::Ended(outcome) => outcome,
            });
            return After::Over;
        }
        Err(()) => {
            let waited = attempt.begun.elapsed();
            report(match link.give_up() {
                true => outcome::of_silence(waited),
                false => outcome::of_unopened_stream(waited),
            });
            return After::Over;
        }
    };
    drop(attempt);
    let is_taken = head.status.is_success();
    if is_taken {
        report(outcome::of_answer(head.status, &head.headers, b""));
    }
    let mut start = Start::default();
    // The part that came until then is enough.
    let _ = timeout(BODY_TIMEOUT, start.read(link)).await;
    if !is_taken {
        report(outcome::of_answer(head.status, &head.headers, &start.bytes));
    }
    if link.is_free(start.is_whole, BODY_TIMEOUT).await { After::Free } else { After::Over }
}

/// The start of a body: at most [`MAX_BODY_BYTES`] bytes. A longer body is not read on: its
/// connection is closed.
#[derive(Default)]
struct Start {
    bytes: Vec<u8>,
    is_whole: bool,
}

impl Start {
    async fn read(&mut self, link: &mut impl Link) {
        while self.bytes.len() < MAX_BODY_BYTES {
            match link.body().await {
                Some(Ok(data)) => self
                    .bytes
                    .extend_from_slice(&data[..data.len().min(MAX_BODY_BYTES - self.bytes.len())]),
                Some(Err(_)) => return,
                None => {
                    self.is_whole = true;
                    return;
                }
            }
        }
    }
}
