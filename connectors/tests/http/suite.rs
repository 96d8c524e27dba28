//! The HTTP connector passes the suite of sinks on a real server.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use dwell_connectors::conformance::{Capabilities, Harness};
use dwell_connectors::{BrokerConfig, Message, Outcome};
use tokio::sync::MutexGuard;

use crate::CROWD_LOCK;
use crate::app::{Answer, App};
use crate::nginx::Nginx;

/// An application behind nginx.
struct Http {
    app: App,
    nginx: Nginx,
    /// HTTP/2 by TLS, instead of HTTP/1.1.
    is_http2: bool,
    names: AtomicU32,
    _crowd: MutexGuard<'static, ()>,
}

async fn http(is_http2: bool) -> Http {
    let crowd = CROWD_LOCK.lock().await;
    let app = App::start().await;
    Http {
        nginx: Nginx::start(app.address()),
        app,
        is_http2,
        names: AtomicU32::new(0),
        _crowd: crowd,
    }
}

/// The path of a topic, which is a URL.
fn path(topic: &str) -> &str {
    &topic[topic.rfind('/').unwrap()..]
}

#[async_trait::async_trait]
impl Harness for Http {
    fn broker(&self) -> BrokerConfig {
        BrokerConfig::Http(self.nginx.trusted())
    }
    fn can(&self) -> Capabilities {
        // Of sources, which HTTP has none of.
        Capabilities {
            ordered_headers: false,
            repeated_headers: false,
            keys: false,
            positions: false,
            timestamps: false,
            first_deliveries: false,
        }
    }
    fn fresh_name(&self) -> String {
        let path = format!("/topic-{}", self.names.fetch_add(1, Ordering::Relaxed));
        if self.is_http2 { self.nginx.tls_url(&path) } else { self.nginx.url(&path) }
    }
    async fn create(&self, topic: &str) {
        self.app.answer(path(topic), Answer::status(200));
    }
    async fn cut(&self) {
        self.nginx.kill();
    }
    async fn heal(&self) {
        self.nginx.run();
    }
    fn ack_timeout(&self) -> Option<Duration> {
        None
    }
    async fn arrived(&self, topic: &str, count: usize) -> Vec<Message> {
        self.app
            .arrived(path(topic), count)
            .await
            .into_iter()
            .map(|received| Message::new(received.body))
            .collect()
    }
    /// A time that no test reaches: requests wait for a slot of their host.
    fn publish_timeout(&self) -> Duration {
        Duration::from_secs(120)
    }
    fn taken(&self) -> Outcome {
        Outcome::Finished
    }
    /// A missing path is a server's answer like any other.
    fn is_missing(&self, outcome: &Outcome) -> bool {
        matches!(outcome, Outcome::Failed(why) if why.contains("404 Not Found"))
    }
    fn has_link(&self) -> bool {
        false
    }
}

mod http1 {
    dwell_connectors::sink_conformance_tests!(super::http(false));
}

mod http2 {
    dwell_connectors::sink_conformance_tests!(super::http(true));
}
