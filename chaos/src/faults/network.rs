//! What happens to a link.

use std::time::Duration;

use dwell::clock;
use rand::RngExt;
use rand::rngs::StdRng;

use crate::proxy::{Direction, Flow, Proxy};
use crate::world::Error;

/// One way.
const SLOW: Duration = Duration::from_millis(100);
/// Bytes a second, on each connection.
const THIN: u32 = 20_000;

/// Mends the link whatever happens.
pub(super) struct Broken<'a>(&'a Proxy);

impl Drop for Broken<'_> {
    fn drop(&mut self) {
        self.0.mend();
    }
}

pub(super) async fn cut(link: &Proxy, hold: Duration) -> Result<String, Error> {
    let _broken = Broken(link);
    let open = link.open();
    link.cut();
    clock::sleep(hold).await;
    Ok(format!("{open} connections"))
}

/// Nothing goes from Dwell to the server while this lives.
pub(super) fn silenced(link: &Proxy) -> Broken<'_> {
    link.set(Direction::Up, Flow::Stall);
    Broken(link)
}

pub(super) async fn stall(link: &Proxy, hold: Duration) -> Result<String, Error> {
    flows(link, Some(Flow::Stall), Flow::Stall, hold).await
}

pub(super) async fn slow(link: &Proxy, hold: Duration) -> Result<String, Error> {
    flows(link, Some(Flow::Delay(SLOW)), Flow::Delay(SLOW), hold).await
}

pub(super) async fn slow_or_thin(link: &Proxy, rng: &mut StdRng, hold: Duration) -> Result<String, Error> {
    if rng.random() { slow(link, hold).await } else { flows(link, Some(Flow::Throttle(THIN)), Flow::Throttle(THIN), hold).await }
}

pub(super) async fn drop_answers(link: &Proxy, hold: Duration) -> Result<String, Error> {
    flows(link, None, Flow::Drop, hold).await
}

pub(super) async fn half_open(link: &Proxy, hold: Duration) -> Result<String, Error> {
    let open = link.open();
    let _stranded = link.strand();
    clock::sleep(hold).await;
    Ok(format!("{open} connections"))
}

async fn flows(link: &Proxy, up: Option<Flow>, down: Flow, hold: Duration) -> Result<String, Error> {
    let _broken = Broken(link);
    if let Some(up) = up {
        link.set(Direction::Up, up);
    }
    link.set(Direction::Down, down);
    clock::sleep(hold).await;
    Ok(format!("{} connections, {down:?}", link.open()))
}
