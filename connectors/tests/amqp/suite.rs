//! The AMQP connector passes the suite, on a real server. The server is shared: a proxy of each test's own is what is cut.

use std::time::Duration;

use dwell_connectors::conformance::{Capabilities, Harness};
use dwell_connectors::{BrokerConfig, Destination, Role, conformance_tests};

use crate::proxy::Proxy;
use crate::server::shared;
use crate::{at, fresh};

struct Amqp {
    proxy: Proxy,
}

async fn amqp() -> Amqp {
    Amqp { proxy: Proxy::start(shared().await.address()).await }
}

#[async_trait::async_trait]
impl Harness for Amqp {
    fn broker(&self) -> BrokerConfig {
        at(self.proxy.url())
    }
    fn can(&self) -> Capabilities {
        Capabilities {
            ordered_headers: false,
            repeated_headers: false,
            keys: false,
            positions: false,
            timestamps: false,
            first_deliveries: true,
        }
    }
    fn fresh_name(&self) -> String {
        fresh()
    }
    async fn create(&self, topic: &str) {
        self.broker().declare(&Destination::new(topic), Role::Ingest).await.unwrap();
    }
    async fn cut(&self) {
        self.proxy.cut();
    }
    async fn mend(&self) {
        self.proxy.mend();
    }
    fn patience(&self) -> Option<Duration> {
        None
    }
}

conformance_tests!(amqp());
