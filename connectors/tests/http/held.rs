//! Requests that their HTTP/2 connection holds back, because the reset of an earlier stream has not
//! gone out; and the other requests of this connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use dwell_connectors::{Message, Outcome, Outcomes, Publication, Sink};
use tokio::sync::watch;
use tokio::time::{Duration, Instant};

use crate::frames::{Frames, Link, WINDOW_UPDATE};
use crate::{assert_refused, collect, open, publication, send, until};

/// More than kernels keep of a connection that nobody reads.
const HUGE_BODY_BYTES: usize = 64 << 20;
/// The largest window, and the first one of a connection (RFC 9113 §6.9).
const MAX_WINDOW: u32 = (1 << 31) - 1;
const FIRST_WINDOW: u32 = 65_535;
/// More pings than `h2` keeps answers of while it cannot write: it has 16 KiB for those.
const MANY_PINGS: usize = 2000;

/// A server that takes so many requests at a time. Its first connection answers the last of these
/// before it reads the body, and the others after pings, once it goes on.
struct Clogged {
    server: Frames,
    /// The first connection goes on.
    go_on: watch::Sender<bool>,
    /// Connections that ended.
    ended: Arc<AtomicUsize>,
}

/// SETTINGS_MAX_CONCURRENT_STREAMS is `streams`, SETTINGS_INITIAL_WINDOW_SIZE the largest.
fn settings(streams: u32) -> Vec<u8> {
    [&[0, 3][..], &streams.to_be_bytes(), &[0, 4], &MAX_WINDOW.to_be_bytes()].concat()
}

/// Other tasks run until each of them waits.
async fn others() {
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
}

/// `reads_on`: the first connection reads all that came, once it goes on; else it breaks off.
async fn clogged(streams: u32, reads_on: bool) -> Clogged {
    let go_on = watch::Sender::new(false);
    let ended = Arc::<AtomicUsize>::default();
    let (going, counting, number) =
        (go_on.clone(), Arc::clone(&ended), Arc::<AtomicUsize>::default());
    let serve = move |mut link: Link| {
        let is_first = number.fetch_add(1, Ordering::SeqCst) == 0;
        let (mut go_on, ended) = (going.subscribe(), Arc::clone(&counting));
        async move {
            let more = MAX_WINDOW - FIRST_WINDOW;
            link.say(WINDOW_UPDATE, 0, 0, &more.to_be_bytes()).await;
            if is_first {
                let mut unanswered = Vec::new();
                for _ in 1..streams {
                    unanswered.push(link.request().await.unwrap());
                }
                let stream = link.request().await.unwrap();
                // The client sends of the body what the kernel takes.
                others().await;
                link.answer(stream).await;
                go_on.wait_for(|go_on| *go_on).await.unwrap();
                for stream in unanswered {
                    link.pings(MANY_PINGS).await;
                    link.answer(stream).await;
                }
            }
            while (reads_on || !is_first)
                && let Some(stream) = link.request().await
            {
                link.answer(stream).await;
            }
            drop(link);
            ended.fetch_add(1, Ordering::SeqCst);
        }
    };
    Clogged { server: Frames::with(serve, move |_| settings(streams)).await, go_on, ended }
}

fn huge(url: &str) -> Publication {
    publication(1, url, Message::new(Bytes::from(vec![b'x'; HUGE_BODY_BYTES])))
}

/// A request that is held back until its time is over.
async fn held(server: &Frames, sink: &dyn Sink, outcomes: &mut Outcomes) {
    sink.publish(vec![Publication {
        deadline: Some(Instant::now() + Duration::from_millis(500)),
        ..publication(2, &server.url(), Message::new("x"))
    }])
    .await;
    assert_refused(
        &collect(outcomes, 1).await[0],
        "never sent: the HTTP/2 connection of the host took no request within ",
    );
}

#[tokio::test]
async fn a_request_whose_stream_never_opened_is_refused_and_is_not_sent_later() {
    let Clogged { server, go_on, ended } = clogged(1, true).await;
    let (sink, mut outcomes) = open(server.trusted()).await;
    sink.publish(vec![huge(&server.url())]).await;
    assert_eq!(collect(&mut outcomes, 1).await, [Outcome::Finished]);
    held(&server, &*sink, &mut outcomes).await;
    go_on.send_replace(true);
    until("the end of the first connection", || ended.load(Ordering::SeqCst) == 1).await;
    assert_eq!(server.requests(), 1, "the refused request came after all");
    assert_eq!(send(&*sink, &mut outcomes, &server.url()).await, Outcome::Finished);
    assert_eq!((server.requests(), server.connections()), (2, 2));
}

#[tokio::test]
async fn a_request_that_was_sent_is_answered_after_another_of_its_connection_never_opened() {
    let Clogged { server, go_on, ended } = clogged(2, true).await;
    let (sink, mut outcomes) = open(server.trusted()).await;
    sink.publish(vec![publication(3, &server.url(), Message::new("x"))]).await;
    until("the first request", || server.requests() == 1).await;
    sink.publish(vec![huge(&server.url())]).await;
    assert_eq!(collect(&mut outcomes, 1).await, [Outcome::Finished]);
    held(&server, &*sink, &mut outcomes).await;
    go_on.send_replace(true);
    assert_eq!(collect(&mut outcomes, 1).await, [Outcome::Finished]);
    until("the end of the first connection", || ended.load(Ordering::SeqCst) == 1).await;
    assert_eq!((server.requests(), server.connections()), (2, 1));
}

#[tokio::test]
async fn a_request_whose_stream_had_not_opened_when_its_connection_ended_goes_on_another() {
    let Clogged { server, go_on, .. } = clogged(1, false).await;
    let (sink, mut outcomes) = open(server.trusted()).await;
    sink.publish(vec![huge(&server.url())]).await;
    assert_eq!(collect(&mut outcomes, 1).await, [Outcome::Finished]);
    sink.publish(vec![publication(2, &server.url(), Message::new("x"))]).await;
    // The request is held back.
    others().await;
    go_on.send_replace(true);
    assert_eq!(collect(&mut outcomes, 1).await, [Outcome::Finished]);
    assert_eq!((server.requests(), server.connections()), (2, 2));
}
