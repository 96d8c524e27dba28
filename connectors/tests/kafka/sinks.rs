//! The broker's answers, as outcomes.

use std::time::{Duration, Instant};

use dwell_connectors::conformance::proxy::{Direction, Flow, Proxy};
use dwell_connectors::{Destination, ErrorKind, Message, Outcome, Value};

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::client::DefaultClientContext;

use crate::server::{KafkaServer, shared};
use crate::{
    TIMEOUT, at, collect, confirmed, create, declare, fresh, numbered, numbers, options,
    publication, publish, read, with,
};

#[tokio::test]
async fn what_is_too_large_is_invalid_and_takes_nothing_else_with_it() {
    let (broker, topic) = (at(shared()), fresh("small"));
    create(shared(), &topic, 1, &[("max.message.bytes", "20000")]).await;
    let body = |size: usize| Message::new(vec![b'x'; size]);
    let sizes = [100, 30_000, 15_000, 200, 5 << 20, 15_000, 300];
    let mut publications: Vec<_> = sizes
        .iter()
        .zip(1..)
        .map(|(size, token)| publication(token, &topic, body(*size)))
        .collect();
    // Headers count too.
    publications.push(publication(
        9,
        &topic,
        Message::new("x").with_header("h", "x".repeat(30_000)),
    ));
    let mut outcomes = publish(&broker, publications).await;
    let last = outcomes.pop().unwrap();
    assert!(matches!(last, Outcome::Invalid(_)), "{last:?}");
    for (size, outcome) in sizes.iter().zip(&outcomes) {
        match outcome {
            Outcome::Invalid(why) => {
                assert!(*size > 20_000 && why.contains(&topic), "{size}: {why}")
            }
            other => assert!(*size < 20_000 && *other == Outcome::Confirmed, "{size}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_topic_that_takes_less_than_a_batch_takes_each_message_of_it() {
    let (broker, topic, tiny) = (at(shared()), fresh("narrow"), fresh("tiny"));
    create(shared(), &topic, 3, &[("max.message.bytes", "50000")]).await;
    create(shared(), &tiny, 1, &[("max.message.bytes", "1000")]).await;
    let of = |topic: &str, from: u64, count: u64| -> Vec<_> {
        (from..from + count)
            .map(|token| publication(token, topic, Message::new(vec![b'x'; 500])))
            .collect()
    };
    let (sink, mut outcomes) = broker.sink(TIMEOUT).await.unwrap();
    sink.publish(of(&topic, 0, 1000)).await;
    sink.publish(of(&tiny, 1000, 50)).await;
    assert_eq!(collect(&mut outcomes, 1050).await, vec![Outcome::Confirmed; 1050]);
    // The limit is known now, and the others are not delayed.
    sink.publish(of(&topic, 0, 100)).await;
    assert_eq!(collect(&mut outcomes, 100).await, vec![Outcome::Confirmed; 100]);
    let source = broker.source(options(&topic)).await.unwrap();
    assert_eq!(read(&*source, 1100).await.len(), 1100);
}

#[tokio::test]
async fn what_was_taken_back_from_the_client_is_sent_once_by_a_real_broker_too() {
    let server = KafkaServer::start("");
    let (broker, count) = (at(&server), 40);
    declare(&broker, "a").await;
    let (sink, mut outcomes) = broker.sink(Duration::from_secs(30)).await.unwrap();
    sink.publish(numbered("a", 1)).await;
    assert_eq!(collect(&mut outcomes, 1).await, [Outcome::Confirmed]);
    // While the broker is frozen, one request is in flight, and the rest waits in the client.
    server.freeze(true);
    let named = |from: u64| {
        (from..from + count)
            .map(|number| publication(number, "a", Message::new(number.to_string())))
    };
    sink.publish(named(100).collect()).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let soon = Some(tokio::time::Instant::now() + Duration::from_secs(1));
    sink.publish(
        named(200).map(|late| dwell_connectors::Publication { deadline: soon, ..late }).collect(),
    )
    .await;
    sink.publish(named(300).collect()).await;
    let mut said = Vec::new();
    while said.len() < 40 {
        said.extend(
            tokio::time::timeout(TIMEOUT, outcomes.recv())
                .await
                .expect("they are given up in time")
                .expect("the link lives"),
        );
    }
    assert!(
        said.iter()
            .all(|(token, outcome)| (200..240).contains(token)
                && matches!(outcome, Outcome::Refused(_))),
        "{said:?}"
    );
    server.freeze(false);
    assert_eq!(collect(&mut outcomes, 80).await, vec![Outcome::Confirmed; 80]);
    sink.publish(numbered("a", 2).split_off(1)).await;
    assert_eq!(collect(&mut outcomes, 1).await, [Outcome::Confirmed]);
    let source = broker.source(options("a")).await.unwrap();
    let mut landed = numbers(&read(&*source, 82).await);
    landed.sort_unstable();
    let expected: Vec<u64> = [1, 2].into_iter().chain(100..140).chain(300..340).collect();
    assert_eq!(landed, expected);
}

#[tokio::test]
async fn a_topic_that_took_no_whole_batches_and_is_deleted_is_unroutable() {
    let (broker, topic) = (at(shared()), fresh("gone"));
    create(shared(), &topic, 1, &[("max.message.bytes", "1000")]).await;
    let (sink, mut outcomes) = broker.sink(Duration::from_secs(9)).await.unwrap();
    sink.publish(
        (0..50).map(|token| publication(token, &topic, Message::new(vec![b'x'; 500]))).collect(),
    )
    .await;
    assert_eq!(collect(&mut outcomes, 50).await, vec![Outcome::Confirmed; 50]);
    let admin: AdminClient<DefaultClientContext> =
        ClientConfig::new().set("bootstrap.servers", shared().address()).create().unwrap();
    admin
        .delete_topics(&[&topic], &AdminOptions::new().operation_timeout(Some(TIMEOUT)))
        .await
        .unwrap();
    tokio::task::spawn_blocking(move || drop(admin)).await.unwrap();
    let (mut told, deadline) = (0, Instant::now() + TIMEOUT);
    while told < 3 {
        assert!(Instant::now() < deadline, "{told} were told that the topic is gone");
        sink.publish(numbered(&topic, 1)).await;
        match &collect(&mut outcomes, 1).await[0] {
            Outcome::Unroutable(_) => told += 1,
            // In flight while the topic is deleted, or the client starts anew.
            Outcome::Confirmed | Outcome::Unknown(_) if told == 0 => {}
            other => panic!("{other:?}"),
        }
    }
}

/// A half-written request can be taken back only with its connection, and so with everything
/// written before it.
#[tokio::test]
async fn what_was_written_before_a_request_that_is_taken_back_is_unknown() {
    let proxy = Proxy::start("127.0.0.1:1").await.unwrap();
    let server =
        KafkaServer::start(&format!("advertised.listeners=CLIENTS://{}\n", proxy.address()));
    proxy.lead_to(server.address());
    let broker = with(&server, &[("socket.send.buffer.bytes", "65536")]);
    declare(&broker, "written").await;
    declare(&broker, "half").await;
    let (sink, mut outcomes) = broker.sink(Duration::from_secs(25)).await.unwrap();
    sink.publish(vec![
        publication(1, "written", Message::new("1")),
        publication(2, "half", Message::new("x")),
    ])
    .await;
    assert_eq!(collect(&mut outcomes, 2).await, vec![Outcome::Confirmed; 2]);

    // The broker has these two, and its answer is on its way.
    proxy.set(Direction::Down, Flow::Stall);
    let soon = Some(tokio::time::Instant::now() + Duration::from_secs(3));
    let late = |token, topic, body| dwell_connectors::Publication {
        deadline: soon,
        ..publication(token, topic, body)
    };
    let stored = || {
        std::fs::metadata(server.folder().join("data/written-0/00000000000000000000.log"))
            .unwrap()
            .len()
    };
    let before = stored();
    sink.publish(vec![
        publication(10, "written", Message::new("10")),
        late(11, "written", Message::new("11")),
    ])
    .await;
    let deadline = Instant::now() + TIMEOUT;
    while stored() == before {
        assert!(Instant::now() < deadline, "nothing is stored");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    proxy.set(Direction::Up, Flow::Stall);
    sink.publish(vec![late(20, "half", Message::new(vec![b'x'; 3 << 20]))]).await;
    let mut said = Vec::new();
    while !(said.iter().any(|(token, _)| *token == 11)
        && said.iter().any(|(token, _)| *token == 20))
    {
        said.extend(
            tokio::time::timeout(TIMEOUT, outcomes.recv())
                .await
                .expect("they are given up in time")
                .expect("the link lives"),
        );
    }
    proxy.heal();
    sink.publish(vec![publication(30, "written", Message::new("30"))]).await;
    while said.len() < 4 {
        said.extend(
            tokio::time::timeout(TIMEOUT, outcomes.recv())
                .await
                .expect("outcomes come")
                .expect("the link lives"),
        );
    }
    let source = broker.source(options("written")).await.unwrap();
    let mut landed = Vec::new();
    while !landed.contains(&30) {
        landed.extend(numbers(&read(&*source, 1).await));
    }
    assert_eq!(landed, [1, 10, 11, 30], "{said:?}");
    let is_unknown = |of| {
        said.iter().any(|(token, outcome)| *token == of && matches!(outcome, Outcome::Unknown(_)))
    };
    assert!(is_unknown(10) && is_unknown(11), "{said:?}");
}

#[tokio::test]
async fn what_can_never_pass_is_invalid_and_not_sent() {
    let (broker, topic) = (at(shared()), fresh("invalid"));
    declare(&broker, &topic).await;
    let mut table = Message::new("x");
    table.headers.push("t", Value::Table(vec![]));
    let mut publications = vec![publication(0, &topic, table)];
    publications.extend(
        ["a*", "a b", "", "..", "a\0b"]
            .iter()
            .zip(1..)
            .map(|(name, token)| publication(token, name, Message::new("x"))),
    );
    publications.push(publication(9, &topic, Message::new("x")));
    let outcomes = publish(&broker, publications).await;
    assert!(
        outcomes[..6].iter().all(|outcome| matches!(outcome, Outcome::Invalid(_))),
        "{outcomes:?}"
    );
    assert_eq!(outcomes[6], Outcome::Confirmed);
}

#[tokio::test]
async fn an_unknown_topic_is_unroutable_until_it_is_made() {
    let (broker, topic) = (at(shared()), fresh("unknown"));
    let (sink, mut outcomes) = broker.sink(Duration::from_secs(15)).await.unwrap();
    let start = Instant::now();
    sink.publish(numbered(&topic, 2)).await;
    for outcome in collect(&mut outcomes, 2).await {
        assert!(
            matches!(&outcome, Outcome::Unroutable(why) if why.contains(&topic)),
            "{outcome:?}"
        );
    }
    assert!(start.elapsed() < Duration::from_secs(30), "it took {:?}", start.elapsed());
    assert!(!sink.exists(&Destination::new(topic.clone())).await.unwrap());
    declare(&broker, &topic).await;
    assert!(sink.exists(&Destination::new(topic.clone())).await.unwrap());
    let deadline = Instant::now() + TIMEOUT;
    loop {
        sink.publish(numbered(&topic, 1)).await;
        match &collect(&mut outcomes, 1).await[0] {
            Outcome::Confirmed => break,
            Outcome::Unroutable(_) => assert!(
                Instant::now() < deadline,
                "the topic is there, and the sink does not see it"
            ),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_broker_that_makes_topics_takes_what_is_for_an_unknown_one() {
    let server = KafkaServer::start("auto.create.topics.enable=true\n");
    let broker = at(&server);
    let (sink, mut outcomes) = broker.sink(Duration::from_secs(10)).await.unwrap();
    let to = Destination::new("made.by.publishing");
    // Neither a question nor a reader creates a topic.
    for _ in 0..2 {
        assert!(!sink.exists(&to).await.unwrap());
    }
    let Err(error) = broker.source(options(&to.address)).await else {
        panic!("a source of a missing topic opened")
    };
    assert_eq!(error.kind, ErrorKind::Missing, "{error}");
    sink.publish(numbered(&to.address, 3)).await;
    assert_eq!(collect(&mut outcomes, 3).await, vec![Outcome::Confirmed; 3]);
    assert!(sink.exists(&to).await.unwrap());
}

#[tokio::test]
async fn a_silent_broker_is_given_up_and_every_token_answered_in_time() {
    let server = KafkaServer::start("");
    let broker = at(&server);
    declare(&broker, "a").await;
    let (warm, mut of_warm) = broker.sink(Duration::from_secs(4)).await.unwrap();
    let (cold, mut of_cold) = broker.sink(Duration::from_secs(4)).await.unwrap();
    warm.publish(numbered("a", 1)).await;
    assert_eq!(collect(&mut of_warm, 1).await, [Outcome::Confirmed]);
    server.freeze(true);
    let start = Instant::now();
    let named = |from: u64| {
        (from..from + 10)
            .map(|number| publication(number, "a", Message::new(number.to_string())))
            .collect()
    };
    warm.publish(named(10)).await;
    cold.publish(named(20)).await;
    // A sent message may be stored. A sink that has not published before may not have sent yet.
    let outcomes = collect(&mut of_warm, 10).await;
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Unknown(_))), "{outcomes:?}");
    let outcomes = collect(&mut of_cold, 10).await;
    assert!(
        outcomes.iter().all(|outcome| matches!(outcome, Outcome::Unknown(_) | Outcome::Refused(_))),
        "{outcomes:?}"
    );
    let refused: Vec<u64> = (20..)
        .zip(outcomes)
        .filter_map(|(number, outcome)| matches!(outcome, Outcome::Refused(_)).then_some(number))
        .collect();
    assert!(start.elapsed() < Duration::from_secs(30), "it took {:?}", start.elapsed());

    // Opening does not wait forever either.
    let start = Instant::now();
    let Err(error) = broker.source(options("a")).await else {
        panic!("a source opened on a frozen broker")
    };
    assert_eq!(error.kind, ErrorKind::Disconnected, "{error}");
    assert!(start.elapsed() < Duration::from_secs(30), "it took {:?}", start.elapsed());
    server.freeze(false);
    confirmed(&broker, vec![publication(99, "a", Message::new("99"))]).await;
    let source = broker.source(options("a")).await.unwrap();
    let mut landed = Vec::new();
    while !landed.contains(&99) {
        landed.extend(numbers(&read(&*source, 1).await));
    }
    assert!(
        !landed.iter().any(|number| refused.contains(number)),
        "{landed:?} landed, {refused:?} were refused"
    );
}

#[tokio::test]
async fn properties_that_break_a_promise_are_refused_by_name() {
    for (name, value) in [
        ("acks", "0"),
        ("enable.auto.commit", "true"),
        ("enable.idempotence", "false"),
        ("transactional.id", "x"),
    ] {
        let broker = with(shared(), &[(name, value)]);
        assert!(broker.problems()[0].contains(&format!("`{name}`")));
        let Err(error) = broker.sink(Duration::from_secs(5)).await else {
            panic!("a sink opened with {name}={value}")
        };
        assert!(
            error.kind == ErrorKind::Config
                && error.message.contains(&format!("`{name}` cannot be set")),
            "{error}"
        );
    }
    // Other properties are accepted.
    let (broker, topic) = (
        with(shared(), &[("compression.type", "zstd"), ("client.id", "mine"), ("linger.ms", "0")]),
        fresh("passed"),
    );
    declare(&broker, &topic).await;
    confirmed(&broker, numbered(&topic, 100)).await;
    let source = broker.source(options(&topic)).await.unwrap();
    assert_eq!(read(&*source, 100).await.len(), 100);
}

#[tokio::test]
async fn what_travels_with_an_invalid_message_is_not_invalid() {
    let (broker, topic) = (with(shared(), &[("linger.ms", "200")]), fresh("compacted"));
    // A compacted topic refuses a message without a key, and the rest of its batch.
    create(shared(), &topic, 1, &[("cleanup.policy", "compact")]).await;
    let keyed =
        |token| publication(token, &topic, Message { key: Some("k".into()), ..Message::new("x") });
    let (sink, mut outcomes) = broker.sink(Duration::from_secs(10)).await.unwrap();
    sink.publish(vec![keyed(1), publication(2, &topic, Message::new("x")), keyed(3)]).await;
    let said = collect(&mut outcomes, 3).await;
    assert!(
        matches!(&said[..], [Outcome::Confirmed, Outcome::Invalid(_), Outcome::Confirmed]),
        "{said:?}"
    );
    // The same with several invalid messages in a batch.
    let several = |token: u64| {
        if token.is_multiple_of(2) {
            publication(token, &topic, Message::new("x"))
        } else {
            keyed(token)
        }
    };
    sink.publish((1..=7).map(several).collect()).await;
    let said = collect(&mut outcomes, 7).await;
    let is_right = |(token, outcome): (u64, &Outcome)| match outcome {
        Outcome::Invalid(_) => token % 2 == 0,
        outcome => token % 2 == 1 && *outcome == Outcome::Confirmed,
    };
    assert!((1..).zip(&said).all(is_right), "{said:?}");
    sink.publish(vec![keyed(1), keyed(3)]).await;
    assert_eq!(collect(&mut outcomes, 2).await, vec![Outcome::Confirmed; 2]);
}
