//! Brokers that stop and restart.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use dwell_connectors::{Destination, ErrorKind, Outcome, Role, SourceOptions};

use crate::server::{KafkaServer, shared};
use crate::{TIMEOUT, at, collect, declare, fresh, numbered, numbers, options, read};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_is_killed_under_load_loses_nothing_and_outcomes_are_true() {
    let server = KafkaServer::start("");
    let broker = at(&server);
    declare(&broker, "a").await;
    let total = 6000;
    let (mut said, mut seen) = (HashMap::new(), HashSet::new());
    let mut kills = 0;
    let deadline = Instant::now() + Duration::from_secs(90);
    let mut waiting = numbered("a", total);
    while !waiting.is_empty() {
        assert!(Instant::now() < deadline, "{} of {total} are answered", said.len());
        let Ok((sink, mut outcomes)) = broker.sink(Duration::from_secs(8)).await else {
            server.run();
            continue;
        };
        let mut out = 0;
        while !waiting.is_empty() || out > 0 {
            // A window, so that some are in flight and some not handed over when the broker stops.
            let next =
                waiting.split_off(waiting.len() - waiting.len().min(100_usize.saturating_sub(out)));
            out += next.len();
            sink.publish(next).await;
            if said.len() > (kills + 1) * 2000 && kills < 2 {
                kills += 1;
                server.kill();
            }
            let Some(batch) = tokio::time::timeout(TIMEOUT, outcomes.recv())
                .await
                .expect("outcomes come, or end")
            else {
                break;
            };
            out -= batch.len();
            for (token, outcome) in batch {
                assert!(
                    !matches!(outcome, Outcome::Unroutable(_) | Outcome::Invalid(_)),
                    "{outcome:?}"
                );
                assert!(said.insert(token, outcome).is_none(), "{token} has two outcomes");
            }
        }
    }
    assert_eq!(kills, 2);
    let count =
        |wanted: fn(&Outcome) -> bool| said.values().filter(|outcome| wanted(outcome)).count();
    let confirmed = count(|outcome| *outcome == Outcome::Confirmed);
    assert!(confirmed > 4000 && confirmed < total as usize, "{confirmed} were confirmed");

    let source = broker.source(SourceOptions { max_batch: 1000, ..options("a") }).await.unwrap();
    while let Ok(batch) = tokio::time::timeout(
        Duration::from_secs(if seen.len() < confirmed { 30 } else { 1 }),
        source.recv(),
    )
    .await
    {
        let batch = batch.unwrap();
        seen.extend(numbers(&batch.messages));
        source.ack(batch.id).await.unwrap();
    }
    for (token, outcome) in &said {
        match outcome {
            Outcome::Confirmed => {
                assert!(seen.contains(token), "{token} was confirmed and is not there")
            }
            Outcome::Refused(why) => {
                assert!(!seen.contains(token), "{token} was refused ({why}) and is there")
            }
            _ => {}
        }
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_a_clear_error() {
    let broker =
        dwell_connectors::BrokerConfig::Kafka(dwell_connectors::kafka::Config::at("127.0.0.1:1"));
    let start = Instant::now();
    let Err(error) = broker.source(options("a")).await else { panic!("opened") };
    assert_eq!(error.kind, ErrorKind::Disconnected);
    assert!(
        error.message.contains("127.0.0.1:1")
            && error.message.contains("refused")
            && !error.hint.is_empty(),
        "{error}"
    );
    let Err(error) = broker.sink(Duration::from_secs(5)).await else { panic!("opened") };
    assert_eq!(error.kind, ErrorKind::Disconnected);
    assert!(start.elapsed() < Duration::from_secs(30), "it took {:?}", start.elapsed());
}

#[tokio::test]
async fn a_broker_that_closes_idle_connections_ends_nothing() {
    let server = KafkaServer::start("connections.max.idle.ms=1000\n");
    let broker = at(&server);
    // On a busy machine a connection may count as idle while it opens.
    let deadline = Instant::now() + TIMEOUT;
    while let Err(error) = broker.declare(&Destination::new("a"), Role::Ingest).await {
        assert!(Instant::now() < deadline, "{error:?}");
    }
    let source = broker.source(options("a")).await.unwrap();
    let (sink, mut outcomes) = broker.sink(Duration::from_secs(5)).await.unwrap();
    let quiet = tokio::time::timeout(Duration::from_secs(6), async {
        tokio::select! {
            batch = source.recv() => format!("{batch:?}"),
            batch = outcomes.recv() => format!("{batch:?}"),
        }
    });
    if let Ok(came) = quiet.await {
        panic!("it ended: {came}");
    }
    sink.publish(numbered("a", 3)).await;
    assert_eq!(collect(&mut outcomes, 3).await, vec![Outcome::Confirmed; 3]);
    assert_eq!(numbers(&read(&*source, 3).await), [1, 2, 3]);
}

/// One thread runs everything here, so a blocking call would show.
#[tokio::test(flavor = "current_thread")]
async fn dropping_blocks_no_task() {
    let (broker, topic) = (at(shared()), fresh("dropped"));
    declare(&broker, &topic).await;
    let source = broker.source(options(&topic)).await.unwrap();
    let (sink, mut outcomes) = broker.sink(Duration::from_secs(5)).await.unwrap();
    sink.publish(numbered(&topic, 100)).await;
    let start = Instant::now();
    drop(source);
    drop(sink);
    assert!(start.elapsed() < Duration::from_secs(5), "it took {:?}", start.elapsed());
    // Publications in flight are reported, then the outcomes end.
    let mut confirmed = 0;
    while let Some(batch) = tokio::time::timeout(TIMEOUT, outcomes.recv()).await.unwrap() {
        confirmed += batch.iter().filter(|(_, outcome)| *outcome == Outcome::Confirmed).count();
    }
    assert_eq!(confirmed, 100);
}

#[tokio::test]
async fn a_group_that_takes_nobody_in_is_said() {
    let server = KafkaServer::start("group.max.session.timeout.ms=7000\n");
    let broker = at(&server);
    declare(&broker, "a").await;
    let source = broker.source(options("a")).await.unwrap();
    let error =
        tokio::time::timeout(TIMEOUT, source.recv()).await.expect("the source ends").unwrap_err();
    assert!(
        error.kind == ErrorKind::Config && error.hint.contains("`session.timeout.ms`"),
        "{error}"
    );
}
