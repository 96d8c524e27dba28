//! Servers at a distance: proxies between Dwell and its servers that delay each direction.

use std::time::Duration;

use dwell_connectors::conformance::proxy::{Direction, Flow, Proxy};

use super::{Result, start_broker};
use crate::servers::{BrokerKind, BrokerServer, RedisServer};

/// The time of the way to a server, and of the way back. Producers and consumers are next to the
/// broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Distance {
    /// To the broker.
    pub broker: Duration,
    /// To Redis.
    pub redis: Duration,
}

/// The proxies to both servers.
pub(super) struct Wires {
    distance: Distance,
    broker: Proxy,
    redis: Proxy,
}

impl Wires {
    /// Starts a broker, and proxies that lead to it and to Redis.
    pub(super) async fn start(
        kind: BrokerKind,
        redis: &RedisServer,
        distance: Distance,
    ) -> Result<(BrokerServer, Wires)> {
        let to_redis = Proxy::start(format!("127.0.0.1:{}", redis.port())).await?;
        let to_broker = Proxy::start("127.0.0.1:1").await?;
        let broker = start_broker(kind, Some(to_broker.address().port())).await?;
        let port =
            if let BrokerServer::Kafka(server) = &broker { server.link_port() } else { None };
        to_broker.lead_to(format!("127.0.0.1:{}", port.unwrap_or_else(|| broker.port())));
        let wires = Wires { distance, broker: to_broker, redis: to_redis };
        Ok((broker, wires))
    }

    /// The settings that lead through the proxies, which delay from now on.
    pub(super) fn settings(
        &self,
        text: &str,
        broker: &BrokerServer,
        redis: &RedisServer,
    ) -> String {
        for (proxy, one_way) in
            [(&self.broker, self.distance.broker), (&self.redis, self.distance.redis)]
        {
            for direction in [Direction::Up, Direction::Down] {
                proxy.set(
                    direction,
                    if one_way.is_zero() { Flow::Pass } else { Flow::Delay(one_way) },
                );
            }
        }
        let port = |proxy: &Proxy| format!(":{}", proxy.address().port());
        text.replace(&format!(":{}", broker.port()), &port(&self.broker))
            .replace(&format!(":{}", redis.port()), &port(&self.redis))
    }
}
