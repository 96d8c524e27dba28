//! Assigned partitions that are not read by themselves.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use dwell_connectors::{BrokerConfig, Message, Source, kafka};
use rdkafka::mocking::MockCluster;
use rdkafka::types::{RDKafkaApiKey as Api, RDKafkaRespErr as Fault};

use crate::server::shared;
use crate::{TIMEOUT, at, confirmed, create, fresh, numbered, numbers, options, publication, read};

/// On librdkafka's mock cluster: a real one cannot be made to do this.
#[tokio::test]
async fn a_partition_is_read_though_the_coordinator_moved_while_it_was_asked() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("a", 1, 1).unwrap();
    let broker = BrokerConfig::Kafka(kafka::Config::at(cluster.bootstrap_servers()));
    confirmed(&broker, numbered("a", 3)).await;
    let source = broker.source(options("a")).await.unwrap();
    // Before the first assignment of its group.
    cluster.request_errors(Api::OffsetFetch, &[Fault::RD_KAFKA_RESP_ERR_NOT_COORDINATOR; 2]);
    assert_eq!(numbers(&read(&*source, 3).await), [1, 2, 3]);
    source.close().await.unwrap();
}

/// Publishes one more message at a time until the source delivers something.
async fn until_it_reads(source: &dyn Source, broker: &BrokerConfig, topic: &str, last: &mut u64) {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        assert!(Instant::now() < deadline, "it reads nothing");
        *last += 1;
        confirmed(broker, vec![publication(*last, topic, Message::new(last.to_string()))]).await;
        if let Ok(batch) = tokio::time::timeout(Duration::from_millis(100), source.recv()).await {
            source.ack(batch.unwrap().id).await.unwrap();
            return;
        }
    }
}

#[tokio::test]
async fn a_partition_that_went_while_all_was_paused_is_read_when_it_is_back() {
    let (broker, topic) = (at(shared()), fresh("resumed"));
    create(shared(), &topic, 2, &[]).await;
    let mut last = 0;
    let first = broker.source(options(&topic)).await.unwrap();
    until_it_reads(&*first, &broker, &topic, &mut last).await;
    first.pause(true).await.unwrap();
    let second = broker.source(options(&topic)).await.unwrap();
    until_it_reads(&*second, &broker, &topic, &mut last).await;
    first.pause(false).await.unwrap();
    until_it_reads(&*first, &broker, &topic, &mut last).await;
    second.close().await.unwrap();
    // Without a key each goes to either partition.
    let mut missing: HashSet<u64> = (last + 1..=last + 40).collect();
    for number in missing.clone() {
        confirmed(&broker, vec![publication(number, &topic, Message::new(number.to_string()))])
            .await;
    }
    while !missing.is_empty() {
        let batch = tokio::time::timeout(TIMEOUT, first.recv())
            .await
            .unwrap_or_else(|_| panic!("{missing:?} did not come"))
            .unwrap();
        for number in numbers(&batch.messages) {
            missing.remove(&number);
        }
        first.ack(batch.id).await.unwrap();
    }
    first.close().await.unwrap();
}
