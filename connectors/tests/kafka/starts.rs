//! Partitions that a group gives to a source whose question where to begin fails. The cluster is librdkafka's own: no real one can be made to do it.

use dwell_connectors::{BrokerConfig, kafka};
use rdkafka::mocking::MockCluster;
use rdkafka::types::{RDKafkaApiKey as Api, RDKafkaRespErr as Fault};

use crate::{confirmed, numbered, numbers, options, read};

#[tokio::test]
async fn a_partition_is_read_though_the_coordinator_moved_while_it_was_asked() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("a", 1, 1).unwrap();
    let broker = BrokerConfig::Kafka(kafka::Config::at(cluster.bootstrap_servers()));
    confirmed(&broker, numbered("a", 3)).await;
    let source = broker.source(options("a")).await.unwrap();
    // Before its group has shared out.
    cluster.request_errors(Api::OffsetFetch, &[Fault::RD_KAFKA_RESP_ERR_NOT_COORDINATOR; 2]);
    assert_eq!(numbers(&read(&*source, 3).await), [1, 2, 3]);
    source.close().await.unwrap();
}
