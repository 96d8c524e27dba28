//! Faults of any broker.

use std::time::Duration;

use dwell::clock;

use super::{both, start};
use crate::chaos::inject::in_flight::let_it_be_seen;
use crate::chaos::system::{Error, System};

pub(super) async fn kill(system: &System, hold: Duration) -> Result<String, Error> {
    let mut server = system.broker.server.lock().await;
    let frozen = server.freeze().map_err(Error::from);
    let_it_be_seen().await;
    let killed = frozen.and(server.kill().map_err(Error::from));
    clock::sleep(hold).await;
    let started = start(async || server.restart().await).await;
    both(killed, started)?;
    Ok(server.to_string())
}

pub(super) async fn freeze(system: &System, hold: Duration) -> Result<String, Error> {
    let server = system.broker.server.lock().await;
    server.freeze()?;
    clock::sleep(hold).await;
    server.thaw()?;
    Ok(server.to_string())
}

pub(super) async fn restart(system: &System, hold: Duration) -> Result<String, Error> {
    let mut server = system.broker.server.lock().await;
    let stopped = server.stop().await.map_err(Error::from);
    clock::sleep(hold).await;
    let started = start(async || server.restart().await).await;
    both(stopped, started)?;
    Ok(server.to_string())
}

/// Adds a partition. Nothing needs healing.
pub(super) async fn partition_added(system: &System, hold: Duration) -> Result<String, Error> {
    let count = system.broker.add_partition().await?;
    clock::sleep(hold).await;
    Ok(format!("{count} partitions"))
}
