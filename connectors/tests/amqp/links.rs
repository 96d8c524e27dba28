//! Lost connections beyond those of the suite.

use std::time::{Duration, Instant};

use dwell_connectors::ErrorKind;
use dwell_connectors::conformance::proxy::Proxy;

use crate::server::shared;
use crate::{TIMEOUT, at, declared, numbered, options, to};

#[tokio::test]
async fn closed_and_dropped_values_close_their_connections() {
    let proxy = Proxy::start(shared().await.address()).await.unwrap();
    let broker = at(format!("amqp://{}", proxy.address()));
    let queue = declared(&broker).await;
    for close in [true, false] {
        let source = broker.source(options(&queue)).await.unwrap();
        let (sink, mut outcomes) = broker.sink(Duration::from_secs(5)).await.unwrap();
        sink.publish(numbered(&to("", &queue), 3)).await;
        if close {
            source.close().await.unwrap();
            sink.close().await.unwrap();
        } else {
            drop((source, sink));
        }
        let mut count = 0;
        while let Some(batch) = tokio::time::timeout(TIMEOUT, outcomes.recv()).await.unwrap() {
            count += batch.len();
        }
        assert_eq!(count, 3);
    }
    let deadline = Instant::now() + TIMEOUT;
    while proxy.open() > 0 {
        assert!(Instant::now() < deadline, "{} connections are still open", proxy.open());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn what_is_handed_over_after_the_end_is_not_sent() {
    let proxy = Proxy::start(shared().await.address()).await.unwrap();
    let broker = at(format!("amqp://{}", proxy.address()));
    let queue = declared(&broker).await;
    let (sink, mut outcomes) = broker.sink(Duration::from_secs(5)).await.unwrap();
    proxy.cut();
    assert!(tokio::time::timeout(TIMEOUT, outcomes.recv()).await.unwrap().is_none());
    sink.publish(numbered(&to("", &queue), 3)).await;
    assert_eq!(sink.exists(&to("", &queue)).await.unwrap_err().kind, ErrorKind::Disconnected);
    proxy.heal();
    let source = broker.source(options(&queue)).await.unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(500), source.recv()).await.is_err());
}
