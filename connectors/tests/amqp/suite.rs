//! The AMQP connector passes the suite on a real, shared server. Tests that cut connections cut a
//! proxy of their own.

use std::time::{Duration, Instant};

use dwell_connectors::conformance::proxy::Proxy;
use dwell_connectors::conformance::{Capabilities, Harness};
use dwell_connectors::{BrokerConfig, Destination, Role, conformance_tests};

use crate::server::shared;
use crate::{TIMEOUT, at, fresh};

struct Amqp {
    proxy: Proxy,
}

async fn amqp() -> Amqp {
    Amqp { proxy: Proxy::start(shared().await.address()).await.unwrap() }
}

#[async_trait::async_trait]
impl Harness for Amqp {
    fn broker(&self) -> BrokerConfig {
        at(format!("amqp://{}", self.proxy.address()))
    }
    /// So many that the prefetch is `max_unsettled` from the start: a reader learns the size of its
    /// messages, and may ask for fewer than it could hold: too few where nothing is settled.
    fn arrived_bytes(&self) -> usize {
        64 << 30
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
    async fn heal(&self) {
        self.proxy.heal();
    }
    fn ack_timeout(&self) -> Option<Duration> {
        None
    }
    // A quorum queue may ignore the last acks before a channel closes (rabbitmq-server#10327): more
    // than 32 single acks are queued in the channel. `list_queues` answers for a quorum queue from
    // a table that is written every five seconds, so the leader is asked. RabbitMQ 4.3 takes the
    // name of the question, older ones the question itself.
    async fn worked_off(&self, topic: &str) {
        let total = format!(
            "{{ok, Queue}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<\"/\">>, queue, <<\"{topic}\">>)), \
             Ask = fun(What) -> {{ok, {{_, Total}}, _}} = ra:leader_query(amqqueue:get_pid(Queue), What), Total end, \
             try Ask(fun rabbit_fifo:query_messages_total/1) catch \
             error:function_clause -> Ask({{rabbit_fifo, query_messages_total, []}}) end."
        );
        let deadline = Instant::now() + TIMEOUT * 2;
        loop {
            let total = shared().await.ctl(&["eval", &total]).await;
            if total.trim() == "0" {
                return;
            }
            assert!(Instant::now() < deadline, "`{topic}` is not empty: {total}");
        }
    }
}

conformance_tests!(amqp());
