//! Faults of the host of URLs.

use std::time::Duration;

use dwell::clock;

use super::Done;
use crate::chaos::history::Only;
use crate::chaos::system::{Error, Host, Manner, System};

fn of(system: &System) -> Result<&Host, Error> {
    system
        .host()
        .map(|host| &**host)
        .ok_or_else(|| Error::Unexpected("the system has no host of URLs".to_owned()))
}

pub(super) async fn down(system: &System, hold: Duration) -> Result<String, Error> {
    of(system)?.down(hold).await?;
    Ok("port and connections closed".to_owned())
}

pub(super) async fn behaves(
    system: &System,
    manner: Manner,
    hold: Duration,
) -> Result<String, Error> {
    of(system)?.behave(manner, hold).await;
    Ok(format!("{manner:?}"))
}

/// The jobs of the other hosts must be in time.
pub(super) async fn slow(system: &System, hold: Duration) -> Result<Done, Error> {
    let (host, from_us) = (of(system)?, clock::wall_us());
    host.behave(Manner::Slow, hold).await;
    let slow = host.slow_urls("/chaos/slow");
    Ok(Done::healed_beside(format!("{} hosts", slow.len()), from_us, Only::Targets(slow)))
}
