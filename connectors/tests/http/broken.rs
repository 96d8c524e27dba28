//! Answers that are broken, odd or without an end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use dwell_connectors::Outcome;

use crate::raw::{Link, Raw};
use crate::{assert_failed, assert_unknown, attempt, local, open, send, until};

const OK_ANSWER: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

/// The action of a server after its words.
#[derive(Clone, Copy, PartialEq)]
enum Then {
    Waits,
    Closes,
    Resets,
}

/// The outcome of an attempt that gets these words; then another attempt on this host gets an
/// answer, by the same sink.
async fn outcome(words: impl Into<Vec<u8>>, then: Then) -> Outcome {
    let words = Arc::new(words.into());
    let server = Raw::start(move |mut link: Link| {
        let words = Arc::clone(&words);
        async move {
            while let Some(request) = link.request().await {
                if request.path() == "/fine" {
                    link.say(OK_ANSWER).await;
                    continue;
                }
                link.say(&*words).await;
                match then {
                    Then::Waits => continue,
                    Then::Closes => return,
                    Then::Resets => return link.reset(),
                }
            }
        }
    });
    let server = server.await;
    let (sink, mut outcomes) = open(local()).await;
    let outcome = send(&*sink, &mut outcomes, &server.url("/")).await;
    assert_eq!(
        send(&*sink, &mut outcomes, &server.url("/fine")).await,
        Outcome::Finished,
        "after {outcome:?}"
    );
    assert_eq!(server.requests(), 2, "nothing is sent twice");
    outcome
}

#[tokio::test]
async fn a_connection_that_ends_before_the_headers_do_leaves_the_request_open() {
    for words in [
        "",
        "H",
        "HTTP/1.1 2",
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n",
        "HTTP/1.1 100 Continue\r\n\r\n",
    ] {
        for then in [Then::Closes, Then::Resets] {
            assert_unknown(&outcome(words, then).await, "the connection ended before an answer: ");
        }
    }
}

#[tokio::test]
async fn a_connection_that_ends_in_the_body_changes_nothing() {
    let half = "content-length: 100\r\n\r\nhalf";
    for then in [Then::Closes, Then::Resets] {
        assert_eq!(outcome(format!("HTTP/1.1 200 OK\r\n{half}"), then).await, Outcome::Finished);
        assert_eq!(
            outcome(format!("HTTP/1.1 202 Accepted\r\n{half}"), then).await,
            Outcome::Confirmed
        );
        assert_failed(
            &outcome(format!("HTTP/1.1 500 Oh\r\n{half}"), then).await,
            "500 Internal Server Error: half",
        );
        let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nno length\r\n";
        assert_eq!(outcome(chunked, then).await, Outcome::Finished);
    }
}

#[tokio::test]
async fn what_is_not_http_leaves_the_request_open() {
    let many: String = (0..10_000).map(|number| format!("x-{number}: y\r\n")).collect();
    let long = format!("x: {}\r\n", "y".repeat(1 << 20));
    let answers: [Vec<u8>; 11] = [
        "SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n".into(),
        "220 mail.example ESMTP\r\n".into(),
        vec![0, 255, 0, 255, 13, 10, 13, 10],
        "<html>200 OK</html>\r\n\r\n".into(),
        "HTTP/3.0 200 OK\r\n\r\n".into(),
        "HTTP/1.1 20 OK\r\n\r\n".into(),
        "HTTP/1.1 2000 OK\r\n\r\n".into(),
        "HTTP/1.1 200 OK\r\na b: c\r\n\r\n".into(),
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab".into(),
        format!("HTTP/1.1 200 OK\r\n{many}content-length: 0\r\n\r\n").into(),
        format!("HTTP/1.1 200 OK\r\n{long}content-length: 0\r\n\r\n").into(),
    ];
    for words in answers {
        let shown = String::from_utf8_lossy(&words[..words.len().min(40)]).into_owned();
        let outcome = outcome(words, Then::Waits).await;
        assert!(matches!(outcome, Outcome::Unknown(_)), "{shown}: {outcome:?}");
    }
}

#[tokio::test]
async fn odd_answers_that_are_http_count() {
    assert_eq!(outcome("HTTP/1.0 200 OK\r\n\r\nto the end", Then::Closes).await, Outcome::Finished);
    assert_eq!(
        outcome("HTTP/1.1 202 Accepted\r\nconnection: close\r\n\r\n", Then::Closes).await,
        Outcome::Confirmed
    );
    assert_failed(
        &outcome("HTTP/1.0 500 Oh\r\n\r\nto the end", Then::Closes).await,
        ": to the end",
    );
    for early in
        ["100 Continue", "102 Processing", "103 Early Hints\r\nlink: </a.css>; rel=preload"]
    {
        let twice = format!("HTTP/1.1 {early}\r\n\r\n").repeat(2);
        let accepted = format!("{twice}HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n");
        assert_eq!(outcome(accepted, Then::Waits).await, Outcome::Confirmed, "{early}");
    }
    assert_failed(
        &outcome("HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n", Then::Closes).await,
        "101 Switching Protocols",
    );
    assert_failed(
        &outcome("HTTP/1.1 799 \r\ncontent-length: 0\r\n\r\n", Then::Waits).await,
        "the target answered 799",
    );
}

#[tokio::test]
async fn a_body_without_an_end_is_left() {
    for (head, is_taken) in [
        ("HTTP/1.1 500 Oh\r\ncontent-length: 1073741824\r\n\r\n", false),
        ("HTTP/1.1 200 OK\r\n\r\n", true),
    ] {
        let said = Arc::new(AtomicUsize::new(0));
        let is_closed = Arc::new(AtomicBool::new(false));
        let (saying, closing) = (Arc::clone(&said), Arc::clone(&is_closed));
        let server = Raw::start(move |mut link: Link| {
            let (said, is_closed) = (Arc::clone(&saying), Arc::clone(&closing));
            async move {
                link.request().await;
                link.say(head).await;
                while said.load(Ordering::SeqCst) < 1 << 30 && link.say([b'x'; 1024]).await {
                    said.fetch_add(1024, Ordering::SeqCst);
                }
                is_closed.store(true, Ordering::SeqCst);
            }
        })
        .await;
        let outcome = attempt(local(), &server.url("/")).await;
        if is_taken {
            assert_eq!(outcome, Outcome::Finished);
        } else {
            assert_eq!(
                outcome,
                Outcome::Failed(format!(
                    "the target answered 500 Internal Server Error: {}",
                    "x".repeat(4096)
                ))
            );
        }
        until("the end of the connection", || is_closed.load(Ordering::SeqCst)).await;
        // The buffers of both ends hold less than this.
        assert!(said.load(Ordering::SeqCst) < 64 << 20, "{} bytes", said.load(Ordering::SeqCst));
    }
}

#[tokio::test]
async fn a_slow_body_holds_no_outcome_up() {
    for (status, is_taken) in [("200 OK", true), ("500 Oh", false)] {
        let is_closed = Arc::new(AtomicBool::new(false));
        let closing = Arc::clone(&is_closed);
        let server = Raw::start(move |mut link: Link| {
            let is_closed = Arc::clone(&closing);
            async move {
                link.request().await;
                link.say(format!("HTTP/1.1 {status}\r\ncontent-length: 9\r\n\r\nslow")).await;
                link.closed().await;
                is_closed.store(true, Ordering::SeqCst);
            }
        })
        .await;
        let outcome = attempt(local(), &server.url("/")).await;
        if is_taken {
            assert_eq!(outcome, Outcome::Finished);
        } else {
            assert_failed(&outcome, ": slow");
        }
        until("the end of the connection", || is_closed.load(Ordering::SeqCst)).await;
    }
}

#[tokio::test]
async fn silence_and_endless_headers_are_open_at_the_deadline() {
    let server = Raw::start(|mut link: Link| async move {
        let silent = link.request().await.is_some_and(|request| request.path() == "/silent");
        let mut words = "HTTP/1.1 200 OK\r\n";
        while !silent && link.say(words).await {
            words = "x: y\r\n";
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        link.closed().await;
    })
    .await;
    for path in ["/silent", "/endless"] {
        let config = dwell_connectors::http::Config { timeout: "2s".to_owned(), ..local() };
        assert_unknown(&attempt(config, &server.url(path)).await, "no answer within 2.");
    }
    assert_eq!(server.requests(), 2);
}
