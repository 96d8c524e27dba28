//! A private Redis, and an instance without a broker of its own.

use dwell_testkit::environment::Result;
use dwell_testkit::servers::{AppendFsync, DwellServer, RedisOptions, RedisServer, find};
use dwell_testkit::usage::Usage;

/// Bytes in MiB.
pub(crate) fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// The servers.
pub(crate) struct Place {
    pub(crate) redis: RedisServer,
    pub(crate) dwell: DwellServer,
}

impl Place {
    /// Starts a Redis, and an instance with these more settings.
    pub(crate) async fn start(more: &str) -> Result<Place> {
        let appendonly = Some(AppendFsync::EverySec);
        let redis =
            RedisServer::start(RedisOptions { appendonly, ..RedisOptions::default() }).await?;
        let settings =
            format!("[redis]\nurls = [\"{}\"]\ndurability = \"memory\"\n\n{more}\n", redis.url());
        let dwell = DwellServer::start(find::dwell(), &settings).await?;
        Ok(Place { redis, dwell })
    }

    /// The usage of the instance and of Redis so far.
    pub(crate) fn used(&self) -> [Usage; 2] {
        [self.dwell.pid(), self.redis.pid()].map(|pid| Usage::of(pid).unwrap_or_default())
    }

    /// The port of the HTTP API.
    pub(crate) fn port(&self) -> u16 {
        self.dwell.http_port()
    }

    /// Stops both in order.
    pub(crate) async fn stop(mut self) -> Result<()> {
        self.dwell.stop().await?;
        self.redis.stop().await?;
        Ok(())
    }
}
