//! The NATS connector passes the suite on a real server.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use dwell_connectors::conformance::{Capabilities, Harness};
use dwell_connectors::{BrokerConfig, Destination, Role, conformance_tests, nats};

use crate::server::NatsServer;

struct Nats {
    server: NatsServer,
    names: AtomicU32,
}

const ACK_WAIT: Duration = Duration::from_millis(900);

async fn nats() -> Nats {
    Nats { server: NatsServer::start(""), names: AtomicU32::new(0) }
}

#[async_trait::async_trait]
impl Harness for Nats {
    fn broker(&self) -> BrokerConfig {
        BrokerConfig::Nats(nats::Config {
            ack_wait: Some(ACK_WAIT),
            ..nats::Config::at(self.server.url())
        })
    }
    fn can(&self) -> Capabilities {
        Capabilities {
            ordered_headers: false,
            repeated_headers: true,
            keys: false,
            positions: true,
            timestamps: true,
            first_deliveries: true,
        }
    }
    fn fresh_name(&self) -> String {
        format!("test.topic-{}", self.names.fetch_add(1, Ordering::Relaxed))
    }
    async fn create(&self, topic: &str) {
        self.broker().declare(&Destination::new(topic), Role::Ingest).await.unwrap();
    }
    async fn cut(&self) {
        self.server.kill();
    }
    async fn heal(&self) {
        self.server.run();
    }
    fn ack_timeout(&self) -> Option<Duration> {
        Some(ACK_WAIT)
    }
}

conformance_tests!(nats());
