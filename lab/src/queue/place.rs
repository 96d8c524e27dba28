//! A private Redis and instances without a broker.

use std::path::PathBuf;

use dwell_testkit::environment::Failure;
use dwell_testkit::servers::{AppendFsync, DwellServer, RedisOptions, RedisServer};

/// The servers.
pub(crate) struct Place {
    pub(crate) redis: RedisServer,
    pub(crate) dwells: Vec<DwellServer>,
}

impl Place {
    /// Starts a Redis with this append-only file, and so many instances of `program` with these
    /// more settings.
    pub(crate) async fn start(
        program: PathBuf,
        aof: Option<AppendFsync>,
        instances: usize,
        more: &str,
    ) -> Result<Place, Failure> {
        let redis =
            RedisServer::start(RedisOptions { appendonly: aof, ..RedisOptions::default() }).await?;
        let settings = format!(
            "[redis]\nurls = [\"{}\"]\ndurability = \"{}\"\n\n{more}\n",
            redis.url(),
            if aof == Some(AppendFsync::Always) { "fsync" } else { "memory" },
        );
        let mut dwells = Vec::new();
        for _ in 0..instances {
            dwells.push(DwellServer::start(program.clone(), &settings).await?);
        }
        Ok(Place { redis, dwells })
    }

    pub(crate) fn ports(&self) -> Vec<u16> {
        self.dwells.iter().map(DwellServer::http_port).collect()
    }
}
