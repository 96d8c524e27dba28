//! HTTP/2 servers that say which requests they do not handle.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dwell_connectors::{Message, Outcome, Publication};
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;
use tokio::time::{Duration, Instant};

use crate::frames::{DATA, END_HEADERS, Frames, HEADERS, Link, RST_STREAM};
use crate::{
    CROWD_LOCK, assert_refused, assert_unknown, collect, numbered, open, publication, send, until,
};

/// The most requests on a connection.
const STREAMS: usize = 100;
/// More than the answers that a client commonly cancels before it takes the server for an attacker.
const LONG_ANSWERS: usize = 1200;
const NO_ERROR: u32 = 0;
const INTERNAL_ERROR: u32 = 2;
const REFUSED_STREAM: u32 = 7;
const CANCEL: u32 = 8;
const ENHANCE_YOUR_CALM: u32 = 11;

/// Answers each request of a connection.
async fn serve(mut link: Link) {
    while let Some(stream) = link.request().await {
        link.answer(stream).await;
    }
}

#[tokio::test]
async fn a_stream_that_is_refused_was_not_taken_and_another_end_is_open() {
    for (why, is_refused) in
        [(REFUSED_STREAM, true), (CANCEL, false), (INTERNAL_ERROR, false), (NO_ERROR, false)]
    {
        let server = Frames::start(move |mut link: Link| async move {
            let stream = link.request().await.unwrap();
            link.say(RST_STREAM, 0, stream, &why.to_be_bytes()).await;
            serve(link).await;
        });
        let server = server.await;
        let (sink, mut outcomes) = open(server.trusted()).await;
        let outcome = send(&*sink, &mut outcomes, &server.url()).await;
        if is_refused {
            assert_refused(&outcome, "the connection ended before the target took the request: ");
        } else {
            assert_unknown(&outcome, "the connection ended before an answer: ");
        }
        assert_eq!(send(&*sink, &mut outcomes, &server.url()).await, Outcome::Finished);
        assert_eq!(server.requests(), 2, "nothing is sent twice");
    }
}

#[tokio::test]
async fn streams_after_the_last_one_of_a_server_that_goes_were_not_taken() {
    for why in [NO_ERROR, ENHANCE_YOUR_CALM] {
        for is_answered in [true, false] {
            let number = Arc::<AtomicUsize>::default();
            let server = Frames::start(move |mut link: Link| {
                let is_first = number.fetch_add(1, Ordering::SeqCst) == 0;
                async move {
                    if !is_first {
                        return serve(link).await;
                    }
                    let first = link.request().await.unwrap();
                    for _ in 0..3 {
                        link.request().await.unwrap();
                    }
                    link.go_away(first, why).await;
                    if is_answered {
                        link.answer(first).await;
                        link.request().await;
                    }
                }
            })
            .await;
            let (sink, mut outcomes) = open(server.trusted()).await;
            sink.publish(numbered(&server.url(), 1)).await;
            until("the first request", || server.requests() == 1).await;
            sink.publish(numbered(&server.url(), 4).split_off(1)).await;
            let all = collect(&mut outcomes, 4).await;
            if is_answered {
                assert_eq!(all[0], Outcome::Finished);
            } else {
                assert_unknown(&all[0], "the connection ended before an answer: ");
            }
            for outcome in &all[1..] {
                assert_refused(
                    outcome,
                    "the connection ended before the target took the request: ",
                );
            }
            assert_eq!(send(&*sink, &mut outcomes, &server.url()).await, Outcome::Finished);
            assert_eq!(server.requests(), 5, "nothing is sent twice");
        }
    }
}

#[tokio::test]
async fn a_server_that_goes_before_it_takes_a_request_was_sent_nothing_and_its_text_is_not_shown() {
    for why in [NO_ERROR, ENHANCE_YOUR_CALM] {
        let number = Arc::<AtomicUsize>::default();
        let server = Frames::start(move |mut link: Link| {
            let is_first = number.fetch_add(1, Ordering::SeqCst) == 0;
            async move {
                if is_first {
                    link.go_away_saying(0, why, "hush").await;
                    link.request().await;
                } else {
                    serve(link).await;
                }
            }
        })
        .await;
        let (sink, mut outcomes) = open(server.trusted()).await;
        let outcome = send(&*sink, &mut outcomes, &server.url()).await;
        assert_refused(
            &outcome,
            "the connection ended before the target took the request: the server ended the connection (GOAWAY)",
        );
        assert!(!format!("{outcome:?}").contains("hush"), "{outcome:?}");
        assert_eq!(send(&*sink, &mut outcomes, &server.url()).await, Outcome::Finished);
        assert_eq!(server.requests(), 1, "nothing is sent twice");
    }
}

#[tokio::test]
async fn the_text_of_a_server_that_goes_during_a_request_is_not_shown() {
    let server = Frames::start(|mut link: Link| async move {
        let stream = link.request().await.unwrap();
        link.go_away_saying(stream, ENHANCE_YOUR_CALM, "hush").await;
        let _ = link.stream.shutdown().await;
    })
    .await;
    let (sink, mut outcomes) = open(server.trusted()).await;
    let outcome = send(&*sink, &mut outcomes, &server.url()).await;
    assert_unknown(&outcome, "the connection ended before an answer: ");
    assert!(!format!("{outcome:?}").contains("hush"), "{outcome:?}");
}

#[tokio::test]
async fn a_server_that_breaks_off_leaves_its_streams_open() {
    let server = Frames::start(|mut link: Link| async move {
        for _ in 0..2 {
            link.request().await;
        }
        // These bytes are no frame of HTTP/2.
        let _ = link.stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    })
    .await;
    let (sink, mut outcomes) = open(server.trusted()).await;
    sink.publish(numbered(&server.url(), 1)).await;
    until("the first request", || server.requests() == 1).await;
    sink.publish(numbered(&server.url(), 2).split_off(1)).await;
    for outcome in collect(&mut outcomes, 2).await {
        assert_unknown(&outcome, "the connection ended before an answer: ");
    }
}

#[tokio::test]
async fn a_connection_without_requests_is_closed_and_the_next_request_opens_another() {
    let ended = Arc::<AtomicUsize>::default();
    let counting = Arc::clone(&ended);
    let server = Frames::start(move |link: Link| {
        let ended = Arc::clone(&counting);
        async move {
            serve(link).await;
            ended.fetch_add(1, Ordering::SeqCst);
        }
    })
    .await;
    let (sink, mut outcomes) = open(server.trusted()).await;
    assert_eq!(send(&*sink, &mut outcomes, &server.url()).await, Outcome::Finished);
    until("the end of the connection", || ended.load(Ordering::SeqCst) == 1).await;
    assert_eq!(send(&*sink, &mut outcomes, &server.url()).await, Outcome::Finished);
}

#[tokio::test]
async fn a_connection_has_so_many_requests_and_what_waits_for_one_too_long_is_not_sent() {
    let _crowd = CROWD_LOCK.lock().await;
    let released = Arc::new(watch::Sender::new(false));
    let releasing = Arc::clone(&released);
    let server = Frames::start(move |mut link: Link| {
        let mut release = releasing.subscribe();
        async move {
            let mut streams = Vec::new();
            while streams.len() < STREAMS {
                // A host opens more connections until one turns out to be HTTP/2.
                let Some(stream) = link.request().await else { return };
                streams.push(stream);
            }
            release.wait_for(|released| *released).await.unwrap();
            for stream in streams {
                link.answer(stream).await;
            }
            serve(link).await;
        }
    })
    .await;
    let (sink, mut outcomes) = open(server.trusted()).await;
    sink.publish(numbered(&server.url(), STREAMS as u64)).await;
    until("a request for each stream", || server.requests() == STREAMS).await;
    let late = Publication {
        deadline: Some(Instant::now() + Duration::from_millis(50)),
        ..publication(1001, &server.url(), Message::new("x"))
    };
    sink.publish(vec![late]).await;
    assert_refused(
        &collect(&mut outcomes, 1).await[0],
        "never sent: 256 requests or connections (on HTTP/2 100 requests) wait for the host",
    );
    sink.publish(
        (2001..=2100).map(|token| publication(token, &server.url(), Message::new("x"))).collect(),
    )
    .await;
    released.send_replace(true);
    assert_eq!(collect(&mut outcomes, STREAMS + 100).await, vec![Outcome::Finished; STREAMS + 100]);
    assert_eq!(server.requests(), STREAMS + 100);
}

#[tokio::test]
async fn a_burst_to_a_host_that_has_no_connection_opens_one() {
    let ended = Arc::<AtomicUsize>::default();
    let counting = Arc::clone(&ended);
    let server = Frames::start(move |link: Link| {
        let ended = Arc::clone(&counting);
        async move {
            serve(link).await;
            ended.fetch_add(1, Ordering::SeqCst);
        }
    })
    .await;
    let (sink, mut outcomes) = open(server.trusted()).await;
    for burst in 1..=2 {
        sink.publish(numbered(&server.url(), 300)).await;
        assert_eq!(collect(&mut outcomes, 300).await, vec![Outcome::Finished; 300]);
        assert_eq!(server.connections(), burst, "at burst {burst}");
        until("the end of a connection without requests", || ended.load(Ordering::SeqCst) == burst)
            .await;
    }
}

#[tokio::test]
async fn long_answers_cost_their_connection_nothing() {
    let ended = Arc::<AtomicUsize>::default();
    let counting = Arc::clone(&ended);
    let server = Frames::start(move |mut link: Link| {
        let ended = Arc::clone(&counting);
        async move {
            let mut cancelled = Vec::new();
            while cancelled.len() < LONG_ANSWERS {
                let frame = link.frame().await.unwrap();
                match frame.kind {
                    HEADERS => {
                        // 200, which is number 8 of HPACK's table, and a body that does not end.
                        link.say(HEADERS, END_HEADERS, frame.stream, &[0x88]).await;
                        link.say(DATA, 0, frame.stream, &[b'x'; 5000]).await;
                    }
                    RST_STREAM => {
                        cancelled.push(frame.stream);
                        ended.fetch_add(1, Ordering::SeqCst);
                    }
                    _ => {}
                }
            }
            let last = link.request().await.unwrap();
            // These frames were under way when the client cancelled.
            for stream in cancelled {
                link.say(DATA, 0, stream, b"x").await;
            }
            link.answer(last).await;
            serve(link).await;
        }
    })
    .await;
    let (sink, mut outcomes) = open(server.trusted()).await;
    for number in 1..=LONG_ANSWERS {
        assert_eq!(
            send(&*sink, &mut outcomes, &server.url()).await,
            Outcome::Finished,
            "request {number}"
        );
    }
    until("the end of each stream", || ended.load(Ordering::SeqCst) == LONG_ANSWERS).await;
    for _ in 0..2 {
        assert_eq!(
            send(&*sink, &mut outcomes, &server.url()).await,
            Outcome::Finished,
            "after the late frames"
        );
    }
    assert_eq!(server.connections(), 1);
}
