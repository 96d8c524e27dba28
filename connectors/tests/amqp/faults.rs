//! A broker that is killed, frozen, or blocks publications.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dwell_connectors::{ErrorKind, Message, Outcome, Sink};

use crate::server::victim;
use crate::{TIMEOUT, at, collect, declared, numbered, options, publication, to};

/// SIGKILL under load, twice: confirmed messages exist after the restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_broker_loses_nothing_that_was_confirmed() {
    let server = victim().await;
    let broker = at(server.url());
    let queue = declared(&broker).await;
    // RabbitMQ 3.10 leaves a quorum queue without a leader for good if it is killed within seconds
    // after the declaration, because it writes its directory of queues late.
    server.ctl(&["eval", "[ok = dets:sync(Table) || Table <- dets:all()]."]).await;
    let (mut confirmed, mut next) = (HashSet::new(), 0);
    for _ in 0..2 {
        let (sink, mut outcomes) = broker.sink(TIMEOUT).await.unwrap();
        let sink: Arc<dyn Sink> = sink.into();
        let first = next;
        next += 20_000;
        let mut load = numbered(&to("", &queue), 20_000);
        for publication in &mut load {
            publication.token += first;
            publication.message.body = publication.token.to_string().into();
            publication.dedupe_id = publication.token.to_string();
        }
        let publishing = Arc::clone(&sink);
        tokio::spawn(async move {
            while !load.is_empty() {
                publishing.publish(load.split_off(load.len().saturating_sub(50))).await;
                tokio::task::yield_now().await;
            }
        });
        let (mut answered, mut killed) = (HashSet::new(), false);
        while let Some(batch) = tokio::time::timeout(TIMEOUT, outcomes.recv()).await.unwrap() {
            for (token, outcome) in batch {
                assert!(answered.insert(token), "{token} has two outcomes");
                match outcome {
                    Outcome::Confirmed => drop(confirmed.insert(token)),
                    Outcome::Unknown(_) | Outcome::Refused(_) => {}
                    other => panic!("{token}: {other:?}"),
                }
            }
            if !killed && confirmed.len() as u64 > first / 10 + 500 {
                killed = true;
                tokio::task::block_in_place(|| server.kill());
            }
        }
        assert!(killed && answered.len() < 20_001);
        tokio::task::block_in_place(|| server.run());
    }
    let source = broker.source(options(&queue)).await.unwrap();
    while !confirmed.is_empty() {
        let batch = tokio::time::timeout(TIMEOUT, source.recv())
            .await
            .unwrap_or_else(|_| panic!("{} are lost", confirmed.len()))
            .unwrap();
        for message in &batch.messages {
            confirmed.remove(&std::str::from_utf8(&message.body).unwrap().parse::<u64>().unwrap());
        }
        source.ack(batch.id).await.unwrap();
    }
}

/// A memory alarm blocks every connection that publishes: outcomes come nevertheless, and reading
/// goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocked_connection_refuses_and_comes_back() {
    let server = victim().await;
    let broker = at(server.url());
    let queue = declared(&broker).await;
    let publish_timeout = Duration::from_secs(2);
    let (sink, mut outcomes) = broker.sink(publish_timeout).await.unwrap();
    sink.publish(numbered(&to("", &queue), 10)).await;
    assert_eq!(collect(&mut outcomes, 10).await, vec![Outcome::Confirmed; 10]);
    let source = broker.source(options(&queue)).await.unwrap();
    let held = source.recv().await.unwrap();

    server.ctl(&["set_vm_memory_high_watermark", "0.000001"]).await;
    // The first publication after the alarm shows it. Earlier ones pass, and those on their way
    // then are unknown.
    let deadline = Instant::now() + TIMEOUT;
    let refused = loop {
        assert!(Instant::now() < deadline, "never blocked");
        let start = Instant::now();
        sink.publish(numbered(&to("", &queue), 10)).await;
        let outcomes = collect(&mut outcomes, 10).await;
        assert!(
            start.elapsed() < publish_timeout + Duration::from_secs(15),
            "it took {:?}",
            start.elapsed()
        );
        match &outcomes[9] {
            Outcome::Refused(why) => break why.clone(),
            Outcome::Confirmed | Outcome::Unknown(_) => {}
            other => panic!("{other:?}"),
        }
    };
    assert!(refused.contains("accepts no messages now") && refused.contains("memory"), "{refused}");
    let error = sink.exists(&to("", &queue)).await.unwrap_err();
    assert!(error.kind == ErrorKind::Disconnected && error.message.contains("memory"), "{error}");
    // Reading uses another connection.
    source.ack(held.id).await.unwrap();

    server.ctl(&["set_vm_memory_high_watermark", "0.4"]).await;
    let deadline = Instant::now() + TIMEOUT;
    loop {
        sink.publish(numbered(&to("", &queue), 1)).await;
        match &collect(&mut outcomes, 1).await[0] {
            Outcome::Confirmed => break,
            Outcome::Refused(_) if Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(20)).await
            }
            other => panic!("{other:?}"),
        }
    }
}

/// A silent connection is lost by its heartbeat; a blocked or silent sink can be dropped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_broker_is_given_up() {
    let server = victim().await;
    let broker = at(format!("{}?heartbeat=2", server.url()));
    let queue = declared(&broker).await;
    let source = broker.source(options(&queue)).await.unwrap();
    let (sink, mut outcomes) = broker.sink(Duration::from_secs(60)).await.unwrap();
    server.freeze(true);
    let start = Instant::now();
    sink.publish(numbered(&to("", &queue), 10)).await;
    let error = tokio::time::timeout(TIMEOUT, source.recv()).await.unwrap().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Disconnected, "{error}");
    let (mut unknown, mut refused) = (0, 0);
    while let Some(batch) = tokio::time::timeout(TIMEOUT, outcomes.recv()).await.unwrap() {
        unknown +=
            batch.iter().filter(|(_, outcome)| matches!(outcome, Outcome::Unknown(_))).count();
        refused +=
            batch.iter().filter(|(_, outcome)| matches!(outcome, Outcome::Refused(_))).count();
    }
    assert_eq!(unknown + refused, 10);
    assert!(start.elapsed() < Duration::from_secs(30), "it took {:?}", start.elapsed());

    // Opening does not wait forever either.
    let start = Instant::now();
    let Err(error) = broker.source(options(&queue)).await else {
        panic!("a source opened on a frozen server")
    };
    assert_eq!(error.kind, ErrorKind::Disconnected, "{error}");
    assert!(start.elapsed() < Duration::from_secs(30), "it took {:?}", start.elapsed());
    server.freeze(false);
}

/// Publications that wait for a channel keep their deadline, and are not sent after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_sent_after_its_deadline() {
    let server = victim().await;
    let broker = at(server.url());
    let queue = declared(&broker).await;
    let publish_timeout = Duration::from_millis(500);
    let (sink, mut outcomes) = broker.sink(publish_timeout).await.unwrap();
    server.freeze(true);
    let start = Instant::now();
    sink.publish(numbered(&to("", &queue), 3)).await;
    let refused = collect(&mut outcomes, 3).await;
    let took = start.elapsed();
    server.freeze(false);
    assert!(refused.iter().all(|outcome| matches!(outcome, Outcome::Refused(_))), "{refused:?}");
    assert!(took < Duration::from_secs(10), "it took {took:?}");
    // Once the channel is open, only the next publication arrives.
    let deadline = Instant::now() + TIMEOUT;
    loop {
        sink.publish(vec![publication(9, to("", &queue), Message::new("later"))]).await;
        match &collect(&mut outcomes, 1).await[0] {
            Outcome::Confirmed => break,
            other => assert!(Instant::now() < deadline, "{other:?}"),
        }
    }
    let source = broker.source(options(&queue)).await.unwrap();
    assert!(source.recv().await.unwrap().messages.iter().all(|message| message.body == "later"));
}
