//! The Kafka connector passes the suite on a real broker.

use std::time::Duration;

use dwell_connectors::conformance::{Capabilities, Harness};
use dwell_connectors::{BrokerConfig, Destination, Role, conformance_tests};

use crate::server::{KafkaServer, shared};

enum Kafka {
    Shared(&'static KafkaServer),
    Own(KafkaServer),
}

impl Kafka {
    fn server(&self) -> &KafkaServer {
        match self {
            Kafka::Shared(server) => server,
            Kafka::Own(server) => server,
        }
    }
}

async fn kafka() -> Kafka {
    Kafka::Shared(shared())
}

/// A broker for one test.
async fn own_kafka() -> Kafka {
    Kafka::Own(KafkaServer::start(""))
}

#[async_trait::async_trait]
impl Harness for Kafka {
    fn broker(&self) -> BrokerConfig {
        crate::at(self.server())
    }
    fn can(&self) -> Capabilities {
        Capabilities {
            ordered_headers: true,
            repeated_headers: true,
            keys: true,
            positions: true,
            timestamps: true,
            first_deliveries: false,
        }
    }
    fn fresh_name(&self) -> String {
        crate::fresh("suite")
    }
    async fn create(&self, topic: &str) {
        self.broker().declare(&Destination::new(topic), Role::Ingest).await.unwrap();
    }
    async fn cut(&self) {
        self.server().kill();
    }
    async fn heal(&self) {
        self.server().run();
    }
    fn ack_timeout(&self) -> Option<Duration> {
        None
    }
}

conformance_tests!(kafka(), own_kafka());
