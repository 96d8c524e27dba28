//! Lost connections beyond those of the suite.

use std::time::{Duration, Instant};

use dwell_connectors::conformance::proxy::Proxy;
use dwell_connectors::{Destination, ErrorKind, Outcome};

use crate::server::NatsServer;
use crate::{TIMEOUT, at, declare, numbered, options};

#[tokio::test]
async fn a_cut_link_stays_cut_although_the_server_lives() {
    let server = NatsServer::start("");
    let proxy = Proxy::start(server.url().trim_start_matches("nats://")).await.unwrap();
    let broker = at(format!("nats://{}", proxy.address()));
    declare(&broker, "a").await;
    let source = broker.source(options("a")).await.unwrap();
    let (sink, mut outcomes) = broker.sink(Duration::from_secs(5)).await.unwrap();
    let before = proxy.accepted();
    // Later messages pass.
    proxy.reset();

    let error = tokio::time::timeout(TIMEOUT, source.recv()).await.unwrap().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Disconnected);
    assert!(tokio::time::timeout(TIMEOUT, outcomes.recv()).await.unwrap().is_none());
    // A publication after the end is not sent, now or later.
    sink.publish(numbered("a", 3)).await;
    assert_eq!(
        sink.exists(&Destination::new("a")).await.unwrap_err().kind,
        ErrorKind::Disconnected
    );
    drop((sink, source));
    tokio::time::sleep(Duration::from_secs(1)).await;
    // Each of the three clients (a source has two) connects once more, and fails in its own login.
    // And the source may notice the end of its delivery connection before that of the other.
    assert!(proxy.accepted() <= before + 4, "{} new connections", proxy.accepted() - before);
    let stream = crate::context(&server).await.get_stream("DWELL_a").await.unwrap();
    assert_eq!(stream.cached_info().state.messages, 0);
}

#[tokio::test]
async fn closed_and_dropped_values_close_their_connections() {
    let server = NatsServer::start("");
    let proxy = Proxy::start(server.url().trim_start_matches("nats://")).await.unwrap();
    let broker = at(format!("nats://{}", proxy.address()));
    declare(&broker, "a").await;
    for close in [true, false] {
        let source = broker.source(options("a")).await.unwrap();
        let (sink, mut outcomes) = broker.sink(Duration::from_secs(5)).await.unwrap();
        sink.publish(numbered("a", 3)).await;
        if close {
            source.close().await.unwrap();
            sink.close().await.unwrap();
        } else {
            drop((source, sink));
        }
        while tokio::time::timeout(TIMEOUT, outcomes.recv()).await.unwrap().is_some() {}
    }
    let deadline = Instant::now() + TIMEOUT;
    while proxy.open() > 0 {
        assert!(Instant::now() < deadline, "{} connections are still open", proxy.open());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_silent_server_is_given_up() {
    let server = NatsServer::start("");
    let broker = at(server.url());
    declare(&broker, "a").await;
    let source = broker.source(options("a")).await.unwrap();
    let (sink, mut outcomes) = broker.sink(Duration::from_secs(60)).await.unwrap();
    server.freeze(true);
    let start = Instant::now();
    sink.publish(numbered("a", 10)).await;
    let error = tokio::time::timeout(TIMEOUT, source.recv()).await.unwrap().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Disconnected, "{error}");
    let mut unknown = 0;
    while let Some(batch) = tokio::time::timeout(TIMEOUT, outcomes.recv()).await.unwrap() {
        unknown +=
            batch.iter().filter(|(_, outcome)| matches!(outcome, Outcome::Unknown(_))).count();
    }
    assert_eq!(unknown, 10);
    assert!(start.elapsed() < Duration::from_secs(30), "it took {:?}", start.elapsed());

    // Opening does not wait forever either.
    let start = Instant::now();
    let Err(error) = broker.source(options("a")).await else {
        panic!("a source opened on a frozen server")
    };
    assert_eq!(error.kind, ErrorKind::Disconnected, "{error}");
    assert!(start.elapsed() < Duration::from_secs(30), "it took {:?}", start.elapsed());
    server.freeze(false);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_a_clear_error() {
    let Err(error) = at("nats://127.0.0.1:1").source(options("a")).await else { panic!("opened") };
    assert_eq!(error.kind, ErrorKind::Disconnected);
    assert!(error.message.contains("127.0.0.1:1") && error.message.contains("refused"), "{error}");
    let server = NatsServer::start("");
    // The second of two servers.
    let broker = at(format!("nats://127.0.0.1:1,{}", server.url()));
    declare(&broker, "a").await;
}
