//! One instance of Dwell.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use dwell_testkit::servers::DwellServer;

use super::{Error, HostClock};
use crate::chaos::proxy::Proxy;

/// One instance of Dwell.
pub(crate) struct Instance {
    pub(crate) server: tokio::sync::Mutex<DwellServer>,
    /// Its own link to Redis, ahead of the link of all instances.
    pub(crate) redis: Proxy,
    pub(super) dir: PathBuf,
    pub(super) probes: SocketAddr,
    pub(super) http: SocketAddr,
}

impl Instance {
    pub(super) async fn start(
        program: PathBuf,
        settings: &str,
        clock: &HostClock,
        redis: Proxy,
    ) -> Result<Self, Error> {
        let mut server = DwellServer::prepare(program, settings)?;
        server.set_env(clock.environment().iter().map(|(name, value)| (*name, value.as_str())));
        server.keep_logs();
        server.restart().await?;
        let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let (probes, http, dir) =
            (at(server.port()), at(server.http_port()), server.dir().to_owned());
        Ok(Instance { server: tokio::sync::Mutex::new(server), redis, dir, probes, http })
    }
}
