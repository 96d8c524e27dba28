//! A private Redis, and an instance without a broker of its own.

use dwell_testkit::environment::Failure;
use dwell_testkit::servers::{AppendFsync, DwellServer, RedisOptions, RedisServer, find};

/// The servers.
pub(crate) struct Place {
    pub(crate) redis: RedisServer,
    pub(crate) dwell: DwellServer,
}

impl Place {
    /// Starts a Redis, and an instance with these more settings.
    pub(crate) async fn start(more: &str) -> Result<Place, Failure> {
        let aof = Some(AppendFsync::EverySec);
        let redis =
            RedisServer::start(RedisOptions { appendonly: aof, ..RedisOptions::default() }).await?;
        let settings =
            format!("[redis]\nurls = [\"{}\"]\ndurability = \"memory\"\n\n{more}\n", redis.url());
        let dwell = DwellServer::start(find::dwell(), &settings).await?;
        Ok(Place { redis, dwell })
    }

    /// The port of the HTTP API.
    pub(crate) fn port(&self) -> u16 {
        self.dwell.http_port()
    }

    /// Stops both in order.
    pub(crate) async fn stop(mut self) -> Result<(), Failure> {
        self.dwell.stop().await?;
        self.redis.stop().await?;
        Ok(())
    }
}
