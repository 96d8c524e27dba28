//! Faults of any broker.

use dwell::clock;
use rustix::process::Signal;

use super::in_flight::let_it_be_seen;
use super::{Done, Injection, Outcome, back};

/// Ends the broker, by SIGKILL or by SIGTERM, and starts it again.
pub(super) async fn end(Injection { system, hold, .. }: Injection<'_>, by: Signal) -> Outcome {
    let mut server = system.broker.server.lock().await;
    let ended = if by == Signal::KILL {
        let frozen = server.freeze();
        let_it_be_seen().await;
        frozen.and(server.kill())
    } else {
        server.stop().await
    };
    back(hold, ended, async || server.restart().await).await?;
    Ok(Done::new(server.to_string()))
}

pub(super) async fn freeze(Injection { system, hold, .. }: Injection<'_>) -> Outcome {
    let server = system.broker.server.lock().await;
    server.freeze()?;
    clock::sleep(hold).await;
    server.thaw()?;
    Ok(Done::new(server.to_string()))
}

/// Adds a partition. Nothing needs healing.
pub(super) async fn partition_added(Injection { system, hold, .. }: Injection<'_>) -> Outcome {
    let count = system.broker.add_partition().await?;
    clock::sleep(hold).await;
    Ok(Done::new(format!("{count} partitions")))
}
