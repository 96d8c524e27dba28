//! Answers that come before the body of their request was read, and streams that never open.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use dwell_connectors::{Message, Outcome, Publication};
use tokio::time::{Duration, Instant};

use crate::frames::{
    DATA, END_HEADERS, END_STREAM, Frames, HEADERS, Link, RST_STREAM, WINDOW_UPDATE,
};
use crate::raw::{Link as RawLink, Raw};
use crate::{
    CROWD_LOCK, assert_failed, assert_refused, assert_unknown, attempt, collect, local, open,
    publication, send,
};

/// The most requests on a connection, as servers say it.
const MAX_STREAMS: u32 = 100;
/// The number of the setting SETTINGS_MAX_CONCURRENT_STREAMS.
const MAX_CONCURRENT_STREAMS: u16 = 3;
/// More than a stream may send before its receiver reads.
const LARGE_BODY_BYTES: usize = 100_000;

fn most_streams(count: u32) -> Vec<u8> {
    [&MAX_CONCURRENT_STREAMS.to_be_bytes()[..], &count.to_be_bytes()].concat()
}

/// A message with a body of which a part cannot be sent before it is read.
fn large(token: u64, url: &str) -> Publication {
    publication(token, url, Message::new(Bytes::from(vec![b'x'; LARGE_BODY_BYTES])))
}

fn soon(publication: Publication) -> Publication {
    Publication { deadline: Some(Instant::now() + Duration::from_secs(20)), ..publication }
}

/// A status as HPACK has it: in full, by the name of entry 8.
fn status(code: u16) -> Vec<u8> {
    [&[8, 3], code.to_string().as_bytes()].concat()
}

/// Answers by headers alone as soon as the headers are there, and reads no body of more than a
/// frame. Counts the streams that the client has ended neither by the end of its body nor by a
/// reset.
async fn answer_early(mut link: Link, code: u16, open: Arc<AtomicUsize>) {
    let mut unread = HashMap::new();
    while let Some(frame) = link.frame().await {
        match frame.kind {
            HEADERS => {
                unread.insert(frame.stream, ());
                link.say(HEADERS, END_STREAM | END_HEADERS, frame.stream, &status(code)).await;
            }
            // The stream gets no more room, and the connection does.
            DATA if frame.length > 0 => drop(
                link.say(WINDOW_UPDATE, 0, 0, &u32::try_from(frame.length).unwrap().to_be_bytes())
                    .await,
            ),
            _ => {}
        }
        if ((frame.kind == DATA || frame.kind == HEADERS) && frame.ends) || frame.kind == RST_STREAM
        {
            unread.remove(&frame.stream);
        }
        open.store(unread.len(), Ordering::SeqCst);
    }
}

#[tokio::test]
async fn answers_that_come_before_the_body_was_read_use_up_no_stream() {
    for code in [413, 401, 200] {
        let unread = Arc::<AtomicUsize>::default();
        let counting = Arc::clone(&unread);
        let server = Frames::with(
            move |link: Link| answer_early(link, code, Arc::clone(&counting)),
            |_| most_streams(MAX_STREAMS),
        )
        .await;
        let (sink, mut outcomes) = open(server.trusted()).await;
        let url = server.url();
        let is_answer = |outcome: &Outcome| match code {
            200 => *outcome == Outcome::Finished,
            code => {
                matches!(outcome, Outcome::Failed(why) if why.starts_with(&format!("the target answered {code}")))
            }
        };
        sink.publish((1..=u64::from(MAX_STREAMS)).map(|token| large(token, &url)).collect()).await;
        let first = collect(&mut outcomes, MAX_STREAMS as usize).await;
        assert!(first.iter().all(is_answer), "{first:?}");
        sink.publish(
            (201..=240).map(|token| soon(publication(token, &url, Message::new("x")))).collect(),
        )
        .await;
        let then = collect(&mut outcomes, 40).await;
        assert!(then.iter().all(is_answer), "after {MAX_STREAMS} answers of {code}: {then:?}");
        assert_eq!(server.connections(), 1);
        crate::until("the end of each stream", || unread.load(Ordering::SeqCst) == 0).await;
    }
}

#[tokio::test]
async fn the_body_of_an_early_answer_is_read_and_the_rest_of_the_request_is_given_up() {
    let reset = Arc::<AtomicUsize>::default();
    let counting = Arc::clone(&reset);
    let server = Frames::start(move |mut link: Link| {
        let reset = Arc::clone(&counting);
        async move {
            while let Some(frame) = link.frame().await {
                match frame.kind {
                    HEADERS => {
                        link.say(HEADERS, END_HEADERS, frame.stream, &status(413)).await;
                        link.say(DATA, END_STREAM, frame.stream, b"at most 1 kB").await;
                    }
                    RST_STREAM => drop(reset.fetch_add(1, Ordering::SeqCst)),
                    _ => {}
                }
            }
        }
    })
    .await;
    let (sink, mut outcomes) = open(server.trusted()).await;
    sink.publish(vec![large(1, &server.url())]).await;
    assert_failed(
        &collect(&mut outcomes, 1).await[0],
        "the target answered 413 Payload Too Large: at most 1 kB",
    );
    crate::until("a reset of the stream", || reset.load(Ordering::SeqCst) == 1).await;
}

#[tokio::test]
async fn a_host_without_a_free_stream_is_sent_nothing_and_the_next_attempt_has_another_connection()
{
    let serve = |mut link: Link| async move {
        while let Some(stream) = link.request().await {
            link.answer(stream).await;
        }
    };
    let server =
        Frames::with(serve, |number| most_streams(if number == 1 { 0 } else { MAX_STREAMS })).await;
    let (sink, mut outcomes) = open(server.trusted()).await;
    let short = |token| Publication {
        deadline: Some(Instant::now() + Duration::from_secs(2)),
        ..publication(token, &server.url(), Message::new("x"))
    };
    sink.publish((1..=20).map(short).collect()).await;
    for outcome in collect(&mut outcomes, 20).await {
        assert_refused(&outcome, "never sent: ");
    }
    assert_eq!((server.requests(), server.connections()), (0, 1));
    assert_eq!(send(&*sink, &mut outcomes, &server.url()).await, Outcome::Finished);
    assert_eq!((server.requests(), server.connections()), (1, 2));
}

#[tokio::test]
async fn a_host_gets_no_more_requests_at_a_time_than_it_said_and_more_once_it_says_so() {
    let most = Arc::<AtomicUsize>::default();
    let counting = Arc::clone(&most);
    let server = Frames::with(
        move |mut link: Link| {
            let most = Arc::clone(&counting);
            async move {
                let mut streams =
                    vec![link.request().await.unwrap(), link.request().await.unwrap()];
                // A third one would have come with them.
                most.store(streams.len(), Ordering::SeqCst);
                link.settings(&most_streams(5)).await;
                while streams.len() < 5 {
                    streams.push(link.request().await.unwrap());
                }
                for stream in streams {
                    link.answer(stream).await;
                }
                while let Some(stream) = link.request().await {
                    link.answer(stream).await;
                }
            }
        },
        |_| most_streams(2),
    )
    .await;
    let (sink, mut outcomes) = open(server.trusted()).await;
    sink.publish(
        (1..=20).map(|token| publication(token, &server.url(), Message::new("x"))).collect(),
    )
    .await;
    assert_eq!(collect(&mut outcomes, 20).await, vec![Outcome::Finished; 20]);
    assert_eq!((most.load(Ordering::SeqCst), server.connections()), (2, 1));
}

#[tokio::test]
async fn a_host_that_says_nothing_on_http2_is_asked_on_another_connection() {
    let number = Arc::<AtomicUsize>::default();
    let server = Frames::start(move |mut link: Link| {
        let is_first = number.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            // Pings are answered all the while.
            while let Some(stream) = link.request().await {
                if !is_first {
                    link.answer(stream).await;
                }
            }
        }
    })
    .await;
    let (sink, mut outcomes) = open(server.trusted()).await;
    sink.publish(vec![Publication {
        deadline: Some(Instant::now() + Duration::from_millis(500)),
        ..publication(1, &server.url(), Message::new("x"))
    }])
    .await;
    assert_unknown(&collect(&mut outcomes, 1).await[0], "no answer within ");
    assert_eq!(send(&*sink, &mut outcomes, &server.url()).await, Outcome::Finished);
    assert_eq!(server.connections(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endless_run_of_interim_answers_ends_the_attempt() {
    let _crowd = CROWD_LOCK.lock().await;
    let raw = Raw::start(|mut link: RawLink| async move {
        link.request().await;
        let many = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(1000);
        while link.say(&many).await {}
    })
    .await;
    assert_unknown(
        &attempt(local(), &raw.url("/")).await,
        "the headers of the answer, with those of interim answers, are longer than 64 KiB",
    );
    let frames = Frames::start(|mut link: Link| async move {
        let stream = link.request().await.unwrap();
        while link.say(HEADERS, END_HEADERS, stream, &status(103)).await {}
    })
    .await;
    assert_unknown(
        &attempt(frames.trusted(), &frames.url()).await,
        "more than 100 interim answers came",
    );
}
