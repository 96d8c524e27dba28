//! Faults of the host of URLs.

use std::time::Duration;

use crate::chaos::system::{Error, Host, Manner, System};

fn of(system: &System) -> Result<&Host, Error> {
    system.host().map(|host| &**host).ok_or_else(|| Error::Unexpected("the system has no host of URLs".to_owned()))
}

pub(super) async fn down(system: &System, hold: Duration) -> Result<String, Error> {
    of(system)?.down(hold).await?;
    Ok("port and connections closed".to_owned())
}

pub(super) async fn behaves(system: &System, manner: Manner, hold: Duration) -> Result<String, Error> {
    of(system)?.behave(manner, hold).await;
    Ok(format!("{manner:?}"))
}
