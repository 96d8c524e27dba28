//! Tests on librdkafka's mock broker: a single real broker cannot lack replicas, or be made to give
//! all these answers.

use std::time::{Duration, Instant};

use dwell_connectors::{
    BrokerConfig, Destination, ErrorKind, Message, Outcome, Publication, kafka,
};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr as Says};

use crate::{TIMEOUT, collect, numbered, publication};

#[tokio::test]
async fn what_a_broker_says_to_a_message_is_its_outcome() {
    let many = |says: Says| vec![says; 100];
    let then_too_few =
        |first: Says| [vec![first], many(Says::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS)].concat();
    let cases = [
        // Written, and refused only when it was sent again.
        (then_too_few(Says::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND), "Unknown"),
        (then_too_few(Says::RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT), "Unknown"),
        (then_too_few(Says::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION), "Unknown"),
        (many(Says::RD_KAFKA_RESP_ERR_KAFKA_STORAGE_ERROR), "Unknown"),
        (many(Says::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS), "Refused"),
        (many(Says::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND), "Unknown"),
        (many(Says::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED), "Unroutable"),
        (many(Says::RD_KAFKA_RESP_ERR_INVALID_RECORD), "Invalid"),
        // An election, and a slow one.
        (vec![Says::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION; 3], "Confirmed"),
        (vec![Says::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS; 2], "Confirmed"),
    ];
    for (says, expected) in cases {
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic("a", 1, 1).unwrap();
        let broker = BrokerConfig::Kafka(kafka::Config::at(cluster.bootstrap_servers()));
        let (sink, mut outcomes) = broker.sink(Duration::from_secs(15)).await.unwrap();
        cluster.request_errors(RDKafkaApiKey::Produce, &says);
        let start = Instant::now();
        sink.publish(numbered("a", 3)).await;
        for outcome in collect(&mut outcomes, 3).await {
            let shown = format!("{outcome:?}");
            assert!(shown.starts_with(expected), "{:?}: {shown}", says[0]);
        }
        // Sooner than a timeout.
        assert!(
            start.elapsed() < Duration::from_secs(30),
            "{:?} took {:?}",
            says[0],
            start.elapsed()
        );
        cluster.clear_request_errors(RDKafkaApiKey::Produce);
        if expected != "Unroutable" {
            // The producer still works.
            sink.publish(numbered("a", 3)).await;
            assert_eq!(
                collect(&mut outcomes, 3).await,
                vec![Outcome::Confirmed; 3],
                "{:?}",
                says[0]
            );
        }
        drop((sink, outcomes));
    }
}

#[tokio::test]
async fn a_producer_that_failed_for_good_ends_its_sink() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("a", 1, 1).unwrap();
    let broker = BrokerConfig::Kafka(kafka::Config::at(cluster.bootstrap_servers()));
    let (sink, mut outcomes) = broker.sink(Duration::from_secs(15)).await.unwrap();
    // For the first batch: the broker's expected sequence and the producer's differ for good.
    cluster.request_errors(
        RDKafkaApiKey::Produce,
        &[Says::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER],
    );
    sink.publish(numbered("a", 3)).await;
    let mut said = Vec::new();
    while let Some(batch) =
        tokio::time::timeout(TIMEOUT, outcomes.recv()).await.expect("outcomes end")
    {
        said.extend(batch);
    }
    assert_eq!(said.len(), 3);
    assert!(said.iter().all(|(_, outcome)| matches!(outcome, Outcome::Unknown(_))), "{said:?}");
    // A publication after the end is not sent.
    sink.publish(numbered("a", 3)).await;
    assert_eq!(
        sink.exists(&Destination::new("a")).await.unwrap_err().kind,
        ErrorKind::Disconnected
    );
}

/// Messages that wait for a partition without its broker were never sent.
#[tokio::test]
async fn a_partition_without_its_broker_refuses() {
    let cluster = MockCluster::new(2).unwrap();
    cluster.create_topic("away", 1, 1).unwrap();
    cluster.create_topic("here", 1, 1).unwrap();
    cluster.partition_leader("away", 0, Some(2)).unwrap();
    cluster.partition_leader("here", 0, Some(1)).unwrap();
    let broker = BrokerConfig::Kafka(kafka::Config::at(cluster.bootstrap_servers()));
    let (sink, mut outcomes) = broker.sink(Duration::from_secs(3)).await.unwrap();
    cluster.broker_down(2).unwrap();
    sink.publish(vec![
        publication(1, "away", Message::new("x")),
        publication(2, "here", Message::new("x")),
    ])
    .await;
    let outcomes = collect(&mut outcomes, 2).await;
    assert!(matches!(&outcomes[0], Outcome::Refused(_)), "{outcomes:?}");
    assert_eq!(outcomes[1], Outcome::Confirmed);
}

/// A new leader refuses a batch and accepts the next one: a broker without state of a producer
/// accepts any first sequence number. librdkafka, with both in flight, then takes the first for
/// delivered too (`IMPLICITACK`).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_confirmed_behind_a_refused_batch_is_there() {
    // If the refusal comes before the next batch is sent, the case does not occur.
    for _ in 0..20 {
        let cluster = MockCluster::new(1).unwrap();
        cluster.broker_round_trip_time(1, Duration::from_millis(50)).unwrap();
        // Each message is a batch.
        let large =
            (0..8).map(|token| publication(token, "a", Message::new(vec![b'x'; 10_000]))).collect();
        let said = answered_in_batches(
            &cluster,
            &[Says::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION],
            large,
            Some("16384"),
        )
        .await;
        assert!(
            said.iter().all(|outcome| matches!(outcome, Outcome::Confirmed | Outcome::Unknown(_))),
            "{said:?}"
        );
        let confirmed = said.iter().filter(|outcome| **outcome == Outcome::Confirmed).count();
        assert_eq!(confirmed, kept(&cluster).await, "{said:?}");
        if confirmed < 8 {
            return;
        }
    }
    panic!("no batch was taken before one that was refused");
}

/// librdkafka takes a reported duplicate for delivered, and counts offsets up from the missing one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_broker_calls_a_repeat_is_not_confirmed() {
    let cluster = MockCluster::new(1).unwrap();
    let said = answered_after(
        &cluster,
        &[Says::RD_KAFKA_RESP_ERR_DUPLICATE_SEQUENCE_NUMBER; 8],
        numbered("a", 8),
    )
    .await;
    assert!(said.iter().all(|outcome| matches!(outcome, Outcome::Unknown(_))), "{said:?}");
    assert_eq!(kept(&cluster).await, 0);
}

/// The outcomes of these publications to the topic `a`, through a new sink whose first requests get
/// these answers.
async fn answered_after(
    cluster: &MockCluster<'static, DefaultProducerContext>,
    says: &[Says],
    publications: Vec<Publication>,
) -> Vec<Outcome> {
    answered_in_batches(cluster, says, publications, None).await
}

/// The same with batches of this size.
async fn answered_in_batches(
    cluster: &MockCluster<'static, DefaultProducerContext>,
    says: &[Says],
    publications: Vec<Publication>,
    size: Option<&str>,
) -> Vec<Outcome> {
    cluster.create_topic("a", 1, 1).unwrap();
    let mut config = kafka::Config::at(cluster.bootstrap_servers());
    size.into_iter().for_each(|size| config.properties.set("batch.size", size));
    let broker = BrokerConfig::Kafka(config);
    let (sink, mut outcomes) = broker.sink(Duration::from_secs(15)).await.unwrap();
    cluster.request_errors(RDKafkaApiKey::Produce, says);
    let count = publications.len();
    sink.publish(publications).await;
    collect(&mut outcomes, count).await
}

/// The number of messages in the topic `a`.
async fn kept(cluster: &MockCluster<'static, DefaultProducerContext>) -> usize {
    let bootstrap = cluster.bootstrap_servers();
    let kept = tokio::task::spawn_blocking(move || {
        let reader: BaseConsumer =
            ClientConfig::new().set("bootstrap.servers", bootstrap).create().unwrap();
        reader.fetch_watermarks("a", 0, TIMEOUT).unwrap().1
    });
    usize::try_from(kept.await.unwrap()).unwrap()
}

/// An idempotent producer has one request in flight per partition: small batches would carry little
/// per round trip.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_round_trip_carries_all_that_waits() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("a", 1, 1).unwrap();
    cluster.broker_round_trip_time(1, Duration::from_millis(300)).unwrap();
    let broker = BrokerConfig::Kafka(kafka::Config::at(cluster.bootstrap_servers()));
    let (sink, mut outcomes) = broker.sink(Duration::from_secs(60)).await.unwrap();
    let start = Instant::now();
    sink.publish(
        (0..3000).map(|token| publication(token, "a", Message::new(vec![b'x'; 300]))).collect(),
    )
    .await;
    assert_eq!(collect(&mut outcomes, 3000).await, vec![Outcome::Confirmed; 3000]);
    assert!(start.elapsed() < Duration::from_secs(12), "it took {:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_never_sent_in_its_time_is_refused_and_not_sent_later() {
    let cluster = MockCluster::new(2).unwrap();
    cluster.create_topic("a", 1, 1).unwrap();
    cluster.create_topic("here", 1, 1).unwrap();
    cluster.partition_leader("a", 0, Some(2)).unwrap();
    cluster.partition_leader("here", 0, Some(1)).unwrap();
    let broker = BrokerConfig::Kafka(kafka::Config::at(cluster.bootstrap_servers()));
    let (sink, mut outcomes) = broker.sink(Duration::from_secs(60)).await.unwrap();
    cluster.broker_down(2).unwrap();
    let soon = Some(tokio::time::Instant::now() + Duration::from_secs(1));
    let late = (0..10).map(|token| Publication {
        deadline: soon,
        ..publication(token, "a", Message::new("late"))
    });
    let patient = (10..20).map(|token| publication(token, "a", Message::new("patient")));
    sink.publish(late.chain(patient).collect()).await;
    let said = collect(&mut outcomes, 10).await;
    assert!(said.iter().all(|outcome| matches!(outcome, Outcome::Refused(_))), "{said:?}");
    sink.publish(vec![publication(20, "here", Message::new("x"))]).await;
    assert_eq!(collect(&mut outcomes, 1).await, [Outcome::Confirmed]);
    cluster.broker_up(2).unwrap();
    assert_eq!(
        collect(&mut outcomes, 10).await,
        vec![Outcome::Confirmed; 10],
        "what has its time left is still sent"
    );
    assert_eq!(kept(&cluster).await, 10);
}

/// librdkafka increases its epoch up to 32 767 and restarts at 0; from then on a broker knows a
/// later epoch.
#[tokio::test]
async fn a_producer_whose_epochs_are_used_up_ends_its_sink_and_burns_nothing() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("a", 1, 1).unwrap();
    cluster.create_topic("b", 1, 1).unwrap();
    let broker = BrokerConfig::Kafka(kafka::Config::at(cluster.bootstrap_servers()));
    let (sink, mut outcomes) = broker.sink(Duration::from_secs(15)).await.unwrap();
    cluster
        .request_errors(RDKafkaApiKey::Produce, &[Says::RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH]);
    sink.publish(numbered("a", 1)).await;
    sink.publish((2..100).map(|token| publication(token, "b", Message::new("x"))).collect()).await;
    let mut said = Vec::new();
    while let Some(batch) =
        tokio::time::timeout(TIMEOUT, outcomes.recv()).await.expect("outcomes end")
    {
        said.extend(batch);
    }
    assert_eq!(said.len(), 99);
    // Messages in flight at the end are waited for.
    assert!(
        said.iter().all(|(_, outcome)| matches!(outcome, Outcome::Refused(_) | Outcome::Confirmed)),
        "{said:?}"
    );
    assert!(said.iter().any(|(_, outcome)| matches!(outcome, Outcome::Refused(_))), "{said:?}");
}

/// Confirms of other partitions of the topic say nothing about the one without a leader.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_without_its_leader_refuses_beside_one_that_takes_messages() {
    let cluster = MockCluster::new(2).unwrap();
    cluster.create_topic("a", 2, 1).unwrap();
    cluster.partition_leader("a", 0, Some(1)).unwrap();
    cluster.partition_leader("a", 1, Some(2)).unwrap();
    let broker = BrokerConfig::Kafka(kafka::Config::at(cluster.bootstrap_servers()));
    let (sink, mut outcomes) = broker.sink(Duration::from_secs(3)).await.unwrap();
    cluster.broker_down(2).unwrap();
    for turn in 0..15 {
        // Without a key, librdkafka spreads them.
        sink.publish((0..20).map(|n| publication(turn * 20 + n, "a", Message::new("x"))).collect())
            .await;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let said = collect(&mut outcomes, 300).await;
    let of =
        |name: &str| said.iter().filter(|outcome| format!("{outcome:?}").starts_with(name)).count();
    assert!(of("Confirmed") > 0 && of("Refused") > 0, "{} {}", of("Confirmed"), of("Refused"));
    assert_eq!(of("Confirmed") + of("Refused"), 300, "{said:?}");
}
