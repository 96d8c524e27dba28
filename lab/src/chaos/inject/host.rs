//! Faults of the host of URLs.

use dwell::clock;

use super::{Done, Injection, Outcome};
use crate::chaos::history::Only;
use crate::chaos::system::{Error, Host, Manner, System};

fn of(system: &System) -> Result<&Host, Error> {
    system.host.as_deref().ok_or_else(|| Error::unexpected("the system has no host of URLs"))
}

pub(super) async fn down(at: Injection<'_>) -> Outcome {
    of(at.system)?.down(at.hold).await?;
    Ok(Done::new("port and connections closed"))
}

pub(super) async fn behaves(at: Injection<'_>, manner: Manner) -> Outcome {
    of(at.system)?.behave(manner, at.hold).await;
    Ok(Done::new(format!("{manner:?}")))
}

/// The jobs of the other hosts must be in time.
pub(super) async fn slow(at: Injection<'_>) -> Outcome {
    let (host, from_us) = (of(at.system)?, clock::wall_us());
    host.behave(Manner::Slow, at.hold).await;
    let slow = host.slow_urls("/chaos/slow");
    Ok(Done::healed_beside(format!("{} hosts", slow.len()), from_us, Only::Targets(slow)))
}
