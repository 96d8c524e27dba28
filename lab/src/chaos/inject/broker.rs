//! Faults of any broker.

use dwell::clock;

use super::in_flight::let_it_be_seen;
use super::{Injection, Outcome, both, start};
use crate::chaos::system::Error;

pub(super) async fn kill(Injection { system, hold, .. }: Injection<'_>) -> Outcome {
    let mut server = system.broker.server.lock().await;
    let frozen = server.freeze().map_err(Error::from);
    let_it_be_seen().await;
    let killed = frozen.and(server.kill().map_err(Error::from));
    clock::sleep(hold).await;
    let started = start(async || server.restart().await).await;
    both(killed, started)?;
    Ok(server.to_string().into())
}

pub(super) async fn freeze(Injection { system, hold, .. }: Injection<'_>) -> Outcome {
    let server = system.broker.server.lock().await;
    server.freeze()?;
    clock::sleep(hold).await;
    server.thaw()?;
    Ok(server.to_string().into())
}

pub(super) async fn restart(Injection { system, hold, .. }: Injection<'_>) -> Outcome {
    let mut server = system.broker.server.lock().await;
    let stopped = server.stop().await.map_err(Error::from);
    clock::sleep(hold).await;
    let started = start(async || server.restart().await).await;
    both(stopped, started)?;
    Ok(server.to_string().into())
}

/// Adds a partition. Nothing needs healing.
pub(super) async fn partition_added(Injection { system, hold, .. }: Injection<'_>) -> Outcome {
    let count = system.broker.add_partition().await?;
    clock::sleep(hold).await;
    Ok(format!("{count} partitions").into())
}
