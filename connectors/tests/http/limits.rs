//! The number of requests, and so of connections, of a host at a time.

use std::sync::Arc;
use std::time::Duration;

use dwell_connectors::{Message, Outcome, Publication};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::raw::{Link, Raw};
use crate::{CROWD_LOCK, assert_refused, collect, local, numbered, open, publication, until};

/// The most requests of one host.
const MAX_REQUESTS_PER_HOST: usize = 256;
const ACCEPTED_ANSWER: &str = "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_has_so_many_connections_and_what_waits_for_one_too_long_is_not_sent() {
    let _crowd = CROWD_LOCK.lock().await;
    let released = Arc::new(watch::Sender::new(false));
    let releasing = Arc::clone(&released);
    let server = Raw::start(move |mut link: Link| {
        let mut release = releasing.subscribe();
        async move {
            while link.request().await.is_some() {
                release.wait_for(|released| *released).await.unwrap();
                link.say(ACCEPTED_ANSWER).await;
            }
        }
    })
    .await;
    let (sink, mut outcomes) = open(local()).await;
    sink.publish(numbered(&server.url("/"), MAX_REQUESTS_PER_HOST as u64)).await;
    until("a request in each slot", || server.requests() == MAX_REQUESTS_PER_HOST).await;

    let late = |token| Publication {
        deadline: Some(Instant::now() + Duration::from_millis(50)),
        ..waiting(token, &server)
    };
    sink.publish((1001..=1100).map(late).collect()).await;
    for outcome in collect(&mut outcomes, 100).await {
        assert_refused(
            &outcome,
            "never sent: 256 requests or connections (on HTTP/2 100 requests) wait for the host",
        );
    }
    // A request that waits for half of its time is not sent either: the host would lack time for
    // its answer.
    let deadline = Instant::now() + Duration::from_secs(8);
    sink.publish(vec![Publication { deadline: Some(deadline), ..waiting(1101, &server) }]).await;
    assert_refused(&collect(&mut outcomes, 1).await[0], "never sent");
    assert!(Instant::now() < deadline, "the wait for a slot took the whole attempt");
    sink.publish((2001..=2100).map(|token| waiting(token, &server)).collect()).await;
    assert_eq!((server.requests(), server.most()), (MAX_REQUESTS_PER_HOST, MAX_REQUESTS_PER_HOST));
    released.send_replace(true);
    assert_eq!(
        collect(&mut outcomes, MAX_REQUESTS_PER_HOST + 100).await,
        vec![Outcome::Confirmed; MAX_REQUESTS_PER_HOST + 100]
    );
    assert_eq!(server.requests(), MAX_REQUESTS_PER_HOST + 100);

    // Answers that come at once free requests and connections at different times.
    sink.publish(numbered(&server.url("/"), 10_000)).await;
    assert_eq!(collect(&mut outcomes, 10_000).await, vec![Outcome::Confirmed; 10_000]);
    assert!(server.most() <= MAX_REQUESTS_PER_HOST, "{} connections were open", server.most());
    until("the end of connections without requests", || server.open() == 0).await;
}

fn waiting(token: u64, server: &Raw) -> Publication {
    publication(token, &server.url("/"), Message::new("x"))
}

#[tokio::test]
async fn what_is_over_before_an_attempt_begins_is_not_sent() {
    let server = Raw::start(|mut link: Link| async move {
        while link.request().await.is_some() {
            link.say(ACCEPTED_ANSWER).await;
        }
    })
    .await;
    let (sink, mut outcomes) = open(local()).await;
    // Also where a connection is open.
    for number in 1..=2 {
        sink.publish(vec![Publication { deadline: Some(Instant::now()), ..waiting(1, &server) }])
            .await;
        assert_refused(&collect(&mut outcomes, 1).await[0], "never sent: ");
        sink.publish(vec![waiting(2, &server)]).await;
        assert_eq!(collect(&mut outcomes, 1).await, [Outcome::Confirmed]);
        assert_eq!(server.requests(), number);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_closes_each_connection_gets_all_requests() {
    let _crowd = CROWD_LOCK.lock().await;
    let server = Raw::start(|mut link: Link| async move {
        link.request().await;
        link.say("HTTP/1.1 202 Accepted\r\nconnection: close\r\n\r\n").await;
    })
    .await;
    let (sink, mut outcomes) = open(local()).await;
    sink.publish(numbered(&server.url("/"), 3000)).await;
    assert_eq!(collect(&mut outcomes, 3000).await, vec![Outcome::Confirmed; 3000]);
    assert_eq!(server.requests(), 3000, "nothing is sent twice");
}
