//! What happens to a broker of any kind.

use std::time::Duration;

use dwell::clock;

use super::{both, start};
use crate::chaos::fault::watch::let_it_be_seen;
use crate::chaos::world::{Error, World};

pub(super) async fn kill(world: &World, hold: Duration) -> Result<String, Error> {
    let mut server = world.broker.server.lock().await;
    let frozen = server.freeze().map_err(Error::from);
    let_it_be_seen().await;
    let killed = frozen.and(server.kill().map_err(Error::from));
    clock::sleep(hold).await;
    let started = start(async || server.restart().await).await;
    both(killed, started)?;
    Ok(server.to_string())
}

pub(super) async fn freeze(world: &World, hold: Duration) -> Result<String, Error> {
    let server = world.broker.server.lock().await;
    server.freeze()?;
    clock::sleep(hold).await;
    server.thaw()?;
    Ok(server.to_string())
}

pub(super) async fn restart(world: &World, hold: Duration) -> Result<String, Error> {
    let mut server = world.broker.server.lock().await;
    let stopped = server.stop().await.map_err(Error::from);
    clock::sleep(hold).await;
    let started = start(async || server.restart().await).await;
    both(stopped, started)?;
    Ok(server.to_string())
}
