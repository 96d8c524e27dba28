//! A server that is killed or hangs while requests are open.

use std::time::Duration;

use dwell_connectors::{Message, Outcome, Publication, http};
use tokio::time::Instant;

use crate::app::{Answer, App};
use crate::nginx::Nginx;
use crate::{
    CROWD_LOCK, assert_failed, assert_unknown, attempt, collect, numbered, open, publication, send,
};

/// An application behind nginx: `/` answers, `/held` never.
async fn servers() -> (App, Nginx) {
    let app = App::start().await;
    app.answer("/", Answer::status(200));
    app.answer("/held", Answer::status(200).held());
    let nginx = Nginx::start(app.address());
    (app, nginx)
}

#[tokio::test]
async fn each_open_request_has_an_outcome_when_its_server_is_killed() {
    let (app, nginx) = servers().await;
    for place in [nginx.url(""), nginx.tls_url("")] {
        let before = (app.received("/").len(), app.received("/held").len());
        let (sink, mut outcomes) = open(nginx.trusted()).await;
        let each = |number: u64| {
            publication(
                number,
                &format!("{place}/{}", if number.is_multiple_of(2) { "held" } else { "" }),
                Message::new("x"),
            )
        };
        sink.publish((1..=40).map(each).collect()).await;
        // An answered request is confirmed, whatever comes after.
        assert_eq!(collect(&mut outcomes, 20).await, vec![Outcome::Finished; 20]);
        app.arrived("/held", before.1 + 20).await;
        nginx.kill();
        for outcome in collect(&mut outcomes, 20).await {
            assert_unknown(&outcome, "the connection ended before an answer: ");
        }
        assert_failed(&send(&*sink, &mut outcomes, &place).await, "refused");
        nginx.run();
        assert_eq!(send(&*sink, &mut outcomes, &place).await, Outcome::Finished);
        assert_eq!(
            (app.received("/").len(), app.received("/held").len()),
            (before.0 + 21, before.1 + 20),
            "nothing is sent twice"
        );
    }
}

#[tokio::test]
async fn a_host_that_hangs_holds_no_other_up() {
    let _crowd = CROWD_LOCK.lock().await;
    let ((hanging_app, hanging), (app, nginx)) = (servers().await, servers().await);
    let (sink, mut outcomes) = open(nginx.trusted()).await;
    assert_eq!(send(&*sink, &mut outcomes, &hanging.url("/")).await, Outcome::Finished);
    hanging.freeze(true);
    // More than the host has slots.
    sink.publish(numbered(&hanging.url("/"), 300)).await;
    sink.publish(numbered(&nginx.url("/"), 20)).await;
    assert_eq!(collect(&mut outcomes, 20).await, vec![Outcome::Finished; 20]);
    assert_eq!((hanging_app.received("/").len(), app.received("/").len()), (1, 20));
    hanging.freeze(false);
    assert_eq!(collect(&mut outcomes, 300).await, vec![Outcome::Finished; 300]);
    assert_eq!(hanging_app.received("/").len(), 301);
}

#[tokio::test]
async fn what_a_hanging_host_was_sent_is_open_at_the_deadline() {
    let (_app, nginx) = servers().await;
    let (sink, mut outcomes) = open(nginx.trusted()).await;
    for url in [nginx.url("/"), nginx.tls_url("/")] {
        assert_eq!(send(&*sink, &mut outcomes, &url).await, Outcome::Finished);
        nginx.freeze(true);
        let deadline = Some(Instant::now() + Duration::from_secs(2));
        sink.publish(vec![Publication { deadline, ..publication(1, &url, Message::new("x")) }])
            .await;
        assert_unknown(&collect(&mut outcomes, 1).await[0], "no answer within ");
        nginx.freeze(false);
        assert_eq!(send(&*sink, &mut outcomes, &url).await, Outcome::Finished);
    }
}

#[tokio::test]
async fn a_connection_that_fails_costs_no_attempt_that_came_later() {
    let (_app, nginx) = servers().await;
    nginx.freeze(true);
    // A connection has 3 s.
    let (sink, mut outcomes) =
        open(http::Config { timeout: "4s".to_owned(), ..nginx.trusted() }).await;
    let short = Publication {
        deadline: Some(Instant::now() + Duration::from_millis(100)),
        ..publication(1, &nginx.tls_url("/"), Message::new("x"))
    };
    sink.publish(vec![short]).await;
    assert_failed(
        &collect(&mut outcomes, 1).await[0],
        "the target cannot be reached: no connection within 1",
    );
    // The connection of the first is still being made.
    assert_failed(
        &send(&*sink, &mut outcomes, &nginx.tls_url("/")).await,
        "the target cannot be reached: no connection within 4.",
    );
}

#[tokio::test]
async fn a_host_that_hangs_before_tls_is_up_fails_the_attempt() {
    let (_app, nginx) = servers().await;
    nginx.freeze(true);
    let config = http::Config { timeout: "2s".to_owned(), ..nginx.trusted() };
    assert_failed(
        &attempt(config, &nginx.tls_url("/")).await,
        "the target cannot be reached: no connection within 1.5s",
    );
}
