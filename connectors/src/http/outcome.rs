//! The outcome of an answer, or of its absence. The status decides; the body is only for people.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode, header};

use super::limits::{MAX_REQUESTS_PER_HOST, MAX_STREAMS_PER_HOST};
use super::retry_after::retry_after;
use crate::Outcome;

/// The outcome of an answer. `body`: the start of its body.
pub(super) fn of_answer(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Outcome {
    match (status, retry_after(headers, SystemTime::now())) {
        (StatusCode::ACCEPTED, _) => Outcome::Confirmed,
        (status, _) if status.is_success() => Outcome::Finished,
        (StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE, Some(wait)) => {
            Outcome::Throttled { why: shown(status, headers, body), wait }
        }
        (StatusCode::TOO_MANY_REQUESTS, None) => Outcome::Refused(shown(status, headers, body)),
        (StatusCode::GONE, _) => Outcome::Invalid(shown(status, headers, body)),
        _ => Outcome::Failed(shown(status, headers, body)),
    }
}

const ANSWER_PREFIX: &str = "the target answered ";
const REDIRECT_NOTE: &str = " (redirects are not followed: name the new URL)";

/// Status and body, for the last error of a job.
fn shown(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> String {
    let body = String::from_utf8_lossy(body);
    let note = if status.is_redirection() && headers.contains_key(header::LOCATION) {
        REDIRECT_NOTE
    } else {
        ""
    };
    let colon = if body.trim().is_empty() { "" } else { ": " };
    format!("{ANSWER_PREFIX}{}{note}{colon}{}", named(status), body.trim())
}

/// A status with its reason: `404 Not Found`.
fn named(status: StatusCode) -> String {
    let reason = status.canonical_reason().map_or_else(String::new, |reason| format!(" {reason}"));
    format!("{}{reason}", status.as_str())
}

/// Why an attempt failed, without the body of an answer, which a stranger wrote.
pub(super) fn without_body(why: &str) -> &str {
    let head = || {
        let status = why.strip_prefix(ANSWER_PREFIX)?.get(..3)?.parse().ok()?;
        let head = why.get(..ANSWER_PREFIX.len() + named(status).len())?;
        let noted = why
            .get(..head.len() + REDIRECT_NOTE.len())
            .filter(|noted| noted.ends_with(REDIRECT_NOTE));
        Some(noted.unwrap_or(head))
    };
    head().unwrap_or(why)
}

/// The outcome of a request without an answer, of which some part may have been sent.
pub(super) fn of_broken(why: &str) -> Outcome {
    Outcome::Unknown(format!("the connection ended before an answer: {why}"))
}

/// The same over HTTP/2, where a server may say that it does not handle the request: RST_STREAM
/// with REFUSED_STREAM, or GOAWAY with a last stream below this one (RFC 9113 §8.7, §6.8). `h2`
/// gives the latter as an error only to such streams.
pub(super) fn of_http2(error: &h2::Error) -> Outcome {
    let is_refused = error.is_go_away()
        || (error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM));
    let why = of_h2(error);
    if error.is_remote() && is_refused { of_unsent(&why) } else { of_broken(&why) }
}

/// An error of HTTP/2, without the text that a server may send with GOAWAY: a stranger wrote it.
pub(super) fn of_h2(error: &h2::Error) -> String {
    match error.reason() {
        Some(reason) if error.is_go_away() && error.is_remote() => {
            format!("the server ended the connection (GOAWAY): {reason}")
        }
        _ => error.to_string(),
    }
}

/// A server that ended a connection by GOAWAY before it took a request.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct GoneAway(pub(super) String);

/// The outcome of a request of which nothing was sent, or that the server says not to handle.
pub(super) fn of_unsent(why: &str) -> Outcome {
    Outcome::Refused(format!("the connection ended before the target took the request: {why}"))
}

/// No connection could be made.
pub(super) fn of_unreachable(why: &str) -> Outcome {
    Outcome::Failed(format!("the target cannot be reached: {why}"))
}

/// Requests or connections before this one took all that the host gets.
pub(super) fn of_full_host() -> Outcome {
    Outcome::Refused(format!(
        "never sent: {MAX_REQUESTS_PER_HOST} requests or connections (on HTTP/2 {MAX_STREAMS_PER_HOST} requests) wait for the host"
    ))
}

/// The host took no request on its HTTP/2 connection.
pub(super) fn of_no_stream() -> Outcome {
    Outcome::Refused("never sent: the host takes no request on its HTTP/2 connection (SETTINGS_MAX_CONCURRENT_STREAMS is 0)".to_owned())
}

/// The HTTP/2 connection of the host opened no stream for the request in time.
pub(super) fn of_unopened_stream(waited: Duration) -> Outcome {
    Outcome::Refused(format!(
        "never sent: the HTTP/2 connection of the host took no request within {waited:.3?}"
    ))
}

/// The time was over before the request could be sent.
pub(super) fn of_no_time() -> Outcome {
    Outcome::Refused("never sent: the time of the attempt was over".to_owned())
}

/// No answer came in time.
pub(super) fn of_silence(waited: Duration) -> Outcome {
    Outcome::Unknown(format!("no answer within {waited:.3?}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn outcome(status: u16, header: Option<(&'static str, &str)>) -> Outcome {
        let headers = header
            .into_iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect();
        of_answer(StatusCode::from_u16(status).unwrap(), &headers, b"why")
    }

    #[test]
    fn the_status_decides() {
        assert_eq!(outcome(202, None), Outcome::Confirmed);
        for finished in [200, 201, 204, 299] {
            assert_eq!(outcome(finished, Some(("retry-after", "5"))), Outcome::Finished);
        }
        for failed in [101, 301, 302, 308, 400, 401, 404, 408, 500, 502, 503, 504, 599] {
            assert!(
                matches!(outcome(failed, None), Outcome::Failed(why) if why.ends_with(": why") && why.contains(&failed.to_string()))
            );
        }
        assert!(matches!(outcome(410, None), Outcome::Invalid(_)));
        assert!(matches!(outcome(429, None), Outcome::Refused(_)));
        for throttled in [429, 503] {
            let answer = outcome(throttled, Some(("retry-after", "7")));
            assert!(
                matches!(answer, Outcome::Throttled { wait, .. } if wait == Duration::from_secs(7)),
                "{answer:?}"
            );
        }
        assert!(matches!(outcome(500, Some(("retry-after", "7"))), Outcome::Failed(_)));
        assert!(matches!(outcome(503, Some(("retry-after", "soon"))), Outcome::Failed(_)));
    }

    #[test]
    fn what_is_logged_of_an_answer_is_its_status() {
        for (status, location, expected) in [
            (404, None, "the target answered 404 Not Found"),
            (599, None, "the target answered 599"),
            (
                302,
                Some(("location", "/?token=secret")),
                "the target answered 302 Found (redirects are not followed: name the new URL)",
            ),
            (410, None, "the target answered 410 Gone"),
        ] {
            let headers = location
                .iter()
                .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
                .collect();
            let secret = of_answer(
                StatusCode::from_u16(status).unwrap(),
                &headers,
                b"Cannot POST /err?token=secret: no",
            );
            let why = secret.error().unwrap();
            assert!(why.contains("token=secret"), "{why}");
            assert_eq!(without_body(why), expected);
        }
        for whole in [
            "no answer within 2s",
            "the target cannot be reached: refused",
            "the target answered",
            "the target answered ?",
        ] {
            assert_eq!(without_body(whole), whole);
        }
    }

    #[test]
    fn a_redirect_is_named_and_its_place_is_not() {
        let Outcome::Failed(why) = outcome(307, Some(("location", "https://other/?token=secret")))
        else {
            panic!("not failed")
        };
        assert!(why.contains("redirects are not followed") && !why.contains("secret"), "{why}");
    }
}
